"""What the runs of one process share: data sets, their copy on the device, compiled programs."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

from fedbench import data
from fedbench.config.config import Config
from fedbench.config.identity import flat
from fedbench.config.inputs import MARK, inputs
from fedbench.data import Dataset
from fedbench.data.options import UserDataset
from fedbench.engine.compiled import Programs
from fedbench.engine.objective import Objective

DATASETS_KEPT = 2


@dataclass(frozen=True)
class OnDevice:
    """A data set on the device with a model's objective, and the programs compiled for it."""

    objective: Objective
    programs: Programs = field(default_factory=Programs)


@dataclass(frozen=True)
class _Made:
    dataset: Dataset
    rest: Hashable  # what the objective depends on beside the data
    here: OnDevice


class Session:
    """Give one to all runs of a process: what an earlier run has read, moved or compiled is taken over.

    Results do not depend on it but for rounding (`engine=auto` compiles what several runs need). It holds the
    two data sets used last, and one objective on the device.
    """

    alike = 1
    """Runs of the next run's program that are to come, this one among them."""

    def __init__(self) -> None:
        self._datasets: dict[Hashable, Dataset] = {}
        self._made: _Made | None = None

    def dataset(self, config: Config) -> Dataset:
        """The configuration's data set, read where it is not at hand. Raises ConfigError and DataError."""
        divided = config.divides_data
        generated = config.dataset.partition is not None or isinstance(config.dataset, UserDataset)
        own_clients = divided or generated
        seed, clients = (config.seed, config.clients.total) if own_clients else (0, 0)
        read = inputs(flat(config))  # a file may be replaced between two runs
        content = read.get(f"dataset.path{MARK}"), read.get(f"partition.path{MARK}")
        key = (
            repr(config.dataset),
            config.data.root,
            seed,
            clients,
            config.partition if divided else None,
            content,
        )
        found = self._datasets.pop(key, None)
        if found is None:
            found = data.load(config.dataset, config.data.root, seed=seed, clients=clients)
            if divided:
                found = data.divide(found, config.partition, config.dataset.pool, clients, seed)
        self._datasets[key] = found
        while len(self._datasets) > DATASETS_KEPT:
            del self._datasets[next(iter(self._datasets))]
        return found

    def on_device(self, dataset: Dataset, rest: Hashable | None, make: Callable[[], OnDevice]) -> OnDevice:
        """What `make` would make of `dataset`: the last run's, where it depended on the same.

        `rest`: what it depends on beside the data; None: it is not shared.
        """
        last = self._made
        if last is not None and rest is not None and last.dataset is dataset and last.rest == rest:
            return last.here
        last = self._made = None  # frees the device's memory before the next data go there
        here = make()
        if rest is not None:
            self._made = _Made(dataset, rest, here)
        return here
