"""What a run directory already holds, read without torch; shared by single runs and sweeps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from fedbench.config.identity import difference, identity, stored
from fedbench.errors import ConfigError

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
    config = found.get("config")  # what config.yaml says too, read faster
    before = identity(config) if isinstance(config, dict) else stored(directory)
    return found if before == identity(cfg) else None


def refuse_other(directory: Path, cfg: DictConfig) -> None:
    """Raise ConfigError where `directory` holds a run of another identity, naming the key that differs."""
    before = stored(directory)
    if before is None:
        return
    for key, there, here in difference(before, identity(cfg)):
        shown = "null" if there is None else str(there).lower() if isinstance(there, bool) else there
        allowed = f"{directory} holds a run with {key}={shown}; give another directory, or that value"
        raise ConfigError(key, here, allowed)
