"""FAFED."""

from __future__ import annotations

import torch
from torch import Tensor

from fedbench.method import Algorithm, Client, Counts, Record, Vectors, number, positive, register, share


@register("fafed")
class FAFED(Algorithm):
    """Wu, Huang, Hu, Huang, "Faster adaptive federated learning", AAAI 2023, arXiv:2212.00974, Algorithm 2.

        before round 0, all clients:  m = mean_i grad F_i(theta^0);   v = mean_i (grad F_i(theta^0))^2
        first move, part of round 0:  theta <- theta^0 - eta m                       (no H, as printed)
        client:  x = theta;  H = sqrt(v) + r, frozen;  K times
                   f = grad F(x; xi);   p = grad F(x_prev; xi)
                   m <- f + (1-alpha) (m - p);   v <- b v + (1-b) f^2;   x_prev <- x
                   x <- x - eta m / H, except in the K-th step
        server:  m <- mean m_i;   v <- mean v_i;   theta <- mean x_i - eta m / (sqrt(v) + r)

    The server takes the K-th step with the averaged m and the new H, as in the paper and fedbrew. Another
    script lets the clients take it with the old H. x_prev is the client's own last iterate, also across
    rounds, and theta^0 at first. It is all that a client keeps. The server keeps theta, m and v.
    Travels: up 3d (x, m, v), down 3d (theta, m, v), and once, before round 0, 2d per client up and 1d down.
    Two gradients a step; full participation only. eta = lr, alpha, b = beta2 and r = epsilon are tuned. In
    theory eta_t ~ N^(2/3) / (L t^(1/3)) and alpha_t ~ eta_t^2; here both are constant.
    """

    paper = "Wu et al., AAAI 2023"
    problem_dependent = ("lr", "alpha", "epsilon")
    own_step = "makes adaptive steps of its own"
    survey = "once"
    schedules = ("sync",)
    full_participation = True

    lr: float = positive(0.01)
    alpha: float = share(0.5, help="weight of the correction: 1 is the plain gradient")
    beta2: float = number(0.999, low=0.0, high=1.0, help="b")
    epsilon: float = positive(0.1, help="r")

    def survey_upload(self, grad: Tensor) -> Vectors:
        return {"m": grad, "v": grad * grad}

    def server_init(self, theta: Tensor, survey: Record, h: Record) -> Vectors:
        return {"theta": theta, "m": survey.m, "v": survey.v}

    def client_init(self, theta: Tensor, survey: Record, h: Record) -> Vectors:
        return {"prev": theta}

    def broadcast(self, server: Record, survey: Record, n: Counts, h: Record) -> Vectors:
        theta = server.theta - h.lr * server.m if n.t == 0 else server.theta
        return {"theta": theta, "m": server.m, "v": server.v}

    def local_init(self, client: Client, h: Record) -> Vectors:
        return {"x": client.down.theta, "prev": client.mine.prev, "m": client.down.m, "v": client.down.v}

    def local_step(self, local: Record, client: Client, h: Record) -> Vectors:
        f = client.grad(local.x)
        m = f + (1 - h.alpha) * (local.m - client.grad(local.prev))
        moved = local.x - h.lr * m / (torch.sqrt(client.down.v) + h.epsilon)
        return {
            "x": torch.where(client.k < client.steps - 1, moved, local.x),
            "prev": local.x,
            "m": m,
            "v": h.beta2 * local.v + (1 - h.beta2) * f * f,
        }

    def local_final(self, local: Record, client: Client, h: Record) -> tuple[Vectors, Vectors]:
        return {"x": local.x, "m": local.m, "v": local.v}, {"prev": local.prev}

    def server_step(self, server: Record, mean: Record, n: Counts, h: Record) -> Vectors:
        theta = mean.x - h.lr * mean.m / (torch.sqrt(mean.v) + h.epsilon)
        return {"theta": theta, "m": mean.m, "v": mean.v}
