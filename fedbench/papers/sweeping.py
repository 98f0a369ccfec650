"""Sweeps as papers see them: typed grids in, typed results out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from hydra._internal.utils import get_args_parser
from hydra.core.override_parser.types import QuotedString

from fedbench.config.overrides import parse
from fedbench.config.stored_run import summary

Value = Any
Grid = Mapping[str, Sequence[Value]]
"""Key -> values; one value is fixed."""


@dataclass(frozen=True)
class Result:
    """One run of a sweep. `choices`: its configuration under dotted keys."""

    directory: Path
    choices: Mapping[str, Value]
    status: str
    final_accuracy: float | None
    error: str = ""


def grid_of(params: Mapping[str, Any]) -> dict[str, tuple[Value, ...]]:
    """The grid that a sweeper's file says: a text with commas is several values."""
    grid = {}
    for override in parse(overrides(params)):
        several = override.is_sweep_override()
        values = list(override.sweep_iterator()) if several else [override.value()]
        grid[override.key_or_group] = tuple(v.text if isinstance(v, QuotedString) else v for v in values)
    return grid


def sweep(base: Sequence[str], grids: Sequence[Grid], directory: Path, reuse: Path) -> list[Result]:
    """Run what is missing of the union of `grids`; all runs in `directory`. A failed run is a result."""
    from fedbench.app import App
    from fedbench.errors import RunError

    texts = dict.fromkeys(
        "{" + ",".join(f"{key}:'{','.join(map(word, values))}'" for key, values in grid.items()) + "}"
        for grid in grids
    )
    words = [*base, "hydra/launcher=processes", f"hydra.sweep.dir='{directory}'"]
    words += [f"hydra.sweeper.grids=[{','.join(texts)}]", f"hydra.sweeper.reuse='{reuse}'", "--multirun"]
    error: RunError | None = None
    try:
        App(get_args_parser().parse_intermixed_args(words)).launch(multirun=True)
    except RunError as raised:
        error = raised
    rows = pd.read_csv(directory / "runs.csv", dtype=str, keep_default_na=False)
    results = [_result(directory / row["dir"], row["error"]) for row in rows.to_dict("records")]
    if error is not None and not any(result.status == "failed" for result in results):
        raise error
    return results


def _result(directory: Path, error: str) -> Result:
    found = summary(directory) or {}
    choices = found.get("config") or {}
    return Result(directory, choices, str(found.get("status")), found.get("final_accuracy"), error)


def overrides(choices: Mapping[str, Value]) -> list[str]:
    """Choices as the command line writes them."""
    return [f"{key}={word(value)}" for key, value in choices.items()]


def word(value: Value) -> str:
    """A value as an override writes it."""
    if isinstance(value, float):
        return f"{value:.9g}"
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
