"""Ringmaster ASGD."""

from __future__ import annotations

from typing import ClassVar

from fedbench.method import Algorithm, Client, Counts, Record, Vectors, positive, register


@register("ringmaster_asgd")
class RingmasterASGD(Algorithm):
    """Maranjyan, Tyurin, Richtarik, "Ringmaster ASGD: the first asynchronous SGD with optimal time
    complexity", ICML 2025 (arXiv 2501.16168).

        client:  one stochastic gradient g = grad F(theta^v; xi);  sends g
        server, on every arrival:  delay = k - v, k the number of updates so far
                 delay < R:   theta <- theta - gamma g;   k <- k + 1
                 delay >= R:  the gradient is thrown away, and k stays
                 the client goes on at once, from the present theta

    It is asynchronous SGD on a schedule that discards stale gradients. schedule.tau_cut = R - 1 is the
    largest staleness that counts, and defaults to N - 1 (R = N). With schedule.interrupt=true a client is
    stopped as soon as its delay reaches R, so it does not finish work that would be thrown away. One arrival
    makes one update (clients.per_round=1). All N clients work; K = 1. Only the server keeps state: theta.
    Travels: up 1d, down 1d. gamma = server_lr (it multiplies a gradient) and R are tuned together. The method
    is for homogeneous data: a client whose jobs always take R updates or more never contributes. The default
    R = N is ours; it is the largest R tried in the experiments of code from the authors' line of work.
    """

    title = "Ringmaster ASGD"
    paper = "Maranjyan et al., ICML 2025"
    checked_by = "tests/algorithms/test_ringmaster.py::test_follows_the_papers_loop"
    problem_dependent = ("server_lr",)
    no_average = "its clients send gradients, not models"
    own_step = "makes no local steps"
    fixed_steps = 1
    every_arrival = True
    dispatch: ClassVar[dict[str, str]] = {
        "refill": "immediate",
        "pool": "self",
        "concurrency": "all",
        "tau_cut": "all",
    }

    server_lr: float = positive(0.03)

    def local_init(self, client: Client, h: Record) -> Vectors:
        return {"g": client.down.theta}  # its step puts another vector there

    def local_step(self, local: Record, client: Client, h: Record) -> Vectors:
        return {"g": client.grad(client.down.theta)}

    def local_final(self, local: Record, client: Client, h: Record) -> tuple[Vectors, Vectors]:
        return {"g": local.g}, {}

    def server_step(self, server: Record, mean: Record, n: Counts, h: Record) -> Vectors:
        return {"theta": server.theta - h.server_lr * mean.g}
