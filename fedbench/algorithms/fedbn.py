"""FedBN."""

from __future__ import annotations

import torch
from torch import Tensor

from fedbench.algorithms.fedavg import FedAvg
from fedbench.method import Client, Counts, Record, Setting, Vectors, register


@register("fedbn")
class FedBN(FedAvg):
    """Li, Jiang, Zhang, Kamp, Dou, "FedBN: federated learning on non-IID features via local batch
    normalization", ICLR 2021, arXiv:2102.07623, Algorithm 1.

    FedAvg on all parameters except those of normalisation layers. Every client trains and keeps its own copy
    of these, and of the layers' running statistics:

        client:  y = (theta, b_i);  K times  y <- y - eta grad F(y; xi);   b_i <- the normalisation part of y
        server:  theta <- theta + gamma sum_{S_t} w_i (y_i - theta) on the shared part

    Normalisation layers are found by their type. A client keeps b_i, and its model is theta with b_i in
    place. This model is evaluated on the client's own test samples, or on the test set reweighted to the
    client's label shares where the data do not say whose samples are. The server's normalisation part stays
    at its initial value. Travels: up and down 1d minus the normalisation layers.
    eta = lr (1e-2 in the paper) and gamma = server_lr (convention D: 1) are tuned; server_lr=average is
    gamma = 1: theta <- sum_{S_t} w_i y_i on the shared part.
    """

    paper = "Li et al., ICLR 2021"
    keeps_buffers = True
    schedules = ("sync",)  # under arrivals a client's own model is not known while it works

    def bind(self, setting: Setting) -> None:
        is_norm = torch.zeros(setting.d, dtype=torch.bool)
        is_norm[setting.norm_index.cpu()] = True
        kinds, lengths = torch.unique_consecutive(is_norm, return_counts=True)
        self._is_norm, self._lengths = tuple(kinds.tolist()), tuple(lengths.tolist())

    def refusal(self, setting: Setting) -> str | None:
        if len(setting.norm_index) == 0:
            return "keeps normalisation layers at the clients, and this model has none"
        return super().refusal(setting)

    def client_init(self, theta: Tensor, survey: Record, h: Record) -> Vectors:
        return {"norm": self.norm(theta)}

    def broadcast(self, server: Record, survey: Record, n: Counts, h: Record) -> Vectors:
        return {"shared": self.shared(server.theta)}

    def local_init(self, client: Client, h: Record) -> Vectors:
        return {"y": self.join(client.down.shared, client.mine.norm)}

    def local_final(self, local: Record, client: Client, h: Record) -> tuple[Vectors, Vectors]:
        return {"delta": self.shared(local.y) - client.down.shared}, {"norm": self.norm(local.y)}

    def server_step(self, server: Record, mean: Record, n: Counts, h: Record) -> Vectors:
        shared = self.shared(server.theta) + h.server_lr * mean.delta
        return {"theta": self.join(shared, self.norm(server.theta))}

    def personal(self, server: Record, mine: Record) -> Tensor:
        return self.join(self.shared(server.theta), mine.norm)

    def shared(self, theta: Tensor) -> Tensor:
        """The part of theta that travels."""
        return self._part(theta, False)

    def norm(self, theta: Tensor) -> Tensor:
        """The parameters of normalisation layers."""
        return self._part(theta, True)

    def _part(self, theta: Tensor, norm: bool) -> Tensor:
        pieces = zip(theta.split(self._lengths), self._is_norm, strict=True)
        return torch.cat([theta[:0], *(piece for piece, is_norm in pieces if is_norm == norm)])

    def join(self, shared: Tensor, norm: Tensor) -> Tensor:
        """theta from its two parts."""
        kinds = list(zip(self._lengths, self._is_norm, strict=True))
        parts = {
            own: iter(part.split([length for length, is_norm in kinds if is_norm == own]))
            for own, part in ((False, shared), (True, norm))
        }
        return torch.cat([next(parts[is_norm]) for _, is_norm in kinds])
