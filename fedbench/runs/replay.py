"""Computes a finished run again from its directory alone, and compares the results."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from fedbench import provenance
from fedbench.config.config import flat
from fedbench.config.identity import FILES, inputs, recorded
from fedbench.errors import DataError
from fedbench.provenance import hardware, short, versions
from fedbench.runs.run import Run
from fedbench.runs.run_directory import FINISHED, MODEL, RunDirectory
from fedbench.runs.session import Session

UNTIMED = "wall_seconds"  # the one column that may differ


PLACES = ("data.root", *FILES, "device", "threads")
"""Keys that say where something lies or is computed, not what it is: a replay may change them."""


def replay(
    directory: Path,
    session: Session | None = None,
    into: Path | None = None,
    places: Mapping[str, str] | None = None,
) -> list[str]:
    """What differs between the run in `directory` and the same run computed now; empty: nothing.

    Engine, chunk, device and threads are those of the run. Its data are read from where they were, unless
    FEDBENCH_DATA or `places` (keys of PLACES) say otherwise. `into`: a directory that keeps the new run, and
    resumes it if it was stopped. Raises DataError if there is no finished run, if its data or files have
    changed, or if several processes computed it.
    """
    found = RunDirectory(directory).summary
    if found is None or found.get("status") not in FINISHED:
        raise DataError(f"{directory}: no run has finished here")
    processes = int(found.get("processes", 1))
    if processes > 1:
        why = "were summed in a different order than in one process"
        raise DataError(f"{directory} was computed by {processes} processes: its numbers {why}")
    changes: dict[str, Any] = {name: found[name] for name in ("engine", "chunk", "device")}
    changes["threads"] = found["hardware"]["threads"]
    changes |= {"resume": True, "progress": "none", "logger": None}  # logged rows are there already
    run = Run(RunDirectory(directory).config_here(**{**changes, **(places or {})}), session)
    _refuse_other_data(directory, found, run)
    with tempfile.TemporaryDirectory(prefix="fedbench-replay-") as place:
        run.go(again := into or Path(place))
        return [*_metrics(directory, again), *_model(directory, again)]


def elsewhere(directory: Path) -> list[str]:
    """How the code and hardware that computed a run differ from those here: commit, versions, processor."""
    found = RunDirectory(directory).summary or {}
    device = torch.device(str(found.get("device", "cpu")))
    here = {**versions(), **(hardware(device) if device.type == "cpu" else {})}
    there = {**found.get("versions", {}), **found.get("hardware", {})}
    if (before := found.get("commit")) != (now := provenance.commit()):
        here, there = {"commit": short(now), **here}, {"commit": short(before), **there}
    return [f"{key} {there[key]}, here {here[key]}" for key in here if there.get(key, here[key]) != here[key]]


def _refuse_other_data(directory: Path, found: Mapping[str, Any], run: Run) -> None:
    before = {Path(file["path"]).name: file["sha256"] for file in found["data"] if "sha256" in file}
    now = {Path(file["path"]).name: file["sha256"] for file in run.problem.dataset.files if "sha256" in file}
    before, now = {**before, **recorded(directory)}, {**now, **inputs(flat(run.config))}
    for name in before:
        if now.get(name) != before[name]:
            raise DataError(f"{name} differs from what the run in {directory} read (sha256 {before[name]})")


def _metrics(one: Path, other: Path) -> list[str]:
    """The first cell of metrics.csv that differs, else the number of rows if that differs."""
    before, after = _rows(one), _rows(other)
    for row, (mine, yours) in enumerate(zip(before, after, strict=False)):
        for key in mine:
            if mine[key] != yours.get(key):
                return [f"metrics.csv, row {row}: {key} was {mine[key]}, is {yours.get(key)}"]
    return [] if len(before) == len(after) else [f"metrics.csv had {len(before)} rows, has {len(after)}"]


def _rows(directory: Path) -> Sequence[Mapping[str, str]]:
    rows = RunDirectory(directory).rows()
    return [{key: value for key, value in row.items() if key != UNTIMED} for row in rows]


def _model(one: Path, other: Path) -> list[str]:
    before, after = (torch.load(d / MODEL, map_location="cpu", weights_only=True) for d in (one, other))
    differ = [name for name in before if not torch.equal(before[name], after[name])]
    return [f"model.pt: {name} differs" for name in differ[:1]]
