"""SCAFFOLD."""

from __future__ import annotations

import torch
from torch import Tensor

from fedbench.method import (
    MEAN,
    Algorithm,
    Client,
    Counts,
    Record,
    Setting,
    Vectors,
    choice,
    positive,
    register,
    server_rate,
)


class ControlVariates(Algorithm):
    """SCAFFOLD's clients with option 2, and the control variate c at the server."""

    def refusal(self, setting: Setting) -> str | None:
        if setting.optimizer.adaptive:
            why = "needs SGD's sum of directions, which an adaptive optimizer does not have"
            return f"{why} (optimizer={setting.optimizer.name})"
        return super().refusal(setting)

    def server_init(self, theta: Tensor, survey: Record, h: Record) -> Vectors:
        return {"theta": theta, "c": torch.zeros_like(theta)}

    def client_init(self, theta: Tensor, survey: Record, h: Record) -> Vectors:
        return {"c": torch.zeros_like(theta)}

    def broadcast(self, server: Record, survey: Record, n: Counts, h: Record) -> Vectors:
        return {"theta": server.theta, "c": server.c}

    def local_step(self, local: Record, client: Client, h: Record) -> Vectors:
        q = client.grad(local.y) - client.mine.c + client.down.c
        return {"y": client.descend(local.y, q, h.lr)}

    def control_variate(self, local: Record, client: Client, h: Record) -> Tensor:
        """c_i+ (d,)."""
        return client.mine.c - client.down.c + (client.down.theta - local.y) / (client.travelled * h.lr)

    def local_final(self, local: Record, client: Client, h: Record) -> tuple[Vectors, Vectors]:
        c = self.control_variate(local, client, h)
        return {"delta": local.y - client.down.theta, "dc": c - client.mine.c}, {"c": c}


@register("scaffold")
class Scaffold(ControlVariates):
    """Karimireddy, Kale, Mohri, Reddi, Stich, Suresh, "SCAFFOLD: stochastic controlled averaging for
    federated learning", ICML 2020, Algorithm 1.

        client:    y = theta;  K times  y <- y - eta (grad F(y; xi) - c_i + c)
        option 1:  c_i+ = grad f_i(theta)                      (one full local pass)
        option 2:  c_i+ = c_i - c + (theta - y) / (K eta)
        server:    theta <- theta + gamma mean_{S_t}(y_i - theta)
                   c     <- c + (1/N) sum_{S_t}(c_i+ - c_i)

    With local momentum (optimizer.momentum) a direction moves y more than once. Option 2 then divides by the
    sum of its directions' weights (`client.travelled`); divided by K, the c_i would grow without bound. An
    adaptive optimizer has no such sum, so option 2 is refused.
    c and all c_i start at 0. A client keeps c_i between its participations. The server keeps theta and c.
    Travels: up 2d (y_i - theta, c_i+ - c_i), down 2d (theta, c). eta = lr is tuned; gamma = server_lr
    (convention D) is 1 in the paper's experiments and sqrt(S) in its theory; average is gamma = 1:
    theta <- mean_{S_t} y_i.
    """

    title = "SCAFFOLD"
    paper = "Karimireddy et al., ICML 2020"
    problem_dependent = ("lr", "server_lr")

    lr: float = positive(0.05)
    server_lr: float = server_rate(1.0, help=MEAN)
    option: int = choice(2, (1, 2), help="1: full local gradient at theta; 2: mean of the local gradients")

    def __post_init__(self) -> None:
        self.full_gradient = self.option == 1

    def refusal(self, setting: Setting) -> str | None:
        if self.option == 2 and setting.optimizer.adaptive:
            return f"with option=2 {super().refusal(setting)}; give algorithm.option=1"
        return Algorithm.refusal(self, setting)

    def control_variate(self, local: Record, client: Client, h: Record) -> Tensor:
        return client.full_grad if self.option == 1 else super().control_variate(local, client, h)

    def server_step(self, server: Record, mean: Record, n: Counts, h: Record) -> Vectors:
        return {"theta": server.theta + h.server_lr * mean.delta, "c": server.c + (n.S / n.N) * mean.dc}
