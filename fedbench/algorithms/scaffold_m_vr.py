"""SCAFFOLD-M-VR."""

from __future__ import annotations

from torch import Tensor

from fedbench.algorithms.scaffold_m import ScaffoldM
from fedbench.method import (
    MEAN_OF_STEPS,
    Client,
    Counts,
    Record,
    Vectors,
    positive,
    register,
    server_rate,
    share,
)


@register("scaffold_m_vr")
class ScaffoldMVR(ScaffoldM):
    """Cheng, Huang, Wu, Yuan, "Momentum benefits non-IID federated learning simply and provably",
    ICLR 2024 (SCAFFOLD-M-VR).

    Like SCAFFOLD-M, but a local step also takes p = grad F(theta^{t-1}; xi), the gradient at the PREVIOUS
    global model on the same mini-batch (theta^{-1} = theta^0):

        before round 0, all clients:  c_i = mean mini-batch gradient at theta^0;  c = g = mean_i c_i
        client:  q = f + beta (c - c_i) + (1-beta)(g - p) = f - beta c_i + m - (1-beta) p

    c_i, c, g and theta then follow SCAFFOLD-M's lines; g is still the mean of the directions q. A client
    keeps c_i. The server keeps theta, c, g and theta^{t-1}. Travels: up 2d (mean of q, c_i+ - c_i), down 3d
    (theta, m, theta^{t-1}), and once, before round 0, N d up and N d down. Two gradients a step.
    eta = lr, gamma = server_lr (convention G; average is gamma = eta K: theta <- mean_{S_t} y_i) and beta are
    tuned: the theory's values (`fedbench.theory`) need L, Delta and sigma^2.
    """

    title = "SCAFFOLD-M-VR"
    paper = "Cheng et al., ICLR 2024"
    survey = "once"

    lr: float = positive(0.01)
    server_lr: float = server_rate(0.1, help=MEAN_OF_STEPS)
    beta: float = share(0.5, help="weight of the new gradient")

    def server_init(self, theta: Tensor, survey: Record, h: Record) -> Vectors:
        return {"theta": theta, "c": survey.grad, "g": survey.grad, "previous": theta}

    def client_init(self, theta: Tensor, survey: Record, h: Record) -> Vectors:
        return {"c": survey.grad}

    def broadcast(self, server: Record, survey: Record, n: Counts, h: Record) -> Vectors:
        return {**super().broadcast(server, survey, n, h), "previous": server.previous}

    def local_step(self, local: Record, client: Client, h: Record) -> Vectors:
        f, p = client.grad(local.y), client.grad(client.down.previous)
        q = f - h.beta * client.mine.c + client.down.m - (1 - h.beta) * p
        return {"y": local.y - h.lr * q, "u": local.u + q, "a": local.a + f / client.steps}

    def server_step(self, server: Record, mean: Record, n: Counts, h: Record) -> Vectors:
        return {**super().server_step(server, mean, n, h), "previous": server.theta}
