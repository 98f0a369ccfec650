"""PAdaMFed-VR."""

from __future__ import annotations

import torch
from torch import Tensor

from fedbench.algorithms.ablations import Ablations
from fedbench.algorithms.padamfed import PAdaMFed
from fedbench.method import Client, Counts, Record, Vectors, choice, register
from fedbench.theory import stepsizes
from fedbench.theory.setting import numbers


@register("padamfed_vr", Ablations)
class PAdaMFedVR(PAdaMFed):
    """Yan, Zhang, Wang, Cao, "Problem-parameter-free federated learning", ICLR 2025, section 4
    (variance-reduced variant, Theorem 2).

    Like PAdaMFed, but a local step also takes p = grad F(theta^{t-1}; xi), the gradient at the PREVIOUS
    global model on the same mini-batch (theta^{-1} = theta^0):

        q = f + beta (c - c_i) + (1-beta)(g - p) = f - beta c_i + m - (1-beta) p
        server:  g <- mean_{S_t}[ a - (1-beta) abar_i + beta (c - c_i) ] + (1-beta) g,  abar_i = (1/K) sum_k p

    The momentum is the mean of the local directions, the recursive (STORM) form that Theorem 2's rate needs.
    We derived it: the paper's text in hand prints only the local direction. vr_momentum=literal keeps
    PAdaMFed's momentum instead, which stalls. Travels: up 3d (u/K, a - c_i, a - abar_i; 2d for literal), down
    3d (theta, m, theta^{t-1}). Two gradients a step.
    Theorem 2: eta = 1/(K T), gamma = beta = (S K)^(1/3) / T^(2/3), beta clamped to 1.
    server_lr=average is gamma = eta K: theta <- mean_{S_t} y_i.
    """

    title = "PAdaMFed-VR"

    vr_momentum: str = choice(
        "storm", ("storm", "literal"), help="literal: PAdaMFed's momentum, which stalls"
    )

    def theorem(self, n: Counts) -> dict[str, float]:
        return numbers(stepsizes.padamfed_vr(n))

    def server_init(self, theta: Tensor, survey: Record, h: Record) -> Vectors:
        return {**super().server_init(theta, survey, h), "previous": theta}

    def broadcast(self, server: Record, survey: Record, n: Counts, h: Record) -> Vectors:
        return {**super().broadcast(server, survey, n, h), "previous": server.previous}

    def local_init(self, client: Client, h: Record) -> Vectors:
        return {**super().local_init(client, h), "abar": torch.zeros_like(client.down.theta)}

    def local_step(self, local: Record, client: Client, h: Record) -> Vectors:
        f = client.grad(local.y)
        p = client.grad(client.down.previous)
        s = self.unit(f - h.beta * client.mine.c + client.down.m - (1 - h.beta) * p)
        return {
            "y": local.y - h.lr * s,
            "u": local.u + s,
            "a": local.a + f / client.steps,
            "abar": local.abar + p / client.steps,
        }

    def local_final(self, local: Record, client: Client, h: Record) -> tuple[Vectors, Vectors]:
        upload, keep = super().local_final(local, client, h)
        if self.vr_momentum == "storm":
            upload["da"] = local.a - local.abar
        return upload, keep

    def server_step(self, server: Record, mean: Record, n: Counts, h: Record) -> Vectors:
        state = super().server_step(server, mean, n, h)
        if self.vr_momentum == "storm":
            state["g"] = h.beta * (mean.dc + server.c) + (1 - h.beta) * (mean.da + server.g)
        return {**state, "previous": server.theta}
