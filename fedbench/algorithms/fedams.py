"""FedAMS."""

from __future__ import annotations

import torch
from torch import Tensor

from fedbench.method import Algorithm, Counts, Record, Vectors, choice, decay, positive, register, switch


@register("fedams")
class FedAMS(Algorithm):
    """Wang, Lin, Chen, "Communication-efficient adaptive federated learning", ICML 2022, arXiv:2205.02719,
    Algorithm 1: AMSGrad at the server.

        client:  y = theta;  K times  y <- y - eta grad F(y; xi)
        server:  D = sum_{S_t} w_i (y_i - theta)
                 m <- b1 m + (1-b1) D;   v <- b2 v + (1-b2) D^2;   vhat <- max(vhat, v)
                 theta <- theta + gamma m / (sqrt(vhat) + eps)

    m, v and vhat start at 0 and stay at the server; clients keep nothing. bias_correction divides m by
    1 - b1^(t+1) and sqrt(vhat) by sqrt(1 - b2^(t+1)), as the published code does; the maximum is over the
    uncorrected v. Travels: up 1d, down 1d. Not to be confused with `local_amsgrad`, which is called FedAMS
    elsewhere. eta = lr and gamma = server_lr are tuned (0.01 and 1 in the paper's code); beta1 0.9, beta2
    0.99, eps = epsilon 1e-3. weighting: samples or uniform.
    """

    paper = "Wang et al., ICML 2022"
    problem_dependent = ("lr", "server_lr", "epsilon")
    no_average = "its server divides every coordinate by a second moment"

    lr: float = positive(0.1)
    server_lr: float = positive(0.03, help="the paper's code: 1 with lr 0.01 on a ConvMixer")
    beta1: float = decay(0.9)
    beta2: float = decay(0.99)
    epsilon: float = positive(1e-3)
    bias_correction: bool = switch(False)
    weighting: str = choice("samples", ("uniform", "samples"))

    def server_init(self, theta: Tensor, survey: Record, h: Record) -> Vectors:
        zero = torch.zeros_like(theta)
        return {"theta": theta, "m": zero, "v": zero, "vhat": zero}

    def server_step(self, server: Record, mean: Record, n: Counts, h: Record) -> Vectors:
        m = h.beta1 * server.m + (1 - h.beta1) * mean.delta
        v = h.beta2 * server.v + (1 - h.beta2) * mean.delta**2
        vhat = torch.maximum(server.vhat, v)
        top, root = m, torch.sqrt(vhat)
        if self.bias_correction:
            top = m / (1 - h.beta1 ** (n.t + 1))
            root = root / torch.sqrt(1 - h.beta2 ** (n.t + 1))
        return {"theta": server.theta + h.server_lr * top / (root + h.epsilon), "m": m, "v": v, "vhat": vhat}
