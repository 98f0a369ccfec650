"""PAdaMFed and PAdaMFed-VR with parts switched off. With all parts on, nothing changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from fedbench.algorithms.normalised import Normalised
from fedbench.method import Client, Counts, Record, Vectors, silent, switch


@dataclass
class Ablations(Normalised):
    """normalise=false: s = q. momentum=false: beta = 1. control_variates=false: c_i = c = 0 throughout."""

    normalise: bool = switch(True, help="false: steps along q itself")
    momentum: bool = switch(True, help="false: beta = 1")
    control_variates: bool = switch(True, help="false: c_i = c = 0 throughout")

    def resolve(self, n: Counts, warn: Callable[[str], None] = silent) -> dict[str, float]:
        values = super().resolve(n, warn)
        return values if self.momentum else {**values, "beta": 1.0}

    def unit(self, q: Tensor) -> Tensor:
        return super().unit(q) if self.normalise else q

    def server_init(self, theta: Tensor, survey: Record, h: Record) -> Vectors:
        return self._without_c(super().server_init(theta, survey, h), torch.zeros_like(theta))

    def client_init(self, theta: Tensor, survey: Record, h: Record) -> Vectors:
        return self._without_c(super().client_init(theta, survey, h), torch.zeros_like(theta))

    def local_final(self, local: Record, client: Client, h: Record) -> tuple[Vectors, Vectors]:
        upload, keep = super().local_final(local, client, h)
        return upload, self._without_c(keep, client.mine.c)

    def server_step(self, server: Record, mean: Record, n: Counts, h: Record) -> Vectors:
        return self._without_c(super().server_step(server, mean, n, h), server.c)

    def _without_c(self, vectors: Vectors, c: Tensor) -> Vectors:
        return vectors if self.control_variates else {**vectors, "c": c}
