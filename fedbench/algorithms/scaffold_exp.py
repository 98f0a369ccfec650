"""SCAFFOLD-ExP."""

from __future__ import annotations

import torch

from fedbench.algorithms.fedexp import extrapolation
from fedbench.algorithms.scaffold import ControlVariates
from fedbench.method import Client, Counts, Record, Vectors, nonnegative, positive, register, share


@register("scaffold_exp")
class ScaffoldExP(ControlVariates):
    """Jhunjhunwala, Wang, Joshi, "FedExP: speeding up federated averaging via extrapolation", ICLR 2023:
    FedExP's server step over SCAFFOLD's clients, as in the authors' code.

        client:  y = theta;  K times  y <- y - eta (grad F(y; xi) - c_i + c);   Delta_i = y - theta
                 c_i+ = c_i - c + (theta - y) / (K eta)
        server:  Delta = mean_{S_t} Delta_i
                 gamma = max{1, mean_{S_t} ||Delta_i||^2 / (2 (||Delta||^2 + epsilon_t))}
                 theta <- theta + gamma Delta
                 c     <- c + (1/N) sum_{S_t}(c_i+ - c_i)                              without gamma

    The clients are those of `scaffold` with option 2 (including its K with local momentum). Means are
    uniform, so that c stays the mean of all c_i; the authors' code weights clients by their samples.
    epsilon_t: see `fedexp`. Near the optimum Delta vanishes before the Delta_i do, and gamma grows as far as
    epsilon allows. A client keeps c_i between its participations. The server keeps theta and c. Travels: up
    2d and one scalar, down 2d (theta, c). eta = lr and epsilon (1e-3 on CIFAR, 0.1 on EMNIST) are tuned; the
    server's step size needs no tuning.
    """

    title = "SCAFFOLD-ExP"
    paper = "Jhunjhunwala et al., ICLR 2023"
    problem_dependent = ("lr", "epsilon")

    lr: float = positive(0.05)
    epsilon: float = nonnegative(1e-3)
    epsilon_decay: float = share(1.0, help="epsilon is multiplied by this after every round")

    def local_final(self, local: Record, client: Client, h: Record) -> tuple[Vectors, Vectors]:
        upload, keep = super().local_final(local, client, h)
        return {**upload, "square": torch.sum(upload["delta"] ** 2)}, keep

    def server_step(self, server: Record, mean: Record, n: Counts, h: Record) -> Vectors:
        ratio = extrapolation(mean.square, mean.delta, h.epsilon * h.epsilon_decay**n.t)
        return {
            "theta": server.theta + torch.clamp(ratio, min=1.0) * mean.delta,
            "c": server.c + (n.S / n.N) * mean.dc,
        }
