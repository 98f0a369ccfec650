"""The page of `fedbench report`: its tables, the figures' data and plotly's program in one file.

Everything that comes from runs is escaped, and links are relative to the page.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from string import Template
from typing import Any
from urllib.parse import quote

import pandas as pd

from fedbench.errors import DataError, UsageError, counted, needs, word
from fedbench.figures import caption
from fedbench.figures.lines import curve
from fedbench.figures.results import TRIALS, TUNING, metric, sweeps_of
from fedbench.figures.style import AUTO, axis
from fedbench.files import read_json, write_text
from fedbench.report import plots
from fedbench.report.runs import COMPLETED, Setting, gather, is_whole, reason, settings, varied
from fedbench.runs.lists import swept_in
from fedbench.runs.records import Run, number
from fedbench.runs.run_directory import CONFIG, LOG, METRICS, REPRODUCE, SUMMARY
from fedbench.sweeps.tables import STATUSES
from fedbench.version import VERSION

SHOWN = 12
"""Curves that are shown at first."""
_LISTED = 24  # values of a key that are listed
_FILES = (SUMMARY, METRICS, CONFIG, LOG, REPRODUCE)
_TOP_FILES = ("*.csv", "*.json", "*.png", "*.pdf", "*.svg", "*.md")
_ACCURACIES = ("final_accuracy", "best_accuracy")


def write(directories: Sequence[Path], out: Path) -> None:
    """Write the page about the runs in directories, whole or not at all.

    Raises UsageError if plotly is not installed, DataError if there are no runs, RunError if `out` cannot be
    written.
    """
    try:
        from plotly.offline import get_plotlyjs
    except ImportError:
        raise UsageError(f"report: {needs('plotly', 'report')}") from None
    runs: list[tuple[str, Run]] = []
    for directory in directories:
        for place in sweeps_of(directory):
            above = [directory.name] * (len(directories) > 1) + [place.name] * (place != directory)
            runs += [("/".join([*above, name]), run) for name, run in gather(place)]
    if not runs:
        raise DataError(f"{directories[0]}: no winner has run yet; the search is in {TRIALS} there")
    write_text(out, _page(directories, runs, out.resolve(), str(get_plotlyjs())))


def _page(directories: Sequence[Path], runs: Sequence[tuple[str, Run]], out: Path, program: str) -> str:
    places = [place for one in directories for place in sweeps_of(one)]
    every = [run for _, run in runs]
    whole = [run for run in every if is_whole(run)]
    keys = varied(every, places) or ["algorithm"]
    found = settings(whole, swept_in(places))
    measured = metric(whole)
    result = axis("final_accuracy", measured)
    swept = [key for key in swept_in(places) if key in keys] or keys
    heats = [plots.heat_map(found, *pair, result) for pair in plots.pairs(found, swept)]
    drawn = plots.curves(found, measured)
    shared = caption.common(whole)
    data = {
        "curves": {y: json.loads(figure.to_json()) for y, figure in drawn.items()},
        "heat": [json.loads(figure.to_json()) for _, figure in heats],
    }
    files = [
        _link(file, out, file.name + "/" * file.is_dir())
        for directory in directories
        for file in [directory.resolve(), *sorted(f for kind in _TOP_FILES for f in directory.glob(kind))]
    ]
    parts = {
        "title": escape(", ".join(map(caption.place, directories))),
        "place": escape(", ".join(map(str, directories))),
        "version": escape(VERSION),
        "summary": "".join(
            f"<p>{escape(text)}</p>" for text in [*_summary(every, found), *_of_tunings(directories)]
        ),
        "values": _pairs("values", [(key, _counts(every, key)) for key in [*keys, "seed"]]),
        "shared": _pairs("shared", [(key, word(value)) for key, value in shared.items()]),
        "files": ", ".join(files),
        "settings": _settings_table(found, keys, result),
        "columns": "".join(f'<option value="{y}">{escape(axis(y, measured))}</option>' for y in drawn),
        "curves": escape(_note(found)),
        "heat": _heat_maps(heats),
        "troubles": _troubles_table(runs, out),
        "runs": _runs_table(runs, keys, measured, out),
        "data": json.dumps(data, separators=(",", ":")).replace("<", "\\u003c"),  # no tag ends the script
        "style": _own("page.css"),
        "script": _own("page.js"),
        "plotly": program,
    }
    return Template(_own("page.html")).substitute(parts)


def _own(name: str) -> str:
    return (Path(__file__).parent / name).read_text(encoding="utf-8")


def _summary(runs: Sequence[Run], found: Sequence[Setting]) -> list[str]:
    """How many runs, how they ended, what they share, what to beware of."""
    whole, counts = [run for run in runs if is_whole(run)], Counter(run.status for run in runs)
    ends = ", ".join(f"{counts[kind]} {kind}" for kind in dict.fromkeys([*STATUSES, *counts]) if counts[kind])
    first = f"{counted(len(runs), 'run')} ({ends}) of {counted(len(found), 'setting')}"
    if found:
        first += f"; {caption.seeds_line([one.series for one in found])}"
    lines = [f"{first}.", f"{caption.settings_line(caption.common(whole))}.".lstrip(".")]
    lines += caption.data_notes(whole)
    repeated = sum(one.series.repeated for one in found)
    if repeated:
        again = counted(repeated, "further run")
        lines.append(f"{again} with a seed that their setting already has: left out of its mean.")
    versions: dict[str, dict[str, None]] = {}
    for run in whole:
        for name, version in (run.summary.get("versions") or {}).items():
            versions.setdefault(str(name), {})[str(version)] = None
    made = ", ".join(f"{name} {' and '.join(several)}" for name, several in versions.items())
    return [line for line in [*lines, f"Computed with {made}." if made else ""] if line]


def _of_tunings(directories: Sequence[Path]) -> list[str]:
    """What the settings of a tuning are: its winners, chosen by its rule."""
    return [
        f"{place}: the winners of a search, each at its own values. Rule: {found.get('rule')}. Its trials:"
        f" fedbench report {place / TRIALS}."
        for place in directories
        if (found := read_json(place / TUNING)) is not None
    ]


def _counts(runs: Sequence[Run], key: str) -> str:
    """How many runs have each value of a key."""
    counts = Counter(word(run.choices[key]) for run in runs if key in run.choices)
    listed = ", ".join(f"{value} ({n})" for value, n in list(counts.items())[:_LISTED])
    return listed + (f", and {len(counts) - _LISTED} more" if len(counts) > _LISTED else "")


def _note(found: Sequence[Setting]) -> str:
    """The note that explains the curves."""
    if not found:
        return "No run names its algorithm, so there are no settings to draw."
    text = f"Mean over seeds; {caption.band_line([one.series for one in found], AUTO)}. "
    fewer = caption.fewer_line([curve(one.series, "round", "test_accuracy", AUTO) for one in found], "round")
    text += f"{fewer} Dotted up to ×: a run that diverged, in no mean.".lstrip()
    if len(found) > SHOWN:
        text += f" At first the best {SHOWN} of {len(found)} settings are shown."
    return text


def _heat_maps(heats: Sequence[tuple[str, Any]]) -> str:
    if not heats:
        return "<p>Fewer than two keys with at least two values each were searched.</p>"
    parts = [
        f'<figure><figcaption>{escape(title)}</figcaption><div class="plot" data-heat="{rank}" '
        f'style="height:{figure.layout.height}px"></div></figure>'
        for rank, (title, figure) in enumerate(heats)
    ]
    return "\n".join(parts)


# ---- tables: every cell is HTML, and its column is sorted by the text that is shown ----------------------


def _settings_table(found: Sequence[Setting], keys: Sequence[str], result: str) -> str:
    """A row per setting with a box that switches its curve; the first SHOWN are on."""
    rows = []
    for rank, one in enumerate(found):
        box = f'<input type="checkbox" data-curve="s{rank}"{" checked" if rank < SHOWN else ""}'
        box += f' aria-label="curve of {escape(one.series.label)}">'
        swatch = f'<span class="swatch" style="background:{one.series.style.colour}"></span>'
        numbers = [_number(one.mean, ".4f"), _number(one.deviation, ".4f"), str(len(one.values))]
        curve = f"<label>{box}{swatch} {rank + 1}</label>"
        rows.append([curve, *_choices(one.choices, keys), *numbers, escape(one.ends)])
    return _table("settings", ["curve", *keys, result, "± std", "n", "ended"], rows)


def _runs_table(runs: Sequence[tuple[str, Run]], keys: Sequence[str], measured: str, page: Path) -> str:
    """A row per run, with links to its files."""
    rows = []
    for name, run in runs:
        place = run.directory
        files = [_link(place / file, page, file) for file in _FILES if (place / file).is_file()]
        numbers = [_number(run.result(outcome), ".4f") for outcome in _ACCURACIES]
        numbers += [_number(run.result("best_round"), ".0f"), str(run.outcome("rounds_done"))]
        numbers.append(_number(run.outcome("wall_seconds"), ".1f"))
        chosen = _choices(run.choices, [*keys, "seed"])
        rows.append([_link(place, page, name), *chosen, _status(run), *numbers, " ".join(files)])
    named = [*(axis(name, measured) for name in _ACCURACIES), "best round", "rounds done", "seconds", "files"]
    return _table("runs", ["run", *keys, "seed", "status", *named], rows)


def _troubles_table(runs: Sequence[tuple[str, Run]], page: Path) -> str:
    """A row per run that did not complete, with the reason; a sentence if there is none."""
    rows = []
    for name, run in runs:
        if run.status != COMPLETED:
            log = run.directory / LOG
            link = _link(log if log.is_file() else run.directory, page, name)
            why = f'<div class="reason">{escape(reason(run))}</div>'
            rows.append([link, _status(run), f"{run.result('round') or 0:.0f}", why])
    if not rows:
        return "<p>All runs completed.</p>"
    return _table("troubles", ["run", "status", "rounds done", "reason"], rows)


def _table(name: str, titles: Iterable[str], rows: Sequence[Sequence[str]]) -> str:
    frame = pd.DataFrame([*rows], columns=[escape(title) for title in titles])
    with pd.option_context("display.max_colwidth", None):
        table = frame.to_html(table_id=name, classes="sortable", border=0, index=False, escape=False)
    return f'<div class="wide">{table}</div>'


def _pairs(name: str, rows: Iterable[tuple[str, str]]) -> str:
    """A small table of names and texts."""
    body = "".join(f"<tr><th>{escape(key)}</th><td>{escape(text)}</td></tr>" for key, text in rows)
    return f'<table id="{name}"><tbody>{body}</tbody></table>'


def _choices(choices: Mapping[str, Any], keys: Iterable[str]) -> list[str]:
    return [escape(word(choices[key])) if key in choices else "" for key in keys]


def _number(value: object, form: str) -> str:
    """A measured number; empty if there is none."""
    found = number(value)
    return "" if found is None else format(found, form)


def _status(run: Run) -> str:
    return f'<span class="{escape(run.status)}">{escape(run.status)}</span>'


def _link(target: Path, page: Path, text: str) -> str:
    """A link from `page` to a file, or the text if there is none. A quoted colon starts no URL scheme."""
    if not target.exists():
        return escape(text)
    return f'<a href="{escape(quote(os.path.relpath(target.resolve(), page.parent)))}">{escape(text)}</a>'
