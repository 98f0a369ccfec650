"""AREA."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from fedbench.method import Algorithm, Client, Counts, Record, Vectors, positive, register


@register("area")
class AREA(Algorithm):
    """Iakovidou, Kim, "Asynchronous federated stochastic optimization for heterogeneous objectives under
    arbitrary delays", arXiv 2405.10123 (2024, version 3 of 2025): asynchronous exact averaging.

        at the start, all clients:  w_i = theta^0
        client:  y = theta^v;  K times  y <- y - eta grad F(y; xi);  sends y - w_i;  w_i <- y
        server, on S arrivals:  theta <- theta + (1/N) sum_j (y_j - w_{i(j)})
                 a client that has sent goes on at once, from the present theta

    The sum is divided by N, not S, so theta = (1/N) sum_i w_i after every update: each client counts once,
    however often it sends. There is no server rate and no staleness factor. All N clients work. A client
    keeps w_i, the model that it last trained. Travels: up 1d, down 1d. eta = lr is tuned. The method follows
    the authors' simulator and its documentation (the paper's listing was not at hand). The identity needs w_i
    to start at theta^0. It does not hold for batch norm's statistics, which become the mean of the S
    arrivals'.
    """

    paper = "Iakovidou and Kim, arXiv 2405.10123 (2024)"
    checked_by = "tests/algorithms/test_async_rederivations.py::test_follows_the_equations_job_by_job"
    problem_dependent = ("lr",)
    dispatch: ClassVar[dict[str, str]] = {"refill": "immediate", "pool": "self", "concurrency": "all"}

    lr: float = positive(0.1)

    def client_init(self, theta: Tensor, survey: Record, h: Record) -> Vectors:
        return {"w": theta}

    def local_final(self, local: Record, client: Client, h: Record) -> tuple[Vectors, Vectors]:
        return {"residual": local.y - client.mine.w}, {"w": local.y}

    def server_step(self, server: Record, mean: Record, n: Counts, h: Record) -> Vectors:
        return {"theta": server.theta + (n.S / n.N) * mean.residual}
