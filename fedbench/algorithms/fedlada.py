"""FedLADA."""

from __future__ import annotations

import torch
from torch import Tensor

from fedbench.method import (
    MEAN,
    Algorithm,
    Client,
    Counts,
    Record,
    Setting,
    Vectors,
    decay,
    positive,
    register,
    server_rate,
    share,
)


@register("fedlada")
class FedLADA(Algorithm):
    """Sun, Shen, Sun, Ding, Tao, "Efficient federated learning via local adaptive amended optimizer with
    linear speedup", IEEE TPAMI 2023, arXiv:2308.00522.

        client:  y = theta;  m = 0;  v_i = vhat_i = v;  K times  q = grad F(y; xi)
                   m <- b1 m + (1-b1) q;   v_i <- b2 v_i + (1-b2) q^2;   vhat_i <- max(vhat_i, v_i)
                   y <- y - eta (alpha m / sqrt(vhat_i) + (1-alpha) g)
        server:  g <- mean_{S_t} (theta - y_i) / (eta K);   v <- mean_{S_t} vhat_i
                 theta <- theta + gamma mean_{S_t} (y_i - theta)

    g starts at 0 and v at epsilon^2, the only guard under the root. With a small epsilon the very first step
    is thus eta alpha (1-b1)/sqrt(1-b2) per coordinate, whatever the gradient's size. v never decreases. g is
    the mean of all local directions. Clients sum these in a separate vector, since (theta - y)/eta loses
    digits in float32. With alpha = 1, g has no effect. With b1 = 0 and v held at 1 the method is FedCM, whose
    beta is alpha. No code of the authors is known to us. Two third-party implementations agree on these
    equations (one uses Adam without the maximum, and epsilon outside the root).
    Only the server keeps state: theta, g and v. Travels: up 2d (mean direction, vhat_i), or 3d (also
    y_i - theta) if clients make different numbers of steps; down 3d. eta = lr and epsilon are tuned;
    gamma = server_lr (convention D) is 1, alpha 0.1, beta1 0.9, beta2 0.99 or 0.999. server_lr=average is
    gamma = 1: theta <- mean_{S_t} y_i.
    """

    paper = "Sun et al., TPAMI 2023"
    problem_dependent = ("lr", "server_lr", "epsilon")
    own_step = "makes adaptive steps of its own"
    schedules = ("sync",)

    lr: float = positive(0.003)
    server_lr: float = server_rate(1.0, help=MEAN)
    alpha: float = share(0.1, help="weight of the client's own direction; the global direction gets the rest")
    beta1: float = decay(0.9)
    beta2: float = decay(0.99)
    epsilon: float = positive(1e-8, help="v starts at its square")

    def bind(self, setting: Setting) -> None:
        self._equal_steps = setting.counts.K is not None

    def server_init(self, theta: Tensor, survey: Record, h: Record) -> Vectors:
        return {"theta": theta, "g": torch.zeros_like(theta), "v": h.epsilon**2 * torch.ones_like(theta)}

    def broadcast(self, server: Record, survey: Record, n: Counts, h: Record) -> Vectors:
        return vars(server)

    def local_init(self, client: Client, h: Record) -> Vectors:
        theta, v = client.down.theta, client.down.v
        return {"y": theta, "m": torch.zeros_like(theta), "v": v, "vhat": v, "u": torch.zeros_like(theta)}

    def local_step(self, local: Record, client: Client, h: Record) -> Vectors:
        q = client.grad(local.y)
        m = h.beta1 * local.m + (1 - h.beta1) * q
        v = h.beta2 * local.v + (1 - h.beta2) * q * q
        vhat = torch.maximum(local.vhat, v)
        u = h.alpha * m / torch.sqrt(vhat) + (1 - h.alpha) * client.down.g
        return {"y": local.y - h.lr * u, "m": m, "v": v, "vhat": vhat, "u": local.u + u}

    def local_final(self, local: Record, client: Client, h: Record) -> tuple[Vectors, Vectors]:
        upload = {"u": local.u / client.steps, "vhat": local.vhat}
        return upload if self._equal_steps else {**upload, "delta": local.y - client.down.theta}, {}

    def server_step(self, server: Record, mean: Record, n: Counts, h: Record) -> Vectors:
        delta = mean.delta if n.K is None else -h.lr * n.K * mean.u
        return {"theta": server.theta + h.server_lr * delta, "g": mean.u, "v": mean.vhat}
