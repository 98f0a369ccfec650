"""One run from start, or from its checkpoint, to its last file."""

from __future__ import annotations

import logging
import math
import time
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig

from fedbench.config.stored_run import finished, refuse_other
from fedbench.engine.malloc import keep_memory
from fedbench.errors import UserError
from fedbench.runs import directory as place
from fedbench.runs import summary as files
from fedbench.runs.checkpoint import Checkpointer
from fedbench.runs.metrics import MetricsFile, Row
from fedbench.runs.personal import PersonalEvaluator
from fedbench.runs.plan import make_plan
from fedbench.runs.progress import Progress
from fedbench.runs.setup import Experiment, make_experiment
from fedbench.runs.signals import Interrupted, Signals

log = logging.getLogger(__name__)


def run(cfg: DictConfig, directory: Path) -> float | None:
    """Run, resume or report the run of `cfg` in `directory`.

    Returns the final accuracy (None where the run diverged). Raises ConfigError, DataError, RunError, and
    Interrupted after SIGINT or SIGTERM (a checkpoint was saved).
    """
    keep_memory()
    with place.locked(directory):
        refuse_other(directory, cfg)
        done = finished(directory, cfg)
        if done is not None:
            _report(done, directory)
            return done["final_accuracy"]
        plan = make_plan(cfg)
        target = directory if cfg.resume else place.fresh_staging(directory)
        place.write_config(target, cfg)
        start = time.monotonic()
        try:
            checkpointer = Checkpointer(target / "checkpoint.pt", cfg.checkpoint.seconds)
            saved = checkpointer.load() if cfg.resume else None
            experiment = make_experiment(plan, (saved["engine"], saved["chunk"]) if saved else None)
            accuracy = Runner(experiment, target, checkpointer).go(saved)
        except UserError:
            raise
        except Exception as error:
            line = f"{type(error).__name__}: {error}".splitlines()[0]
            files.write_summary(target / "summary.json", files.failure(cfg, line, time.monotonic() - start))
            raise
        finally:
            if target != directory and (target / "summary.json").exists():
                place.promote(target, directory)
        return accuracy


class Runner:
    """The loop over server updates of one run: evaluate, record, save."""

    def __init__(self, experiment: Experiment, directory: Path, checkpointer: Checkpointer) -> None:
        self.experiment, self.directory, self.checkpointer = experiment, directory, checkpointer
        self.cfg, self.walk = experiment.plan.cfg, experiment.walk
        self.personal = None
        if experiment.plan.algorithm.is_personal:
            labels = experiment.plan.dataset.y_train
            assignment, clients = experiment.plan.assignment, experiment.plan.counts.N
            self.personal = PersonalEvaluator(experiment.evaluator, labels, assignment, clients)
        self.before = 0.0  # wall seconds of earlier processes
        self.start = time.monotonic()

    def go(self, saved: dict[str, Any] | None) -> float | None:
        """Walk to the end, from a checkpoint if there is one; the final accuracy, or None if diverged."""
        rounds, signals = self.experiment.trace.updates, Signals()
        with signals.installed():
            metrics = self._begin(saved)
            label = f"{self.cfg.algorithm.name} seed={self.cfg.seed}"
            progress = Progress(self.cfg.progress, label, rounds, self.walk.version)
            try:
                if not metrics.rows:
                    self._evaluate(metrics)
                while self.walk.version < rounds and metrics.rows[-1].finite:
                    self.walk.update()
                    due = self.walk.version % self.cfg.eval.every == 0 or self.walk.version == rounds
                    if due:
                        self._evaluate(metrics)
                    progress.update(self.walk.version, metrics.rows[-1].test_accuracy if due else None)
                    self._save_or_stop(signals, metrics)
            finally:
                progress.close()
            return self._end(metrics)

    def _begin(self, saved: dict[str, Any] | None) -> MetricsFile:
        plan = self.experiment.plan
        files.write_partition(self.directory / "partition.npz", plan.assignment)
        log.info(
            "%s: %d parameters, engine %s, chunk %d, device %s",
            plan.algorithm.name, plan.layout.d, self.experiment.engine, self.experiment.chunk, plan.device,
        )  # fmt: skip
        for note in plan.notes:
            log.warning(note)
        if saved is None:
            self.walk.start()
            return MetricsFile(self.directory / "metrics.csv", [])
        self.walk.load_state_dict(saved["walk"])
        self.before = saved["wall_seconds"]
        log.info("going on from round %d", self.walk.version)
        return MetricsFile(self.directory / "metrics.csv", [Row(**row) for row in saved["rows"]])

    @property
    def wall_seconds(self) -> float:
        """Seconds of this run so far, earlier processes included."""
        return self.before + time.monotonic() - self.start

    def _evaluate(self, metrics: MetricsFile) -> None:
        experiment, walk, t = self.experiment, self.walk, self.walk.version
        if self.personal is not None:
            loss, accuracy = self.personal.test(walk)
        else:
            loss, accuracy = experiment.evaluator.test(walk.theta, walk.statistics)
        train_loss = grad_norm = None
        point = walk.theta, walk.statistics, experiment.train_weights
        if self.cfg.eval.grad_norm:
            train_loss, gradient = experiment.evaluator.gradient(*point)
            grad_norm = torch.linalg.vector_norm(gradient.double()).item()
        elif self.cfg.eval.train:
            train_loss = experiment.evaluator.train_loss(*point)
        if not bool(torch.isfinite(walk.theta).all()):
            loss = math.nan
        staleness = [
            experiment.trace.staleness(u) for u in range(metrics.rows[-1].round if metrics.rows else 0, t)
        ]
        count = sum(len(s) for s in staleness)
        metrics.append(
            Row(
                round=t,
                virtual_time=float(experiment.times[t]),
                train_loss=train_loss if self.cfg.eval.train else None,
                test_loss=loss,
                test_accuracy=accuracy,
                grad_norm=grad_norm,
                uplink_bytes=int(experiment.ledger.uplink_bytes[t]),
                downlink_bytes=int(experiment.ledger.downlink_bytes[t]),
                gradient_evaluations=int(experiment.ledger.gradient_evaluations[t]),
                staleness_mean=float(sum(s.sum() for s in staleness) / count) if count else 0.0,
                staleness_max=int(max((s.max() for s in staleness), default=0)),
                wall_seconds=self.wall_seconds,
            )
        )

    def _save_or_stop(self, signals: Signals, metrics: MetricsFile) -> None:
        if signals.stop is None and not signals.save and not self.checkpointer.due:
            return
        self._save(metrics)
        signals.save = False
        if signals.stop is not None:
            text = f"stopped after round {self.walk.version}; the same command goes on from there"
            raise Interrupted(text, signals.exit_code)

    def _save(self, metrics: MetricsFile) -> None:
        experiment = self.experiment
        self.checkpointer.save(
            self.walk, metrics.rows, self.wall_seconds, experiment.engine, experiment.chunk
        )

    def _end(self, metrics: MetricsFile) -> float | None:
        experiment, where = self.experiment, self.directory
        status = "completed" if metrics.rows[-1].finite else "diverged"
        self._save(metrics)
        files.write_model(where / "model.pt", experiment)
        if self.cfg.trace:
            files.write_jobs(where / "jobs.csv", experiment)
        compile_seconds = self.walk.trainer.executor.compile_seconds
        summary = files.summarise(experiment, metrics.rows, status, self.wall_seconds, compile_seconds)
        files.write_summary(where / "summary.json", summary)
        _report(summary, where)
        return summary["final_accuracy"]


def _report(summary: dict, directory: Path) -> None:
    accuracy = summary["final_accuracy"]
    shown = "no final accuracy" if accuracy is None else f"final accuracy {accuracy:.4f}"
    log.info("%s after %s rounds: %s (%s)", summary["status"], summary["rounds"], shown, directory)
