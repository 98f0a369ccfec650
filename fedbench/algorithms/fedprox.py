"""FedProx."""

from __future__ import annotations

from fedbench.algorithms.fedavg import FedAvg
from fedbench.method import Client, Record, Vectors, nonnegative, register


@register("fedprox")
class FedProx(FedAvg):
    """Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith, "Federated optimization in heterogeneous networks",
    MLSys 2020, Algorithm 2, the local problem F_i(y) + (mu/2) ||y - theta||^2 solved inexactly by SGD.

        client:  y = theta;  K times  y <- y - eta (grad F(y; xi) + mu (y - theta))
        server:  theta <- theta + gamma sum_{i in S_t} w_i (y_i - theta)

    w_i = n_i / sum_{S_t} n_j (weighting=samples, as in the official code) or 1/S (uniform). The step is
    explicit, so eta mu < 2 is needed. Only the server keeps state: theta. Travels: up 1d, down 1d. eta = lr,
    gamma = server_lr (convention D; average is 1: theta <- sum_{i in S_t} w_i y_i) and mu (paper: 0.001,
    0.01, 0.1, 1) are tuned.
    """

    paper = "Li et al., MLSys 2020"
    problem_dependent = ("lr", "server_lr", "mu")

    mu: float = nonnegative(0.01, help="proximal weight; 0 is FedAvg")

    def local_step(self, local: Record, client: Client, h: Record) -> Vectors:
        q = client.grad(local.y) + h.mu * (local.y - client.down.theta)
        return {"y": client.descend(local.y, q, h.lr)}
