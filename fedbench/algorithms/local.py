"""Clients that train alone."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from fedbench.method import Algorithm, Client, Counts, Record, Vectors, positive, register


@register("local")
class Local(Algorithm):
    """No federation: the baseline that federated models are compared with (SingleSet in Li et al., FedBN,
    ICLR 2021).

        client:  y = y_i (theta^0 at first);  K times  y <- y - eta grad F(y; xi);   y_i <- y
        server:  theta stays theta^0

    A client keeps its model y_i and its running statistics, and trains in the rounds in which it takes part:
    in all of them with clients.per_round=clients.total. Its model is evaluated on its own test samples, or on
    the test set reweighted to its label shares where the data do not say whose samples are. model.pt is
    theta^0. Travels: nothing. eta = lr is tuned.
    """

    title = "Local training"
    paper = "a baseline without federation"
    checked_by = "tests/algorithms/test_local.py::test_every_client_is_a_run_of_its_own_in_numpy"
    keeps_buffers = True
    schedules: ClassVar[tuple[str, ...]] = ("sync",)
    problem_dependent: ClassVar[tuple[str, ...]] = ("lr",)

    lr: float = positive(0.1)

    def client_init(self, theta: Tensor, survey: Record, h: Record) -> Vectors:
        return {"model": theta}

    def broadcast(self, server: Record, survey: Record, n: Counts, h: Record) -> Vectors:
        return {}

    def local_init(self, client: Client, h: Record) -> Vectors:
        return {"y": client.mine.model}

    def local_final(self, local: Record, client: Client, h: Record) -> tuple[Vectors, Vectors]:
        return {}, {"model": local.y}

    def server_step(self, server: Record, mean: Record, n: Counts, h: Record) -> Vectors:
        return {"theta": server.theta}

    def personal(self, server: Record, mine: Record) -> Tensor:
        return mine.model
