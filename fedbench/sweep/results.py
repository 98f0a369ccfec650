"""What lies in a run directory, read without torch."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from fedbench.config.identity import difference, flat, identity, stored
from fedbench.errors import ConfigError
from fedbench.files import write_json
from fedbench.files import write_text as write_atomically  # noqa: F401

FINISHED = ("completed", "diverged")


def summary(directory: Path) -> dict[str, Any] | None:
    """The content of summary.json; None where there is none that can be read."""
    try:
        content = json.loads((directory / "summary.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None


def finished(directory: Path, cfg: DictConfig) -> dict[str, Any] | None:
    """The summary of the run `cfg` where `directory` holds it, finished; None where it must (re)start."""
    found = summary(directory)
    if found is None or found.get("status") not in FINISHED or not cfg.resume:
        return None
    return found if stored(directory) == identity(cfg) else None


def refuse_other(directory: Path, cfg: DictConfig) -> None:
    """Raise ConfigError where `directory` holds a run of another identity, naming the key that differs."""
    before = stored(directory)
    if before is None:
        return
    for key, there, here in difference(before, identity(cfg)):
        shown = "null" if there is None else str(there).lower() if isinstance(there, bool) else there
        allowed = f"{directory} holds a run with {key}={shown}; give another directory, or that value"
        raise ConfigError(key, here, allowed)


def report(found: Mapping[str, Any], directory: Path) -> str:
    """One line about a finished run."""
    accuracy = found.get("final_accuracy")
    text = "diverged" if accuracy is None else f"final accuracy {accuracy:.4f}"
    if found.get("best_accuracy") is not None:
        text += f", best {found['best_accuracy']:.4f} at round {found.get('best_round')}"
    return (
        f"finished before: {text}, {found.get('rounds')} rounds: {directory} (resume=false computes it again)"
    )


def record_failure(directory: Path, cfg: DictConfig, line: str) -> None:
    """Leave a summary.json with status `failed` and the error's line, beside what the run left there."""
    if not directory.is_dir() or _in_use(directory):
        return
    before = summary(directory) or {}
    if before.get("status") != "failed":
        before = {"status": "failed", "config": flat(cfg)}
    write_json(directory / "summary.json", {**before, "error": line})


def _in_use(directory: Path) -> bool:
    """Whether another process computes the run in `directory` (it holds the lock of the run directory)."""
    try:
        with open(directory / ".lock") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False
