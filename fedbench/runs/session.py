"""What the runs of one process share: data sets, the objective on the device, compiled programs."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

from fedbench.config.config import Config, flat
from fedbench.config.identity import inputs
from fedbench.data import Dataset, partitions
from fedbench.data import registry as datasets
from fedbench.data.files import unchanged
from fedbench.data.options import UserDataset
from fedbench.engine.compiled import Programs
from fedbench.engine.objective import Objective
from fedbench.files import as_given

DATASETS_KEPT = 2


@dataclass(frozen=True)
class OnDevice:
    """A data set on the device with a model's objective, and the programs compiled for it."""

    objective: Objective
    programs: Programs = field(default_factory=Programs)


class Session:
    """Shared by all runs of a process: a run reuses what an earlier one has read, moved or compiled.

    Results depend on it only up to rounding (`engine=auto` compiles what several runs need). It holds the two
    data sets used last, and one objective on the device.
    """

    runs_to_come = 1
    """How many of the expected runs share the next run's program, that run included."""

    def __init__(self) -> None:
        self._datasets: dict[Hashable, Dataset] = {}
        self._made: tuple[Dataset, Hashable, OnDevice] | None = None

    def dataset(self, config: Config) -> Dataset:
        """The configuration's data set, read if it is not at hand. Raises ConfigError and DataError."""
        chosen, root = config.dataset, config.data.root
        read = inputs(flat(config))  # a file may be replaced between two runs
        content = tuple(item for item in read.items() if item[0].startswith(("dataset.", "partition.")))
        place = as_given(root).resolve()
        where = place, (place / f"{chosen.name}.npz").is_file()  # which is read in place of official files
        own = chosen.pool is not None or chosen.partition is not None or isinstance(chosen, UserDataset)
        seed, clients = (config.seed, config.clients.total) if own else (0, 0)
        partition = repr(config.partition) if chosen.pool is not None else ""
        key = repr(chosen), where, seed, clients, partition, content
        found = self._datasets.pop(key, None)
        if found is None or not unchanged(found.files):
            found = datasets.load(chosen, root, seed=seed, clients=clients)
            if chosen.pool is not None:
                found = partitions.divide(found, config.partition, chosen.pool, clients, seed)
        self._datasets[key] = found
        while len(self._datasets) > DATASETS_KEPT:
            del self._datasets[next(iter(self._datasets))]
        return found

    def on_device(self, dataset: Dataset, depends: Hashable, make: Callable[[], OnDevice]) -> OnDevice:
        """What `make` makes of a data set; what it made last, if that was of the same and `depends` is equal.
        `depends`: what the objective depends on besides the data; None: that cannot be known."""
        if self._made is not None and self._made[0] is dataset and depends == self._made[1]:
            return self._made[2]
        self._made = None  # frees the device's memory before the next data go there
        here = make()
        if depends is not None:
            self._made = dataset, depends, here
        return here
