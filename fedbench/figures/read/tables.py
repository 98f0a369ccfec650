"""The files of runs and sweeps, read: CSV cells as text, metrics as numbers, summaries as dicts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from omegaconf import OmegaConf

from fedbench.errors import DataError
from fedbench.runs.metrics import COLUMNS

METRICS = COLUMNS
"""Columns of metrics.csv; the clients' where they were asked for."""


def table(file: Path) -> pd.DataFrame:
    """A CSV file as text cells; DataError where it cannot be read."""
    try:
        return pd.read_csv(file, dtype=str, keep_default_na=False)
    except (OSError, ValueError) as error:  # pandas' parser errors are ValueErrors
        raise DataError(f"{file}: cannot be read as CSV: {str(error).splitlines()[0]}") from None


def numbers(table: pd.DataFrame, file: Path) -> pd.DataFrame:
    """The metrics columns as float64; empty cells are NaN. Rows in order of the round."""
    if "round" not in table:
        raise DataError(f"{file}: no column 'round'")
    columns = {}
    for name in METRICS:
        if name in table:
            try:  # Python's float reads back exactly what a run wrote; pandas' own parser does not
                columns[name] = np.array([float(cell) if cell else np.nan for cell in table[name]])
            except ValueError as error:
                raise DataError(f"{file}: column '{name}': {error}") from None
    return pd.DataFrame(columns).sort_values("round", kind="stable", ignore_index=True)


def summary_of(path: Path) -> dict[str, Any]:
    """summary.json of the run in `path`; empty while there is none."""
    file = path / "summary.json"
    if not file.is_file():
        return {}
    try:
        loaded = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{file}: cannot be read as JSON: {error}") from None
    if not isinstance(loaded, dict):
        raise DataError(f"{file}: not a summary")
    return loaded


def config_of(path: Path) -> dict[str, Any]:
    """config.yaml of the run in `path`. Raises DataError."""
    try:
        loaded = OmegaConf.load(path / "config.yaml")  # it reads 1e-3 as a number
    except FileNotFoundError:
        raise DataError(f"{path}: no run directory (config.yaml is missing)") from None
    except Exception as error:  # YAML's and OmegaConf's errors share no base class
        raise DataError(f"{path / 'config.yaml'}: cannot be read: {str(error).splitlines()[0]}") from None
    plain = OmegaConf.to_container(loaded, resolve=False)
    if not isinstance(plain, dict):
        raise DataError(f"{path / 'config.yaml'}: no configuration of a run")
    return {str(key): value for key, value in plain.items()}


def parse(cell: object) -> object:
    """A cell of runs.csv as the value that a config has: a number, true, false, null (or empty), or text."""
    if not isinstance(cell, str):
        return cell
    word = cell.strip()
    if word in ("", "null", "None"):
        return None
    if word.lower() in ("true", "false"):
        return word.lower() == "true"
    for kind in (int, float):
        try:
            return kind(word)
        except ValueError:
            continue
    return word


def number(value: object) -> float | None:
    """`value` as a finite float, or None where it is none (a word, empty, infinite)."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if np.isfinite(value) else None
