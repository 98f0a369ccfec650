"""The training loop of a run: update, evaluate, save, until the run ends or a signal comes."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

from fedbench.config.config import Config
from fedbench.runs.checkpoint import Checkpointer, Saved
from fedbench.runs.execution import Execution
from fedbench.runs.measurement import Measurement
from fedbench.runs.metrics import Row, is_finite, reason_to_stop
from fedbench.runs.observers import Observer
from fedbench.runs.signals import Interrupted, Signals

log = logging.getLogger(__name__)


def train(
    execution: Execution,
    saved: Saved | None,
    observers: Sequence[Observer],
    signals: Signals,
    checkpointer: Checkpointer,
) -> tuple[list[Row], float]:
    """Train from what is saved, or from the start, until the run ends, or pauses. Its last state is saved.
    Returns its rows, and its seconds: earlier processes count, how long its observers took to begin does not.
    Raises Interrupted after a signal. If several processes compute the run, all call this."""
    loop, problem, group = execution.loop, execution.problem, execution.placement.group
    config, updates, every = problem.config, problem.trace.updates, execution.every
    measurement = Measurement(execution)
    rows: list[Row] = []
    start = time.monotonic()
    if saved is None:
        execution.start()
    else:
        loop.load_state_dict(saved.loop_state)
        rows, start = list(saved.rows), start - saved.wall_seconds
        log.info("going on from round %d", loop.version)

    def clock() -> float:
        return time.monotonic() - start

    def record() -> None:
        row, each = measurement.row(rows[-1]["round"] if rows else 0, clock)
        rows.append(row)
        for observer in observers:
            observer.row(row, each)

    def save() -> None:
        state = loop.state_dict()  # of all processes, gathered at the first one
        checkpointer.save(Saved(state, rows, clock(), execution.choice, execution.commit))
        loop.trainer.store.saved()

    opening = time.monotonic()
    for observer in observers:
        observer.begin(execution, rows)
    start += time.monotonic() - opening  # a logger may take a minute, which is none of the run's
    if saved is None:
        record()
    ended = any(group.all(_at_end(config, rows, loop.version, updates)))
    while not ended:
        loop.update()
        if loop.version % every == 0 or loop.version == updates:
            record()
        for observer in observers:
            observer.updated(loop.version)
        own = _at_end(config, rows, loop.version, updates), signals.save or checkpointer.due, signals.stop
        ends, saves, stops = zip(*group.all(own), strict=True)  # of all processes
        ended, stop = any(ends), next((number for number in stops if number is not None), None)
        if any(saves) or stop is not None:
            signals.save = False
            save()
            signals.relay()
        if stop is not None:
            goes_on = "goes on from there" if config.resume else "begins again (resume=false)"
            text = f"stopped after round {loop.version}; the same command {goes_on}"
            raise Interrupted(text, 128 + int(stop))
    save()
    return rows, clock()


def _at_end(config: Config, rows: Sequence[Row], version: int, updates: int) -> bool:
    """Whether a run ends, or pauses, at a version."""
    if version == updates:
        return True
    until, last = config.checkpoint.until, rows[-1]
    if version > last["round"]:  # no evaluation since: the last row was judged before
        return False
    paused = until is not None and last["round"] >= until
    return paused or not is_finite(last) or reason_to_stop(rows, config.patience, config.target) is not None
