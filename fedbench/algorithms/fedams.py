"""FedAMS."""

from __future__ import annotations

import torch
from torch import Tensor

from fedbench.errors import ConfigError
from fedbench.method import (
    Algorithm,
    Counts,
    Record,
    Vectors,
    choice,
    decay,
    nonnegative,
    positive,
    register,
    switch,
)


@register("fedams")
class FedAMS(Algorithm):
    """Wang, Lin, Chen, "Communication-efficient adaptive federated learning", ICML 2022, arXiv:2205.02719,
    Algorithm 1: AMSGrad at the server.

        client:  y = theta;  K times  y <- y - eta grad F(y; xi)
        server:  D = sum_{S_t} w_i (y_i - theta)
                 m <- b1 m + (1-b1) D;   v <- b2 v + (1-b2) D^2;   vhat <- max(vhat, v)
                 theta <- theta + gamma m / (sqrt(vhat) + eps)

    m and v start at 0 and vhat at vhat_init; they stay at the server, and clients keep nothing. vhat_init > 0
    with epsilon=0 is the paper's max stabilisation, vhat <- max(vhat, v, vhat_init) without eps.
    bias_correction divides m by 1 - b1^(t+1) and sqrt(vhat) by sqrt(1 - b2^(t+1)), where rounds in which
    nobody came do not count in t; the maximum is over the uncorrected v. The official code is vhat_init=0.001
    epsilon=0 bias_correction=true with beta1 0.9, beta2 0.99, eta 0.01 and gamma 1; this eta and gamma do not
    carry over to vhat_init=0. Travels: up 1d, down 1d. Not to be confused with `local_amsgrad`, which is
    called FedAMS elsewhere. eta = lr and gamma = server_lr are tuned. weighting: samples or uniform.
    """

    paper = "Wang et al., ICML 2022"
    problem_dependent = ("lr", "server_lr", "epsilon")
    no_average = "its server divides every coordinate by a second moment"

    lr: float = positive(0.1)
    server_lr: float = positive(0.03)
    beta1: float = decay(0.9)
    beta2: float = decay(0.99)
    epsilon: float = nonnegative(1e-3, help="beside the root; 0 needs vhat_init > 0")
    vhat_init: float = nonnegative(
        0.0, help="start of vhat; official code: 0.001 with epsilon=0 and bias_correction=true"
    )
    bias_correction: bool = switch(False)
    weighting: str = choice("samples", ("uniform", "samples"))

    def check(self) -> None:
        if self.epsilon == self.vhat_init == 0:
            raise ConfigError("algorithm.epsilon", 0, "must be > 0, or algorithm.vhat_init: 0/0 otherwise")

    def server_init(self, theta: Tensor, survey: Record, h: Record) -> Vectors:
        zero = torch.zeros_like(theta)
        return {"theta": theta, "m": zero, "v": zero, "vhat": zero + h.vhat_init}

    def server_step(self, server: Record, mean: Record, n: Counts, h: Record) -> Vectors:
        m = h.beta1 * server.m + (1 - h.beta1) * mean.delta
        v = h.beta2 * server.v + (1 - h.beta2) * mean.delta**2
        vhat = torch.maximum(server.vhat, v)
        top, root = m, torch.sqrt(vhat)
        if self.bias_correction:
            top = m / (1 - h.beta1 ** (n.made + 1))
            root = root / torch.sqrt(1 - h.beta2 ** (n.made + 1))
        return {"theta": server.theta + h.server_lr * top / (root + h.epsilon), "m": m, "v": v, "vhat": vhat}
