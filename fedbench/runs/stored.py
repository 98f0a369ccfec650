"""What a directory holds of the run of a configuration: all of it, a part to go on from, or another run.

Imports no torch: a finished run is reported without it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from fedbench.config import identity as inputs
from fedbench.config.config import Config, flat
from fedbench.config.identity import difference, identity, identity_in, run_hash
from fedbench.errors import ConfigError, UsageError, word
from fedbench.files import as_given
from fedbench.runs import data_files
from fedbench.runs.metrics import ENDS, PAUSED
from fedbench.runs.run_directory import CHECKPOINT, FINISHED, METRICS, MODEL, STAGING, STATE, RunDirectory

if TYPE_CHECKING:
    from fedbench.loggers.backends import RunLoggers

_LOGGED = ("status", "rounds", "final_accuracy", "best_accuracy", "best_round", "final_test_loss", *ENDS)

log = logging.getLogger(__name__)


def finished(here: RunDirectory, config: Config) -> dict[str, Any] | None:
    """The summary of the run if it is here and finished, or paused where it is to pause; None if it must
    (re)start or go on. Raises ConfigError if a file below data.root has changed since."""
    found = here.summary
    if found is None or not config.resume:
        return None
    until = config.checkpoint.until
    paused = found.get("status") == PAUSED and until is not None and found["rounds"] >= until
    if found.get("status") not in FINISHED and not paused:
        return None
    there = here.sizes()
    for name, size in found.get("files", dict.fromkeys((METRICS, MODEL))).items():
        whole = there.get(name, 0)
        if not whole or size not in (whole, None):
            odd = f"is {whole} bytes long, not {size}" if whole else "is missing or empty"
            log.warning("%s %s: the run is not finished", here.path / name, odd)
            return None
    said = found.get("config")  # what config.yaml says too, read faster
    before = identity_in(here.path, said) if isinstance(said, dict) else here.identity
    if before != identity(config):
        return None
    data_files.refuse_changed(here.path, config)
    return found


def goes_on(here: RunDirectory, config: Config) -> bool:
    """Whether the run, if it has not ended here, would go on from a checkpoint."""
    return config.resume and here.has(CHECKPOINT)


def refuse_other(here: RunDirectory, config: Config) -> None:
    """Raise ConfigError, which names the key that differs, if another run lies here. Raise UsageError if the
    files here are not those of a run."""
    before = here.identity
    if before is None:
        if here.has(METRICS):
            raise UsageError(f"{here.path} holds a {METRICS} of something else; give another directory")
        return
    for key, there, given in difference(before, identity(config)):
        if key.endswith(inputs.MARK):
            name, _, module = key.removesuffix(inputs.MARK).partition(" ")
            allowed = f"has changed since the run in {here.path}; "
            allowed += "give another directory, or undo the change"
            raise ConfigError(name, module or flat(config).get(name), allowed)
        allowed = f"{here.path} holds a run with {key}={word(there)}; "
        raise ConfigError(key, given, allowed + "give another directory, or that value")


def reported(here: RunDirectory, config: Config) -> dict[str, Any] | None:
    """The summary of the run if it is `finished` here. Gives loggers what they lack of it: a logger may have
    failed, been cut off, or be named for the first time."""
    from fedbench.loggers.backends import Point

    found = finished(here, config)
    if found is not None and config.logger and (behind := loggers(here, config)).behind:
        behind.start([Point.of(row) for row in here.rows()])
        behind.close(logged(found))
    return found


def loggers(here: RunDirectory, config: Config) -> RunLoggers:
    """The loggers of the run here; none is opened yet."""
    from fedbench.loggers.backends import LoggedRun, RunLoggers

    choices = {k: v for k, v in flat(config.given).items() if not k.startswith("logger.")}
    sweep = _sweep(here) if config.logger else None
    return RunLoggers(config.logger, LoggedRun(here.path, choices, sweep, run_hash(config)))


def _sweep(here: RunDirectory) -> str | None:
    """The directory of the sweep that computes the run, as Hydra has recorded it; None: a single run."""
    try:
        said = yaml.safe_load((here.path / ".hydra" / "hydra.yaml").read_text(encoding="utf-8"))["hydra"]
        where = Path(said["runtime"]["cwd"], said["sweep"]["dir"])
        return str(where) if said["mode"] == "MULTIRUN" else None
    except (OSError, yaml.YAMLError, KeyError, TypeError):
        return None


def logged(summary: Mapping[str, Any]) -> dict[str, Any]:
    """What loggers are told of a run that has ended."""
    return {key: summary[key] for key in _LOGGED if summary.get(key) is not None}


def state_place(here: RunDirectory, config: Config) -> Path:
    """Where the run, computed here, keeps clients' state if that lies on disk."""
    if config.state.directory is None:
        return here.path / STATE
    again = STAGING if here.path.name == STAGING else ""
    return as_given(config.state.directory) / f"fedbench-{run_hash(config)}{again}"
