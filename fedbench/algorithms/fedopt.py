"""FedOpt: FedAdagrad, FedAdam and FedYogi."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedbench.method import Algorithm, Counts, Record, Vectors, choice, decay, positive, register


@dataclass
class FedOpt(Algorithm):
    """Reddi, Charles, Zaheer, Garrett, Rush, Konecny, Kumar, McMahan, "Adaptive federated optimization",
    ICLR 2021, Algorithm 2: FedAvg's clients, an adaptive optimiser at the server.

        client:  y = theta;  K times  y <- y - eta grad F(y; xi)
        server:  Delta = sum_{i in S_t} w_i (y_i - theta);   m <- beta1 m + (1-beta1) Delta
                 v <- second_moment(v, Delta)                             (FedAdagrad, FedAdam, FedYogi)
                 theta <- theta + gamma m / (sqrt(v) + epsilon)

    m starts at 0 and v at epsilon^2 (tau^2 in the paper); no bias correction, as in the paper. Only the
    server keeps state: theta, m and v. Travels: up 1d, down 1d. w_i = n_i / sum_{S_t} n_j (weighting=samples,
    as in the paper's experiments) or 1/S (uniform).
    Paper: beta1 = 0.9 (0 for FedAdagrad), beta2 = 0.99 (FedAdagrad has none and ignores it),
    epsilon = tau = 1e-3 by default; eta = lr, gamma = server_lr and epsilon are tuned on grids of
    half-decades.
    """

    paper = "Reddi et al., ICLR 2021"
    problem_dependent = ("lr", "server_lr", "epsilon")
    no_average = "its server divides every coordinate by a second moment"

    lr: float = positive(0.1)
    server_lr: float = positive(0.03)
    beta1: float = decay(0.9)
    beta2: float = decay(0.99)
    epsilon: float = positive(1e-3, help="tau in the paper")
    weighting: str = choice("samples", ("uniform", "samples"))

    def server_init(self, theta: Tensor, survey: Record, h: Record) -> Vectors:
        start = torch.zeros_like(theta) + h.epsilon**2
        return {"theta": theta, "m": torch.zeros_like(theta), "v": start}

    def server_step(self, server: Record, mean: Record, n: Counts, h: Record) -> Vectors:
        m = h.beta1 * server.m + (1 - h.beta1) * mean.delta
        v = self.second_moment(server.v, mean.delta**2, h)
        return {"theta": server.theta + h.server_lr * m / (torch.sqrt(v) + h.epsilon), "m": m, "v": v}

    def second_moment(self, v: Tensor, square: Tensor, h: Record) -> Tensor:
        """The next v (d,) from the last one and Delta^2."""
        raise NotImplementedError


@register("fedadagrad")
class FedAdagrad(FedOpt):
    """FedAdagrad of Reddi et al., ICLR 2021: `FedOpt`'s lines with  v <- v + Delta^2."""

    beta1: float = decay(0.0)

    def second_moment(self, v: Tensor, square: Tensor, h: Record) -> Tensor:
        return v + square


@register("fedadam")
class FedAdam(FedOpt):
    """FedAdam of Reddi et al., ICLR 2021: `FedOpt`'s lines with  v <- beta2 v + (1-beta2) Delta^2."""

    def second_moment(self, v: Tensor, square: Tensor, h: Record) -> Tensor:
        return h.beta2 * v + (1 - h.beta2) * square


@register("fedyogi")
class FedYogi(FedAdam):
    """FedYogi of Reddi et al., ICLR 2021: `FedOpt`'s lines with
    v <- v - (1-beta2) Delta^2 sign(v - Delta^2)."""

    def second_moment(self, v: Tensor, square: Tensor, h: Record) -> Tensor:
        return v - (1 - h.beta2) * square * torch.sign(v - square)
