"""pFedMe."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from fedbench.algorithms.fedavg import FedAvg
from fedbench.fields import integer
from fedbench.method import Client, Record, Vectors, positive, register


@register("pfedme")
class PFedMe(FedAvg):
    """Dinh, Tran, Nguyen, "Personalized federated learning with Moreau envelopes", NeurIPS 2020,
    arXiv:2006.08848, Algorithm 1.

        client:  w = v = theta;  local.steps times, on one mini-batch:
                     k times  v <- v - eta (grad F(v; xi) + lam (v - w))     the local problem, inexactly
                     w <- w - eta_w lam (w - v)
        server:  theta <- theta + gamma sum_{i in S_t} w_i (w - theta)        gamma: the paper's beta

    A client keeps v, and evaluates it; before it has worked, it evaluates theta^0. As in the official code, v
    goes on from one mini-batch to the next, and starts at theta in every round; the paper leaves that open.
    A step takes k = inner_steps gradients. Travels: up 1d, down 1d. eta = lr (0.005 to 0.1), eta_w = outer_lr
    (0.005), lam (15 to 30), inner_steps (5) and gamma = server_lr (convention D: 1 to 4) are tuned.
    """

    title = "pFedMe"
    paper = "Dinh et al., NeurIPS 2020"
    schedules: ClassVar[tuple[str, ...]] = ("sync",)  # under arrivals v is not known while a client works
    problem_dependent = ("lr", "server_lr", "outer_lr", "lam")

    lr: float = positive(0.05)
    outer_lr: float = positive(0.005, help="of the steps towards a client's own model")
    lam: float = positive(15.0, help="pull of a client's own model towards the global one")
    inner_steps: int = integer(5, low=1, help="gradients on one mini-batch")

    def client_init(self, theta: Tensor, survey: Record, h: Record) -> Vectors:
        return {"v": theta}

    def local_init(self, client: Client, h: Record) -> Vectors:
        return {"w": client.down.theta, "v": client.down.theta}

    def local_step(self, local: Record, client: Client, h: Record) -> Vectors:
        w, v = local.w, local.v
        for _ in range(self.inner_steps):
            v = v - h.lr * (client.grad(v) + h.lam * (v - w))
        return {"w": w - h.outer_lr * h.lam * (w - v), "v": v}

    def local_final(self, local: Record, client: Client, h: Record) -> tuple[Vectors, Vectors]:
        return {"delta": local.w - client.down.theta}, {"v": local.v}

    def personal(self, server: Record, mine: Record) -> Tensor:
        return mine.v
