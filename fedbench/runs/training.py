"""The way of a run through its rounds: update, evaluate, record, save; until its end, or a signal."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fedbench.engine.objective import TASKS
from fedbench.loggers.backends import RunLoggers
from fedbench.runs import logged, records
from fedbench.runs.checkpoint import Checkpointer, Saved
from fedbench.runs.evaluation import Measurement
from fedbench.runs.metrics import MetricsFile, Row, columns
from fedbench.runs.progress import Progress
from fedbench.runs.provenance import Code, code, code_changes
from fedbench.runs.run_directory import METRICS, RunDirectory
from fedbench.runs.signals import Interrupted, Signals

if TYPE_CHECKING:
    from fedbench.runs.run import Run

log = logging.getLogger(__name__)


class Training:
    """A run that lies on its device, on its way. Of several processes all go it together; the first one alone
    has a directory, a checkpointer and loggers, and with them the rows."""

    def __init__(
        self,
        run: Run,
        directory: RunDirectory | None,
        checkpointer: Checkpointer | None,
        loggers: RunLoggers | None,
    ) -> None:
        self.run, self.loop, self.config = run, run.loop, run.config
        self.directory, self.checkpointer, self.loggers = directory, checkpointer, loggers
        self.measurement, self.rows = Measurement(run), list[Row]()
        self.metrics: MetricsFile | None = None
        self.seconds_before, self.began = 0.0, time.monotonic()

    def go(self, saved: Saved | None) -> None:
        """To the last round, from a checkpoint if there is one. Raises Interrupted after a signal."""
        run, rounds = self.run, self.run.trace.updates
        signals = Signals(self._under_way if self.directory else lambda: "")
        with signals.installed():
            self._begin(saved)
            label, metric = f"{run.algorithm.name} seed={self.config.seed}", TASKS[run.dataset.task].metric
            mode = self.config.progress if self.directory else "none"
            progress = Progress(mode, label, rounds, self.loop.version, metric)
            results: Mapping[str, Any] | None = {"status": "failed"}
            if self.loggers:
                self.loggers.start([row.point() for row in self.rows], again=not self.config.resume)
            try:
                if saved is None:
                    self._record()
                while not run.group.first(self._at_end):
                    self.loop.update()
                    t = self.loop.version
                    if due := t % self.config.eval.every == 0 or t == rounds:
                        self._record()
                    progress.update(t, self.rows[-1].test_accuracy if due and self.rows else None)
                    self._save_or_stop(signals)
                progress.close()
                results = self._end()
            except KeyboardInterrupt:
                results = None
                raise
            finally:
                progress.close()
                if self.loggers:
                    self.loggers.close(results)

    def wall_seconds(self) -> float:
        """Seconds of this run so far, earlier processes included."""
        return self.seconds_before + time.monotonic() - self.began

    def _begin(self, saved: Saved | None) -> None:
        """The files that are there from the start, and the state before the next round."""
        run, here = self.run, self.directory
        if here is not None:
            run.code = (code(),)
            records.write_partition(here.path, run)
            records.write_reproduce(here.path, run)
            log.info(
                "%s: %d parameters, engine %s, chunk %d, device %s",
                run.algorithm.name, run.layout.d, run.choice.engine, run.choice.chunk, run.device,
            )  # fmt: skip
            for note in run.notes:
                log.warning(note)
        if saved is None:
            run.start()
        else:
            self.loop.load_state_dict(saved.walk)
            self.rows, self.seconds_before = saved.rows, saved.wall_seconds
        if here is not None:
            if saved is not None:
                self._go_on_with(saved.code)
                log.info("going on from round %d", self.loop.version)
            asked = columns(self.config.eval.clients, len(run.validation) > 0)
            self.metrics = MetricsFile(here.path / METRICS, self.rows, asked)

    def _go_on_with(self, before: tuple[Code, ...]) -> None:
        """Write down which code computes which part, and say so where it is not the same."""
        run, here, done = self.run, self.run.code[-1], self.loop.version
        unknown = ["by a version that did not write down its own"]
        changes = code_changes(before[-1], here) if before else unknown
        run.code = (*before, {**here, "from_round": done + 1}) if changes else before
        if changes:
            how = f"with {'; '.join(changes)}" if before else changes[0]
            note = f"rounds 1 to {done} were computed {how}" if done else f"the run was begun {how}"
            run.notes = (*run.notes, note)
            log.warning("%s; resume=same refuses this", note)

    def _record(self) -> None:
        """A row of what is measured now."""
        if self.metrics is None:
            self.measurement.take_part()
            return
        last = self.rows[-1].round if self.rows else 0
        self.metrics.append(self.measurement.row(last, self.wall_seconds))
        if self.loggers:
            self.loggers.log(self.rows[-1].point())

    @property
    def _at_end(self) -> bool:
        """Whether the run ends, or pauses, with its last evaluation; the first process knows."""
        if not self.rows or self.loop.version == self.run.trace.updates:
            return True
        until, last = self.config.checkpoint.until, self.rows[-1]
        if self.loop.version > last.round:  # looked at before, and gone on from
            return False
        pauses = until is not None and last.round >= until
        return pauses or not last.finite or records.stopped(self.config, self.rows) is not None

    def _under_way(self) -> str:
        return f"waits for the end of round {self.loop.version + 1}, to save it"

    def _save_or_stop(self, signals: Signals) -> None:
        """Save where it is time, or where a process was asked to; stop where one was."""
        due = self.checkpointer is not None and self.checkpointer.due
        each = self.run.group.all((signals.stop, signals.save or due))
        stop = next((number for number, _ in each if number is not None), None)
        if stop is None and not any(save for _, save in each):
            return
        signals.save = False
        self._save()
        signals.relay()
        if stop is not None:
            text = f"stopped after round {self.loop.version}; the same command goes on from there"
            raise Interrupted(text, 128 + int(stop))

    def _save(self) -> None:
        state = self.loop.state_dict()  # of all processes, at the first one
        if self.checkpointer is not None:
            run = self.run
            self.checkpointer.save(Saved(state, self.rows, self.wall_seconds(), run.choice, run.code))
        self.loop.trainer.store.saved()

    def _end(self) -> dict[str, Any]:
        """The last files; what loggers are told."""
        self._save()
        if (here := self.directory) is None:
            return {}
        records.write_model(here.path, self.run)
        if self.config.trace:
            records.write_jobs(here.path, self.run)
        summary = records.summarise(self.run, self.rows, self.wall_seconds())
        here.write_summary({**summary, "files": here.sizes()})
        self.loop.trainer.store.remove()
        return logged.results(summary)
