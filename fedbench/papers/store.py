"""What is kept of a figure: its runs as two small tables, how it was tuned, and what it was made from.

`<outputs/figures>/<figure>/<scale>/`: runs.csv, rounds.csv, tuning.csv, made.json, and the drawings, each
with its points (CSV) and its caption (JSON).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from fedbench.compose.overrides import Value
from fedbench.config.identity import NOT_IDENTITY
from fedbench.figures.caption import distinct
from fedbench.files import write_text
from fedbench.papers.claims import MADE, made
from fedbench.papers.experiment import Branch, experiment
from fedbench.papers.figure import Figure, shown
from fedbench.papers.registry import FIGURES
from fedbench.runs.stored import summary
from fedbench.tuning.selection import Selection, trials_table


def command(name: str, scale: str) -> str:
    """What makes a figure again."""
    return f"scripts/figures {name} --scale {scale}"


def write_tuning(out: Path, chosen: Sequence[tuple[Branch, Selection]]) -> None:
    """tuning.csv: every configuration tried, the winners and their neighbours marked, edges flagged; under
    "pruned" the rounds of those that had fewer than the figure."""
    parts: list[tuple[dict[str, Value], Selection]] = []
    for branch, selection in chosen:
        own: dict[str, Value] = {"search": branch.search.name} if branch.search else {}
        parts.append(({**own, "algorithm": branch.algorithm, **branch.context}, selection))
    if parts:
        write_text(out / "tuning.csv", trials_table(parts).to_csv(index=False, lineterminator="\n"))


def write_runs(out: Path, directories: Sequence[Path]) -> None:
    """runs.csv and rounds.csv of all final stages; `dir` says the stage too."""
    for name in ("runs", "rounds"):
        parts = []
        for directory in directories:
            table = pd.read_csv(directory / f"{name}.csv", dtype=str, keep_default_na=False)
            parts.append(table.assign(dir=[f"{directory.name}/{place}" for place in table.dir]))
        joined = pd.concat(parts, ignore_index=True).fillna("")
        write_text(out / f"{name}.csv", joined.to_csv(index=False, lineterminator="\n"))


def write_meta(
    out: Path,
    figure: Figure,
    scale: str,
    digest: str,
    files: Sequence[Path],
    places: Sequence[Path] = (),
    chosen: Sequence[tuple[Branch, Selection]] = (),
) -> None:
    """made.json: what the results were made from and with. `places`: the directories of the final runs."""
    found = _summaries(places)
    configs = [content.get("config", {}) for content in found]
    shared = {
        key: configs[0][key]
        for key in (configs[0] if configs else {})
        if key not in NOT_IDENTITY and all(other.get(key, _ABSENT) == configs[0][key] for other in configs)
    }
    status = [str(content.get("status")) for content in found]
    content = {
        "figure": figure.name,
        "about": figure.about,
        "scale": scale,
        "digest": digest,
        "command": command(figure.name, scale),
        "files": sorted(file.name for file in files),
        "runs": {name: status.count(name) for name in sorted(set(status))},
        "seeds": sorted({config["seed"] for config in configs if "seed" in config}),
        "shared": shared,
        "edges": [
            f"{_named(branch)}: {key} {side}"
            for branch, selection in chosen
            for key, side in selection.edges.items()
        ],
        "run_seconds": round(sum(content.get("wall_seconds") or 0.0 for content in found), 1),
        **{key: distinct(content.get(key) for content in found) for key in _PROVENANCE},
    }
    write_text(out / MADE, json.dumps(content, indent=1, default=str) + "\n")


def _named(branch: Branch) -> str:
    if branch.search:
        return f"{branch.method} ({branch.search.name})"
    return " ".join([branch.method, *map(str, filter(None, branch.context.values()))])


_ABSENT = object()
_PROVENANCE = ("commit", "hardware", "versions", "data", "notes")


def _summaries(places: Sequence[Path]) -> list[dict[str, Any]]:
    found = [content for place in places if (content := summary(place)) is not None]
    for content in found:  # where the data lay is of this machine; what they were stays
        for file in content.get("data") or []:
            file["path"] = Path(file["path"]).name
    return found


def state(name: str, scale: str, root: Path = Path()) -> str:
    """`absent`, `incomplete` (a file is gone), `stale` (made from other configurations), or `current`."""
    out = shown(name, scale, root)
    content = made(out)
    if content is None:
        return "absent"
    figure = FIGURES[name]
    now = experiment(figure, scale).digest if figure.runs else ""
    if content.get("digest") != now:
        return "stale"
    kept = [file for file in content.get("files", []) if not file.endswith(".pdf")]
    kept += ["runs.csv", "rounds.csv"] if figure.runs else []
    return "current" if all((out / file).is_file() for file in kept) else "incomplete"


def states(root: Path = Path()) -> list[tuple[str, str, str]]:
    """(figure, scale, state) of all figures at all scales."""
    return [
        (name, scale, state(name, scale, root)) for name, figure in FIGURES.items() for scale in figure.scales
    ]
