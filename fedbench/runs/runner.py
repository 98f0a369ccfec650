"""One run from start, or from its checkpoint, to its last file."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedbench.engine.malloc import keep_memory
from fedbench.errors import UserError
from fedbench.runs import directory as place
from fedbench.runs import summary as files
from fedbench.runs.checkpoint import Checkpointer
from fedbench.runs.metrics import MetricsFile, Row
from fedbench.runs.numerics import set_numerics
from fedbench.runs.plan import Plan
from fedbench.runs.progress import Progress
from fedbench.runs.record import Recorder
from fedbench.runs.session import Session
from fedbench.runs.setup import ReadyRun, Way, make_ready
from fedbench.runs.signals import Interrupted, Signals
from fedbench.runs.stored import Outcome, finished, refuse_other

log = logging.getLogger(__name__)


def run(plan: Plan, directory: Path, session: Session | None = None) -> Outcome:
    """Run, resume or report the run of `plan` in `directory`.

    `session`: what earlier runs of the process have on the device. Raises ConfigError, RunError, and
    Interrupted after SIGINT or SIGTERM (a checkpoint was saved).
    """
    config = plan.config
    keep_memory()
    with place.locked(directory):
        refuse_other(directory, config.given)
        done = finished(directory, config.given)
        if done is not None:
            return _reported(done, directory)
        target = directory if config.resume else place.fresh_staging(directory)
        place.write_config(target, config.given)
        start = time.monotonic()
        try:
            return _compute(plan, target, session or Session())
        except UserError:
            raise
        except Exception as error:
            line = f"{type(error).__name__}: {error}".splitlines()[0]
            files.write_summary(
                target / "summary.json", files.failure(config.given, line, time.monotonic() - start)
            )
            raise
        finally:
            if target != directory and (target / "summary.json").exists():
                place.promote(target, directory)


def _compute(plan: Plan, directory: Path, session: Session) -> Outcome:
    config = plan.config
    set_numerics(config.threads, config.deterministic, plan.device)
    checkpointer = Checkpointer(directory / "checkpoint.pt", config.checkpoint.seconds)
    saved = checkpointer.load() if config.resume else None
    kept = Way(saved["engine"], saved["chunk"]) if saved else None
    return Runner(make_ready(plan, session, kept), directory, checkpointer).go(saved)


class Runner:
    """The loop over server updates of one run: evaluate, record, save."""

    def __init__(self, ready: ReadyRun, directory: Path, checkpointer: Checkpointer) -> None:
        self.ready, self.directory, self.checkpointer = ready, directory, checkpointer
        self.config, self.walk, self.recorder = ready.plan.config, ready.walk, Recorder(ready)
        self.before = 0.0  # wall seconds of earlier processes
        self.start = time.monotonic()

    def go(self, saved: dict[str, Any] | None) -> Outcome:
        """Walk to the end, from a checkpoint if there is one."""
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

    def _begin(self, saved: dict[str, Any] | None) -> MetricsFile:
        ready, plan = self.ready, self.ready.plan
        files.write_partition(self.directory / "partition.npz", plan.assignment)
        log.info(
            "%s: %d parameters, engine %s, chunk %d, device %s",
            plan.algorithm.name, plan.layout.d, ready.engine, ready.chunk, plan.device,
        )  # fmt: skip
        for note in ready.notes:
            log.warning(note)
        if saved is None:
            self.walk.start(ready.measured())
            return MetricsFile(self.directory / "metrics.csv", [])
        self.walk.load_state_dict(saved["walk"])
        self.before = saved["wall_seconds"]
        log.info("going on from round %d", self.walk.version)
        return MetricsFile(self.directory / "metrics.csv", [Row(**row) for row in saved["rows"]])

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
        ready = self.ready
        self.checkpointer.save(self.walk, metrics.rows, self.wall_seconds(), ready.engine, ready.chunk)

    def _end(self, metrics: MetricsFile) -> Outcome:
        ready, where = self.ready, self.directory
        status = "completed" if metrics.rows[-1].finite else "diverged"
        self._save(metrics)
        files.write_model(where / "model.pt", ready)
        if self.config.trace:
            files.write_jobs(where / "jobs.csv", ready)
        compile_seconds = self.walk.trainer.executor.compile_seconds
        summary = files.summarise(ready, metrics.rows, status, self.wall_seconds(), compile_seconds)
        files.write_summary(where / "summary.json", summary)
        return _reported(summary, where)


def _reported(summary: Mapping[str, Any], directory: Path) -> Outcome:
    outcome = Outcome.of(summary, directory)
    log.info(outcome.line)
    return outcome
