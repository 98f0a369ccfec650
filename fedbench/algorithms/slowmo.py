"""SlowMo."""

from __future__ import annotations

import torch
from torch import Tensor

from fedbench.algorithms.fedavg import FedAvg
from fedbench.method import Counts, Record, Setting, Vectors, decay, register


@register("slowmo")
class SlowMo(FedAvg):
    """Wang, Tantia, Ballas, Rabbat, "SlowMo: improving communication-efficient distributed SGD with slow
    momentum", ICLR 2020, Algorithm 1, with SGD as the base optimiser (it has no buffers to keep or reset).

        client:  y = theta;  K times  y <- y - eta grad F(y; xi)
        server:  u <- rho u + (theta - sum_{i in S_t} w_i y_i) / eta;   theta <- theta - alpha_s eta u

    w_i = n_i / sum_{S_t} n_j (weighting=samples) or 1/S (uniform). u starts at 0, in units of gradients. Only
    the server keeps state: theta and u. Travels: up 1d, down 1d. The paper analyses full participation, but
    nothing in the rule needs it. alpha_s = server_lr (1 in the paper), rho = momentum (0.4 to 0.8) and
    eta = lr are tuned. With eta constant these are the steps of FedAvgM. server_lr=average is alpha_s = 1 and
    needs momentum=0: theta <- sum_{i in S_t} w_i y_i.
    """

    paper = "Wang et al., ICLR 2020"
    problem_dependent = ("lr", "server_lr", "momentum")
    server_momentum = True

    momentum: float = decay(0.5)

    def refusal(self, setting: Setting) -> str | None:
        if setting.schedule == "async" and "lr" in setting.scheduled:
            return "divides all uploads by one eta, but lr_schedule gives an update's jobs different rates"
        return super().refusal(setting)

    def server_init(self, theta: Tensor, survey: Record, h: Record) -> Vectors:
        return {"theta": theta, "u": torch.zeros_like(theta)}

    def server_step(self, server: Record, mean: Record, n: Counts, h: Record) -> Vectors:
        u = h.momentum * server.u - mean.delta / h.lr
        return {"theta": server.theta - h.server_lr * h.lr * u, "u": u}
