"""DuDe-ASGD."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from fedbench.method import Algorithm, Client, Counts, Record, Vectors, positive, register


@register("dude_asgd")
class DuDeASGD(Algorithm):
    """Wang, Sun, Wai, Zhang, "Dual-delayed asynchronous SGD for arbitrarily heterogeneous data",
    arXiv 2405.16966 (2024); INFORMS J. Computing 2025.

        at the start, all clients:  G_i = grad F(theta^0; xi_i);  g = (1/N) sum_i G_i
        client:  one stochastic gradient G = grad F(theta^v; xi);  sends G - G_i;  G_i <- G
        server, on S arrivals:  g <- g + (1/N) sum_j (G - G_{i(j)});   theta <- theta - gamma g
                 the S clients receive the new theta and go on

    A step uses the latest, possibly stale gradients of ALL clients. All N clients work; K = 1. A client keeps
    G_i. The server keeps theta and g. Travels: up 1d, down 1d, and N d up, N d down once at the start.
    gamma = server_lr (it multiplies a gradient) is tuned. The method is reconstructed from the abstracts.
    """

    title = "DuDe-ASGD"
    paper = "Wang et al., arXiv 2405.16966 (2024)"
    checked_by = "tests/algorithms/test_async_rederivations.py::test_follows_the_equations_job_by_job"
    problem_dependent = ("server_lr",)
    no_average = "its clients send gradients, not models"
    own_step = "makes no local steps"
    survey = "once"
    fixed_steps = 1
    dispatch: ClassVar[dict[str, str]] = {"refill": "at_aggregation", "pool": "self", "concurrency": "all"}

    server_lr: float = positive(0.03)

    def server_init(self, theta: Tensor, survey: Record, h: Record) -> Vectors:
        return {"theta": theta, "g": survey.grad}

    def client_init(self, theta: Tensor, survey: Record, h: Record) -> Vectors:
        return {"G": survey.grad}

    def local_init(self, client: Client, h: Record) -> Vectors:
        return {"G": client.mine.G}

    def local_step(self, local: Record, client: Client, h: Record) -> Vectors:
        return {"G": client.grad(client.down.theta)}

    def local_final(self, local: Record, client: Client, h: Record) -> tuple[Vectors, Vectors]:
        return {"dG": local.G - client.mine.G}, {"G": local.G}

    def server_step(self, server: Record, mean: Record, n: Counts, h: Record) -> Vectors:
        g = server.g + (n.S / n.N) * mean.dG
        return {"theta": server.theta - h.server_lr * g, "g": g}
