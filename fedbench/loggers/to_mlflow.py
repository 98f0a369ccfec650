"""MLflow's tracking, through its client alone: no global state, several runs of a process side by side."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from filelock import FileLock
from mlflow.entities import Metric, Param, RunTag
from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient

from fedbench.loggers.logger import About, Logger, Point
from fedbench.loggers.options import MLflow

AT_ONCE = 100  # parameters in one request, as MLflow allows; of metrics 1,000
LONGEST = 500  # characters of a parameter, in the oldest stores
_STATUS = {"failed": "FAILED", None: "KILLED"}


class MLflowLogger(Logger):
    """One run of MLflow's for each of ours, the same when it goes on; what is there is not sent again."""

    def __init__(self, options: MLflow, about: About) -> None:
        self.options, self.about = options, about

    def open(self, points: Sequence[Point]) -> None:
        for talker in ("alembic", "mlflow"):
            logging.getLogger(talker).setLevel(logging.WARNING)
        with FileLock(Path(tempfile.gettempdir()) / "fedbench-mlflow.lock"):  # a new database is made by one
            self.client: Any = MlflowClient(tracking_uri=self.options.tracking_uri)
            experiment = self._experiment()
        where = {"uri": self.client.tracking_uri, "experiment": experiment}
        kept = self.about.kept("mlflow")
        known = {k: kept.get(k) for k in where} == where
        self.run = str(kept["run"]) if known else self._create(experiment)
        self.about.keep("mlflow", {**where, "run": self.run})
        self.there: dict[str, set[int]] = {}
        if known:
            self.client.update_run(self.run, status="RUNNING")
            for name in self.client.get_run(self.run).data.metrics:
                history = self.client.get_metric_history(self.run, name)
                self.there[name] = {metric.step for metric in history}
        self.log(points)

    def _experiment(self) -> str:
        """The experiment's id; made where there is none, maybe by another process just now."""
        name = self.options.experiment
        found = self.client.get_experiment_by_name(name)
        if found is None:
            try:
                return str(self.client.create_experiment(name))
            except MlflowException:
                found = self.client.get_experiment_by_name(name)
                if found is None:
                    raise
        return str(found.experiment_id)

    def _create(self, experiment: str) -> str:
        tags = {"fedbench.directory": str(self.about.directory), "fedbench.sweep": self.about.sweep}
        said = {key: value for key, value in tags.items() if value is not None}
        run: str = self.client.create_run(experiment, run_name=self.about.name, tags=said).info.run_id
        params = [Param(key, str(value)[:LONGEST]) for key, value in self.about.choices.items()]
        for start in range(0, len(params), AT_ONCE):
            self.client.log_batch(run, params=params[start : start + AT_ONCE])
        return run

    def log(self, points: Sequence[Point]) -> None:
        metrics = [
            Metric(name, value, int(1000 * point.seconds), point.step)
            for point in points
            for name, value in point.values.items()
            if point.step not in self.there.get(name, ())
        ]
        for start in range(0, len(metrics), 10 * AT_ONCE):
            self.client.log_batch(self.run, metrics=metrics[start : start + 10 * AT_ONCE])

    def close(self, results: Mapping[str, Any] | None) -> None:
        if results is not None:
            tags = [RunTag(f"fedbench.{key}", str(value)) for key, value in results.items()]
            self.client.log_batch(self.run, tags=tags)
        status = None if results is None else results["status"]
        self.client.set_terminated(self.run, _STATUS.get(status, "FINISHED"))
