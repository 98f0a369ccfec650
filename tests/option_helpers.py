"""Data, partitions, models and schedules from plain values, read as those of a run are."""

from __future__ import annotations

from dataclasses import dataclass, replace
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from torch import nn

from fedbench import models
from fedbench.data import Dataset, partitions, registry
from fedbench.data.options import DATASETS
from fedbench.data.partition_options import PARTITIONS
from fedbench.errors import UserError
from fedbench.fields import Choice, read_named
from fedbench.schedule.delays import Delays
from fedbench.schedule.laws import Law
from fedbench.schedule.options import DELAYS, SCHEDULES, Async, Sync
from fedbench.schedule.participation import PARTICIPATIONS, Participation

needs_torchmetrics = pytest.mark.skipif(
    not find_spec("torchmetrics"), reason="eval.metrics needs the extra `metrics`"
)


def load(values: dict[str, Any], root: str, *, seed: int, clients: int) -> Dataset:
    """`fedbench.data.registry.load` of these options of a data set."""
    return registry.load(read_named(DATASETS, values, "dataset"), root, seed=seed, clients=clients)


def refusal(values: dict[str, Any], root: str = "unused", clients: int = 2) -> str:
    """The one line that refuses these options of a data set, or what they name."""
    with pytest.raises(UserError) as error:
        load(values, root, seed=0, clients=clients)
    assert "\n" not in str(error.value)
    assert error.value.exit_code == 2
    return str(error.value)


def partition(
    values: dict[str, Any],
    labels: np.ndarray,
    classes: int,
    clients: int,
    seed: int,
    natural: np.ndarray | None = None,
) -> np.ndarray:
    """`fedbench.data.partitions.partition` by these options of a partition."""
    options = read_named(PARTITIONS, values, "partition")
    return partitions.partition(options, labels, classes, clients, seed, natural)


def build(values: dict[str, Any], shape: tuple[int, ...], classes: int, seed: int, **data: Any) -> nn.Module:
    """`fedbench.models.build` of the model `name` with these options. `data`: vocabulary and positions."""
    options = {key: value for key, value in values.items() if key != "name"}
    return models.build(Choice(values["name"], options), shape, classes, seed, **data)


def class_counts(client: np.ndarray, labels: np.ndarray, classes: int, clients: int) -> np.ndarray:
    """Number of samples of every class at every client (clients, classes)."""
    counts = np.zeros((clients, classes), dtype=int)
    np.add.at(counts, (client, labels), 1)
    return counts


@dataclass(frozen=True)
class Config:
    """What a trace follows from."""

    rounds: int
    clients: SimpleNamespace
    seed: int
    schedule: Sync | Async
    delay: Law
    participation: Participation
    local: SimpleNamespace

    def but(self, **changes: Any) -> Config:
        """Another configuration; schedule, delay and clients as plain values."""
        groups = {"schedule": SCHEDULES, "delay": DELAYS, "participation": PARTICIPATIONS}
        for group, classes in groups.items():
            if group in changes:
                changes[group] = read_named(classes, changes[group], group)
        for section in {"clients", "local"} & set(changes):
            changes[section] = SimpleNamespace(**changes[section])
        return replace(self, **changes)


def durations(config: Config, client: np.ndarray, n: np.ndarray) -> np.ndarray:
    """Durations (m,) of the n-th jobs of `client`, whatever the schedule."""
    return Delays(config.delay, config.clients.total, config.seed)(client, n)


def config(
    rounds: int = 20,
    clients: int = 10,
    per_round: int = 2,
    seed: int = 0,
    delay: dict[str, Any] | None = None,
    **schedule: Any,
) -> Config:
    """A whole configuration; without schedule keys a synchronous one."""
    return Config(
        rounds,
        SimpleNamespace(total=clients, per_round=per_round),
        seed,
        read_named(SCHEDULES, {"name": "async", **schedule} if schedule else {"name": "sync"}, "schedule"),
        read_named(DELAYS, delay or {"name": "none"}, "delay"),
        Participation(),
        SimpleNamespace(epochs=None, epochs_range=None),
    )
