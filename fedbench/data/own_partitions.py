"""Partitions that a user's module registers."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from fedbench.data.division import PartitionOptions, ToPartition
from fedbench.data.partition_files import Rows, client_of_rows
from fedbench.data.partition_options import PARTITIONS, misfit, without_sample
from fedbench.errors import DataError
from fedbench.own_options import Registered, call_registered, registering

F = TypeVar("F", bound=Callable[..., Rows])


def register_partition(name: str) -> Callable[[F], F]:
    """Decorator: register a function that divides the training samples under `partition=<name>`.

    It returns the client (n,) of every sample, -1 for none, or for each client its row numbers. The run
    passes its parameters `labels` (n,) (targets (n, k) where there are no classes), `classes`, `clients` (N),
    `rng` (NumPy's generator at partition.seed) and `natural` (n,), the data's own users or None. All others
    are options, keys under `partition`. It is called twice, and refused if the two differ. Raises ValueError
    if the name is one of fedbench's own.
    """
    return registering("partition", name, ("labels", "classes", "clients", "rng", "natural"), PARTITIONS)


@dataclass(frozen=True)
class UserPartition(Registered, PartitionOptions):  # type: ignore[override]  # whose name is its own
    """A partition that a module named by `imports` registers."""

    def draw(self, p: ToPartition) -> np.ndarray:
        """What the function says, checked. Raises ConfigError and DataError."""
        client = self._called(p)
        why = misfit(client, p) or without_sample(client, p)
        if not why and (client != self._called(p)).any():
            why = "the same call twice gave two partitions; random numbers come from its parameter rng"
        if why:
            raise DataError(f"partition={self.name}: its function's result does not fit: {why}")
        return client.astype(np.int64)

    def _called(self, p: ToPartition) -> np.ndarray:
        here = copy.deepcopy({key: getattr(p, key) for key in ("labels", "classes", "clients", "rng")})
        here["natural"] = None if p.natural is None else p.natural.copy()
        made = call_registered("partition", self.chosen, here, PARTITIONS)
        where = f"partition={self.name}: its function's result"
        if not isinstance(made, Sequence | Mapping | np.ndarray) or isinstance(made, str):
            raise DataError(f"{where} is a {type(made).__name__}; the client of each sample is expected")
        return client_of_rows(made, len(p.labels), where)
