"""FedNTD."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from fedbench.algorithms.fedavg import FedAvg
from fedbench.method import Client, Outputs, Record, Vectors, nonnegative, positive, register


@register("fedntd")
class FedNTD(FedAvg):
    """Lee, Jeong, Shin, Bae, Yun, "Preservation of the global knowledge by not-true distillation in federated
    learning", NeurIPS 2022, arXiv:2106.03097, Algorithm 1.

    Clients also learn what the global model says about all classes but a sample's own:

        client:  y = theta;  K times
                     y <- y - eta grad mean [ l(y; x) + beta KL(q(theta; x) || q(y; x)) ]
                 q: softmax of the logits / tau over the classes other than the label
        server:  theta <- theta + gamma sum_{i in S_t} w_i (y_i - theta)

    l: the loss of the task; tau = temperature. Without a factor tau^2, as in the official code. Only the
    server keeps state: theta. Travels: up 1d, down 1d. A step takes one more forward pass, which is no
    gradient evaluation. eta = lr, gamma = server_lr (convention D: 1) and beta (1) are tuned.
    """

    paper = "Lee et al., NeurIPS 2022"
    problem_dependent = ("lr", "server_lr", "beta")

    beta: float = nonnegative(1.0, help="weight of the distillation; 0 is FedAvg")
    temperature: float = positive(1.0)

    def local_step(self, local: Record, client: Client, h: Record) -> Vectors:
        known = self.others(client.outputs(client.down.theta), h)

        def loss(out: Outputs) -> Tensor:
            own = self.others(out, h)
            kl = torch.where(known > -torch.inf, known.exp() * (known - own), 0.0).sum(1)
            return out.loss + h.beta * kl

        return {"y": client.descend(local.y, client.grad(local.y, loss), h.lr)}

    def others(self, out: Outputs, h: Record) -> Tensor:
        """Log-probabilities (B, classes) of all classes but the label."""
        label = out.y[:, None] == torch.arange(out.logits.shape[1], device=out.y.device)
        return functional.log_softmax(torch.where(label, -torch.inf, out.logits / h.temperature), 1)
