"""The training loop of a run: update, evaluate, record and save, until the run ends or a signal comes."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedbench import schedule
from fedbench.config.config import CONFUSION, flat
from fedbench.engine.objective import TASKS
from fedbench.files import atomically
from fedbench.loggers.backends import Point, RunLoggers
from fedbench.runs import provenance
from fedbench.runs.checkpoint import Checkpointer, Saved, write_torch
from fedbench.runs.evaluation import Measurement
from fedbench.runs.metrics import (
    LEVELS,
    ClientsFile,
    MetricsFile,
    Row,
    is_finite,
    reason_to_stop,
    rounds_to,
    stopping_accuracy,
)
from fedbench.runs.progress import Progress
from fedbench.runs.run_directory import (
    CHECKPOINT,
    CLIENTS,
    JOBS,
    METRICS,
    MODEL,
    PARTITION,
    PAUSED,
    REPRODUCE,
    RunDirectory,
    logged,
)
from fedbench.runs.signals import Interrupted, Signals

if TYPE_CHECKING:
    from fedbench.runs.run import Run


log = logging.getLogger(__name__)


class Training:
    """Trains a run that is prepared on its device. If several processes compute it, all take part; only the
    first one has a directory, a checkpointer, loggers and the rows."""

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
        self.clients: ClientsFile | None = None
        self.seconds_before, self.began = 0.0, time.monotonic()

    def go(self, saved: Saved | None) -> None:
        """Train until the run ends, from a checkpoint if there is one. Raises Interrupted after a signal."""
        run, rounds, first = self.run, self.run.trace.updates, self.directory is not None

        def under_way() -> str:
            return f"waits for the end of round {self.loop.version + 1}, to save it" if first else ""

        group = run.together  # whose process handles signals and shows progress for all its runs
        with (group.signals if group else Signals(under_way)).installed() as signals:
            self._begin(saved)
            if group is not None:
                group.round, group.rounds = self.loop.version, rounds
            label, metric = f"{run.algorithm.name} seed={self.config.seed}", TASKS[run.dataset.task].metric
            mode = self.config.progress if first and group is None else "none"
            progress = Progress(mode, label, rounds, self.loop.version, metric)
            results: Mapping[str, Any] | None = {"status": "failed"}
            if self.loggers:
                self.loggers.start([Point.of(row) for row in self.rows], again=not self.config.resume)
            try:
                if saved is None:
                    self._record()
                if run.compiles and self.loop.version < rounds:
                    progress.compiling()
                while not run.group.first(self._at_end):
                    self.loop.update()
                    t = self.loop.version
                    if due := t % run.every == 0 or t == rounds:
                        self._record()
                    accuracy = self.rows[-1]["test_accuracy"] if due and self.rows else None
                    progress.update(t, accuracy)
                    if group is not None:
                        group.round, group.accuracy = t, group.accuracy if accuracy is None else accuracy
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
        """Write the files that exist from the start, and set the state before the next round."""
        run, here = self.run, self.directory
        if here is not None:
            atomically(here.path / PARTITION, self._write_partition)
            provenance.write_reproduce(here.path / REPRODUCE, run)
            log.info(
                "%s: %d parameters, engine %s, chunk %d, device %s",
                run.algorithm.name, run.layout.d, run.choice.engine, run.choice.chunk, run.device,
            )  # fmt: skip
            if run.every > 1 and self.config.eval.every is None:
                log.info(
                    "evaluated every %d rounds, for a tenth of the time at most (eval.every=1: all)",
                    run.every,
                )
            for note in run.notes:
                log.warning(note)
        if saved is None:
            run.start()
        else:
            self.loop.load_state_dict(saved.walk)
            self.rows, self.seconds_before = saved.rows, saved.wall_seconds
        if here is not None:
            if saved is not None:
                log.info("going on from round %d", self.loop.version)
                if saved.commit != run.commit:
                    before, now = map(provenance.short, (saved.commit, run.commit))
                    note = f"rounds 1 to {self.loop.version} were computed with commit {before}, here {now}"
                    run.notes = (*run.notes, note)
                    log.warning(note)
            self.metrics = MetricsFile(here.path / METRICS, self.rows, self.measurement.columns)
            if self.config.eval.clients:
                rounds = {row["round"] for row in self.rows}
                tuned = bool(self.config.eval.finetune_steps)
                self.clients = ClientsFile(here.path / CLIENTS, rounds, tuned)

    def _record(self) -> None:
        """Measure the present version. The first process adds a row; the others take part."""
        if self.metrics is None:
            self.measurement.take_part()
            return
        last = self.rows[-1]["round"] if self.rows else 0
        row = self.measurement.row(last, self.wall_seconds)
        if self.clients is not None:  # before the row: a row's clients are never missing
            each = [scores.tolist() for scores in self.measurement.each]
            self.clients.append(row["round"], self.run.sizes.tolist(), *each)
        self.metrics.append(row)
        if self.loggers:
            self.loggers.log(Point.of(self.rows[-1]))

    @property
    def _at_end(self) -> bool:
        """Whether the run ends, or pauses, with its last evaluation. Only the first process knows."""
        if not self.rows or self.loop.version == self.run.trace.updates:
            return True
        until, last = self.config.checkpoint.until, self.rows[-1]
        if self.loop.version > last["round"]:  # no evaluation since: the last row was judged before
            return False
        paused = until is not None and last["round"] >= until
        return paused or not is_finite(last) or self._stopped is not None

    @property
    def _stopped(self) -> str | None:
        """Why the run ends with its last row, before its last round: `target=0.9`; None: it does not."""
        accuracies = [stopping_accuracy(row) for row in self.rows]
        return reason_to_stop(accuracies, self.config.patience, self.config.target)

    def _save_or_stop(self, signals: Signals) -> None:
        """Save if a checkpoint is due or a process was asked to save; stop if one was asked to stop."""
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
        state = self.loop.state_dict()  # of all processes, gathered at the first one
        if self.checkpointer is not None:
            run = self.run
            self.checkpointer.save(Saved(state, self.rows, self.wall_seconds(), run.choice, run.commit))
        self.loop.trainer.store.saved()

    def _end(self) -> dict[str, Any]:
        """Write the last files; return what loggers are told."""
        self._save()
        run, here = self.run, self.directory
        if here is None:
            return {}
        tensors = {**run.model.state_dict(), **run.layout.unflatten(run.loop.theta), **run.loop.statistics}
        state = {name: value.detach().cpu().clone() for name, value in tensors.items()}
        write_torch(here.path / MODEL, state)
        if self.config.trace:
            atomically(here.path / JOBS, lambda file: schedule.write_jobs_csv(run.trace, file, run.times[0]))
        if (further := run.evaluator.further) and CONFUSION in further.metrics:
            run.evaluator.whole(run.loop.evaluated(), run.loop.statistics)
            further.draw_confusion(here.path / f"{CONFUSION}.png")
        summary = self._summary()
        kept = self.config.checkpoint.keep or summary["status"] == PAUSED
        sizes = {name: size for name, size in here.sizes().items() if kept or name != CHECKPOINT}
        here.write_summary({**summary, "files": sizes})
        if not kept:
            (here.path / CHECKPOINT).unlink(missing_ok=True)
        if summary["status"] != PAUSED:  # whose checkpoint refers to the files of clients' state
            self.loop.trainer.store.remove()
        return logged(summary)

    def _write_partition(self, file: Path) -> None:
        """`client`: the client of each training sample, in the data set's order. If some are held out for
        validation, `validation` says for each sample whether it is one of them."""
        run = self.run
        arrays: dict[str, Any] = {"client": run.partition}
        if len(run.validation):
            arrays["validation"] = run.assignment != run.partition
        with open(file, "wb") as stream:  # NumPy would add .npz to a name
            np.savez_compressed(stream, **arrays)

    def _summary(self) -> dict[str, Any]:
        """The contents of summary.json."""
        run, config, rows = self.run, self.config, self.rows
        last, executor = rows[-1], run.loop.trainer.executor
        k, done = min(config.eval.final_k, len(rows)), last["round"]
        levels = [*LEVELS, *([config.target] if config.target is not None else [])]
        status = "starved" if run.trace.starved else "completed"  # too few clients were left for all rounds
        if not is_finite(last):
            status = "diverged"
        elif self._stopped:
            status = "completed"
        elif done < run.trace.updates:
            status = PAUSED

        def final(name: str) -> float | None:
            mean = math.fsum(row[name] for row in rows[-k:]) / k
            return None if status == "diverged" else _finite(mean)

        def reached(name: str) -> dict[str, int | None]:
            return rounds_to(((row["round"], row[name]) for row in rows), levels)

        best = max(rows, key=lambda row: row["test_accuracy"])
        measured: dict[str, Any] = {}
        if len(run.validation):  # and the test accuracy in the round that validation chooses
            chosen = max(rows, key=lambda row: row["validation_accuracy"])
            measured = {
                "final_validation_accuracy": final("validation_accuracy"),
                "best_validation_accuracy": chosen["validation_accuracy"],
                "best_validation_round": chosen["round"],
                "accuracy_at_best_validation": chosen["test_accuracy"],
                "rounds_to_validation_accuracy": reached("validation_accuracy"),
            }
        for name in (name for name in self.measurement.further if not name.endswith("_std")):
            choose = min if name.endswith("perplexity") else max
            best_value = _finite(choose(row[name] for row in rows))
            measured |= {f"final_{name}": final(name), f"best_{name}": best_value}
        return {
            "status": status,
            "rounds": done,
            "metric": TASKS[run.dataset.task].metric,
            "evaluated_every": run.every,
            "title": run.algorithm.title or type(run.algorithm).__name__,
            "final_accuracy": final("test_accuracy"),
            "final_k": k,
            "best_accuracy": best["test_accuracy"],
            "best_round": best["round"],
            "stopped": self._stopped if done < config.rounds else None,
            "rounds_to_accuracy": reached("test_accuracy"),
            "final_test_loss": _finite(last["test_loss"]),
            **measured,
            "wall_seconds": self.wall_seconds(),
            "compile_seconds": executor.compile_seconds,
            "device": str(run.device),
            "processes": run.group.size,
            "hardware": provenance.hardware(run.device),
            "engine": run.choice.engine,
            "chunk": run.choice.chunk,
            "together": run.together.seat.seats if run.together else 1,
            "parameters": run.layout.d,
            "hyper": {
                **{key: _finite(value) for key, value in run.loop.hyper.items()},
                **run.algorithm.choices(),
            },
            "from_theorem": run.algorithm.from_theorem(),
            "notes": [*run.notes, *([note] if (note := executor.note) else [])],
            "schedule": schedule.summary(run.trace, float(run.times[0])),
            "versions": provenance.versions(),
            "commit": run.commit,
            "data": list(run.dataset.files),
            "data_note": run.dataset.note,
            "config": flat(config),
        }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
