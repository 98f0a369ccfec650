"""Delta-SGD."""

from __future__ import annotations

import torch

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
    switch,
)


@register("delta_sgd")
class DeltaSGD(Algorithm):
    """Kim, Toghani, Uribe, Kyrillidis, "Adaptive federated learning with auto-tuned clients", ICLR 2024,
    arXiv:2306.11201, Algorithm 1.

        client:  y_0 = theta;   eta_0 = lr;   r_0 = 1;   y_1 = y_0 - eta_0 grad F(y_0; xi)
                 k = 1..K-1:  a = ||y_k - y_{k-1}|| / (2 ||grad F(y_k; xi) - grad F(y_{k-1}; xi)||)
                              eta_k = min{ amplifier a, sqrt(1 + growth r_{k-1}) eta_{k-1} }
                              r_k = eta_k / eta_{k-1};   y_{k+1} = y_k - eta_k grad F(y_k; xi)
        server:  theta <- mean_{S_t} y_i

    Norms are of whole vectors. If either is 0, only the growth limits eta_k. Every job starts anew from lr.
    The paper's listing and the authors' code differ in two points, each of which is an option here. With
    same_batch=true (the code) both gradients are on step k's mini-batch; with false the older one is the
    gradient that step k-1 computed (K gradients, not 2K). With first_rate=initial a job's first step is lr
    itself; with grown (the code) lr has grown once.
    Only the server keeps state: theta. Travels: up 1d, down 1d. The paper has lr 0.2, amplifier 2 and growth
    0.1 (its gamma and delta) in all experiments; a job of few steps cannot get far above lr, though.
    """

    title = "Delta-SGD"
    paper = "Kim et al., ICLR 2024"
    problem_dependent = ("lr",)
    own_step = "has a step size of its own, from two gradients"

    lr: float = positive(0.2, help="of a job's first step")
    amplifier: float = positive(2.0, help="factor on the step that the local smoothness allows")
    growth: float = nonnegative(0.1, help="how fast a step may grow; 0: never above lr")
    same_batch: bool = switch(True, help="false: the older gradient is on the older mini-batch")
    first_rate: str = choice("initial", ("initial", "grown"), help="grown: lr sqrt(1 + growth)")
    weighting: str = choice("uniform", ("uniform", "samples"))

    def local_init(self, client: Client, h: Record) -> Vectors:
        theta = client.down.theta
        before = {} if self.same_batch else {"g": torch.zeros_like(theta)}
        return {"y": theta, "x": theta, **before, "eta": h.lr.clone(), "r": torch.ones_like(h.lr)}

    def local_step(self, local: Record, client: Client, h: Record) -> Vectors:
        g = client.grad(local.y)
        before = client.grad(local.x) if self.same_batch else local.g
        eta = torch.sqrt(1 + h.growth * local.r) * local.eta
        moved, change = torch.linalg.vector_norm(local.y - local.x), torch.linalg.vector_norm(g - before)
        known = (moved > 0) & (change > 0)
        allowed = h.amplifier * moved / (2 * torch.where(known, change, 1.0))
        eta = torch.where(known, torch.minimum(allowed, eta), eta)
        if self.first_rate == "initial":
            eta = torch.where(client.k > 0, eta, local.eta)
        new = {"y": local.y - eta * g, "x": local.y, "eta": eta, "r": eta / local.eta}
        return new if self.same_batch else {**new, "g": g}

    def server_step(self, server: Record, mean: Record, n: Counts, h: Record) -> Vectors:
        return {"theta": server.theta + mean.delta}
