"""One run from start, or from its checkpoint, to its last file."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedbench.config.identity import run_hash
from fedbench.engine.choose import Way
from fedbench.engine.malloc import keep_memory
from fedbench.engine.memory import is_out_of_memory
from fedbench.errors import RunError, UserError
from fedbench.runs import directory as place
from fedbench.runs import summary as files
from fedbench.runs.checkpoint import Checkpointer, Saved
from fedbench.runs.metrics import MetricsFile
from fedbench.runs.numerics import set_numerics
from fedbench.runs.plan import Plan
from fedbench.runs.progress import Progress
from fedbench.runs.record import Recorder
from fedbench.runs.reproduce import write_reproduce
from fedbench.runs.session import Session
from fedbench.runs.setup import ReadyRun, make_ready
from fedbench.runs.signals import Interrupted, Signals
from fedbench.runs.stored import Outcome, finished, refuse_other, sizes

log = logging.getLogger(__name__)


def run(plan: Plan, directory: Path, session: Session | None = None) -> Outcome:
    """Run, resume or report the run of `plan` in `directory`.

    `session`: what earlier runs of the process have on the device. Raises ConfigError, RunError, and
    Interrupted after SIGINT or SIGTERM (a checkpoint was saved).
    """
    given = plan.config.given
    keep_memory()
    with place.locked(directory):
        refuse_other(directory, plan.config)
        done = finished(directory, plan.config)
        if done is not None:
            return _reported(done, directory)
        target = directory if plan.config.resume else place.fresh_staging(directory)
        place.write_config(target, given)
        start = time.monotonic()
        try:
            summary = _compute(plan, target, session or Session())
        except UserError:
            raise
        except Exception as error:
            line = f"{type(error).__name__}: {error}".splitlines()[0]
            failed = files.failure(given, line, time.monotonic() - start)
            files.write_summary(target / "summary.json", failed)
            raise
        finally:
            if target != directory and (target / "summary.json").exists():
                place.promote(target, directory)
        return _reported(summary, directory)


def _compute(plan: Plan, directory: Path, session: Session) -> dict[str, Any]:
    """The summary of the run. Where the device's memory is too small for a chunk of clients, the run starts
    again with half of it: its numbers are those of the chunk that is recorded."""
    config = plan.config
    set_numerics(config.threads, config.deterministic, plan.device)
    file = directory / "checkpoint.pt"
    checkpointer = Checkpointer(file, config.checkpoint.seconds, run_hash(config.given))
    saved = checkpointer.load() if config.resume else None
    way = saved.way if saved else None
    notes: tuple[str, ...] = ()
    while True:
        runner: Runner | None = None
        try:
            ready = make_ready(plan, session, way, notes)
            runner = Runner(ready, directory, checkpointer)
            return runner.go(saved)
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            if runner is None or not runner.may_halve or saved is not None:
                raise RunError(_no_memory(error, file.exists())) from error
            way = Way(ready.way.engine, ready.way.chunk // 2)
            notes = (f"out of memory with chunk={ready.way.chunk}; started again with chunk={way.chunk}",)
        del ready, runner  # before the next ones take memory


class Runner:
    """The loop over server updates of one run: evaluate, record, save."""

    def __init__(self, ready: ReadyRun, directory: Path, checkpointer: Checkpointer) -> None:
        self.ready, self.directory, self.checkpointer = ready, directory, checkpointer
        self.config, self.walk, self.recorder = ready.plan.config, ready.walk, Recorder(ready)
        self.before = 0.0  # wall seconds of earlier processes
        self.start = time.monotonic()

    def go(self, saved: Saved | None) -> dict[str, Any]:
        """Walk to the end, from a checkpoint if there is one; the content of summary.json."""
        rounds, signals = self.ready.trace.updates, Signals()
        with signals.installed():
            metrics = self._begin(saved)
            label = f"{self.ready.plan.algorithm.name} seed={self.config.seed}"
            progress = Progress(self.config.progress, label, rounds, self.walk.version)
            try:
                if not metrics.rows:
                    self._record(metrics)
                while self.walk.version < rounds and metrics.rows[-1].finite:
                    self.walk.update()
                    due = self.walk.version % self.config.eval.every == 0 or self.walk.version == rounds
                    if due:
                        self._record(metrics)
                    progress.update(self.walk.version, metrics.rows[-1].test_accuracy if due else None)
                    self._save_or_stop(signals, metrics)
            finally:
                progress.close()
            return self._end(metrics)

    @property
    def may_halve(self) -> bool:
        """Whether a smaller chunk may help: nothing is done yet, and there is a smaller one."""
        return self.walk.version == 0 and self.ready.way.chunk > 1

    def _begin(self, saved: Saved | None) -> MetricsFile:
        ready, plan = self.ready, self.ready.plan
        files.write_partition(self.directory / "partition.npz", plan.assignment)
        write_reproduce(self.directory, ready)
        log.info(
            "%s: %d parameters, engine %s, chunk %d, device %s",
            plan.algorithm.name, plan.layout.d, ready.way.engine, ready.way.chunk, plan.device,
        )  # fmt: skip
        for note in ready.notes:
            log.warning(note)
        if saved is None:
            self.walk.start(ready.measured())
            return MetricsFile(self.directory / "metrics.csv", [])
        self.walk.load_state_dict(saved.walk)
        self.before = saved.wall_seconds
        log.info("going on from round %d", self.walk.version)
        return MetricsFile(self.directory / "metrics.csv", saved.rows)

    def wall_seconds(self) -> float:
        """Seconds of this run so far, earlier processes included."""
        return self.before + time.monotonic() - self.start

    def _record(self, metrics: MetricsFile) -> None:
        last = metrics.rows[-1].round if metrics.rows else 0
        metrics.append(self.recorder.row(last, self.wall_seconds))

    def _save_or_stop(self, signals: Signals, metrics: MetricsFile) -> None:
        if signals.stop is None and not signals.save and not self.checkpointer.due:
            return
        self._save(metrics)
        signals.save = False
        if signals.stop is not None:
            text = f"stopped after round {self.walk.version}; the same command goes on from there"
            raise Interrupted(text, signals.exit_code)

    def _save(self, metrics: MetricsFile) -> None:
        state = self.walk.state_dict()
        self.checkpointer.save(Saved(state, metrics.rows, self.wall_seconds(), self.ready.way))

    def _end(self, metrics: MetricsFile) -> dict[str, Any]:
        ready, where = self.ready, self.directory
        self._save(metrics)
        files.write_model(where / "model.pt", ready)
        if self.config.trace:
            files.write_jobs(where / "jobs.csv", ready)
        summary = files.summarise(ready, metrics.rows, self.wall_seconds())
        files.write_summary(where / "summary.json", {**summary, "files": sizes(where)})
        return summary


def _no_memory(error: Exception, saved: bool) -> str:
    reason = str(error).splitlines()[0] if str(error) else type(error).__name__
    after = "; the same command goes on from the last checkpoint" if saved else ""
    return f"out of memory: {reason}{after}"


def _reported(summary: Mapping[str, Any], directory: Path) -> Outcome:
    outcome = Outcome.of(summary, directory)
    log.info(outcome.line)
    return outcome
