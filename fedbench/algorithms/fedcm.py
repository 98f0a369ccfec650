"""FedCM."""

from __future__ import annotations

from fedbench.algorithms.fedavg_m import FedAvgMomentum
from fedbench.method import register


@register("fedcm")
class FedCM(FedAvgMomentum):
    """Xu, Wang, Wang, Yao, "FedCM: federated learning with client-level momentum", arXiv:2106.10874
    (2021), Algorithm 1. The updates, the state and what travels are those of `fedavg_m`:

        client:  y = theta;  K times  y <- y - eta_l (alpha grad F(y; xi) + (1-alpha) Delta)
        server:  Delta <- (1/(eta_l S K)) sum_{S_t} (theta - y_i);   theta <- theta - eta_g Delta

    alpha = beta, Delta = g, eta_l = lr, eta_g = server_lr (convention G; average is eta_g = eta_l K:
    theta <- mean_{S_t} y_i).
    Travels: up 1d, down 2d. A public simulator uses alpha = 0.1, eta_l = 0.1 and plain averaging. If eta_l
    changes over rounds (lr_schedule), eta_g=average follows it.
    """

    title = "FedCM"
    paper = "Xu et al., arXiv:2106.10874"
