"""The tables of a page: settings, runs, what did not complete, and what was run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from fedbench.figures.names import axis
from fedbench.figures.results import number, outcomes
from fedbench.webpage.gather import COMPLETED, Entry
from fedbench.webpage.markup import Cell, count, link, said, table
from fedbench.webpage.settings import Setting

_FILES = ("summary.json", "metrics.csv", "config.yaml", "run.log", "reproduce")
_ABSENT = Cell("", None)


def of_settings(settings: Sequence[Setting], keys: Sequence[str], result: str, shown: int) -> str:
    """A row per setting with a box that switches its curve; the first `shown` are on."""
    rows = []
    for rank, one in enumerate(settings):
        box = f'<input type="checkbox" data-curve="s{rank}"{" checked" if rank < shown else ""}'
        box += f' aria-label="curve of {escape(one.label)}">'
        swatch = f'<span class="swatch" style="background:{one.series.style.colour}"></span>'
        cells = [Cell(f"<label>{box}{swatch}</label>", rank), *_chosen(one.series.runs[0].choices, keys)]
        ends = Cell(escape(one.ends), one.ends)
        cells += [count(one.mean, ".4f"), count(one.deviation, ".4f"), count(len(one.values)), ends]
        rows.append(cells)
    return table("settings", ["curve", *keys, result, "± std", "n", "ended"], rows)


def of_runs(entries: Sequence[Entry], keys: Sequence[str], metric: str, page: Path) -> str:
    """A row per run, with links to its files."""
    rows = []
    for entry, row in zip(entries, outcomes([entry.run for entry in entries]), strict=True):
        measured = [number(row[name]) for name in ("final_accuracy", "best_accuracy")]
        files = [link(entry.place / name, page, name) for name in _FILES if (entry.place / name).is_file()]
        cells = [
            Cell(link(entry.place, page, entry.name), entry.name),
            *_chosen(entry.run.choices, [*keys, "seed"]),
            _status(entry),
            *(count(value, ".4f") for value in measured),
            count(number(row["best_round"]), ".0f"),
            count(entry.round),
            count(number(row["wall_seconds"]), ".1f"),
            Cell(" ".join(files), None),
        ]
        rows.append(cells)
    accuracies = [axis(name, metric) for name in ("final_accuracy", "best_accuracy")]
    named = [*accuracies, "best round", "rounds done", "seconds", "files"]
    return table("runs", ["run", *keys, "seed", "status", *named], rows)


def of_troubles(entries: Sequence[Entry], page: Path) -> str:
    """A row per run that did not complete, with the reason; a sentence where there is none."""
    rows = []
    for entry in entries:
        if entry.status != COMPLETED:
            log = entry.place / "run.log"
            name = link(log if log.is_file() else entry.place, page, entry.name)
            reason = Cell(f'<div class="reason">{escape(entry.reason)}</div>', entry.reason)
            rows.append([Cell(name, entry.name), _status(entry), count(entry.round), reason])
    if not rows:
        return "<p>All runs completed.</p>"
    return table("troubles", ["run", "status", "rounds done", "reason"], rows)


def of_values(entries: Sequence[Entry], keys: Iterable[str]) -> str:
    """The keys in which runs differ, and how many runs have each of their values."""
    items = []
    for key in [*keys, "seed"]:
        counts = Counter(said(entry.run.choices[key]).html for entry in entries if key in entry.run.choices)
        shown = ", ".join(f"{word} ({n})" for word, n in list(counts.items())[:24])
        more = f", and {len(counts) - 24} more" if len(counts) > 24 else ""
        items.append(f"<tr><th>{escape(key)}</th><td>{shown}{more}</td></tr>")
    return f'<table id="values"><tbody>{"".join(items)}</tbody></table>'


def of_shared(shared: Mapping[str, Any]) -> str:
    """The settings that all runs have in common."""
    rows = "".join(
        f"<tr><th>{escape(key)}</th><td>{said(value).html}</td></tr>" for key, value in shared.items()
    )
    return f'<table id="shared"><tbody>{rows}</tbody></table>'


def _chosen(choices: Mapping[str, Any], keys: Iterable[str]) -> list[Cell]:
    return [said(choices[key]) if key in choices else _ABSENT for key in keys]


def _status(entry: Entry) -> Cell:
    word = escape(entry.status)
    return Cell(f'<span class="{word}">{word}</span>', entry.status)
