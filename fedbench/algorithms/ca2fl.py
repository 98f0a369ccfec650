"""CA2FL."""

from __future__ import annotations

import torch
from torch import Tensor

from fedbench.method import Algorithm, Client, Counts, Record, Vectors, positive, register


@register("ca2fl")
class CA2FL(Algorithm):
    """Wang, Cao, Wu, Chen, Chen, "Tackling the data heterogeneity in asynchronous federated learning with
    cached update calibration", ICLR 2024, Algorithm 1.

        client:  x = theta^v;  K times  x <- x - eta grad F(x; xi);  Delta = x - theta^v
                 sends Delta - h_i;  h_i <- Delta
        server, on S arrivals:  v = h + (1/S) sum_j (Delta_j - h_{i(j)})      with the OLD h
                 theta <- theta + gamma v;   h <- h + (1/N) sum_j (Delta_j - h_{i(j)})

    h_i, a client's last change (0 before the first), is cached where it was made, so that the server holds h
    alone; the paper caches it at the server, with the same numbers. Travels: up 1d, down 1d. h is the mean
    of all N caches. eta = lr and gamma = server_lr (convention D) are tuned.
    """

    paper = "Wang et al., ICLR 2024"
    problem_dependent = ("lr", "server_lr")

    lr: float = positive(0.1)
    server_lr: float = positive(1.0)

    def server_init(self, theta: Tensor, survey: Record, h: Record) -> Vectors:
        return {"theta": theta, "h": torch.zeros_like(theta)}

    def client_init(self, theta: Tensor, survey: Record, h: Record) -> Vectors:
        return {"h": torch.zeros_like(theta)}

    def local_final(self, local: Record, client: Client, h: Record) -> tuple[Vectors, Vectors]:
        delta = local.y - client.down.theta
        return {"dh": delta - client.mine.h}, {"h": delta}

    def server_step(self, server: Record, mean: Record, n: Counts, h: Record) -> Vectors:
        v = server.h + mean.dh
        return {"theta": server.theta + h.server_lr * v, "h": server.h + (n.S / n.N) * mean.dh}
