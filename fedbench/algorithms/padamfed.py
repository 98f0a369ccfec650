"""PAdaMFed."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from fedbench.algorithms.ablations import Ablations
from fedbench.algorithms.normalised import Normalised
from fedbench.errors import ConfigError
from fedbench.method import (
    MEAN_OF_STEPS,
    THEOREM,
    Client,
    Counts,
    Record,
    Vectors,
    positive,
    register,
    server_rate,
    share,
    silent,
)
from fedbench.theory import stepsizes
from fedbench.theory.setting import numbers


@register("padamfed", Ablations)
class PAdaMFed(Normalised):
    """Yan, Zhang, Wang, Cao, "Problem-parameter-free federated learning", ICLR 2025, Algorithm 1.

        before round 0, all clients:  c_i = (1/K) sum_k grad F(theta^0; xi_k);  c = g = mean_i c_i
        client:  m = beta c + (1-beta) g is received with theta;  y = theta;  u = a = 0
                 K times  f = grad F(y; xi);  a <- a + f/K
                          q = beta f - beta c_i + m;   s = q / ||q||;   y <- y - eta s;   u <- u + s
                 c_i <- a
        server:  theta <- theta - gamma (1/(S K)) sum_{S_t} u_i
                 g <- beta (mean_{S_t}(a - c_i) + c) + (1-beta) g        with the OLD c
                 c <- c + (1/N) sum_{S_t}(a - c_i)

    The norm is over the whole vector (norm=tensor: one over each parameter tensor); q = 0 makes no step. u is
    summed in a separate vector, since (theta - y)/eta loses digits in float32. A client keeps c_i. The server
    keeps theta, c and g. Travels: up 2d (u/K, a - c_i), down 2d (theta, m), and once, before round 0, N d up
    and N d down. eta = lr, gamma = server_lr (convention G) and beta come from Theorem 1 and depend on S, K
    and T alone: eta = 1/(K sqrt(T)), gamma = (S K)^(1/4) / T^(3/4), beta = sqrt(S K / T), clamped to 1. The
    theorem gives only orders of magnitude, so `scale` multiplies its gamma (also in AdaMasFL and
    PAdaMFed-VR). server_lr=average is gamma = eta K, for any eta: theta <- mean_{S_t} y_i. Parts of the
    method can be switched off (`Ablations`).
    """

    paper = "Yan et al., ICLR 2025"
    own_step = "steps along directions of length 1"
    survey = "once"
    convention = "G"

    lr: float | None = positive(None, null=THEOREM)
    server_lr: float | None = server_rate(None, null=THEOREM, help=MEAN_OF_STEPS)
    beta: float | None = share(None, null=THEOREM)
    scale: float | None = positive(None, null="1", help="factor on the theorem's server_lr")

    def check(self) -> None:
        if self.scale is not None and self.server_lr is not None:
            needed = "multiplies the theorem's step size, so it needs algorithm.server_lr=null"
            raise ConfigError("algorithm.scale", self.scale, f"{needed}, not {self.server_lr}")

    def resolve(self, n: Counts, warn: Callable[[str], None] = silent) -> dict[str, float]:
        values = super().resolve(n, warn)
        scale = values.pop("scale", 1.0)  # not in h: the method uses only the product
        return {**values, "server_lr": scale * values["server_lr"]}

    def theorem(self, n: Counts) -> dict[str, float]:
        return numbers(stepsizes.padamfed(n))

    def server_init(self, theta: Tensor, survey: Record, h: Record) -> Vectors:
        return {"theta": theta, "c": survey.grad, "g": survey.grad}

    def client_init(self, theta: Tensor, survey: Record, h: Record) -> Vectors:
        return {"c": survey.grad}

    def broadcast(self, server: Record, survey: Record, n: Counts, h: Record) -> Vectors:
        return {"theta": server.theta, "m": h.beta * server.c + (1 - h.beta) * server.g}

    def local_init(self, client: Client, h: Record) -> Vectors:
        zero = torch.zeros_like(client.down.theta)
        return {"y": client.down.theta, "u": zero, "a": zero}

    def local_step(self, local: Record, client: Client, h: Record) -> Vectors:
        f = client.grad(local.y)
        s = self.unit(h.beta * (f - client.mine.c) + client.down.m)
        return {"y": local.y - h.lr * s, "u": local.u + s, "a": local.a + f / client.steps}

    def local_final(self, local: Record, client: Client, h: Record) -> tuple[Vectors, Vectors]:
        return {"u": local.u / client.steps, "dc": local.a - client.mine.c}, {"c": local.a}

    def server_step(self, server: Record, mean: Record, n: Counts, h: Record) -> Vectors:
        return {
            "theta": server.theta - h.server_lr * mean.u,
            "g": h.beta * (mean.dc + server.c) + (1 - h.beta) * server.g,
            "c": server.c + (n.S / n.N) * mean.dc,
        }
