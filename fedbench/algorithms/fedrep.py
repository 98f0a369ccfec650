"""FedRep."""

from __future__ import annotations

import torch

from fedbench.algorithms.fedper import FedPer
from fedbench.method import Client, Record, Vectors, register, share


@register("fedrep")
class FedRep(FedPer):
    """Collins, Hassani, Mokhtari, Shakkottai, "Exploiting shared representations for personalized federated
    learning", ICML 2021, Algorithm 1.

    theta = (phi, h): the representation phi, which travels, and the head h, of which every client keeps its
    own, h_i. A client trains its head first and the representation after it:

        client:  tau times     h_i   <- h_i - eta grad_h F(phi, h_i; xi)
                 K - tau times  phi_i <- phi_i - eta grad_phi F(phi_i, h_i; xi)
        server:  phi <- phi + gamma sum_{S_t} w_i (phi_i - phi)

    tau = head_share K, rounded to the nearest integer (of two to the even one). In the paper's experiments on
    CIFAR ten local epochs are the head's, then one is the representation's. The part at rest does not move
    with a local optimizer either, whose momentum of it decays. What the head is, starts as, is evaluated and
    travels: as in FedPer.
    eta = lr, head_share and gamma = server_lr (convention D: 1) are tuned.
    """

    paper = "Collins et al., ICML 2021"

    head_share: float = share(10 / 11, help="of the local steps that train the head, before the others")

    def local_step(self, local: Record, client: Client, h: Record) -> Vectors:
        of_head = client.k < torch.round(h.head_share * client.steps)
        all_ = torch.ones_like(local.y, dtype=torch.bool)
        moves = self.join(~of_head & self.shared(all_), of_head & self.own(all_))
        y = client.descend(local.y, torch.where(moves, client.grad(local.y), 0.0), h.lr)
        return {"y": torch.where(moves, y, local.y)}
