"""A figure drawn again from what is kept of it: no runs, no data, the same captions.

Beside runs.csv and rounds.csv, `kept.json` has what pictures say of the runs: where they were, and of every
run its configuration, its hyper-parameters after theorems and what it was computed with.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from fedbench.config.identity import NOT_IDENTITY
from fedbench.errors import DataError
from fedbench.files import read_json, write_text
from fedbench.papers.claims import MADE
from fedbench.papers.figure import Figure, shown
from fedbench.runs.stored import summary

KEPT = "kept.json"
_SAID = (
    "status",
    "rounds",
    "final_k",
    "best_accuracy",
    "best_round",
    "hyper",
    "config",
    "hardware",
    "versions",
    "commit",
    "data_note",
)
_TABLES = ("runs", "rounds")


def write_kept(out: Path, stages: Sequence[Path], root: Path) -> None:
    """kept.json of the runs in these sweep directories; what all runs say alike is written once."""
    found = {}
    for stage in stages:
        for file in sorted(stage.glob("*/summary.json")):
            found[f"{stage.name}/{file.parent.name}"] = _said(summary(file.parent) or {})
    common = _common(list(found.values()))
    own = {place: {key: said[key] for key in said if key not in common} for place, said in found.items()}
    places = {stage.parent.relative_to(root).as_posix() for stage in stages}
    content = {"place": " ".join(sorted(places)), "common": common, "runs": own}
    write_text(out / KEPT, json.dumps(content, indent=None, separators=(",", ":")) + "\n")


def redraw(figure: Figure, scale: str, root: Path = Path()) -> None:
    """Draw a figure anew from what is kept. Raises DataError where that is not enough."""
    out = shown(figure.name, scale, root).resolve()
    if (made := read_json(out / MADE)) is None:
        raise DataError(f"{figure.name} --scale {scale}: nothing is kept of it")
    if not figure.runs:
        files = figure.draw(root, out)
    else:
        kept = read_json(out / KEPT)
        if kept is None:
            raise DataError(f"{out / KEPT}: is not there; what was kept without it cannot be drawn again")
        with tempfile.TemporaryDirectory() as place, contextlib.chdir(place):
            _restore(out, kept)  # under the names that captions say, which are relative to here
            files = figure.draw(Path(str(kept["place"])), out)
    made["files"] = sorted(file.name for file in files)
    write_text(out / MADE, json.dumps(made, indent=1, default=str) + "\n")


def _restore(out: Path, kept: Mapping[str, Any]) -> None:
    """The sweep directories as far as pictures read them, below the current directory."""
    for name in _TABLES:
        table = pd.read_csv(out / f"{name}.csv", dtype=str, keep_default_na=False)
        stages = table.dir.str.partition("/")[0]
        for stage, part in table.groupby(stages, sort=False):
            place = Path(kept["place"], str(stage))
            place.mkdir(parents=True, exist_ok=True)
            part = part.loc[:, (part != "").any()]  # an empty column is another stage's
            part = part.assign(dir=part.dir.str.partition("/")[2])
            write_text(place / f"{name}.csv", part.to_csv(index=False, lineterminator="\n"))
    for run, own in kept["runs"].items():
        said: dict[str, Any] = {}
        for key, value in {**kept["common"], **own}.items():
            group, part, name = key.partition("/")
            if part:
                said.setdefault(group, {})[name] = value
            else:
                said[key] = value
        place = Path(kept["place"], run)
        place.mkdir(parents=True, exist_ok=True)
        write_text(place / "summary.json", json.dumps(said))


def _said(content: Mapping[str, Any]) -> dict[str, Any]:
    """What pictures read of a summary, flat: `config/local.steps`. Of the configuration, what is computed."""
    flat: dict[str, Any] = {}
    for key in _SAID:
        value = content.get(key)
        if isinstance(value, dict):
            without = NOT_IDENTITY if key == "config" else ()
            flat |= {f"{key}/{name}": part for name, part in value.items() if name not in without}
        elif value is not None:
            flat[key] = value
    return flat


def _common(found: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What all say alike."""
    first = found[0] if found else {}
    absent = object()
    return {key: value for key, value in first.items() if all(one.get(key, absent) == value for one in found)}
