"""FedAvg."""

from __future__ import annotations

from typing import ClassVar

from fedbench.method import MEAN, Algorithm, Counts, Record, Vectors, choice, positive, register, server_rate


@register("fedavg")
class FedAvg(Algorithm):
    """McMahan, Moore, Ramage, Hampson, Aguera y Arcas, "Communication-efficient learning of deep
    networks from decentralized data", AISTATS 2017, Algorithm 1.

        client:  y = theta;  K times  y <- y - eta grad F(y; xi)
        server:  theta <- theta + gamma sum_{i in S_t} w_i (y_i - theta)

    w_i = n_i / sum_{S_t} n_j (weighting=samples) or 1/S (uniform). Only the server keeps state: theta.
    Travels: up 1d, down 1d. eta = lr and gamma = server_lr (convention D) are tuned;
    server_lr=average is gamma = 1: theta <- sum_{i in S_t} w_i y_i.
    """

    paper = "McMahan et al., AISTATS 2017"
    problem_dependent: ClassVar[tuple[str, ...]] = ("lr", "server_lr")

    lr: float = positive(0.1)
    server_lr: float = server_rate(1.0, help=MEAN)
    weighting: str = choice("samples", ("uniform", "samples"))

    def server_step(self, server: Record, mean: Record, n: Counts, h: Record) -> Vectors:
        return {"theta": server.theta + h.server_lr * mean.delta}
