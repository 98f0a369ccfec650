"""Saying and recording how a run ended, without torch."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from fedbench.config.identity import flat
from fedbench.files import write_json
from fedbench.runs.directory import in_use
from fedbench.runs.stored import PAUSED, summary


def report(found: Mapping[str, Any], directory: Path) -> str:
    """One line about a finished run."""
    accuracy = found.get("final_accuracy")
    metric = found.get("metric", "accuracy")
    text = "diverged" if accuracy is None else f"final {metric} {accuracy:.4f}"
    if found.get("status") == "starved":
        text = f"starved, {text}"
    if found.get("best_accuracy") is not None:
        text += f", best {found['best_accuracy']:.4f} at round {found.get('best_round')}"
    word = "paused" if found.get("status") == PAUSED else "finished"
    return (
        f"{word} before: {text}, {found.get('rounds')} rounds: {directory} (resume=false computes it again)"
    )


def record_failure(directory: Path, cfg: DictConfig, line: str) -> None:
    """Leave a summary.json with status `failed` and the error's line, beside what the run left there."""
    if not directory.is_dir() or in_use(directory):
        return
    before = summary(directory) or {}
    if before.get("status") != "failed":
        before = {"status": "failed", "config": flat(cfg)}
    write_json(directory / "summary.json", {**before, "error": line})
