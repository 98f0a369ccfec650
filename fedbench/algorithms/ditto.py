"""Ditto."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from fedbench.algorithms.fedavg import FedAvg
from fedbench.method import Client, Record, Vectors, nonnegative, register


@register("ditto")
class Ditto(FedAvg):
    """Li, Hu, Beirami, Smith, "Ditto: fair and robust federated learning through personalization", ICML 2021,
    Algorithm 1, with FedAvg as the solver of the global problem.

    Every client also trains a model of its own, v_i, which stays near the global one:

        client:  y = theta;  K times, on one mini-batch:
                     y   <- y - eta grad F(y; xi)
                     v_i <- v_i - eta (grad F(v_i; xi) + lam (v_i - theta))
        server:  theta <- theta + gamma sum_{i in S_t} w_i (y_i - theta)

    v_i starts at theta^0, and is what a client evaluates. v_i takes plain steps, whatever `optimizer=` moves
    y. Batch norm's statistics are those of y; layer and group norms have none.
    Travels: up 1d, down 1d; a client keeps 1d. eta = lr, lam and gamma = server_lr (convention D: 1) are
    tuned.
    """

    paper = "Li et al., ICML 2021"
    schedules: ClassVar[tuple[str, ...]] = ("sync",)  # under arrivals v_i is not known while a client works
    problem_dependent = ("lr", "server_lr", "lam")

    lam: float = nonnegative(0.1, help="pull of a client's model towards the global one; 0: it trains alone")

    def client_init(self, theta: Tensor, survey: Record, h: Record) -> Vectors:
        return {"v": theta}

    def local_init(self, client: Client, h: Record) -> Vectors:
        return {"y": client.down.theta, "v": client.mine.v}

    def local_step(self, local: Record, client: Client, h: Record) -> Vectors:
        y = client.descend(local.y, client.grad(local.y), h.lr)
        q = client.grad(local.v) + h.lam * (local.v - client.down.theta)
        return {"y": y, "v": local.v - h.lr * q}

    def local_final(self, local: Record, client: Client, h: Record) -> tuple[Vectors, Vectors]:
        return {"delta": local.y - client.down.theta}, {"v": local.v}

    def personal(self, server: Record, mine: Record) -> Tensor:
        return mine.v
