"""FedAvgM (server momentum)."""

from __future__ import annotations

import torch
from torch import Tensor

from fedbench.algorithms.fedavg import FedAvg
from fedbench.method import Counts, Record, Vectors, decay, positive, register, switch


@register("fedavgm")
class FedAvgM(FedAvg):
    """Hsu, Qi, Brown, "Measuring the effects of non-identical data distribution for federated visual
    classification", arXiv:1909.06335 (2019), section 4.3. Not FedAvg-M (`fedavg_m`).

        client:  y = theta;  K times  y <- y - eta grad F(y; xi)
        server:  D = sum_{i in S_t} w_i (theta - y_i);   v <- rho v + D
                 theta <- theta - gamma v                          (nesterov=true: theta - gamma (D + rho v))

    w_i = n_i / sum_{S_t} n_j (weighting=samples) or 1/S (uniform). v starts at 0. Only the server keeps
    state: theta and v. Travels: up 1d, down 1d. rho = momentum (paper: 0, 0.7, 0.9, 0.97, 0.99, 0.997),
    gamma = server_lr (convention D; 1 in the paper, an effective step of 1/(1-rho)) and eta = lr are tuned.
    server_lr=average is gamma = 1 and needs momentum=0: theta <- sum_{i in S_t} w_i y_i.
    The authors' code uses the Nesterov form. Most others use the plain form, which is the default here.
    """

    paper = "Hsu et al., arXiv:1909.06335"
    problem_dependent = ("lr", "server_lr", "momentum")
    server_momentum = True

    lr: float = positive(0.03)
    momentum: float = decay(0.9, help="the effective step is server_lr / (1 - momentum)")
    nesterov: bool = switch(False)

    def server_init(self, theta: Tensor, survey: Record, h: Record) -> Vectors:
        return {"theta": theta, "v": torch.zeros_like(theta)}

    def server_step(self, server: Record, mean: Record, n: Counts, h: Record) -> Vectors:
        v = h.momentum * server.v - mean.delta
        step = h.momentum * v - mean.delta if self.nesterov else v
        return {"theta": server.theta - h.server_lr * step, "v": v}
