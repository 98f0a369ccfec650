"""What loggers get of a run, and the loggers: TensorBoard, MLflow, Weights & Biases.

A logger's package is imported when the logger is opened.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import yaml

from fedbench.errors import RunError
from fedbench.files import as_given, locked, read_json, user_cache, write_json
from fedbench.loggers.options import MLflow, TensorBoard, WandB


@dataclass(frozen=True)
class Point:
    """The numbers of one evaluation."""

    step: int  # the round
    seconds: float  # since 1970, when it was measured; of a resumed run's first points: when it was resumed
    values: Mapping[str, float]

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Point:
        """The numbers that a row of metrics.csv has, in its columns' order."""
        values = {name: float(value) for name, value in row.items() if value not in (None, "")}
        return cls(int(values.pop("round")), time.time(), values)


@dataclass(frozen=True)
class LoggedRun:
    """A run as loggers see it, and what they remember of it from one process to the next."""

    directory: Path
    choices: Mapping[str, Any]  # dotted keys
    sweep: str | None  # the sweep's directory

    @property
    def name(self) -> str:
        """The directory's name after that of its parent, which may have the readable part."""
        return "-".join(self.directory.resolve().parts[-2:])

    def place(self, directory: str | None, within: str) -> Path:
        """Where a logger writes: `within` in the run's directory, or in `directory` one for this run."""
        return self.directory / within if directory is None else as_given(directory) / self.name

    def remembered(self, logger: str) -> dict[str, Any]:
        """What a logger has remembered of this run; another run in this directory is refused."""
        return read_json(self._file(logger)) or {}

    def remember(self, logger: str, **what: Any) -> None:
        """Remember this of the run for a logger."""
        self._file(logger).parent.mkdir(exist_ok=True)
        write_json(self._file(logger), what)

    def forget(self, logger: str) -> None:
        """Forget what a logger has remembered, because the run is computed again."""
        self._file(logger).unlink(missing_ok=True)

    def _file(self, logger: str) -> Path:
        return self.directory / ".loggers" / f"{logger}.json"


class Logger:
    """Sends points to one place. An exception ends the logger.

    A resumed run opens it again and sends all points so far. No point may then be there twice.
    """

    def open(self) -> None:
        """Begin."""

    def log(self, points: Sequence[Point]) -> None:
        """Add points. May return before they have arrived."""

    def close(self, results: Mapping[str, Any] | None) -> None:
        """End after all points have arrived. `results`: those of a run that has ended, including `status`;
        None if the run was stopped."""


class TensorBoardLogger(Logger):
    """Scalars by name, and the hyper-parameters with the results. The directory belongs to the run: its files
    are rewritten when the run is resumed."""

    def __init__(self, options: TensorBoard, run: LoggedRun) -> None:
        self.run, self.place = run, run.place(options.directory, "tensorboard")

    def open(self) -> None:
        from torch.utils.tensorboard import SummaryWriter

        for old in self.place.glob("events.out.tfevents.*"):
            old.unlink()
        # purge_step: a TensorBoard that has read the old files forgets their points
        self.writer: Any = SummaryWriter(str(self.place), purge_step=0)
        self.writer.add_text("configuration", f"```\n{yaml.safe_dump(dict(self.run.choices))}```")

    def log(self, points: Sequence[Point]) -> None:
        for point in points:
            for name, value in point.values.items():
                self.writer.add_scalar(name, value, point.step, point.seconds)
        self.writer.flush()

    def close(self, results: Mapping[str, Any] | None) -> None:
        from torch.utils.tensorboard.summary import hparams

        if results is not None:
            plain = (bool, int, float, str)
            choices = {
                key: value if isinstance(value, plain) else "null" if value is None else str(value)
                for key, value in self.run.choices.items()
            }
            numbers = {f"result/{k}": v for k, v in results.items() if isinstance(v, int | float)}
            # Not by add_hparams: it opens a second file. TensorBoard reads those of one second by name, a
            # process's tenth before its ninth, whose points it then takes for those of before a restart.
            for summary in hparams({**choices, "status": results["status"]}, numbers):
                self.writer.file_writer.add_summary(summary)
            for name, value in numbers.items():
                self.writer.add_scalar(name, value)
        self.writer.close()


@contextlib.contextmanager
def _one_at_a_time(logger: str) -> Iterator[None]:
    """Hold this user's lock of a logger. Where there can be none, nobody waits."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError, RunError):
            user_cache().mkdir(parents=True, exist_ok=True)
            stack.enter_context(locked(user_cache() / f"{logger}.lock", -1, ""))
        yield


class MLflowLogger(Logger):
    """One MLflow run for each of ours. A resumed run continues it, and what is there is not sent again.

    Only MLflow's client is used: it has no global state, so a process can log several runs side by side. It
    sends metrics in the background, and `close` waits for them."""

    AT_ONCE = 100  # parameters in one request, as MLflow allows
    LONGEST = 500  # characters of a parameter that the oldest stores allow
    STATUS: ClassVar = {"completed": "FINISHED", "starved": "FINISHED", "paused": "SCHEDULED"}
    """By that of ours; of all others FAILED."""

    def __init__(self, options: MLflow, run: LoggedRun) -> None:
        self.options, self.run = options, run
        self.sending: list[Any] = []
        self.there: set[int] = set()  # steps already in MLflow

    def open(self) -> None:
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "3")  # the default of 7 takes minutes
        from mlflow.tracking import MlflowClient

        for talker in ("alembic", "mlflow", "urllib3"):
            logging.getLogger(talker).setLevel(logging.CRITICAL)  # failures are raised here
        with _one_at_a_time("mlflow"):  # one process makes the database
            self.client: Any = MlflowClient(tracking_uri=self.options.tracking_uri)
            experiment = self._experiment()
        where = {"uri": self.client.tracking_uri, "experiment": experiment}
        before = self.run.remembered("mlflow")
        known = "run" in before and {key: before.get(key) for key in where} == where
        self.id = str(before["run"]) if known else self._create(experiment)
        self.run.remember("mlflow", **where, run=self.id)
        if known:
            self.client.update_run(self.id, status="RUNNING")
            sent = self.client.get_metric_history(self.id, "wall_seconds")  # every point has it
            self.there = {metric.step for metric in sent}

    def _experiment(self) -> str:
        """The experiment's id. Creates the experiment if there is none; another process may do so first."""
        from mlflow.exceptions import MlflowException

        name = self.options.experiment
        if experiment := self.client.get_experiment_by_name(name):
            return str(experiment.experiment_id)
        try:
            return str(self.client.create_experiment(name))
        except MlflowException:
            if experiment := self.client.get_experiment_by_name(name):
                return str(experiment.experiment_id)
            raise

    def _create(self, experiment: str) -> str:
        from mlflow.entities import Param

        tags = {"fedbench.directory": str(self.run.directory)}
        tags |= {"fedbench.sweep": self.run.sweep} if self.run.sweep else {}
        made: str = self.client.create_run(experiment, run_name=self.run.name, tags=tags).info.run_id
        params = [Param(key, str(value)[: self.LONGEST]) for key, value in self.run.choices.items()]
        for start in range(0, len(params), self.AT_ONCE):
            self.client.log_batch(made, params=params[start : start + self.AT_ONCE])
        return made

    def log(self, points: Sequence[Point]) -> None:
        from mlflow.entities import Metric

        for point in [point for point in points if point.step not in self.there]:
            time = int(1000 * point.seconds)
            metrics = [Metric(name, value, time, point.step) for name, value in point.values.items()]
            self.sending.append(self.client.log_batch(self.id, metrics=metrics, synchronous=False))

    def close(self, results: Mapping[str, Any] | None) -> None:
        from mlflow.entities import RunTag

        for request in self.sending:
            request.wait()
        if results is None:
            self.client.set_terminated(self.id, "KILLED")
            return
        tags = [RunTag(f"fedbench.{key}", str(value)) for key, value in results.items()]
        self.client.log_batch(self.id, tags=tags)
        self.client.set_terminated(self.id, self.STATUS.get(results["status"], "FAILED"))


class WandBLogger(Logger):
    """One W&B run for each of ours, with the same id when it is resumed; online, or into files that `wandb
    sync` sends later. Offline, a resumed run rewrites the files in its directory. Online, the server tells
    which steps it has."""

    def __init__(self, options: WandB, run: LoggedRun) -> None:
        self.options, self.about = options, run
        self.place = run.place(options.directory, "")

    def open(self) -> None:
        import wandb

        library: Any = wandb  # its types are narrower than what it takes
        mode = self.options.mode or os.environ.get("WANDB_MODE", "online")
        if mode == "online" and not wandb.login(prompt=False):
            raise RuntimeError("no API key; `wandb login` keeps one, or logger.wandb.mode=offline")
        name = self.about.remembered("wandb").get("id") or uuid.uuid4().hex[:8]
        self.about.remember("wandb", id=name)
        self.place.mkdir(parents=True, exist_ok=True)
        if mode == "offline":
            for old in (self.place / "wandb").glob("offline-run-*"):
                shutil.rmtree(old)
        self.run = library.init(
            project=self.options.project,
            entity=self.options.entity,
            id=name,
            name=self.about.name,
            group=self.about.sweep,
            dir=str(self.place),
            mode=mode,
            config=dict(self.about.choices),
            resume="allow" if mode == "online" else None,
            reinit="create_new",
            settings=wandb.Settings(silent=True, console="off", x_disable_stats=True),
        )
        self.first = self.run.starting_step  # earlier steps are already there

    def log(self, points: Sequence[Point]) -> None:
        for point in [point for point in points if point.step >= self.first]:
            self.run.log({**point.values, "_timestamp": point.seconds}, step=point.step)

    def close(self, results: Mapping[str, Any] | None) -> None:
        if results is not None:
            self.run.summary.update(dict(results))
        ended = results is not None and results["status"] not in ("failed", "diverged")
        self.run.finish(exit_code=0 if ended else 1)


BACKENDS: dict[str, Any] = {"mlflow": MLflowLogger, "tensorboard": TensorBoardLogger, "wandb": WandBLogger}
"""Logger class by option of `logger=`. Each is made from its options and a LoggedRun."""
