"""FedDyn."""

from __future__ import annotations

import torch
from torch import Tensor

from fedbench.method import Algorithm, Client, Counts, Record, Vectors, positive, register


@register("feddyn")
class FedDyn(Algorithm):
    """Acar, Zhao, Matas Navarro, Mattina, Whatmough, Saligrama, "Federated learning based on dynamic
    regularization", ICLR 2021, Algorithm 1, the local problem solved inexactly by SGD.

        client:  F_i(y) - <h_i, y> + (alpha/2) ||y - theta||^2, from y = theta:
                 K times  y <- y - eta (grad F(y; xi) - h_i + alpha (y - theta))
                 h_i <- h_i - alpha (y - theta)
        server:  h <- h - (alpha/N) sum_{S_t} (y_i - theta)
                 theta <- mean_{S_t} y_i - h / alpha                            with the NEW h

    h_i and h start at 0. A client keeps h_i (an estimate of grad f_i). The server keeps theta and h = mean
    h_i. Travels: up 1d (y_i - theta), down 1d. If all clients take part, theta^{t+1} = 2 ybar^{t+1} - ybar^t
    whatever alpha is. So alpha -> 0 is not FedAvg, and the server's model can diverge if local training stops
    far from the local optimum. The official code gives small clients a larger alpha; here, as in the paper,
    all have the same. eta = lr (0.1) and alpha (0.001 to 0.1) are tuned.
    """

    paper = "Acar et al., ICLR 2021"
    problem_dependent = ("lr", "alpha")

    lr: float = positive(0.1)
    alpha: float = positive(0.1, help="weight of the dynamic regulariser")

    def server_init(self, theta: Tensor, survey: Record, h: Record) -> Vectors:
        return {"theta": theta, "h": torch.zeros_like(theta)}

    def client_init(self, theta: Tensor, survey: Record, h: Record) -> Vectors:
        return {"h": torch.zeros_like(theta)}

    def local_step(self, local: Record, client: Client, h: Record) -> Vectors:
        drift = local.y - client.down.theta
        q = client.grad(local.y) - client.mine.h + h.alpha * drift
        return {"y": client.descend(local.y, q, h.lr)}

    def local_final(self, local: Record, client: Client, h: Record) -> tuple[Vectors, Vectors]:
        delta = local.y - client.down.theta
        return {"delta": delta}, {"h": client.mine.h - h.alpha * delta}

    def server_step(self, server: Record, mean: Record, n: Counts, h: Record) -> Vectors:
        new = server.h - h.alpha * (n.S / n.N) * mean.delta
        return {"theta": server.theta + mean.delta - new / h.alpha, "h": new}
