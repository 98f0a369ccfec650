"""The page itself: its sections, the figures' data and plotly's program in one file."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from string import Template
from typing import Any

import fedbench
from fedbench.errors import UsageError
from fedbench.figures import caption
from fedbench.figures.names import axis
from fedbench.figures.results import Run, metric
from fedbench.files import write_text
from fedbench.sweeps.progress import STATUSES
from fedbench.sweeps.tables import manifest
from fedbench.webpage import curves, heat, tables
from fedbench.webpage.gather import Entry, gather
from fedbench.webpage.markup import link
from fedbench.webpage.settings import Setting, settings, varied

SHOWN = 12
"""Curves that are on at first."""
_TOP_FILES = ("*.csv", "*.json", "*.png", "*.pdf", "*.svg", "*.md")
_HERE = Path(__file__).parent


def write(directory: Path, out: Path) -> None:
    """Write the page about the runs in `directory`, whole or not at all.

    Raises UsageError where plotly is not installed, DataError where there are no runs, RunError where `out`
    cannot be written.
    """
    program = _plotly()
    write_text(out, _page(directory, gather(directory), out.resolve(), program))


def _plotly() -> str:
    """The program that draws in the browser."""
    try:
        from plotly.offline import get_plotlyjs
    except ImportError:
        raise UsageError("report: plotly is not installed (pip install 'fedbench-runner[report]')") from None
    return str(get_plotlyjs())


def _page(directory: Path, entries: Sequence[Entry], out: Path, program: str) -> str:
    keys, found = varied(entries), settings(entries)
    whole = [entry.run for entry in entries if entry.whole]
    measured = metric(whole)
    result = axis("final_accuracy", measured)
    swept = [key for key in manifest(directory).get("swept", []) if key in keys] or keys
    pairs = heat.pairs(found, swept)
    drawn, heats = curves.figures(found, measured), heat.maps(found, pairs, result)
    shown = min(SHOWN, len(found))
    data = {
        "curves": {y: _plain(figure) for y, figure in drawn.items()},
        "heat": [_plain(one.figure) for one in heats],
    }
    parts = {
        "title": escape(caption.place(directory)),
        "place": escape(str(directory)),
        "version": escape(fedbench.__version__),
        "summary": _summary(entries, whole, found),
        "values": tables.of_values(entries, keys),
        "shared": tables.of_shared(caption.common(whole)),
        "files": _files(directory.resolve(), out),
        "settings": tables.of_settings(found, keys, result, shown),
        "columns": "".join(f'<option value="{y}">{escape(axis(y, measured))}</option>' for y in drawn),
        "curves": _note(found, shown),
        "heat": _heat(heats, len(pairs)),
        "troubles": tables.of_troubles(entries, out),
        "runs": tables.of_runs(entries, keys, measured, out),
        "data": json.dumps(data, separators=(",", ":")).replace("<", "\\u003c"),  # no tag ends the script
        "style": _own("page.css"),
        "script": _own("page.js"),
        "plotly": program,
    }
    return Template(_own("page.html")).substitute(parts)


def _own(name: str) -> str:
    return (_HERE / name).read_text(encoding="utf-8")


def _plain(figure: Any) -> Any:
    return json.loads(figure.to_json())


def _summary(entries: Sequence[Entry], runs: Sequence[Run], found: Sequence[Setting]) -> str:
    """Paragraphs: how many runs, how they ended, what they share, what to beware of."""
    counts = Counter(entry.status for entry in entries)
    order = dict.fromkeys([*STATUSES, *counts])
    ends = ", ".join(f"{counts[status]} {status}" for status in order if counts[status])
    first = f"{caption.counted(len(entries), 'run')} ({ends}) of {caption.counted(len(found), 'setting')}"
    if found:
        first += f"; {caption.seeds_line([one.series for one in found])}"
    lines = [f"{first}.", f"{caption.settings_line(caption.common(runs))}.".lstrip(".")]
    lines += [*caption.weightings(runs), *caption.data_notes(runs), *caption.mixed(runs)]
    repeated = sum(one.series.repeated for one in found)
    if repeated:
        again = caption.counted(repeated, "further run")
        lines.append(f"{again} of a seed that a setting has already: in no mean.")
    made = [f"{name} {value}" for name, value in _versions(runs).items()]
    lines += [f"Computed with {', '.join(made)}."] if made else []
    return "".join(f"<p>{escape(text)}</p>" for text in lines if text)


def _versions(runs: Sequence[Run]) -> Mapping[str, str]:
    """Name -> versions that runs were computed with."""
    found: dict[str, dict[str, None]] = {}
    for run in runs:
        for name, version in (run.extra.get("versions") or {}).items():
            found.setdefault(str(name), {})[str(version)] = None
    return {name: " and ".join(versions) for name, versions in found.items()}


def _files(directory: Path, out: Path) -> str:
    """Links to the files of the directory itself."""
    files = sorted({file for kind in _TOP_FILES for file in directory.glob(kind) if file.is_file()})
    links = [link(directory, out, f"{directory.name}/"), *(link(file, out, file.name) for file in files)]
    return ", ".join(links)


def _note(found: Sequence[Setting], shown: int) -> str:
    """What the curves are."""
    if not found:
        return "No run says which algorithm it is of, so there are no settings to draw."
    series = [one.series for one in found]
    text = f"Mean over seeds; {caption.band_line(series, 'auto')}. Dotted up to ×: "
    text += "a run that diverged, in no mean."
    if shown < len(found):
        text += f" At first the best {shown} of {len(found)} settings are shown."
    return escape(text)


def _heat(heats: Sequence[heat.Heat], pairs: int) -> str:
    if not heats:
        return "<p>Fewer than two keys with at least two values each were searched.</p>"
    parts = [
        f'<figure><figcaption>{escape(one.title)}</figcaption><div class="plot" data-heat="{rank}" '
        f'style="height:{one.figure.layout.height}px"></div></figure>'
        for rank, one in enumerate(heats)
    ]
    more = f"<p>The first {len(heats)} of {pairs} pairs of keys are drawn.</p>" if len(heats) < pairs else ""
    return more + "\n".join(parts)
