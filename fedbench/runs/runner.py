"""One run from start, or from its checkpoint, to its last file."""

from __future__ import annotations

import dataclasses
import logging
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedbench.config.identity import run_hash
from fedbench.engine.malloc import keep_memory
from fedbench.engine.memory import is_out_of_memory
from fedbench.engine.tasks import TASKS
from fedbench.errors import RunError, UserError
from fedbench.loggers.backends import RunLoggers
from fedbench.runs import logged
from fedbench.runs import summary as files
from fedbench.runs.checkpoint import Checkpointer, Saved, refuse_other_code, share
from fedbench.runs.further import Further, further
from fedbench.runs.metrics import MetricsFile, Row
from fedbench.runs.numerics import set_numerics
from fedbench.runs.plan import Plan
from fedbench.runs.progress import Progress
from fedbench.runs.provenance import Code, code, code_changes
from fedbench.runs.record import Recorder
from fedbench.runs.reproduce import write_reproduce
from fedbench.runs.run_directory import CHECKPOINT, JOBS, METRICS, MODEL, PARTITION, Outcome, RunDirectory
from fedbench.runs.session import Session
from fedbench.runs.setup import ReadyRun, make_ready
from fedbench.runs.signals import Interrupted, Signals

log = logging.getLogger(__name__)


def run(plan: Plan, directory: Path, session: Session | None = None) -> Outcome:
    """Run, resume or report the run of `plan` in `directory`.

    `session`: what earlier runs of the process have on the device. Raises ConfigError, RunError, and
    Interrupted after SIGINT or SIGTERM (a checkpoint was saved).
    """
    config, here = plan.config, RunDirectory(directory)
    keep_memory()
    with here.locked():
        here.refuse_other(config)
        done = here.finished(config)
        if done is not None:
            logged.catch_up(config, directory, done)
            return _reported(done, directory)
        before = further(plan, here)
        target = here if config.resume else here.staging()
        target.write_config(config.given)
        start = time.monotonic()
        try:
            summary = _compute(
                plan, target, session or Session(), before, logged.run_loggers(config, directory)
            )
        except UserError:
            raise
        except Exception as error:
            line = f"{type(error).__name__}: {error}".splitlines()[0]
            target.write_summary(files.failure(config.given, line, time.monotonic() - start))
            raise
        finally:
            if target is not here and target.has_summary:
                here.promote(target)
                shutil.rmtree(here.state(config), ignore_errors=True)
        return _reported(summary, directory)


def _compute(
    plan: Plan, directory: RunDirectory, session: Session, before: Further | None, loggers: RunLoggers
) -> dict[str, Any]:
    """The summary of the run, which goes on from its checkpoint, or from what was computed `before`.

    Where the device's memory is too small for a chunk of clients, the run starts again with half of it: its
    numbers are those of the chunk that is recorded.
    """
    config = plan.config
    set_numerics(config.threads, config.deterministic, plan.device, config.precision == "tf32")
    file = directory.path / CHECKPOINT
    checkpointer = Checkpointer(file, config.checkpoint.seconds, run_hash(config.given))
    saved = before.saved if before else checkpointer.load() if config.resume else None
    if saved:
        refuse_other_code(config, saved, before.earlier.path / CHECKPOINT if before else file)
    share(saved, plan.group)
    way = saved.way if saved else None
    notes: tuple[str, ...] = (before.note,) if before else ()
    while True:
        runner: Runner | None = None
        try:
            ready = make_ready(plan, session, way, notes, directory.state(config))
            if before and ready.chosen != ready.way:
                log.warning("chosen for %d rounds: %s; kept: %s", config.rounds, ready.chosen, ready.way)
            runner = Runner(ready, directory, checkpointer, loggers)
            return runner.go(saved)
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            if runner is None or not runner.may_halve or saved is not None:
                raise RunError(_no_memory(error, file.exists())) from error
            way = dataclasses.replace(ready.way, chunk=ready.way.chunk // 2)
            notes = (f"out of memory with chunk={ready.way.chunk}; started again with chunk={way.chunk}",)
        del ready, runner  # before the next ones take memory


class Runner:
    """The loop over server updates of one run: evaluate, record, save."""

    def __init__(
        self, ready: ReadyRun, directory: RunDirectory, checkpointer: Checkpointer, loggers: RunLoggers
    ) -> None:
        self.ready, self.directory, self.checkpointer, self.loggers = ready, directory, checkpointer, loggers
        self.config, self.walk, self.recorder = ready.plan.config, ready.walk, Recorder(ready)
        self.group = ready.plan.group
        self.before = 0.0  # wall seconds of earlier processes
        self.code: tuple[Code, ...] = (code(),)  # that computes it, part by part
        self.start = time.monotonic()

    def go(self, saved: Saved | None) -> dict[str, Any]:
        """Walk to the end, from a checkpoint if there is one; the content of summary.json."""
        rounds, signals = self.ready.trace.updates, Signals(self._under_way)
        with signals.installed():
            metrics = self._begin(saved)
            self.loggers.start([row.point() for row in metrics.rows], again=not self.config.resume)
            label = f"{self.ready.plan.algorithm.name} seed={self.config.seed}"
            metric = TASKS[self.ready.plan.dataset.task].metric
            progress = Progress(self.config.progress, label, rounds, self.walk.version, metric)
            results: Mapping[str, Any] | None = {"status": "failed"}
            try:
                if not metrics.rows:
                    self._record(metrics)
                while self.walk.version < rounds and not self._at_end(metrics.rows):
                    self.group.lead("update")
                    self.walk.update()
                    due = self.walk.version % self.config.eval.every == 0 or self.walk.version == rounds
                    if due:
                        self._record(metrics)
                    progress.update(self.walk.version, metrics.rows[-1].test_accuracy if due else None)
                    self._save_or_stop(signals, metrics)
                progress.close()
                summary = self._end(metrics)
                results = logged.results(summary)
                return summary
            except KeyboardInterrupt:
                results = None
                raise
            finally:
                progress.close()
                self.loggers.close(results)

    def _at_end(self, rows: list[Row]) -> bool:
        """Whether the run ends, or pauses, with its last evaluation."""
        until, last = self.config.checkpoint.until, rows[-1]
        if self.walk.version > last.round:  # looked at before, and gone on from
            return False
        pauses = until is not None and last.round >= until
        return pauses or not last.finite or files.stopped(self.config, rows) is not None

    @property
    def may_halve(self) -> bool:
        """Whether a smaller chunk may help: nothing is done yet, there is a smaller one, and no other process
        has to start again too."""
        return self.walk.version == 0 and self.ready.way.chunk > 1 and self.group.size == 1

    def _begin(self, saved: Saved | None) -> MetricsFile:
        ready, plan = self.ready, self.ready.plan
        files.write_partition(self.directory.path / PARTITION, plan.assignment)
        write_reproduce(self.directory.path, ready, self.code[-1])
        log.info(
            "%s: %d parameters, engine %s, chunk %d, device %s",
            plan.algorithm.name, plan.layout.d, ready.way.engine, ready.way.chunk, plan.device,
        )  # fmt: skip
        for note in ready.notes:
            log.warning(note)
        if saved is None:
            self.group.lead("start")
            self.walk.start(ready.measured())
            return MetricsFile(self.directory.path / METRICS, [], self.config.eval.clients)
        self.walk.load_state_dict(saved.walk)
        self.before = saved.wall_seconds
        self._go_on_with(saved.code)
        log.info("going on from round %d", self.walk.version)
        return MetricsFile(self.directory.path / METRICS, saved.rows, self.config.eval.clients)

    def _go_on_with(self, before: tuple[Code, ...]) -> None:
        """Write down which code computes which part, and say so where it is not the same."""
        here, done = self.code[-1], self.walk.version
        unknown = ["by a version that did not write down its own"]
        changes = code_changes(before[-1], here) if before else unknown
        self.code = (*before, {**here, "from_round": done + 1}) if changes else before
        if changes:
            how = f"with {'; '.join(changes)}" if before else changes[0]
            note = f"rounds 1 to {done} were computed {how}" if done else f"the run was begun {how}"
            self.ready = dataclasses.replace(self.ready, notes=(*self.ready.notes, note))
            log.warning("%s; resume=same refuses this", note)

    def wall_seconds(self) -> float:
        """Seconds of this run so far, earlier processes included."""
        return self.before + time.monotonic() - self.start

    def _record(self, metrics: MetricsFile) -> None:
        last = metrics.rows[-1].round if metrics.rows else 0
        row = self.recorder.row(last, self.wall_seconds)
        metrics.append(row)
        self.loggers.log(row.point())

    def _save_or_stop(self, signals: Signals, metrics: MetricsFile) -> None:
        signals.heed(self.group.asked)
        if signals.stop is None and not signals.save and not self.checkpointer.due:
            return
        signals.save = False
        self._save(metrics)
        signals.relay()
        if signals.stop is not None:
            self.group.lead(f"end {signals.exit_code}")
            text = f"stopped after round {self.walk.version}; the same command goes on from there"
            raise Interrupted(text, signals.exit_code)

    def _under_way(self) -> str:
        return f"waits for the end of round {self.walk.version + 1}, to save it"

    def _save(self, metrics: MetricsFile) -> None:
        self.group.lead("state")
        state = self.walk.state_dict()
        self.checkpointer.save(Saved(state, metrics.rows, self.wall_seconds(), self.ready.way, self.code))
        self.walk.trainer.store.saved()

    def _end(self, metrics: MetricsFile) -> dict[str, Any]:
        ready, where = self.ready, self.directory
        self._save(metrics)
        files.write_model(where.path / MODEL, ready)
        if self.config.trace:
            files.write_jobs(where.path / JOBS, ready)
        summary = files.summarise(ready, metrics.rows, self.wall_seconds(), self.code)
        where.write_summary({**summary, "files": where.sizes()})
        self.walk.trainer.store.remove()
        self.group.lead("end 0")
        return summary


def _no_memory(error: Exception, saved: bool) -> str:
    reason = str(error).splitlines()[0] if str(error) else type(error).__name__
    after = "; the same command goes on from the last checkpoint" if saved else ""
    return f"out of memory: {reason}{after}"


def _reported(summary: Mapping[str, Any], directory: Path) -> Outcome:
    outcome = Outcome.of(summary, directory)
    log.info(outcome.line)
    return outcome
