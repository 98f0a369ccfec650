"""FedAvg-M (client momentum)."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from fedbench.method.hyper import positive, share
from fedbench.method.interface import Algorithm, Client, Counts, Vectors
from fedbench.method.registry import register


@register("fedavg_m")
class FedAvgMomentum(Algorithm):
    """Cheng, Huang, Wu, Yuan, "Momentum benefits non-IID federated learning simply and provably",
    ICLR 2024, Algorithm 1 (FedAvg-M). The same updates as FedCM (`fedcm`); not FedAvgM (`fedavgm`).

        client:  y = theta;  K times  q = beta grad F(y; xi) + (1-beta) g;   y <- y - eta q
        server:  g <- (1/(eta S K)) sum_{S_t} (theta - y_i);   theta <- theta - gamma g

    g starts at 0; it is the mean of all local directions q, which a client sums by itself, since
    (theta - y)/eta loses digits in float32. The server keeps theta and g, a client nothing.
    Travels: up 1d (mean of q), down 2d (theta, g). eta = lr, gamma = server_lr (convention G: eta K is
    plain averaging; no default, the theory's value needs L) and beta are tuned. beta = 1 is FedAvg.
    The paper's grids are not known to us; the yaml's are those of the field.
    """

    paper: ClassVar[str] = "Cheng et al., ICLR 2024"
    problem_dependent: ClassVar[tuple[str, ...]] = ("lr", "server_lr", "beta")

    lr: float = positive(0.1)
    server_lr: float | None = positive(None)
    beta: float = share(0.1)

    def server_init(self, theta: Tensor, survey: Any, h: Any) -> Vectors:
        return {"theta": theta, "g": torch.zeros_like(theta)}

    def broadcast(self, server: Any, survey: Any, n: Counts, h: Any) -> Vectors:
        return {"theta": server.theta, "g": server.g}

    def local_init(self, down: Any, mine: Any, client: Client, h: Any) -> Vectors:
        return {"y": down.theta, "u": torch.zeros_like(down.theta)}

    def local_step(self, local: Any, down: Any, mine: Any, client: Client, h: Any) -> Vectors:
        q = h.beta * client.grad(local.y) + (1 - h.beta) * down.g
        return {"y": local.y - h.lr * q, "u": local.u + q}

    def local_final(
        self, local: Any, down: Any, mine: Any, client: Client, h: Any
    ) -> tuple[Vectors, Vectors]:
        return {"u": local.u / client.steps}, {}

    def server_step(self, server: Any, mean: Any, n: Counts, h: Any) -> Vectors:
        return {"theta": server.theta - h.server_lr * mean.u, "g": mean.u}
