"""Local AMSGrad."""

from __future__ import annotations

import torch
from torch import Tensor

from fedbench.method import Algorithm, Client, Counts, Record, Vectors, decay, positive, register, switch


@register("local_amsgrad")
class LocalAMSGrad(Algorithm):
    """Chen, Li, Li, "Toward communication efficient adaptive gradient method", FODS 2020, arXiv:2109.05109.

        client:  y = theta;  K times  f = grad F(y; xi)
                   m_i <- b1 m_i + (1-b1) f;   v_i <- b2 v_i + (1-b2) f^2;   y <- y - eta m_i / sqrt(vhat)
        server:  theta <- mean_{S_t} y_i;   vhat <- max(vhat, mean_{S_t} v_i)

    vhat is shared by all clients and frozen during a round. It starts at epsilon > 0; m_i and v_i start at 0.
    A client keeps m_i and v_i. The server keeps theta and vhat. Travels: up 2d (y_i - theta, v_i), down 2d
    (theta, vhat). In the paper all clients take part.
    bias_correction (not in the paper) divides m_i by 1 - b1^s in the step and v_i by 1 - b2^s in the upload,
    where s is the number of steps that the client has made so far. eta = lr is tuned; beta1 0.9, beta2 0.99.
    """

    title = "Local AMSGrad"
    paper = "Chen et al., FODS 2020"
    problem_dependent = ("lr", "epsilon")
    own_step = "makes adaptive steps of its own"
    schedules = ("sync",)

    lr: float = positive(0.01)
    beta1: float = decay(0.9)
    beta2: float = decay(0.99)
    epsilon: float = positive(1e-3, help="initial value of vhat")
    bias_correction: bool = switch(False)

    def server_init(self, theta: Tensor, survey: Record, h: Record) -> Vectors:
        return {"theta": theta, "vhat": h.epsilon * torch.ones_like(theta)}

    def client_init(self, theta: Tensor, survey: Record, h: Record) -> Vectors:
        zero = torch.zeros_like(theta)
        return {"m": zero, "v": zero, "s": theta.new_zeros(())}

    def broadcast(self, server: Record, survey: Record, n: Counts, h: Record) -> Vectors:
        return {"theta": server.theta, "vhat": server.vhat}

    def local_init(self, client: Client, h: Record) -> Vectors:
        return {"y": client.down.theta, "m": client.mine.m, "v": client.mine.v, "s": client.mine.s}

    def local_step(self, local: Record, client: Client, h: Record) -> Vectors:
        f = client.grad(local.y)
        m = h.beta1 * local.m + (1 - h.beta1) * f
        v = h.beta2 * local.v + (1 - h.beta2) * f * f
        s = local.s + 1
        top = m / (1 - h.beta1**s) if self.bias_correction else m
        return {"y": local.y - h.lr * top / torch.sqrt(client.down.vhat), "m": m, "v": v, "s": s}

    def local_final(self, local: Record, client: Client, h: Record) -> tuple[Vectors, Vectors]:
        v = local.v / (1 - h.beta2**local.s) if self.bias_correction else local.v
        return {"delta": local.y - client.down.theta, "v": v}, {"m": local.m, "v": local.v, "s": local.s}

    def server_step(self, server: Record, mean: Record, n: Counts, h: Record) -> Vectors:
        return {"theta": server.theta + mean.delta, "vhat": torch.maximum(server.vhat, mean.v)}
