"""The tables of other suites and papers: presets `experiment=peers/<name>`, and what they published.

peers.yaml names the tables. peers.csv has a line for every number: its cell (`where` and `method` select
runs), its standard deviation, and a tag that says how it is known. `readme`, `code`: the authors' own files.
`second`: a public source that quotes the paper. `rerun`: a rerun by others. `other`: another network, so only
the order of methods counts. `memory`: recollection of a paper whose text was not available. It is shown but
decides nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml
from numpy.typing import NDArray

from fedbench.config.compose import compose
from fedbench.config.config import flat
from fedbench.config.grouping import settings
from fedbench.config.overrides import written
from fedbench.papers.claims import Claim, on_figure
from fedbench.papers.evidence import (
    Untested,
    configurations,
    diverged,
    frame,
    measured,
    rows_of,
    runs_in,
    said,
    short,
    tuned,
)
from fedbench.papers.figure import Figure, Paper, experiment, picture, save_table
from fedbench.papers.measures import Leads, Near

PEERS = Path(__file__).with_name("peers.yaml")
NUMBERS = pd.read_csv(PEERS.with_suffix(".csv"), dtype=str, keep_default_na=False)
CELL = ["setting", "where", "method"]
PUBLISHED = ["value", "unit", "deviation", "tag", "source"]
DECIDES = ("readme", "code", "second", "rerun")
"""Tags of numbers that decide a verdict."""
ORDERS = ("readme", "code", "other")
"""Tags of rows whose best method is a claim."""
TAGS = {"memory": "from memory, not checked", "second": "second-hand", "other": "another network"}


@dataclass(frozen=True)
class Table:
    """A published table. `note`: what differs from the source at every scale. `target`: count the rounds to
    this test accuracy; None: compare accuracies. `curves`: columns `y` that are drawn against rounds too, and
    keys: a line for every value of `by`, a panel for every one of `rows`."""

    name: str
    paper: str
    about: str
    note: str = ""
    target: float | None = None
    curves: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @property
    def numbers(self) -> pd.DataFrame:
        """Its lines of peers.csv."""
        return NUMBERS[NUMBERS.table == self.name]

    @property
    def figure(self) -> Figure:
        """The figure that makes this table."""
        return Figure(f"peers/{self.name}", f"{self.paper}: {self.about}", partial(write, self))


def write(table: Table, out: Path) -> list[Path]:
    """Write the table as CSV and Markdown, with a row for each cell that was run, and draw its curves.
    Returns the files."""
    runs = runs_in(out)
    ours, rounds = frame(runs), measured(runs)
    made = pd.DataFrame([
        {"setting": setting, "method": short(str(method)), "published": _published(lines),
         **_ours(table, ours, rounds, _where(str(where)), str(method)), "note": lines.note.iloc[0]}
        for (setting, where, method), lines in table.numbers.groupby(CELL, sort=False)
    ])  # fmt: skip
    absent = int((made["ours (n)"] == "").sum())
    made = made[made["ours (n)"] != ""]
    made = made.loc[:, (made != "").any() | made.empty]  # without rows it still has its titles
    configs = [run.choices for run in runs]
    chosen = "chosen" in made and len(made) > 0
    files = save_table(made, out, "table", *_text(table, configs, absent, chosen))
    for y in table.curves.get("y", ()):
        by, rows = table.curves["by"], ",".join(table.curves["rows"])
        files += picture(out, y, "round", y=y, by=by, rows=rows)
    return files


def _where(words: str) -> dict[str, str]:
    return dict(word.split("=", 1) for word in words.split())


def _published(lines: pd.DataFrame) -> str:
    """`68.2% +- 0.7% (NIID-Bench, readme); 63.4% (Flower's rerun)`."""
    parts = []
    for value, unit, deviation, tag, source in lines[PUBLISHED][lines.value != ""].to_numpy(str).tolist():
        spread = f" +- {deviation}%" if deviation else ""
        known = "" if tag == "rerun" else f", {TAGS.get(tag, tag)}"
        parts.append(f"{value}{unit if unit != 'rounds' else ''}{spread} ({source}{known})")
    return "; ".join(parts) or "none"


def _ours(
    table: Table, runs: pd.DataFrame, rounds: pd.DataFrame, where: dict[str, str], method: str
) -> dict[str, str]:
    """Our number in a cell, and the chosen values of keys for which several were tried."""
    try:
        rows = rows_of(runs, method, where)
    except Untested:
        return {"ours (n)": "", "chosen": ""}
    if table.target is None:
        best = tuned(rows)
        number = said(best.groupby("seed").final_accuracy.mean()) + diverged(best)
    else:
        needed = rounds_to(table.target, rounds[rounds.dir.isin(rows.dir)])
        labels = configurations(rows).configuration
        middle = rows.dir.map(needed).groupby(labels).median()
        best = rows[labels == middle.idxmin()]
        last = int(rounds[rounds.dir.isin(best.dir)]["round"].max())
        number = f"{middle.min():.0f}" if np.isfinite(middle.min()) else f"> {last}"
        number += f" ({len(best)})"
    chosen = {key: rows[key].dropna().unique() for key in map(str, rows) if key.startswith("algorithm.")}
    words = [f"{key.partition('.')[2]}={best[key].iloc[0]:g} {_place(best[key].iloc[0], values)}"
             for key, values in chosen.items() if len(values) > 1 and number[0] != ">"]  # fmt: skip
    return {"ours (n)": number, "chosen": ", ".join(words)}


def _place(value: float, tried: NDArray[Any]) -> str:
    """The position of a chosen value among those tried: `of 4, the largest`."""
    at_edge = {min(tried): ", the smallest", max(tried): ", the largest"}.get(value, "")
    return f"of {len(tried)}{at_edge}"


def rounds_to(target: float, rounds: pd.DataFrame) -> pd.Series:
    """For each run (`dir`), the rounds until its best test accuracy so far reaches `target`, interpolated
    linearly between evaluations; infinite if it never does."""
    found = {}
    for name, curve in rounds.sort_values("round").groupby("dir"):
        best = curve.test_accuracy.astype(float).fillna(0.0).cummax().to_numpy()
        first = int(np.argmax(best >= target))
        around = slice(max(first - 1, 0), first + 1)
        at = np.interp(target, best[around], curve["round"].to_numpy(float)[around])
        found[name] = float(at) if best[-1] >= target else np.inf
    return pd.Series(found, dtype=float)


def differing_settings(table: Table, configs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Settings of our runs that the preset uses nowhere at scale paper, with its value: `rounds=15 (50)`. Of
    what is searched there the table says how many values were tried."""
    paper, words = experiment(table.figure, "paper"), {}
    first = {key: values[0] for key, values in {**paper.params, **paper.branches[0].along}.items()}
    first |= {**paper.branches[0].context, "algorithm": paper.branches[0].algorithm}
    given = [f"{key}={written(value)}" for key, value in first.items()]
    theirs = flat(compose([f"experiment={paper.figure.name}", "scale=paper", *given]).config)
    along = {key for branch in paper.branches for key in branch.along}
    searched = {key for key in along if key.startswith("algorithm.")}
    for config in configs:
        for key, value in settings(config).items():
            if key not in theirs or key in {"algorithm", *searched}:
                continue
            meant = [theirs[key], *paper.params.get(key, [])]
            for branch in paper.branches:
                meant += [branch.context.get(key, theirs[key]), *branch.along.get(key, [])]
            if value not in meant:
                words[key] = f"{key}={value} ({'default' if theirs[key] is None else theirs[key]})"
    return list(words.values())


def _text(table: Table, configs: Sequence[Mapping[str, Any]], absent: int, chosen: bool) -> Iterator[str]:
    last = max((config.get("eval.final_k") or 1 for config in configs), default=1)
    if table.target:
        yield f"Rounds to {table.target:.0%} test accuracy, interpolated. Ours: median (number of seeds)."
    else:
        when = f"mean of the last {last} evaluations" if last > 1 else "after the last round"
        yield f"Test accuracy, {when}. Ours: mean +- standard deviation (number of seeds)."
    if chosen:
        what = "fewest rounds" if table.target else "best test accuracy"
        yield f"Chosen: the value of those tried that has the {what}, by the seeds and test samples shown."
    if any(table.numbers.tag == "memory"):
        yield "Numbers from memory were not checked against the paper and decide no verdict."
    if differs := differing_settings(table, configs):
        yield f"Differs from scale paper (values there): {', '.join(differs)}."
    if absent:
        yield f"{absent} more cells are run at scale paper only."
    if table.note:
        yield table.note


TABLES = tuple(
    Table(name, **said) for name, said in yaml.safe_load(PEERS.read_text(encoding="utf-8")).items()
)


def _claims(table: Table) -> Iterator[Claim]:
    """Claims on the numbers of each row by source, and on its best method if the tag is one of `ORDERS`."""
    known, figure = table.numbers[table.numbers.unit == "%"], f"peers/{table.name}"
    for words, lines in known.groupby(["setting", "source", "tag"], sort=False):
        setting, source, tag = map(str, words)
        row, name = f"{table.paper}, {table.about}, {setting}", _slug(f"{table.name} {setting} {source}")
        claim = partial(Claim, source=f"{source} ({tag})", kind="peers")
        cells = lines[["method", "value", "where"]].to_numpy(str).tolist()
        if tag in DECIDES:
            near = {f"{short(method)} {value}%":
                    Near(method, float(value) / 100, "final_accuracy", _where(where))
                    for method, value, where in cells}  # fmt: skip
            yield claim(name, f"{row}: near the published accuracies", numbers=on_figure(figure, near))
        if tag in ORDERS and len(cells) > 2:
            best, _, where = max(cells, key=lambda cell: float(cell[1]))
            others = tuple(method for method, *_ in cells if method != best)
            test = Leads(best, others, where=_where(where))
            yield claim(
                f"{name}-best", f"{row}: {short(best)} is best", numbers=on_figure(figure, {"": test})
            )


def _slug(words: str) -> str:
    return re.sub(r"[^a-z0-9_]+", "-", words.lower()).strip("-")


PAPER = Paper("peers", "Tables of other suites and papers", tuple(table.figure for table in TABLES),
              tuple(claim for table in TABLES for claim in _claims(table)))  # fmt: skip
