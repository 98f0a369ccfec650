"""FedExP-M."""

from __future__ import annotations

import torch
from torch import Tensor

from fedbench.algorithms.fedexp import FedExP, extrapolation
from fedbench.method import Counts, Record, Vectors, decay, positive, register


@register("fedexp_m")
class FedExPM(FedExP):
    """Jhunjhunwala, Wang, Joshi, "FedExP: speeding up federated averaging via extrapolation", ICLR 2023:
    FedExP with server momentum.

        client:  y = theta;  K times  y <- y - eta grad F(y; xi);   Delta_i = y - theta
        server:  m <- sum_{i in S_t} w_i Delta_i + b m
                 R <- sum_{i in S_t} w_i ||Delta_i||^2 + (b/2) R
                 gamma = R / (2 (||m||^2 + epsilon_t));   theta <- theta + gamma m

    m and R start at 0. gamma has no floor of 1: identical clients without momentum give half of FedAvg's
    step. R bounds what the old m still has to gain. A step with this gamma uses up half of that, hence b/2.
    OUR READING: R and the missing floor are from the authors' code, which never applies the momentum itself
    (a misspelt name in a condition). The paper's own line was not at hand.
    w_i and epsilon_t: see `fedexp`. Only the server keeps state: theta, m and R. Travels: up 1d and one
    scalar, down 1d. eta = lr and epsilon are tuned; b = momentum 0.9.
    """

    title = "FedExP-M"
    paper = "Jhunjhunwala et al., ICLR 2023"

    lr: float = positive(0.1)
    momentum: float = decay(0.9, help="b; 0 is FedExP without its floor of 1")

    def server_init(self, theta: Tensor, survey: Record, h: Record) -> Vectors:
        return {"theta": theta, "m": torch.zeros_like(theta), "R": theta.new_zeros(())}

    def server_step(self, server: Record, mean: Record, n: Counts, h: Record) -> Vectors:
        m = mean.delta + h.momentum * server.m
        R = mean.square + h.momentum / 2 * server.R
        gamma = extrapolation(R, m, h.epsilon * h.epsilon_decay**n.t)
        return {"theta": server.theta + gamma * m, "m": m, "R": R}
