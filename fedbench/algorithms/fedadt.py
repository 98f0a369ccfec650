"""FedADT."""

from __future__ import annotations

import torch
from torch import Tensor

from fedbench.method import Algorithm, Client, Counts, Record, Vectors, decay, nonnegative, positive, register


@register("fedadt")
class FedADT(Algorithm):
    """Gao, Wu, Zhao, Zhu, Zhang, "FedADT: an adaptive method based on derivative term for federated
    learning", Sensors 23(13):6034, 2023. OUR READING of its abstract, since the paper's exact equations were
    not at hand: adaptive local steps with a smoothed difference of successive gradients.

        client:  y = theta;  K times  f = grad F(y; xi)
                   m <- b1 m + (1-b1) f;   v_i <- b2 v_i + (1-b2) f^2;   vhat <- max(vhat, v_i)
                   e_i <- b3 e_i + (1-b3) (f - f_i);   f_i <- f
                   y <- y - eta (m + k_d e_i) / (sqrt(vhat) + eps)
        server:  theta, m, vhat <- means of the clients' y, m, vhat

    f_i is the client's last gradient, also across rounds; in a client's first step of a run f_i = f. All
    other state starts at 0. A client keeps v_i, e_i and f_i. The server keeps theta, m and vhat. Travels: up
    3d, down 3d. eta = lr, k_d = derivative, and beta1, beta2, beta3, epsilon are tuned.
    """

    paper = "Gao et al., Sensors 2023 (our reading)"
    problem_dependent = ("lr", "derivative", "epsilon")
    own_step = "makes adaptive steps of its own"
    schedules = ("sync",)

    lr: float = positive(0.01)
    beta1: float = decay(0.9)
    beta2: float = decay(0.99)
    beta3: float = decay(0.9)
    derivative: float = nonnegative(0.1, help="k_d")
    epsilon: float = positive(1e-3)

    def server_init(self, theta: Tensor, survey: Record, h: Record) -> Vectors:
        zero = torch.zeros_like(theta)
        return {"theta": theta, "m": zero, "vhat": zero}

    def client_init(self, theta: Tensor, survey: Record, h: Record) -> Vectors:
        zero = torch.zeros_like(theta)
        return {"v": zero, "e": zero, "f": zero, "begun": theta.new_zeros(())}

    def broadcast(self, server: Record, survey: Record, n: Counts, h: Record) -> Vectors:
        return {"theta": server.theta, "m": server.m, "vhat": server.vhat}

    def local_init(self, client: Client, h: Record) -> Vectors:
        return {"y": client.down.theta, "m": client.down.m, "vhat": client.down.vhat, **vars(client.mine)}

    def local_step(self, local: Record, client: Client, h: Record) -> Vectors:
        f = client.grad(local.y)
        m = h.beta1 * local.m + (1 - h.beta1) * f
        v = h.beta2 * local.v + (1 - h.beta2) * f * f
        vhat = torch.maximum(local.vhat, v)
        before = torch.where(local.begun > 0, local.f, f)
        e = h.beta3 * local.e + (1 - h.beta3) * (f - before)
        y = local.y - h.lr * (m + h.derivative * e) / (torch.sqrt(vhat) + h.epsilon)
        return {"y": y, "m": m, "v": v, "vhat": vhat, "e": e, "f": f, "begun": torch.ones_like(local.begun)}

    def local_final(self, local: Record, client: Client, h: Record) -> tuple[Vectors, Vectors]:
        upload = {"delta": local.y - client.down.theta, "m": local.m, "vhat": local.vhat}
        return upload, {"v": local.v, "e": local.e, "f": local.f, "begun": local.begun}

    def server_step(self, server: Record, mean: Record, n: Counts, h: Record) -> Vectors:
        return {"theta": server.theta + mean.delta, "m": mean.m, "vhat": mean.vhat}
