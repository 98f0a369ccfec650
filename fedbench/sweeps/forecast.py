"""`--dry-run`: what would be run, and what it takes: disk, memory, and time from rounds that are measured."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fedbench.config.config import Config
from fedbench.config.identity import digest, flat
from fedbench.errors import ConfigError, RunError
from fedbench.files import free_bytes
from fedbench.runs.stored import finished, has_checkpoint, refuse_other, summary
from fedbench.sweeps.progress import duration, last_round

if TYPE_CHECKING:
    from fedbench.runs.plan import Plan
    from fedbench.runs.session import Session

ROW_BYTES = 350  # of a row of metrics.csv, and of the same row in a sweep's rounds.csv
JOB_BYTES = 60  # of a row of jobs.csv
FILES_BYTES = 20_000  # config.yaml, summary.json, .hydra/, run.log


@dataclass(frozen=True)
class Wanted:
    """A run that is asked for, and its place."""

    directory: Path
    config: Config


@dataclass(frozen=True)
class Side:
    """How runs are launched: so many at once, `threads` each (None: all), so many on one device."""

    at_once: int = 1
    threads: int | None = None
    on_one: int = 1


def forecast(wanted: Sequence[Wanted], side: Side) -> Iterator[str]:
    """Lines that say it, each as soon as it is known. Nothing is written.

    Raises ConfigError where a run is bad input, or would not fit in memory.
    """
    missing = [run for run in wanted if finished(run.directory, run.config) is None]
    for run in missing:
        refuse_other(run.directory, run.config)
    yield _counts(wanted, missing)
    if not missing:
        return
    from fedbench.runs.plan import make_plan
    from fedbench.sweeps.job import session

    kinds: dict[str, list[Wanted]] = {}
    plans: dict[str, Plan] = {}
    for run in missing:
        plan = plans.get(key := _kind(run.config, without=("seed",)))
        if plan is None:
            plan = plans[key] = make_plan(run.config, session())
        numbers = (f"algorithm.{name}" for name in plan.algorithm.numbers())
        kinds.setdefault(_kind(run.config, without=("seed", *numbers)), []).append(run)
    first = {kind: plans[_kind(runs[0].config, without=("seed",))] for kind, runs in kinds.items()}
    yield _disk(kinds, first)
    yield _memory(list(first.values()), min(side.on_one, len(missing)))
    yield from _time(wanted, kinds, first, side, session())


def _kind(config: Config, without: Sequence[str]) -> str:
    """What runs have in common that are computed by one program, and so take the same time."""
    return digest({key: value for key, value in flat(config.given).items() if key not in without})


def _counts(wanted: Sequence[Wanted], missing: Sequence[Wanted]) -> str:
    begun = [run for run in missing if has_checkpoint(run.directory, run.config)]
    parts = [f"{len(wanted) - len(missing)} finished already", f"{len(missing) - len(begun)} to run"]
    if begun:
        rounds = ", ".join(str(last_round(run.directory / "metrics.csv")) for run in begun[:5])
        parts.insert(1, f"{len(begun)} going on from round {rounds}{', ...' if len(begun) > 5 else ''}")
    places = {run.directory if len(wanted) == 1 else run.directory.parent for run in wanted}
    counted = f"{len(wanted)} run{'s' if len(wanted) > 1 else ''}"
    return f"{counted} in {', '.join(map(str, places))}: {', '.join(parts)}"


def _disk(kinds: dict[str, list[Wanted]], plans: dict[str, Plan]) -> str:
    sizes = {kind: _bytes_of(plans[kind]) for kind in kinds}
    needed = sum(sizes[kind] * len(runs) for kind, runs in kinds.items())
    free = free_bytes(next(iter(kinds.values()))[0].directory)
    line = f"disk: about {_size(max(sizes.values()))} a run, {_size(needed)} in all; {_size(free)} are free"
    return line if needed < free else f"{line}: NOT ENOUGH"


def _bytes_of(plan: Plan) -> float:
    """What a run leaves: model, checkpoint (with all clients' state), partition, tables."""
    config, cost, item = plan.config, plan.cost, plan.dtype.itemsize
    d, jobs = plan.layout.d, config.rounds * config.clients.per_round
    vectors = 2 * d + cost.server_state + config.clients.total * cost.client_state
    rows = 2 + config.rounds // config.eval.every
    trace = JOB_BYTES * jobs if config.trace else 0
    return item * vectors + 2 * len(plan.assignment) + 2 * ROW_BYTES * rows + trace + FILES_BYTES


def _memory(plans: Sequence[Plan], at_once: int) -> str:
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


def _time(
    wanted: Sequence[Wanted],
    kinds: dict[str, list[Wanted]],
    plans: dict[str, Plan],
    side: Side,
    session: Session,
) -> Iterator[str]:
    from fedbench.runs.pace import measure

    total = 0.0
    yield "time:"
    for kind, runs in kinds.items():
        plan, config = plans[kind], runs[0].config
        name = " ".join(f"{key}={flat(config.given)[key]}" for key in ("dataset", "model", "algorithm"))
        stored = _stored(wanted, plan)
        if stored:
            each, once = sum(stored) / len(stored), 0.0
            how = f"as {len(stored)} finished here took"
        else:
            try:
                pace = measure(plan, session, side.threads)
            except RunError as error:
                raise RunError(f"{name}: {error}") from error
            each, once = pace.seconds(config.rounds, config.eval.every), pace.compiling
            parts = {f"a round (median of {pace.measured})": pace.round, "an evaluation": pace.evaluation}
            parts |= {"to start": pace.start, **({"to compile": once} if once else {})}
            how = ", ".join(f"{_short(seconds)} {what}" for what, seconds in parts.items())
        share = sum(1 - _done(run) for run in runs)
        total += share * each + once * min(side.at_once, len(runs))
        yield f"  {name}: {duration(each)} a run ({how}); {len(runs)} run{'s' if len(runs) > 1 else ''}"
    at_once = min(side.at_once, sum(map(len, kinds.values())))
    shared = f", {at_once} at once (measured alone)" if at_once > 1 else ""
    yield f"about {duration(total / at_once)} in all{shared}"


def _stored(wanted: Sequence[Wanted], plan: Plan) -> list[float]:
    """Seconds of the runs that are finished here, were computed by the same program, and on this hardware."""
    from fedbench.runs.provenance import hardware

    numbers = ("seed", *(f"algorithm.{name}" for name in plan.algorithm.numbers()))
    kind, here = _kind(plan.config, numbers), hardware(plan.device)
    found = []
    for run in wanted:
        if _kind(run.config, numbers) == kind and finished(run.directory, run.config) is not None:
            said = summary(run.directory) or {}
            there = said.get("hardware") or {}
            alike = all(there.get(name) == here[name] for name in here if name != "threads")
            if alike and said.get("rounds") == plan.config.rounds:
                found.append(float(said["wall_seconds"]))
    return found


def _done(run: Wanted) -> float:
    """The share of a run's rounds that its checkpoint has."""
    if not has_checkpoint(run.directory, run.config):
        return 0.0
    return min(last_round(run.directory / "metrics.csv") / max(run.config.rounds, 1), 1.0)


def _size(count: float) -> str:
    for unit in ("bytes", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit != "MiB" else f"{count:.1f} MiB"
        count /= 1024
    return f"{count:,.1f} GiB"


def _short(seconds: float) -> str:
    return f"{1000 * seconds:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"
