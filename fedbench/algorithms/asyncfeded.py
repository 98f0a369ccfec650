"""AsyncFedED."""

from __future__ import annotations

import torch

from fedbench.method import Algorithm, Counts, Record, Vectors, positive, register


@register("asyncfeded")
class AsyncFedED(Algorithm):
    """Wang, Yang, He, Shi, Chen, "AsyncFedED: asynchronous federated learning with Euclidean distance based
    adaptive weight aggregation", arXiv 2205.13797 (2022).

        client:  y = theta^v;  K times  y <- y - eta grad F(y; xi);  sends Delta = y - theta^v
        server, on every arrival:  s = ||theta^t - theta^v|| / ||Delta||
                 theta <- theta + lambda / (s + epsilon) Delta

    s is how far the global model has moved since the client received it, in units of ||Delta||. It replaces
    the usual staleness, which counts updates. Norms are over all parameters; a Delta of 0 moves nothing. One
    arrival makes one update (clients.per_round=1). The server remembers the models that are under way
    (`recalls`); clients keep nothing. Travels: up 1d, down 1d. eta = lr, lambda = server_lr and epsilon are
    tuned; lambda / epsilon is the largest weight of a Delta. The paper also adapts a client's number of local
    steps to s; here K is fixed. Based on the abstract and a third-party implementation (the paper's listing
    and its values were not at hand), with SGD steps in place of Adam's epochs.
    """

    paper = "Wang et al., arXiv 2205.13797 (2022)"
    checked_by = "tests/algorithms/test_async_rederivations.py::test_follows_the_equations_job_by_job"
    problem_dependent = ("lr", "server_lr", "epsilon")
    no_average = "it weighs every arrival by its distance"
    every_arrival = True
    recalls = True

    lr: float = positive(0.1)
    server_lr: float = positive(1.0, help="lambda")
    epsilon: float = positive(1.0)

    def server_step(self, server: Record, mean: Record, n: Counts, h: Record) -> Vectors:
        length = torch.linalg.vector_norm(mean.delta)
        gone = torch.linalg.vector_norm(server.theta - mean.sent_theta)
        weight = h.server_lr * length / (gone + h.epsilon * length)  # lambda / (s + epsilon)
        return {"theta": server.theta + torch.where(length > 0, weight, 0.0) * mean.delta}
