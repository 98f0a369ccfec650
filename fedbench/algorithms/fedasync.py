"""FedAsync."""

from __future__ import annotations

import torch
from torch import Tensor

from fedbench.errors import ConfigError
from fedbench.method import (
    Algorithm,
    Client,
    Counts,
    Record,
    Vectors,
    choice,
    nonnegative,
    positive,
    register,
    share,
)

POLYNOMIAL_A, HINGE_B = 0.5, 4.0  # the defaults, which cannot be told from values that were given


@register("fedasync")
class FedAsync(Algorithm):
    """Xie, Koyejo, Gupta, "Asynchronous federated optimization", OPT 2020 (arXiv 1903.03934), Algorithm 1.

        client:  x = theta^v;  K times  x <- x - eta (grad F(x; xi) + rho (x - theta^v));  sends x
        server, on every arrival:  alpha_t = alpha s(tau);  theta <- (1 - alpha_t) theta + alpha_t x
        s(tau):  constant 1;  polynomial (1 + tau)^(-a);  hinge 1 if tau <= b else 1 / (a (tau - b) + 1)

    tau = 0 for a fresh model. The server mixes models, not changes, so a stale model pulls the server back.
    It mixes batch norm's statistics in the same way, with alpha_t. One arrival makes one update
    (clients.per_round=1). Only the server keeps state: theta. Travels: up 1d, down 1d. eta = lr, alpha and
    rho are tuned (alpha 0.3, 0.6, 0.9; polynomial a = 0.5; hinge a = 10, b = 4 or 6; rho 0, 0.005, 0.01).
    With the hinge, a has to be given.
    """

    paper = "Xie et al., OPT 2020"
    checked_by = "tests/algorithms/test_async_rederivations.py::test_follows_the_equations_job_by_job"
    problem_dependent = ("lr", "alpha", "rho")
    every_arrival = True

    lr: float = positive(0.1)
    alpha: float = share(0.6)
    rho: float = nonnegative(0.005)
    staleness: str = choice("polynomial", ("constant", "polynomial", "hinge"))
    a: float = nonnegative(POLYNOMIAL_A, help="of polynomial and hinge; the paper's hinge: 10, to be given")
    b: float = nonnegative(HINGE_B, help="hinge only")

    def check(self) -> None:
        unused = {"a": POLYNOMIAL_A} if self.staleness == "constant" else {}
        unused |= {"b": HINGE_B} if self.staleness != "hinge" else {}
        for name, default in unused.items():
            if getattr(self, name) != default:
                allowed = f"must be {default:g} (or not given) with algorithm.staleness={self.staleness}, "
                raise ConfigError(f"algorithm.{name}", getattr(self, name), f"{allowed}which has no {name}")
        if self.staleness == "hinge" and self.a == POLYNOMIAL_A:
            allowed = "must be another number with algorithm.staleness=hinge, such as the paper's 10"
            raise ConfigError("algorithm.a", self.a, f"{allowed} (this one is the polynomial's)")

    def local_init(self, client: Client, h: Record) -> Vectors:
        return {"x": client.down.theta}

    def local_step(self, local: Record, client: Client, h: Record) -> Vectors:
        q = client.grad(local.x) + h.rho * (local.x - client.down.theta)
        return {"x": client.descend(local.x, q, h.lr)}

    def local_final(self, local: Record, client: Client, h: Record) -> tuple[Vectors, Vectors]:
        return {"x": local.x}, {}

    def server_step(self, server: Record, mean: Record, n: Counts, h: Record) -> Vectors:
        alpha = self.alpha_t(n, h)
        return {"theta": (1 - alpha) * server.theta + alpha * mean.x}

    def server_statistics(self, server: Vectors, mean: Vectors, n: Counts, h: Record) -> Vectors:
        alpha = self.alpha_t(n, h)
        return {name: (1 - alpha) * own + alpha * mean[name] for name, own in server.items()}

    def alpha_t(self, n: Counts, h: Record) -> Tensor:
        """The weight of an arrival."""
        return h.alpha * self.s(n.staleness_max, h)

    def s(self, tau: int, h: Record) -> Tensor:
        """The factor of an arrival of staleness `tau`."""
        if self.staleness == "polynomial":
            return (1 + tau) ** (-h.a)
        if self.staleness == "hinge":
            return 1 / (h.a * torch.clamp(tau - h.b, min=0.0) + 1)
        return torch.ones_like(h.alpha)
