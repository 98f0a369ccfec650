"""`--dry-run`: what would be run, and the disk and memory that it takes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fedbench.config.config import Config
from fedbench.config.identity import digest, flat
from fedbench.errors import ConfigError
from fedbench.files import free_bytes
from fedbench.runs.run_directory import RunDirectory

if TYPE_CHECKING:
    from fedbench.runs.run import Run

ROW_BYTES = 350  # of a row of measurements, and of the same row in a sweep's rounds.csv
JOB_BYTES = 60  # of a row of jobs.csv
FILES_BYTES = 20_000  # the configuration, the summary, .hydra/, run.log


def forecast(runs: Sequence[tuple[Path, Config]], slots: Sequence[str | None] = (None,)) -> Iterator[str]:
    """Lines about runs and their places, each as soon as it is known. Nothing is written.

    `slots`: the device of each process that would work at once. Raises ConfigError where a run is bad input,
    or the runs would not fit in memory.
    """
    missing = [(RunDirectory(place), config) for place, config in runs]
    missing = [(here, config) for here, config in missing if here.finished(config) is None]
    for here, config in missing:
        here.refuse_other(config)
    yield _counts(runs, missing)
    if not missing:
        return
    from fedbench.runs.run import Run
    from fedbench.sweeps.job import session

    plans: dict[str, Run] = {}
    kinds = [digest({k: v for k, v in flat(config).items() if k != "seed"}) for _, config in missing]
    for kind, (_, config) in zip(kinds, missing, strict=True):
        if kind not in plans:
            plans[kind] = Run(config, session())
    yield _disk(missing[0][0].path, [_bytes_of(plans[kind]) for kind in kinds])
    yield _memory(list(plans.values()), min(max(Counter(slots).values()), len(missing)))


def _counts(runs: Sequence[tuple[Path, Config]], missing: Sequence[tuple[RunDirectory, Config]]) -> str:
    begun = [here.last_round for here, config in missing if here.goes_on(config)]
    parts = [f"{len(runs) - len(missing)} finished already", f"{len(missing) - len(begun)} to run"]
    if begun:
        rounds = ", ".join(map(str, begun[:5]))
        parts.insert(1, f"{len(begun)} going on from round {rounds}{', ...' if len(begun) > 5 else ''}")
    places = {place if len(runs) == 1 else place.parent for place, _ in runs}
    counted = f"{len(runs)} run{'s' if len(runs) > 1 else ''}"
    return f"{counted} in {', '.join(map(str, places))}: {', '.join(parts)}"


def _disk(place: Path, sizes: Sequence[float]) -> str:
    needed, free = sum(sizes), free_bytes(place)
    line = f"disk: about {_size(max(sizes))} a run, {_size(needed)} in all; {_size(free)} are free"
    return line if needed < free else f"{line}: NOT ENOUGH"


def _bytes_of(run: Run) -> float:
    """What a run leaves: model, checkpoint (with all clients' state), partition, tables."""
    config, cost, item = run.config, run.cost, run.dtype.itemsize
    d, jobs = run.layout.d, config.rounds * config.clients.per_round
    vectors = 2 * d + cost.server_state + config.clients.total * cost.client_state
    rows = 2 + config.rounds // config.eval.every
    trace = JOB_BYTES * jobs if config.trace else 0
    return item * vectors + 2 * len(run.assignment) + 2 * ROW_BYTES * rows + trace + FILES_BYTES


def _memory(plans: Sequence[Run], at_once: int) -> str:
    from fedbench.engine.memory import total_memory

    largest = max((plan.memory for plan in plans), key=lambda memory: memory.total)
    there = total_memory(plans[0].device)
    line = f"memory: about {_size(largest.total)} a run ({largest.said})"
    if at_once > 1:
        line += f", {_size(at_once * largest.total)} for {at_once} at once"
    line += f"; {_size(there)} are there"
    if at_once * largest.total > there:
        fit = int(there // largest.total)
        raise ConfigError("hydra.launcher.processes", at_once, f"{line}; {fit} would fit")
    return line


def _size(count: float) -> str:
    for unit in ("bytes", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit != "MiB" else f"{count:.1f} MiB"
        count /= 1024
    return f"{count:,.1f} GiB"
