"""FedAvg-M (client momentum)."""

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


@register("fedavg_m")
class FedAvgMomentum(Algorithm):
    """Cheng, Huang, Wu, Yuan, "Momentum benefits non-IID federated learning simply and provably",
    ICLR 2024, Algorithm 1 (FedAvg-M). The same updates as FedCM (`fedcm`); not FedAvgM (`fedavgm`).

        client:  y = theta;  K times  q = beta grad F(y; xi) + (1-beta) g;   y <- y - eta q
        server:  g <- (1/(eta S K)) sum_{S_t} (theta - y_i);   theta <- theta - gamma g

    g starts at 0. It is the mean of all local directions q. Clients sum these in a separate vector, since
    (theta - y)/eta loses digits in float32. Only the server keeps state: theta and g. Travels: up 1d (mean of
    q), down 2d (theta, g). eta = lr, gamma = server_lr (convention G; the theory's value needs L) and beta
    are tuned; server_lr=average is gamma = eta K: theta <- mean_{S_t} y_i. beta = 1 is FedAvg. The paper's
    grids are not known to us; the defaults are values common in the field.
    """

    title = "FedAvg-M"
    paper = "Cheng et al., ICLR 2024"
    problem_dependent = ("lr", "server_lr", "beta")
    convention = "G"
    own_step = "steps along directions with their own momentum, whose mean the server follows"

    lr: float = positive(0.1)
    server_lr: float = server_rate(1.0, help=MEAN_OF_STEPS)
    beta: float = share(0.1, help="weight of the new gradient; 1 is FedAvg")

    def server_init(self, theta: Tensor, survey: Record, h: Record) -> Vectors:
        return {"theta": theta, "g": torch.zeros_like(theta)}

    def broadcast(self, server: Record, survey: Record, n: Counts, h: Record) -> Vectors:
        return {"theta": server.theta, "g": server.g}

    def local_init(self, client: Client, h: Record) -> Vectors:
        return {"y": client.down.theta, "u": torch.zeros_like(client.down.theta)}

    def local_step(self, local: Record, client: Client, h: Record) -> Vectors:
        q = h.beta * client.grad(local.y) + (1 - h.beta) * client.down.g
        return {"y": local.y - h.lr * q, "u": local.u + q}

    def local_final(self, local: Record, client: Client, h: Record) -> tuple[Vectors, Vectors]:
        return {"u": local.u / client.steps}, {}

    def server_step(self, server: Record, mean: Record, n: Counts, h: Record) -> Vectors:
        return {"theta": server.theta - h.server_lr * mean.u, "g": mean.u}
