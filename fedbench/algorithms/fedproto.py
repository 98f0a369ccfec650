"""FedProto."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from fedbench.algorithms.local import Local
from fedbench.method import Client, Counts, Outputs, Record, Setting, Vectors, nonnegative, register


@register("fedproto")
class FedProto(Local):
    """Tan, Long, Liu, Zhou, Lu, Jiang, Zhang, "FedProto: federated prototype learning across heterogeneous
    clients", AAAI 2022, arXiv:2105.00243, Algorithm 1.

    Clients keep their models, and share what their features are on average for each class:

        client:  K times  y_i <- y_i - eta grad mean [ l(y_i; x) + lam ||z(y_i; x) - c_{label}||^2 / f ]
                 C_{i,j} = mean of z(y_i; x) over the samples of class j in its mini-batches, before each step
        server:  c_j <- mean of C_{i,j} over the clients in S_t that have met class j; else c_j stays

    l: the loss of the task; z: the features (f,); the second term is 0 for a class that nobody has met yet.
    The mean over mini-batches is the official code's, and so is the distance of each sample, where the paper
    has that of the class means. A client's model, from theta^0 on, is what it evaluates. model.pt is theta^0.
    Travels: up and down a prototype (f,) and a number for each class, no parameters. eta = lr and lam (1;
    CIFAR: 0.1) are tuned.
    """

    title = "FedProto"
    paper = "Tan et al., AAAI 2022"
    checked_by = "tests/algorithms/test_features.py::test_fedproto_follows_its_equations"
    problem_dependent: ClassVar[tuple[str, ...]] = ("lr", "lam")

    lam: float = nonnegative(1.0, help="pull of features towards their class's prototype; 0: alone")

    def bind(self, setting: Setting) -> None:
        out = setting.outputs()
        self._shape = out.logits.shape[1], *out.features.shape[1:]

    def refusal(self, setting: Setting) -> str | None:
        out = setting.outputs()
        if out.y.is_floating_point() or out.y.dim() != 1 or out.features.dim() != 2:
            return "has a prototype (f,) for each class: it needs one label and one row of features a sample"
        return super().refusal(setting)

    def server_init(self, theta: Tensor, survey: Record, h: Record) -> Vectors:
        return {"theta": theta, "c": theta.new_zeros(self._shape), "met": theta.new_zeros(self._shape[0])}

    def broadcast(self, server: Record, survey: Record, n: Counts, h: Record) -> Vectors:
        return {"c": server.c, "met": server.met}

    def local_init(self, client: Client, h: Record) -> Vectors:
        sums, counts = torch.zeros_like(client.down.c), torch.zeros_like(client.down.met)
        return {"y": client.mine.model, "sum": sums, "count": counts}

    def local_step(self, local: Record, client: Client, h: Record) -> Vectors:
        out = client.outputs(local.y)
        own = (out.y[:, None] == torch.arange(self._shape[0], device=out.y.device)) * out.real[:, None]
        near, met = client.down.c[out.y], client.down.met[out.y]

        def loss(out: Outputs) -> Tensor:
            return out.loss + h.lam * met * (out.features - near).square().mean(1)

        y = client.descend(local.y, client.grad(local.y, loss), h.lr)
        return {"y": y, "sum": local.sum + own.T @ out.features, "count": local.count + own.sum(0)}

    def local_final(self, local: Record, client: Client, h: Record) -> tuple[Vectors, Vectors]:
        met = (local.count > 0).to(local.sum.dtype)
        return {"c": local.sum / local.count.clamp(min=1)[:, None], "met": met}, {"model": local.y}

    def server_step(self, server: Record, mean: Record, n: Counts, h: Record) -> Vectors:
        met = mean.met > 0
        c = torch.where(met[:, None], mean.c / torch.where(met, mean.met, 1.0)[:, None], server.c)
        return {"c": c, "met": torch.maximum(server.met, met.to(server.met.dtype))}
