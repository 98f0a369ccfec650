"""SCAFFOLD-M."""

from __future__ import annotations

import torch
from torch import Tensor

from fedbench.method import (
    MEAN_OF_STEPS,
    Algorithm,
    Client,
    Counts,
    Record,
    Vectors,
    positive,
    register,
    server_rate,
    share,
)


@register("scaffold_m")
class ScaffoldM(Algorithm):
    """Cheng, Huang, Wu, Yuan, "Momentum benefits non-IID federated learning simply and provably",
    ICLR 2024 (SCAFFOLD-M).

        client:  m = beta c + (1-beta) g is received with theta;  y = theta
                 K times  f = grad F(y; xi);   q = beta (f - c_i) + m;   y <- y - eta q
                 c_i <- (1/K) sum_k f
        server:  g <- (1/(eta S K)) sum_{S_t} (theta - y_i);   theta <- theta - gamma g
                 c <- c + (1/N) sum_{S_t} (c_i+ - c_i)

    c_i, c and g start at 0 (inferred: the published step sizes contain the error of such a start). g is the
    mean of all local directions q. Clients sum these in a separate vector, since (theta - y)/eta loses digits
    in float32. A client keeps c_i. The server keeps theta, c and g. Travels: up 2d (mean of q, c_i+ - c_i),
    down 2d (theta, m). beta = 1 with gamma = eta K is SCAFFOLD with option 2.
    eta = lr, gamma = server_lr (convention G; average is gamma = eta K: theta <- mean_{S_t} y_i) and beta are
    tuned: the theory's values (`fedbench.theory`) need L, Delta, sigma^2 and G_0. The paper's grids are not
    known to us.
    """

    title = "SCAFFOLD-M"
    paper = "Cheng et al., ICLR 2024"
    problem_dependent = ("lr", "server_lr", "beta")
    convention = "G"
    own_step = "steps along directions with their own momentum, whose mean the server follows"

    lr: float = positive(0.1)
    server_lr: float = server_rate(1.0, help=MEAN_OF_STEPS)
    beta: float = share(0.2, help="weight of the new gradient; 1 is SCAFFOLD")

    def server_init(self, theta: Tensor, survey: Record, h: Record) -> Vectors:
        return {"theta": theta, "c": torch.zeros_like(theta), "g": torch.zeros_like(theta)}

    def client_init(self, theta: Tensor, survey: Record, h: Record) -> Vectors:
        return {"c": torch.zeros_like(theta)}

    def broadcast(self, server: Record, survey: Record, n: Counts, h: Record) -> Vectors:
        return {"theta": server.theta, "m": h.beta * server.c + (1 - h.beta) * server.g}

    def local_init(self, client: Client, h: Record) -> Vectors:
        zero = torch.zeros_like(client.down.theta)
        return {"y": client.down.theta, "u": zero, "a": zero}

    def local_step(self, local: Record, client: Client, h: Record) -> Vectors:
        f = client.grad(local.y)
        q = h.beta * (f - client.mine.c) + client.down.m
        return {"y": local.y - h.lr * q, "u": local.u + q, "a": local.a + f / client.steps}

    def local_final(self, local: Record, client: Client, h: Record) -> tuple[Vectors, Vectors]:
        return {"u": local.u / client.steps, "dc": local.a - client.mine.c}, {"c": local.a}

    def server_step(self, server: Record, mean: Record, n: Counts, h: Record) -> Vectors:
        return {
            "theta": server.theta - h.server_lr * mean.u,
            "g": mean.u,
            "c": server.c + (n.S / n.N) * mean.dc,
        }
