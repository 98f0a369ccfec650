"""What is kept of a figure, so that it can be judged and drawn again without its runs and its data.

`<outputs/figures>/<figure>/<scale>/` keeps runs.csv, rounds.csv and tuning.csv, the drawings, each with its
points (CSV) and its caption (JSON), and two files about them. made.json says what the results were made from
and with. kept.json has what pictures need of every run: its directory, its configuration, its
hyper-parameters including those from theorems, and what it was computed with.
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
from fedbench.figures.caption import distinct
from fedbench.files import read_json, write_text
from fedbench.papers import FIGURES
from fedbench.papers.claims import MADE, made
from fedbench.papers.figure import Figure, MethodRuns, command, experiment, of_stages, shown
from fedbench.runs.lists import runs_of
from fedbench.runs.run_directory import SUMMARY, RunDirectory
from fedbench.tuning.request import VALIDATION
from fedbench.tuning.selection import Selection, trials_table

KEPT = "kept.json"
_OF_A_RUN = ("status", "rounds", "final_k", "best_accuracy", "best_round", "hyper", "config", "hardware",
             "versions", "commit", "data_note")  # fmt: skip
"""What is kept of a run's summary."""
_PROVENANCE = ("commit", "hardware", "versions", "data", "notes")
_TABLES = ("runs", "rounds")
_TEXTS: dict[str, Any] = {"dtype": str, "keep_default_na": False}
"""Options of pandas.read_csv that keep every cell as its text."""
Chosen = Sequence[tuple[MethodRuns, Selection]]


def state(name: str, scale: str, root: Path = Path()) -> str:
    """`absent`, `incomplete` (a file is gone), `stale` (made from other configurations), or `current`."""
    out, figure = shown(name, scale, root), FIGURES[name]
    if (content := made(out)) is None:
        return "absent"
    if content.get("digest") != (experiment(figure, scale).digest if figure.runs else ""):
        return "stale"
    kept = [file for file in content.get("files", []) if not file.endswith(".pdf")]
    kept += [f"{table}.csv" for table in _TABLES] if figure.runs else []
    return "current" if all((out / file).is_file() for file in kept) else "incomplete"


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
        _write_csv(out / "tuning.csv", trials_table([(branch.named, found) for branch, found in chosen]))


def write_made(
    out: Path, figure: Figure, scale: str, digest: str, files: Sequence[Path], places: Sequence[Path] = (),
    tuned: Mapping[str, Any] | None = None,
) -> None:  # fmt: skip
    """Write made.json: what the results were made from and with. `places`: the directories of the final runs;
    `tuned`: the result of `how_tuned`."""
    found = [content for place in places if (content := RunDirectory(place).summary) is not None]
    for content in found:  # keep the names of data files, but not where they are on this machine
        for file in content.get("data") or []:
            file["path"] = Path(file["path"]).name
    configs = [content.get("config", {}) for content in found]
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
        "shared": {key: value for key, value in _shared(configs).items() if key not in NOT_IDENTITY},
        **(tuned or {"edges": []}),
        "run_seconds": round(sum(content.get("wall_seconds") or 0.0 for content in found), 1),
        **{key: distinct(content.get(key) for content in found) for key in _PROVENANCE},
    }
    _write_json(out / MADE, content)


def how_tuned(chosen: Chosen, validation: float) -> dict[str, Any]:
    """For made.json: the winners at an edge of what was tried (`edges`), and the share of training samples
    held out to choose them (`validation`; only if something was tuned)."""
    edges = [
        f"{branch.words}: {key} {side}"
        for branch, selection in chosen
        for key, side in selection.edges.items()
    ]
    return {"edges": edges, **({"validation": validation} if chosen else {})}


def write_tables(out: Path, stages: Sequence[Path]) -> None:
    """Write runs.csv and rounds.csv of all final stages; `dir` includes the stage."""
    for name in _TABLES:
        _write_csv(out / f"{name}.csv", of_stages(stages, name, **_TEXTS).fillna(""))


def write_kept(out: Path, stages: Sequence[Path], root: Path) -> None:
    """Write kept.json of the runs in these sweep directories; what all runs share is written once."""
    found = {
        f"{stage.name}/{place.name}": _flat(RunDirectory(place).summary or {})
        for stage in stages
        for place in sorted(runs_of(stage))
        if RunDirectory(place).has(SUMMARY)
    }
    common = _shared(list(found.values()))
    own = {run: {key: said[key] for key in said if key not in common} for run, said in found.items()}
    places = {stage.parent.relative_to(root).as_posix() for stage in stages}
    content = {"place": " ".join(sorted(places)), "common": common, "runs": own}
    write_text(out / KEPT, json.dumps(content, separators=(",", ":")) + "\n")


def _flat(summary: Mapping[str, Any]) -> dict[str, Any]:
    """What pictures read of a summary, with flat keys such as `config/local.steps`. The configuration is
    reduced to the keys that decide what is computed."""
    flat: dict[str, Any] = {}
    for key in _OF_A_RUN:
        value = summary.get(key)
        if isinstance(value, dict):
            without = NOT_IDENTITY if key == "config" else ()
            flat |= {f"{key}/{name}": part for name, part in value.items() if name not in without}
        elif value is not None:
            flat[key] = value
    return flat


def _shared(found: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The keys on whose values all of them agree."""
    first, absent = found[0] if found else {}, object()
    return {key: value for key, value in first.items() if all(one.get(key, absent) == value for one in found)}


def configurations(out: Path) -> dict[str, dict[str, Any]]:
    """The configurations of the runs that are kept in `out`: run (`dir` of runs.csv) -> choices."""
    kept = read_json(out / KEPT) or {"common": {}, "runs": {}}
    return {
        run: {key.removeprefix("config/"): value for key, value in {**kept["common"], **own}.items()
              if key.startswith("config/")}
        for run, own in kept["runs"].items()
    }  # fmt: skip


# ---- drawing again ---------------------------------------------------------------------------------------


def redraw(figure: Figure, scale: str, root: Path = Path()) -> list[str]:
    """Draw a figure again from what is kept. Returns no failures; raises DataError if that is not enough."""
    out = shown(figure.name, scale, root).resolve()
    if (content := made(out)) is None:
        raise DataError(f"{figure.name} --scale {scale}: no results are kept")
    if not figure.runs:
        files = figure.draw(root, out)
    else:
        files = draw_kept(figure, out)
        say_how_it_was_tuned(out, files, content.get("validation"))
    _write_json(out / MADE, {**content, "files": sorted(file.name for file in files)})
    return []


def draw_kept(figure: Figure, out: Path) -> Sequence[Path]:
    """Draw a figure from what is kept of its runs in `out`; return the files. Raises DataError."""
    out = out.resolve()
    if (kept := read_json(out / KEPT)) is None:
        raise DataError(f"{out / KEPT}: does not exist; results kept without it cannot be redrawn")
    with tempfile.TemporaryDirectory() as place, contextlib.chdir(place):
        _restore(out, kept)  # relative to this directory, so that captions name the original paths
        return figure.draw(Path(kept["place"]), out)


def say_how_it_was_tuned(out: Path, files: Sequence[Path], share: float | None) -> None:
    """Add to the captions of a tuned figure on which samples its hyper-parameters were chosen. `share`: the
    share of training samples that was held out for this; None: the test set was used."""
    if not (out / "tuning.csv").is_file():
        return
    if share:
        whose = f"held-out training samples ({VALIDATION}={share:g}), with seeds that are not evaluated"
    else:
        whose = "the test set"
    line = f" Hyper-parameters were chosen by the accuracy on {whose}."
    for file in files:
        if file.suffix == ".json" and (said := read_json(file)) and said.get("text"):
            said["text"][-1] += line
            write_text(file, json.dumps(said, indent=1, ensure_ascii=False) + "\n")
            caption = file.with_suffix(".md")
            write_text(caption, caption.read_text(encoding="utf-8").rstrip("\n") + line + "\n")


def _restore(out: Path, kept: Mapping[str, Any]) -> None:
    """Restore the parts of the sweep directories that pictures read, below the current directory."""
    for run, own in kept["runs"].items():
        content: dict[str, Any] = {}
        for key, value in {**kept["common"], **own}.items():
            group, nested, name = key.partition("/")
            if nested:
                content.setdefault(group, {})[name] = value
            else:
                content[key] = value
        place = Path(kept["place"], run)
        place.mkdir(parents=True)
        RunDirectory(place).write_summary(content)
    for name in _TABLES:
        table = pd.read_csv(out / f"{name}.csv", **_TEXTS)
        where = table.dir.str.partition("/")
        for stage, part in table.assign(dir=where[2]).groupby(where[0], sort=False):
            used = (part != "").any()  # an empty column is another stage's
            _write_csv(Path(kept["place"], str(stage), f"{name}.csv"), part.loc[:, used])


def _write_csv(file: Path, table: pd.DataFrame) -> None:
    write_text(file, table.to_csv(index=False, lineterminator="\n"))


def _write_json(file: Path, content: Mapping[str, Any]) -> None:
    write_text(file, json.dumps(content, indent=1, default=str) + "\n")
