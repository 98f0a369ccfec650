"""What a run directory already holds, read without torch; shared by single runs and sweeps."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedbench.config.config import Config
from fedbench.config.identity import difference, digest, flat, identity, identity_in, stored
from fedbench.config.inputs import MARK
from fedbench.errors import ConfigError, UsageError, word
from fedbench.files import read_json

log = logging.getLogger(__name__)
CHECKPOINT = "checkpoint.pt"
FILES = ("metrics.csv", "partition.npz", "model.pt", CHECKPOINT, "jobs.csv")
FINISHED = ("completed", "diverged", "starved")
PAUSED = "paused"  # at checkpoint.until
UNFINISHED = ("running", "stopped", "missing")  # no summary.json says it


def worst(metric: str) -> float:
    """What a diverged run counts: the lowest that its metric (fedbench.engine.tasks) can be."""
    return 0.0 if metric.endswith("accuracy") else -math.inf


@dataclass(frozen=True)
class Outcome:
    """How a run ended, as its summary.json says."""

    directory: Path
    status: str
    rounds: int  # reached
    planned: int
    final_accuracy: float | None  # None where the run diverged
    best_accuracy: float
    best_round: int
    stopped: str | None = None  # why before the planned rounds: `target=0.9`, `patience=5`
    metric: str = "accuracy"  # what the accuracies are (fedbench.engine.tasks)

    @classmethod
    def of(cls, summary: Mapping[str, Any], directory: Path) -> Outcome:
        """From the content of a finished run's summary.json."""
        names = ("status", "rounds", "final_accuracy", "best_accuracy", "best_round")
        return cls(
            directory,
            planned=summary["config"]["rounds"],
            stopped=summary.get("stopped"),
            metric=summary.get("metric", "accuracy"),  # younger than runs that are kept
            **{name: summary[name] for name in names},
        )

    @property
    def score(self) -> float:
        """The final accuracy; where the run diverged, the worst there is."""
        return worst(self.metric) if self.final_accuracy is None else self.final_accuracy

    @property
    def line(self) -> str:
        """The closing line of a run."""
        accuracy = self.final_accuracy
        shown = f"no final {self.metric}" if accuracy is None else f"final {self.metric} {accuracy:.4f}"
        return f"{self.status} after {self.reached}: {shown} ({self.directory})"

    @property
    def reached(self) -> str:
        """How far it came, in words."""
        if self.stopped:
            return f"{self.rounds} of {self.planned} rounds ({self.stopped})"
        if self.status == PAUSED:
            return f"{self.rounds} of {self.planned} rounds, to go on with the same command"
        if self.status != "starved":
            return f"{self.rounds} rounds"
        return f"{self.rounds} of {self.planned} rounds, since too few clients were left to fill an update"


def summary(directory: Path) -> dict[str, Any] | None:
    """The content of summary.json; None where there is none that can be read."""
    return read_json(directory / "summary.json")


def sizes(directory: Path) -> dict[str, int]:
    """Bytes of the files that a finished run has written and nothing changes any more."""
    files = {name: directory / name for name in FILES}
    return {name: file.stat().st_size for name, file in files.items() if file.is_file()}


def _far_enough(found: Mapping[str, Any], config: Config) -> bool:
    """Whether a run that has paused is to go no further."""
    until = config.checkpoint.until
    return found.get("status") == PAUSED and until is not None and found["rounds"] >= until


def finished(directory: Path, config: Config) -> dict[str, Any] | None:
    """The summary of the run `config` where `directory` holds it, finished, or paused where it is to pause;
    None where it must (re)start or go on."""
    found = summary(directory)
    if found is None or not config.resume:
        return None
    if found.get("status") not in FINISHED and not _far_enough(found, config):
        return None
    there = sizes(directory)
    for name, size in found.get("files", dict.fromkeys(("metrics.csv", "model.pt"))).items():
        whole = there.get(name, 0)
        if not whole or size not in (whole, None):
            odd = f"is {whole} bytes long, not {size}" if whole else "is missing or empty"
            log.warning("%s %s: the run is not finished", directory / name, odd)
            return None
    said = found.get("config")  # what config.yaml says too, read faster
    before = identity_in(directory, said) if isinstance(said, dict) else stored(directory)
    return found if before == identity(config) else None


def has_checkpoint(directory: Path, config: Config) -> bool:
    """Whether the run `config` in `directory`, where it has not ended, would go on from a checkpoint."""
    return config.resume and (directory / CHECKPOINT).is_file()


@dataclass(frozen=True)
class Earlier:
    """A finished run that is another one with fewer rounds."""

    directory: Path
    rounds: int
    identity: str  # under which it has saved its checkpoint


def earlier(directory: Path, config: Config) -> Earlier | None:
    """The run in `directory` where it has ended and is the run `config` with fewer rounds."""
    found = summary(directory) or {}
    choices = found.get("config")
    if not config.resume or found.get("status") not in FINISHED or not isinstance(choices, dict):
        return None
    rounds = choices.get("rounds")
    if not isinstance(rounds, int) or rounds >= config.rounds:
        return None
    before = identity_in(directory, choices)
    if [key for key, _, _ in difference(before, identity(config))] != ["rounds"]:
        return None
    return Earlier(directory, rounds, digest(before))


def earlier_beside(directory: Path, config: Config) -> Earlier | None:
    """That of most rounds among the directories beside `directory`.

    Jobs of a sweep of which its sweep.json says that they differ in more than rounds are not opened: every
    run of it would read the files of all.
    """
    jobs = (read_json(directory.parent / "sweep.json") or {}).get("jobs")
    jobs = jobs if isinstance(jobs, dict) else {}
    own = jobs.get(directory.name, {})

    def other(name: str) -> bool:
        said = jobs.get(name, {})
        return any(own.get(key, value) != value for key, value in said.items() if key != "rounds")

    places = [place for place in sorted(directory.parent.iterdir()) if not other(place.name)]
    found = [one for place in places if place != directory and (one := earlier(place, config))]
    return max(found, key=lambda one: one.rounds, default=None)


def refuse_other(directory: Path, config: Config) -> None:
    """Raise ConfigError where `directory` holds a run of another identity, naming the key that differs, or
    what is no run at all."""
    before = stored(directory)
    if before is None:
        if (directory / "metrics.csv").exists():
            raise UsageError(f"{directory} holds a metrics.csv of something else; give another directory")
        return
    if earlier(directory, config) is not None:
        return  # to go on from, or to be refused with the reason
    for key, there, here in difference(before, identity(config)):
        if key.endswith(MARK):
            name, _, module = key.removesuffix(MARK).partition(" ")
            allowed = f"has changed since the run in {directory}; give another directory, or undo the change"
            raise ConfigError(name, module or flat(config).get(name), allowed)
        allowed = f"{directory} holds a run with {key}={word(there)}; give another directory, or that value"
        raise ConfigError(key, here, allowed)
