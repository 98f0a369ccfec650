"""FedNova."""

from __future__ import annotations

import torch

from fedbench.method import (
    MEAN,
    Algorithm,
    Client,
    Counts,
    Record,
    Setting,
    Vectors,
    choice,
    decay,
    nonnegative,
    positive,
    register,
    server_rate,
)


@register("fednova")
class FedNova(Algorithm):
    """Wang, Liu, Liang, Joshi, Poor, "Tackling the objective inconsistency problem in heterogeneous
    federated optimization", NeurIPS 2020, equation (9). Client i makes tau_i steps.

        client:  y = theta;  v = 0;  tau_i times  v <- rho v + grad F(y; xi)
                                                  y <- y - eta (v + mu (y - theta))
                 d_i = (theta - y) / (eta ||a_i||_1)
        server:  tau_eff = sum_{S_t} p_i ||a_i||_1;   theta <- theta - gamma tau_eff eta sum_{S_t} p_i d_i

    theta - y = eta sum_k a_ik grad_k, so the same recursion on gradients of 1 gives ||a_i||_1 (eta mu <= 1):
    tau_i for SGD, (tau - rho (1-rho^tau)/(1-rho))/(1-rho) with momentum, (1-(1-eta mu)^tau)/(eta mu) with the
    proximal term. tau_eff is the paper's in all of them; the official code takes sum p_i tau_i with the
    proximal term. Momentum is local and reset to 0 every round. p_i = n_i / sum_{S_t} n_j (weighting=samples)
    or 1/S (uniform). Only the server keeps state: theta. Travels: up 1d and one scalar, down 1d.
    eta = lr (0.02 in the paper), rho = momentum (0 or 0.9), mu and gamma = server_lr (1) are tuned. Unequal
    tau_i come from local.epochs with clients of unequal size. With equal tau_i the method is FedAvg,
    and server_lr=average is gamma = 1: theta <- sum_{S_t} p_i y_i; with unequal tau_i, or late jobs of other
    eta, no gamma makes this mean.
    """

    paper = "Wang et al., NeurIPS 2020"
    problem_dependent = ("lr", "server_lr", "momentum", "mu")
    own_step = "divides by its own momentum's weights (algorithm.momentum)"

    lr: float = positive(0.1)
    server_lr: float = server_rate(1.0, help=MEAN)
    momentum: float = decay(0.0, help="of the local steps")
    mu: float = nonnegative(0.0, help="proximal weight")
    weighting: str = choice("samples", ("uniform", "samples"))

    def not_mean(self, setting: Setting) -> str | None:
        if setting.counts.K is None:
            return "unequal local steps are normalised"
        if setting.schedule == "async" and "lr" in setting.scheduled:
            return "lr_schedule gives an update's jobs different rates"
        return super().not_mean(setting)

    def local_init(self, client: Client, h: Record) -> Vectors:
        zero, none = torch.zeros_like(client.down.theta), torch.zeros_like(h.lr)
        return {"y": client.down.theta, "v": zero, "a": none, "b": none}

    def local_step(self, local: Record, client: Client, h: Record) -> Vectors:
        v = h.momentum * local.v + client.grad(local.y)
        b = h.momentum * local.b + 1
        y = local.y - h.lr * (v + h.mu * (local.y - client.down.theta))
        return {"y": y, "v": v, "a": local.a + b - h.lr * h.mu * local.a, "b": b}

    def local_final(self, local: Record, client: Client, h: Record) -> tuple[Vectors, Vectors]:
        return {"d": (client.down.theta - local.y) / (h.lr * local.a), "a": local.a}, {}

    def server_step(self, server: Record, mean: Record, n: Counts, h: Record) -> Vectors:
        tau_eff = mean.a
        return {"theta": server.theta - h.server_lr * tau_eff * h.lr * mean.d}
