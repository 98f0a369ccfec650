"""MasFL."""

from __future__ import annotations

import torch
from torch import Tensor

from fedbench.method import (
    MEAN_OF_STEPS,
    THEOREM,
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
from fedbench.theory.stepsizes import momentum_weight


@register("masfl")
class MasFL(Algorithm):
    """Yan, Zhong, Wang, Zhang, "Momentum-driven adaptivity: towards tuning-free asynchronous federated
    learning", ICML 2025 (MasFL).

        at the start, all clients:  c_i = (1/K) sum_k grad F(theta^0; xi_k);  c = g = mean_i c_i
        client:  receives theta^v and p^v = beta c + (1-beta) g;  x = theta^v;  A = 0
                 K times  q = grad F(x; xi);  A <- A + q;  x <- x - eta (beta (q - c_i) + p^v)
                 G = A/K;  sends G - c_i;  c_i <- G
        server, on S arrivals:  D/S = mean(G - c_i)
                 g <- beta (D/S + c) + (1-beta) g         with the OLD c
                 theta <- theta - gamma g                 with the NEW g
                 c <- c + D/N

    The server combines its current c and g, however stale the p^v that the clients used. A client keeps c_i.
    The server keeps theta, c and g. Travels: up 1d, down 2d (theta, p), and N d up, N d down once at the
    start. Without delays it is SCAFFOLD-M started at the survey's gradients. beta = sqrt(S K / T) (Theorem 1,
    clamped to 1); eta = lr and gamma = server_lr (convention G) depend on L and tau_max and are tuned.
    server_lr=average is gamma = eta K: theta <- theta - eta K g, where eta K g is the clients' mean
    displacement with the server's present c and g in place of those they were sent; if none is late, theta <-
    mean of x.
    """

    paper = "Yan et al., ICML 2025"
    checked_by = "tests/algorithms/test_async_rederivations.py::test_follows_the_equations_job_by_job"
    survey = "once"
    problem_dependent = ("lr", "server_lr")
    convention = "G"
    own_step = "steps along directions with their own momentum, which the server follows"

    lr: float = positive(0.05)
    server_lr: float = server_rate(0.5, help=MEAN_OF_STEPS)
    beta: float | None = share(None, null=THEOREM)

    def theorem(self, n: Counts) -> dict[str, float]:
        return {"beta": momentum_weight(n)}

    def server_init(self, theta: Tensor, survey: Record, h: Record) -> Vectors:
        return {"theta": theta, "c": survey.grad, "g": survey.grad}

    def client_init(self, theta: Tensor, survey: Record, h: Record) -> Vectors:
        return {"c": survey.grad}

    def broadcast(self, server: Record, survey: Record, n: Counts, h: Record) -> Vectors:
        return {"theta": server.theta, "p": h.beta * server.c + (1 - h.beta) * server.g}

    def local_init(self, client: Client, h: Record) -> Vectors:
        return {"x": client.down.theta, "A": torch.zeros_like(client.down.theta)}

    def local_step(self, local: Record, client: Client, h: Record) -> Vectors:
        q = client.grad(local.x)
        return {"x": local.x - h.lr * (h.beta * (q - client.mine.c) + client.down.p), "A": local.A + q}

    def local_final(self, local: Record, client: Client, h: Record) -> tuple[Vectors, Vectors]:
        G = local.A / client.steps
        return {"dG": G - client.mine.c}, {"c": G}

    def server_step(self, server: Record, mean: Record, n: Counts, h: Record) -> Vectors:
        g = h.beta * (mean.dG + server.c) + (1 - h.beta) * server.g
        return {"theta": server.theta - h.server_lr * g, "g": g, "c": server.c + (n.S / n.N) * mean.dG}
