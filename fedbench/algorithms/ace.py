"""ACE."""

from __future__ import annotations

from fedbench.algorithms.dude_asgd import DuDeASGD
from fedbench.method import register


@register("ace")
class ACE(DuDeASGD):
    """Chang, Yao, Krishnamurthy, Shelton, Chakraborty, Swami, Oymak, Roy-Chowdhury, "Mitigating participation
    imbalance bias in asynchronous federated learning", arXiv 2511.19066 (2025): all-client engagement.

        at the start, all clients:  U_i = grad F(theta^0; xi_i)
        client:  one stochastic gradient G = grad F(theta^v; xi);  sends G - U_i;  U_i <- G
        server, on every arrival:  theta <- theta - gamma (1/N) sum_i U_i
                 the client receives the new theta and goes on

    Every step uses the latest gradient of ALL clients, so fast clients do not count more than slow ones. ACE
    is DuDe-ASGD with one arrival per update (clients.per_round=1), and this class inherits its code (U_i is
    its G_i). All N clients work; K = 1. A client keeps U_i. The server keeps theta and the mean of the U_i.
    Travels: up 1d, down 1d, and N d up, N d down once at the start. gamma = server_lr (it multiplies a
    gradient) is tuned. What we could read of the paper does not settle whether the first gradients make a
    step; here they do not. The variant that leaves old gradients out (ACED) is not implemented.
    """

    title = "ACE"
    paper = "Chang et al., arXiv 2511.19066 (2025)"
    every_arrival = True
