"""Saying and recording how a run ended, without torch."""

from __future__ import annotations

import fcntl
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from fedbench.config.identity import flat
from fedbench.files import write_json
from fedbench.runs.stored import summary


def report(found: Mapping[str, Any], directory: Path) -> str:
    """One line about a finished run."""
    accuracy = found.get("final_accuracy")
    text = "diverged" if accuracy is None else f"final accuracy {accuracy:.4f}"
    if found.get("status") == "starved":
        text = f"starved, {text}"
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
