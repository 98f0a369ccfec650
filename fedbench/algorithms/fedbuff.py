"""FedBuff."""

from __future__ import annotations

import torch
from torch import Tensor

from fedbench.method import (
    MEAN,
    Algorithm,
    Counts,
    Record,
    Vectors,
    decay,
    nonnegative,
    positive,
    register,
    server_rate,
)


@register("fedbuff")
class FedBuff(Algorithm):
    """Nguyen, Malik, Zhan, Yousefpour, Rabbat, Malek, Huba, "Federated learning with buffered asynchronous
    aggregation", AISTATS 2022, Algorithm 1.

        client:  x = theta^v;  K times  x <- x - eta grad F(x; xi);  sends Delta = x - theta^v
        server, on S arrivals:  D = (1/S) sum_j s(tau_j) Delta_j,  s(tau) = (1 + tau)^(-staleness_power)
                 v <- momentum v + D;   theta <- theta + gamma v

    The divisor is S, not the sum of the s(tau_j). Only the server keeps state: theta and v. Batch norm's
    statistics become the mean of the S arrivals', without s and gamma. Travels: up 1d, down 1d. Analyses and
    comparisons use staleness_power = 0 (no weighting), the paper's experiments 0.5.
    eta = lr and gamma = server_lr (convention D) are tuned. server_lr=average is gamma = 1 and needs
    momentum=0: theta <- theta + D, the mean of the clients' models where none is late.
    """

    paper = "Nguyen et al., AISTATS 2022"
    checked_by = "tests/algorithms/test_async_rederivations.py::test_follows_the_equations_job_by_job"
    problem_dependent = ("lr", "server_lr")
    server_momentum = True

    lr: float = positive(0.1)
    server_lr: float = server_rate(1.0, help=MEAN)
    staleness_power: float = nonnegative(0.0, help="0.5 in the paper's experiments")
    momentum: float = decay(0.0)

    def server_init(self, theta: Tensor, survey: Record, h: Record) -> Vectors:
        return {"theta": theta, "v": torch.zeros_like(theta)}

    def arrival_weight(self, staleness: Tensor, h: Record) -> Tensor:
        return (1.0 + staleness) ** (-h.staleness_power)

    def server_step(self, server: Record, mean: Record, n: Counts, h: Record) -> Vectors:
        v = h.momentum * server.v + mean.delta
        return {"theta": server.theta + h.server_lr * v, "v": v}
