"""APFL."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from fedbench.algorithms.fedavg import FedAvg
from fedbench.method import Client, Record, Vectors, register, share, switch


@register("apfl")
class APFL(FedAvg):
    """Deng, Kamani, Mahdavi, "Adaptive personalized federated learning", arXiv:2003.13461, 2020, Algorithm 1.

    A client's model is a mixture of the global model and one of its own, v_i:

        client:  w = theta;  K times, on one mini-batch, with m = alpha_i v_i + (1 - alpha_i) w:
                     g = grad F(m; xi);   w <- w - eta grad F(w; xi);   v_i <- v_i - eta alpha_i g
                     adaptive:  alpha_i <- alpha_i - eta <v_i - w, g>, cut to [0, 1]        (v_i, w: before)
        server:  theta <- theta + gamma sum_{i in S_t} w_i (w - theta)

    v_i starts at theta^0, alpha_i at alpha. A client evaluates alpha_i v_i + (1 - alpha_i) theta with the
    newest theta. v_i takes plain steps, whatever `optimizer=` moves w. Batch norm's statistics are those of
    w. Travels: up 1d, down 1d; a client keeps 1d and alpha_i. eta = lr, gamma = server_lr (convention D: 1)
    and alpha (0.25 to 0.75) are tuned.
    """

    paper = "Deng et al., 2020"
    schedules: ClassVar[tuple[str, ...]] = ("sync",)  # under arrivals v_i is not known while a client works
    problem_dependent = ("lr", "server_lr", "alpha")

    alpha: float = share(0.5, help="weight of a client's own model in its mixture, at first")
    adaptive: bool = switch(False, help="alpha_i follows its gradient")

    def client_init(self, theta: Tensor, survey: Record, h: Record) -> Vectors:
        return {"v": theta, "alpha": h.alpha}

    def local_init(self, client: Client, h: Record) -> Vectors:
        return {"y": client.down.theta, "v": client.mine.v, "alpha": client.mine.alpha}

    def local_step(self, local: Record, client: Client, h: Record) -> Vectors:
        alpha, of_y = local.alpha, client.grad(local.y)
        g = client.grad(alpha * local.v + (1 - alpha) * local.y)
        moved = (alpha - h.lr * (local.v - local.y).dot(g)).clamp(0, 1) if self.adaptive else alpha
        y = client.descend(local.y, of_y, h.lr)
        return {"y": y, "v": local.v - h.lr * alpha * g, "alpha": moved}

    def local_final(self, local: Record, client: Client, h: Record) -> tuple[Vectors, Vectors]:
        return {"delta": local.y - client.down.theta}, {"v": local.v, "alpha": local.alpha}

    def personal(self, server: Record, mine: Record) -> Tensor:
        return mine.alpha * mine.v + (1 - mine.alpha) * server.theta
