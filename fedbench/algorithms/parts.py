"""What methods share that average a part of the model and leave the rest to each client."""

from __future__ import annotations

import torch
from torch import Tensor

from fedbench.algorithms.fedavg import FedAvg
from fedbench.method import Client, Counts, Record, Setting, Vectors


class PersonalPart(FedAvg):
    """FedAvg on a part of theta. Every client trains and keeps its own copy of the rest."""

    schedules = ("sync",)  # under arrivals a client's own model is not known while it works

    def stays(self, setting: Setting) -> Tensor:
        """Whether each number of theta stays at the clients (d,)."""
        raise NotImplementedError

    def bind(self, setting: Setting) -> None:
        kinds, lengths = torch.unique_consecutive(self.stays(setting), return_counts=True)
        self._own, self._lengths = tuple(kinds.tolist()), tuple(lengths.tolist())

    def client_init(self, theta: Tensor, survey: Record, h: Record) -> Vectors:
        return {"own": self.own(theta)}

    def broadcast(self, server: Record, survey: Record, n: Counts, h: Record) -> Vectors:
        return {"shared": self.shared(server.theta)}

    def local_init(self, client: Client, h: Record) -> Vectors:
        return {"y": self.join(client.down.shared, client.mine.own)}

    def local_final(self, local: Record, client: Client, h: Record) -> tuple[Vectors, Vectors]:
        return {"delta": self.shared(local.y) - client.down.shared}, {"own": self.own(local.y)}

    def server_step(self, server: Record, mean: Record, n: Counts, h: Record) -> Vectors:
        shared = self.shared(server.theta) + h.server_lr * mean.delta
        return {"theta": self.join(shared, self.own(server.theta))}

    def personal(self, server: Record, mine: Record) -> Tensor:
        return self.join(self.shared(server.theta), mine.own)

    def shared(self, theta: Tensor) -> Tensor:
        """The part of theta that travels."""
        return self._part(theta, False)

    def own(self, theta: Tensor) -> Tensor:
        """The part of theta that stays at the clients."""
        return self._part(theta, True)

    def _part(self, theta: Tensor, own: bool) -> Tensor:
        pieces = zip(theta.split(self._lengths), self._own, strict=True)
        return torch.cat([theta[:0], *(piece for piece, is_own in pieces if is_own == own)])

    def join(self, shared: Tensor, own: Tensor) -> Tensor:
        """theta from its two parts."""
        kinds = list(zip(self._lengths, self._own, strict=True))
        parts = {
            of: iter(part.split([length for length, is_own in kinds if is_own == of]))
            for of, part in ((False, shared), (True, own))
        }
        return torch.cat([next(parts[is_own]) for _, is_own in kinds])
