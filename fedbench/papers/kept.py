"""What is kept of a figure, so that it can be judged and drawn again without its runs and its data.

`<outputs/figures>/<figure>/<scale>/` keeps two tables of its final runs, tuning.csv, the drawings, each with
its points (CSV) and its caption (JSON), and made.json: what the results were made from and with. runs.csv has
all that is known of a run: its number, its stage and name (`dir`), every choice that decides what is
computed, its outcome, its hyper-parameters including those from theorems (`hyper.lr`), and what it was
computed with. rounds.csv has its measurements, under its number (`run`); packed as rounds.csv.gz if it is
larger than a committed file may be.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from fedbench.config.identity import counts
from fedbench.errors import DataError
from fedbench.figures.caption import agreed, distinct
from fedbench.figures.results import PACKED, PARTS, rounds_file
from fedbench.files import atomically, write_text
from fedbench.papers import FIGURES
from fedbench.papers.evidence import MADE, TUNING_CSV, made
from fedbench.papers.figure import Figure, command, experiment, shown
from fedbench.papers.figure_page import update_page
from fedbench.runs.lists import ROUNDS_CSV, RUNS_CSV
from fedbench.runs.records import Run
from fedbench.sweeps.tables import IDENTITY, outcome_of, text, write_csv
from fedbench.tuning.request import VALIDATION
from fedbench.tuning.selection import trials_table
from fedbench.tuning.tune import write_table
from fedbench.tuning.tuning import Chosen

_FURTHER = ("best_round", "wall_seconds", "metric", "data_note", "local_steps")
"""What runs.csv has of a run's summary, besides what that of a sweep has and its `PARTS`."""
_PROVENANCE = ("commit", "hardware", "versions", "data", "notes")
LARGEST = 1_500_000
"""Bytes of rounds.csv above which it is kept packed."""


def state(name: str, scale: str, root: Path) -> str:
    """`absent`, `incomplete` (a file is gone), `stale` (made from other configurations), or `current`."""
    out, figure = shown(name, scale, root), FIGURES[name]
    if (content := made(out)) is None:
        return "absent"
    if content.get("digest") != (experiment(figure, scale).digest if figure.runs else ""):
        return "stale"
    kept = [out / file for file in content.get("files", []) if not file.endswith(".pdf")]
    kept += [out / RUNS_CSV, rounds_file(out)] if figure.runs else []
    return "current" if all(file.is_file() for file in kept) else "incomplete"


def states(root: Path = Path()) -> list[tuple[str, str, str]]:
    """(figure, scale, state) of all figures at all scales."""
    return [
        (name, scale, state(name, scale, root)) for name, figure in FIGURES.items() for scale in figure.scales
    ]


# ---- keeping ---------------------------------------------------------------------------------------------


def write_tuning(out: Path, chosen: Chosen) -> None:
    """Write tuning.csv if anything was tuned: every configuration tried, with winners, their neighbours and
    edges marked."""
    if chosen:
        write_table(out / TUNING_CSV, trials_table([(task.named, found) for task, found in chosen]))


def write_made(
    out: Path, figure: Figure, scale: str, files: Sequence[Path], runs: Iterable[Run] = (),
    chosen: Chosen = (), validation: float = 0.0, changed: Sequence[str] = (),
) -> None:  # fmt: skip
    """Write made.json: what the figure is, what its runs are and what they were computed with, the winners at
    an edge of what was tried (`edges`), and if something was tuned the share of training samples held out to
    choose (`validation`). `changed`: what the user changed in the figure."""
    found = [run.summary for run in runs]
    for summary in found:  # keep the names of data files, but not where they are on this machine
        for file in summary.get("data") or []:
            file["path"] = Path(file["path"]).name
    configs = [summary.get("config", {}) for summary in found]
    status = [str(summary.get("status")) for summary in found]
    content = {
        "figure": figure.name,
        "about": figure.about,
        "scale": scale,
        "digest": experiment(figure, scale, changed).digest if figure.runs else "",
        "command": command(figure.name, scale, changed),
        **({"changed": list(changed)} if changed else {}),
        "files": sorted(file.name for file in files),
        "edges": [f"{task.words}: {key} {side}" for task, selection in chosen
                  for key, side in selection.edges.items()],
        **({"validation": validation} if chosen else {}),
        "runs": {name: status.count(name) for name in sorted(set(status))},
        "seeds": sorted({config["seed"] for config in configs if "seed" in config}),
        "shared": {key: value for key, value in agreed(configs).items() if counts(key)},
        "run_seconds": round(sum(summary.get("wall_seconds") or 0.0 for summary in found), 1),
        **{key: distinct(summary.get(key) for summary in found) for key in _PROVENANCE},
    }  # fmt: skip
    _write_json(out / MADE, content)


def write_tables(out: Path, runs: Mapping[str, Run]) -> None:
    """Write runs.csv and rounds.csv, or rounds.csv.gz, of these runs. `runs`: `<stage>/<name>` -> run."""
    chosen = dict.fromkeys(key for run in runs.values() for key in run.choices if counts(key))
    keys = list(dict.fromkeys([*IDENTITY, *chosen]))
    parts = [(part, run.summary.get(part) or {}) for part in PARTS for run in runs.values()]
    outcome = [*outcome_of(runs.values()), *_FURTHER]
    outcome += dict.fromkeys(f"{part}.{name}" for part, content in parts for name in content)
    table, measured = [], []
    for number, (name, run) in enumerate(runs.items()):
        values = [*map(run.value, keys), *map(run.outcome, outcome)]
        table.append([str(number), name, *map(text, values)])
        measured += [{"run": number, **row} for row in run.rows]
    write_csv(out / RUNS_CSV, ["run", "dir", *keys, *outcome], table)
    rounds = pd.DataFrame(measured, dtype=object).to_csv(index=False, lineterminator="\n").encode()
    if len(rounds) > LARGEST:  # the same bytes each time: no name, no date
        rounds, kept, gone = gzip.compress(rounds, mtime=0), out / PACKED, out / ROUNDS_CSV
    else:
        kept, gone = out / ROUNDS_CSV, out / PACKED
    atomically(kept, lambda temporary: temporary.write_bytes(rounds))
    gone.unlink(missing_ok=True)


# ---- drawing again ---------------------------------------------------------------------------------------


def redraw(figure: Figure, scale: str) -> bool:
    """Draw a figure again from what is kept, and write its page. Returns whether claims are to be judged
    again: a table that it draws is another one than before, or it has no page yet. Raises DataError if what
    is kept is not enough."""
    out = shown(figure.name, scale)
    if (content := made(out)) is None:
        raise DataError(f"{figure.name} --scale {scale}: no results are kept")
    before = _drawn(out, content["files"])
    files = figure.draw(out)
    say_how_it_was_tuned(out, files, content.get("validation"))
    again = {**content, "files": sorted(file.name for file in files)}
    _write_json(out / MADE, again)
    return not update_page(figure, out, again) or again != content or _drawn(out, again["files"]) != before


def _drawn(out: Path, names: Sequence[str]) -> dict[str, bytes]:
    """The tables that a figure has drawn, by their names."""
    return {name: (out / name).read_bytes() for name in names
            if name.endswith(".csv") and (out / name).is_file()}  # fmt: skip


def say_how_it_was_tuned(out: Path, files: Sequence[Path], share: float | None) -> None:
    """Add to the captions of a tuned figure on which samples its hyper-parameters were chosen. `share`: the
    share of training samples that was held out for this; None: the test set was used."""
    if not (out / TUNING_CSV).is_file():
        return
    if share:
        whose = f"held-out training samples ({VALIDATION}={share:g}), with seeds that are not evaluated"
    else:
        whose = "the test set"
    add_to_captions(files, f"Hyper-parameters were chosen by the accuracy on {whose}.")


def add_to_captions(files: Sequence[Path], line: str) -> None:
    """Add a sentence below the pictures and tables among the files of a figure."""
    for file in files:
        if file.suffix == ".md":
            before = file.read_text(encoding="utf-8").rstrip("\n")
            write_text(file, before + ("\n\n" if before.endswith("|") else " ") + line + "\n")
        elif file.suffix == ".json":
            said = json.loads(file.read_text(encoding="utf-8"))
            said["text"][-1] += f" {line}"
            write_text(file, json.dumps(said, indent=1, ensure_ascii=False) + "\n")


def _write_json(file: Path, content: Mapping[str, Any]) -> None:
    write_text(file, json.dumps(content, indent=1, default=str) + "\n")
