"""FedAdamW."""

from __future__ import annotations

import torch
from torch import Tensor

from fedbench.method import (
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
)


@register("fedadamw")
class FedAdamW(Algorithm):
    """J. Liu, Shang, H. Liu, Tian, Y. Liu, J. Liu, Zhu, Lin, "FedAdamW: a communication-efficient optimizer
    with convergence and generalization guarantees for federated large models", AAAI 2026, arXiv:2510.27486.

        client:  y = theta;  m = 0;  v = v_b in all coordinates of block b;  w is received
                 k = 1..K:  q = grad F(y; xi);   m <- b1 m + (1-b1) q;   v <- b2 v + (1-b2) q^2
                            w <- b2 w + 1-b2;   mhat = m / (1 - b1^k);   vhat = v / w
                            y <- y - eta (mhat / (sqrt(vhat) + eps) + lambda y + alpha Delta_G)
                 sends y - theta, each block's mean of v, and w
        server:  Delta_G <- mean_{S_t} (theta - y_i) / (eta K);   v_b <- mean_{S_t} of block b's means
                 theta <- mean_{S_t} y_i;   w <- mean_{S_t} w_i

    Delta_G, all v_b and w start at 0. The scalar w is the weight of all q^2 in v. It is the paper's
    1 - b2^(t K + k) where all clients make K steps, with a t that does not count rounds in which nobody came;
    with unequal steps no formula of t and k is right. A block is a parameter tensor; the paper divides
    attention layers further, by heads. Delta_G is divided by the eta of the round that made it and by each
    client's own K. second_moment=coordinate sends v itself, as the released script does (up 2d, down 3d).
    That script counts the steps t K + k for mhat too (m_counter=global), so later rounds begin with small
    steps. Only the server keeps state: theta, Delta_G and v_b. Travels: up 1d and a number per block, down 2d
    and a number per block. eta = lr is tuned (3e-4, or 1e-3 for LoRA, with a cosine over rounds); alpha is
    0.5, beta1 0.9, beta2 0.999, eps = epsilon 1e-8, lambda = weight_decay 0.01.
    """

    paper = "Liu et al., AAAI 2026"
    problem_dependent = ("lr", "weight_decay")
    own_step = "makes adaptive steps of its own"
    schedules = ("sync",)

    lr: float = positive(0.001)
    alpha: float = nonnegative(0.5, help="weight of the last round's mean direction in every step")
    beta1: float = decay(0.9)
    beta2: float = decay(0.999)
    epsilon: float = positive(1e-8)
    weight_decay: float = nonnegative(0.01, help="lambda, decoupled from the gradient")
    second_moment: str = choice(
        "block", ("block", "coordinate"), help="block: one number per parameter tensor; coordinate: all of v"
    )
    m_counter: str = choice(
        "local",
        ("local", "global"),
        help="steps counted in the first moment's bias correction: those of the job, or of all rounds",
    )

    def bind(self, setting: Setting) -> None:
        self._sizes, self._equal_steps = setting.sizes, setting.counts.K is not None

    def server_init(self, theta: Tensor, survey: Record, h: Record) -> Vectors:
        v = self.blocks(theta) if self.second_moment == "block" else theta
        zero = torch.zeros_like
        return {"theta": theta, "G": zero(theta), "v": zero(v), "w": theta.new_zeros(())}

    def broadcast(self, server: Record, survey: Record, n: Counts, h: Record) -> Vectors:
        return {**vars(server), "t": server.theta.new_full((), n.made)}

    def local_init(self, client: Client, h: Record) -> Vectors:
        theta, v = client.down.theta, client.down.v
        if self.second_moment == "block":
            v = torch.cat([v[b].expand(size) for b, size in enumerate(self._sizes)])
        return {"y": theta, "m": torch.zeros_like(theta), "v": v, "w": client.down.w}

    def local_step(self, local: Record, client: Client, h: Record) -> Vectors:
        q = client.grad(local.y)
        m = h.beta1 * local.m + (1 - h.beta1) * q
        v = h.beta2 * local.v + (1 - h.beta2) * q * q
        k = client.k + 1
        s = client.down.t * client.steps + k
        mhat = m / (1 - h.beta1 ** (k if self.m_counter == "local" else s))
        # the closed form, where there is one, as it has no rounding from step to step
        w = 1 - h.beta2**s if self._equal_steps else h.beta2 * local.w + (1 - h.beta2)
        u = mhat / (torch.sqrt(v / w) + h.epsilon) + h.weight_decay * local.y
        return {"y": local.y - h.lr * (u + h.alpha * client.down.G / client.steps), "m": m, "v": v, "w": w}

    def local_final(self, local: Record, client: Client, h: Record) -> tuple[Vectors, Vectors]:
        v = self.blocks(local.v) if self.second_moment == "block" else local.v
        return {"delta": local.y - client.down.theta, "v": v, "w": local.w}, {}

    def server_step(self, server: Record, mean: Record, n: Counts, h: Record) -> Vectors:
        return {"theta": server.theta + mean.delta, "G": -mean.delta / h.lr, "v": mean.v, "w": mean.w}

    def blocks(self, v: Tensor) -> Tensor:
        """Return the mean of v (d,) over each parameter tensor, (blocks,)."""
        return torch.stack([part.mean() for part in v.split(self._sizes)])
