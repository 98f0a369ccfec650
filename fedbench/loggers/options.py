"""The options of `logger=`: every key with its default and meaning. Torch-free."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, ClassVar

from fedbench.errors import ConfigError, needs
from fedbench.fields import choice, custom, read, text


@dataclass(frozen=True)
class LoggerOptions:
    """What all loggers share."""

    name: ClassVar[str]  # also of the third-party package that it needs


def _directory(within: str) -> Any:
    help = "a directory in which every run gets its own subdirectory"
    return text(None, words="a directory", null=f"{within} in the run's directory", help=help)


def _tracking_uri(value: Any) -> str:
    if not isinstance(value, str) or not re.match(r"(?!file:)[a-z][a-z0-9+.-]*:|databricks$|uc$", value):
        raise ValueError
    return value


@dataclass(frozen=True)
class MLflow(LoggerOptions):
    """MLflow: a tracking server or a database (extra `mlflow`)."""

    name = "mlflow"
    tracking_uri: str | None = custom(
        None,
        _tracking_uri,
        "a URI such as sqlite:///mlflow.db or http://HOST:5000 (MLflow 3 takes no directory)",
        null="MLFLOW_TRACKING_URI, or mlflow.db in the current directory",
        help="where MLflow keeps its runs",
    )
    experiment: str = text("fedbench", help="the experiment that the runs belong to")


@dataclass(frozen=True)
class TensorBoard(LoggerOptions):
    """TensorBoard: `tensorboard --logdir outputs` (extra `tensorboard`)."""

    name = "tensorboard"
    directory: str | None = _directory("tensorboard")


@dataclass(frozen=True)
class WandB(LoggerOptions):
    """Weights & Biases (extra `wandb`)."""

    name = "wandb"
    project: str = text("fedbench")
    entity: str | None = text(None, null="your own", help="a team or a user")
    mode: str | None = choice(
        None, ("online", "offline"), null="WANDB_MODE, or online", help="offline: `wandb sync` sends it later"
    )
    directory: str | None = _directory("wandb")


LOGGERS: dict[str, type[LoggerOptions]] = {cls.name: cls for cls in (MLflow, TensorBoard, WandB)}


def read_loggers(given: object) -> tuple[LoggerOptions, ...]:
    """Read the plain values of `logger` (name -> options) into options of loggers. Raises ConfigError."""
    if not given:
        return ()
    names = ", ".join(LOGGERS)
    if not isinstance(given, Mapping):
        raise ConfigError("logger", given, f"must be some of {names}: logger=[tensorboard,wandb]")
    made = []
    for name, values in given.items():
        if name not in LOGGERS:
            raise ConfigError(f"logger.{name}", "{...}", f"no such logger; there are {names}", LOGGERS)
        if values is not None and not isinstance(values, Mapping):
            raise ConfigError(f"logger.{name}", values, f"is a section; write logger.{name}.KEY=VALUE")
        made.append(read(LOGGERS[name], values or {}, f"logger.{name}"))
    return tuple(made)


def refuse_missing(loggers: Iterable[LoggerOptions]) -> None:
    """Raise ConfigError if the package of a logger is not installed."""
    for name in [logger.name for logger in loggers]:
        found = None
        with contextlib.suppress(ValueError):  # something else than a package has its name
            found = find_spec(name)
        if found is None:
            raise ConfigError("logger", name, needs(name, name))
