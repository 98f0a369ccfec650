"""FedExP."""

from __future__ import annotations

import torch
from torch import Tensor

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


@register("fedexp")
class FedExP(Algorithm):
    """Jhunjhunwala, Wang, Joshi, "FedExP: speeding up federated averaging via extrapolation", ICLR 2023,
    Algorithm 1.

        client:  y = theta;  K times  y <- y - eta grad F(y; xi);   Delta_i = y - theta
        server:  Delta = sum_{i in S_t} w_i Delta_i
                 gamma = max{1, sum_{i in S_t} w_i ||Delta_i||^2 / (2 (||Delta||^2 + epsilon_t))}
                 theta <- theta + gamma Delta

    w_i = 1/S (weighting=uniform, the paper's equation) or n_i / sum_{S_t} n_j (samples, as in the official
    code and by default here). epsilon_t = epsilon epsilon_decay^t, with t = 0 in the first round.
    epsilon_decay is 1 in the paper, and 0.998^2 in the official code, where the rates decay by 0.998. Only
    the server keeps state: theta. Travels: up 1d and one scalar, down 1d. The paper evaluates the mean of the
    last two iterates, as does eval.model=mean_of_two; by default theta itself is evaluated. eta = lr and
    epsilon (1e-3 on CIFAR, 0.1 on EMNIST) are tuned; the server's step size needs no tuning.
    """

    paper = "Jhunjhunwala et al., ICLR 2023"
    problem_dependent = ("lr", "epsilon")

    lr: float = positive(0.1)
    epsilon: float = nonnegative(1e-3)
    epsilon_decay: float = share(1.0, help="epsilon is multiplied by this after every round")
    weighting: str = choice("samples", ("uniform", "samples"))

    def local_final(self, local: Record, client: Client, h: Record) -> tuple[Vectors, Vectors]:
        delta = local.y - client.down.theta
        return {"delta": delta, "square": torch.sum(delta**2)}, {}

    def server_step(self, server: Record, mean: Record, n: Counts, h: Record) -> Vectors:
        ratio = extrapolation(mean.square, mean.delta, h.epsilon * h.epsilon_decay**n.t)
        return {"theta": server.theta + torch.clamp(ratio, min=1.0) * mean.delta}


def extrapolation(square: Tensor, step: Tensor, epsilon: Tensor) -> Tensor:
    """square / (2 (||step||^2 + epsilon)), of a mean squared norm and the server's direction `step` (d,)."""
    below = 2 * (torch.sum(step**2) + epsilon)
    return square / torch.where(below > 0, below, 1.0)  # a step of 0 moves nothing, whatever its factor
