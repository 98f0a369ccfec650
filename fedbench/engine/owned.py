"""Clients' state where several processes compute a run: each has the rows of its own clients, in memory."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fedbench.engine.process_group import ProcessGroup
from fedbench.engine.state import MemoryStore
from fedbench.method import Vectors


class OwnedStore(MemoryStore):
    """Client c is of process c modulo their number, and row c // number there. A checkpoint has all rows in
    the order of clients, at the first process: any number of processes can go on from it."""

    def __init__(self, clients: int, device: torch.device | str, group: ProcessGroup) -> None:
        super().__init__(group.clients(clients), device)
        self.group, self.total = group, clients

    def gather(self, ids: Tensor) -> Vectors:
        return super().gather(ids // self.group.size)

    def scatter(self, ids: Tensor, vectors: Vectors) -> None:
        super().scatter(ids // self.group.size, vectors)

    def state_dict(self) -> dict[str, Any]:
        return self.group.collect(self.tensors, self.total)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(self.group.scatter(state))
