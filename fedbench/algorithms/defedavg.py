"""DeFedAvg-IID and DeFedAvg-nIID."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fedbench.method import MEAN, Algorithm, Counts, Record, Vectors, positive, register, server_rate


@dataclass
class DelayedFedAvg(Algorithm):
    """The update of both variants, which differ in who receives the next model."""

    paper = "Wang et al., arXiv 2402.11198 (2024)"
    checked_by = "tests/algorithms/test_async_rederivations.py::test_follows_the_equations_job_by_job"
    problem_dependent = ("lr", "server_lr")

    lr: float = positive(0.1)
    server_lr: float = server_rate(1.0, help=MEAN)

    def server_step(self, server: Record, mean: Record, n: Counts, h: Record) -> Vectors:
        return {"theta": server.theta + h.server_lr * mean.delta}


@register("defedavg_iid")
class DeFedAvgIID(DelayedFedAvg):
    """Wang, Li, Jin, Zhang, "Achieving linear speedup in asynchronous federated learning with heterogeneous
    clients", arXiv 2402.11198 (2024), the variant for homogeneous data.

        client:  x = theta^v;  K times  x <- x - eta grad F(x; xi);  sends Delta = x - theta^v
        server, on S arrivals:  theta <- theta + (gamma/S) sum_j Delta_j
                 the S clients just aggregated receive the new theta and go on

    A reconstruction (the paper's listing was not at hand). All N clients work at the start. Only the server
    keeps state: theta. Travels: up 1d, down 1d. eta = lr and gamma = server_lr (convention D) are tuned;
    server_lr=average is gamma = 1: theta <- theta + (1/S) sum_j Delta_j, the mean of models where none is
    late.
    """

    title = "DeFedAvg-IID"
    dispatch: ClassVar[dict[str, str]] = {"refill": "at_aggregation", "pool": "self", "concurrency": "all"}


@register("defedavg_niid")
class DeFedAvgNonIID(DelayedFedAvg):
    """Wang, Li, Jin, Zhang, "Achieving linear speedup in asynchronous federated learning with heterogeneous
    clients", arXiv 2402.11198 (2024), the variant for heterogeneous data.

        client:  x = theta^v;  K times  x <- x - eta grad F(x; xi);  sends Delta = x - theta^v
        server, on S arrivals:  theta <- theta + (gamma/S) sum_j Delta_j
                 S clients drawn from all N with replacement receive the new theta; a busy one queues it

    So participation is uniform whatever the clients' speeds, at the price of larger staleness. A
    reconstruction (the paper's listing was not at hand). Only the server keeps state: theta. Travels: up 1d,
    down 1d. eta = lr and gamma = server_lr (convention D) are tuned; server_lr=average is gamma = 1:
    theta <- theta + (1/S) sum_j Delta_j, the mean of models where none is late.
    """

    title = "DeFedAvg-nIID"
    dispatch: ClassVar[dict[str, str]] = {"refill": "at_aggregation", "pool": "queue"}
