"""What a reader must know to judge a figure: settings, seeds, n, what the band is, where it came from."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedbench.config.grouping import plain
from fedbench.figures import names
from fedbench.figures.lines import Line, Series, band
from fedbench.figures.results import Run
from fedbench.figures.style import SPREADS, of_algorithm
from fedbench.runs.provenance import mixed_code

log = logging.getLogger(__name__)
STEPS = 10
"""Local steps of a run whose configuration names neither steps nor epochs."""
_EARLY = {
    "starved": "ended early, since too few clients were left to fill an update",
    "running": "not finished",
    "failed": "failed",
    "paused": "paused before the last round",
}
"""Statuses of runs whose lines stop early."""
_COUNTS = (
    "clients.total",
    "clients.per_round",
    "schedule.concurrency",
    "local.steps",
    "local.epochs",
    "local.batch_size",
)


def common(runs: Iterable[Run]) -> dict[str, Any]:
    """The choices that all runs share."""
    settings = [run.settings() for run in runs]
    first = settings[0] if settings else {}
    return {
        key: value
        for key, value in first.items()
        if all(key in other and plain(other[key]) == plain(value) for other in settings)
    }


def settings_line(shared: Mapping[str, Any]) -> str:
    """Shared settings in words: `Fashion-MNIST, CNN, Dirichlet(0.5), N=100, S=10, K=5, B=32`."""
    parts = [names.dataset(shared)] if shared.get("dataset") else []
    if shared.get("model"):
        parts.append(names.model(shared))
    if shared.get("partition"):
        parts.append(names.partition(shared))
    if shared.get("schedule") not in (None, "sync"):
        parts.append(names.option(shared["schedule"]))
    if shared.get("delay") not in (None, "none"):
        parts.append(f"delays {shared['delay']}")
    if "local.steps" in shared and shared["local.steps"] is shared.get("local.epochs") is None:
        shared = {**shared, "local.steps": STEPS}
    parts += [f"{names.SYMBOLS[key]}={shared[key]}" for key in _COUNTS if shared.get(key) is not None]
    if shared.get("loss.scale", 1) != 1:
        parts.append(f"loss × {shared['loss.scale']:g}")
    return ", ".join(parts)


def seeds_line(series: Sequence[Series]) -> str:
    """`n = 3 seeds (0, 1, 2)`, or the range where lines differ in it."""
    sets = [sorted(map(str, dict.fromkeys(line.seeds))) for line in series]
    counts = sorted({len(seeds) for seeds in sets})
    if len(counts) > 1:
        return f"n = {counts[0]} to {counts[-1]} seeds"
    listed = f" ({', '.join(sets[0])})" if all(seeds == sets[0] for seeds in sets) and counts[0] <= 8 else ""
    return f"n = {counted(counts[0], 'seed')}{listed}"


def counted(number: int, noun: str) -> str:
    """`1 run`, `2 runs`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def data_notes(runs: Iterable[Run]) -> list[str]:
    """What sets the data of these runs apart from the official sets, as sentences."""
    return [f"{note}." for note in distinct(run.extra.get("data_note") for run in runs)]


def weightings(runs: Iterable[Run]) -> list[str]:
    """Whether methods weight unequal clients differently, as a sentence: their objectives differ then."""
    found: dict[str, dict[str, None]] = {}
    for run in runs:
        if run.choices.get("partition", "iid") != "iid":
            name = of_algorithm(str(run.choices.get("algorithm"))).label
            found.setdefault(str(run.choices.get("algorithm.weighting") or "uniform"), {})[name] = None
    if len(found) < 2:
        return []
    said = "; ".join(f"{how}: {', '.join(names)}" for how, names in found.items())
    return [f"Clients are weighted differently ({said}), so the objectives differ."]


def mixed(runs: Iterable[Run]) -> list[str]:
    """Whether runs were computed by different code, as a sentence."""
    line = mixed_code(run.extra for run in runs)
    return [f"The runs were {line}."] if line else []


def ends(runs: Sequence[Run]) -> list[str]:
    """How many runs ended before their last round, and why, as sentences; diverged ones are drawn as such."""
    statuses = [run.status for run in runs]
    return [
        f"{statuses.count(status)} of {counted(len(runs), 'run')} {words}."
        for status, words in _EARLY.items()
        if status in statuses
    ]


def distinct(values: Iterable[Any]) -> list[Any]:
    """Each non-empty value once, in the order met; values may be dicts."""
    kept: dict[str, Any] = {}
    for value in values:
        if value:
            kept.setdefault(json.dumps(value, sort_keys=True, default=str), value)
    return list(kept.values())


def place(path: str | Path) -> str:
    """A directory as a caption names it: from the current directory, or its last two parts."""
    resolved, here = Path(path).resolve(), Path.cwd().resolve()
    if resolved.is_relative_to(here):
        return str(resolved.relative_to(here)) if resolved != here else here.name
    return "/".join(resolved.parts[-2:])


def band_line(series: Sequence[Series], spread: str) -> str:
    """What the band shows, `no band` where no line has two seeds; both where lines differ in it."""
    kinds = dict.fromkeys(SPREADS[band(spread, line.n)] for line in series if line.n > 1)
    return f"band: {' or '.join(kinds)}" if kinds else "no band"


def of_runs(
    runs: Sequence[Run],
    series: Sequence[Series],
    sources: Sequence[str | Path],
    *,
    x: str,
    y: str,
    spread: str,
    notes: Sequence[str],
) -> dict[str, Any]:
    """The caption as data: what JSON keeps, and under `text` the paragraphs of the caption itself."""
    shared, shown, n = common(runs), band_line(series, spread), seeds_line(series)
    mean = "" if shown == "no band" else "Mean over "
    unequal = weightings(runs)
    for line in unequal:
        log.warning("%s algorithm.weighting=uniform makes them one", line)
    notes = [*notes, *unequal, *ends(runs), *data_notes(runs), *mixed(runs)]
    places = list(dict.fromkeys(map(place, sources)))
    more = f" and {len(places) - 3} more" if len(places) > 3 else ""
    said = [f"{settings_line(shared)}.".lstrip("."), f"{mean}{n}; {shown}.", *notes]
    return {
        "x": x,
        "y": y,
        "statistic": "mean over seeds",
        "band": shown,
        "n": n,
        "series": [
            {
                "label": line.label,
                "choices": line.choices,
                "hyper": line.runs[0].hyper,
                "n": line.n,
                "seeds": line.seeds,
                "status": [run.status for run in line.runs],
                "runs": [run.source for run in line.runs],
            }
            for line in series
        ],
        "settings": shared,
        "notes": notes,
        "sources": places,
        "hardware": distinct(run.extra.get("hardware") for run in runs),
        "versions": distinct(run.extra.get("versions") for run in runs),
        "commits": sorted({str(run.extra["commit"]) for run in runs if run.extra.get("commit")}),
        "text": [" ".join(filter(None, [*said, f"Data: {', '.join(places[:3])}{more}."]))],
    }


def notes_of_curves(lines: Sequence[Line], y: str) -> list[str]:
    """What a reader of curves must know, in sentences, each naming the lines that it is about."""
    said: dict[str, list[str]] = {}

    def note(about: str, line: Line, what: str = "") -> None:
        said.setdefault(about, []).append(f"{line.series.label} {what}".strip())

    for one in lines:
        runs, n = one.series.runs, one.points.n
        status = Counter(run.status for run in runs)
        if one.empty:
            note(f"Without {y}, not drawn", one)
        for word, about in (
            ("diverged", "Diverged (×), not in the mean"),
            ("failed", "Failed, drawn as far as it got"),
            ("running", "Not finished"),
        ):
            if status[word]:
                note(about, one, f"({status[word]} of {len(runs)})")
        if one.series.repeated:
            note("Repeated runs of a seed, left out", one, f"({one.series.repeated})")
        if len(n) and n.min() < n.max():
            note("n falls along the line", one, f"({n.max()} to {n.min()})")
    notes = []
    for about, who in said.items():
        more = f" and {counted(len(who) - 6, 'more line')}" if len(who) > 6 else ""
        notes.append(f"{about}: {'; '.join(who[:6])}{more}.")
    if any(line.interpolated for line in lines):
        notes.append("Seeds interpolated linearly between evaluations.")
    return notes


def notes_of_results(lines: Sequence[Line], runs: Sequence[Run], x: str, y: str) -> list[str]:
    """What a reader of results must know: their marks, what was not run, which of `runs` are not drawn."""
    notes = marks_said(lines)
    swept = [line for line in lines if not line.points.theorem.all()]
    places = {at for line in swept for at in line.points.x[~line.points.theorem]}
    if short := [line.series.label for line in swept if places - set(line.points.x)]:
        notes.append(f"No mark at a value: not run there ({'; '.join(short)}).")
    repeated = sum(line.series.repeated for line in lines)
    missing = len(runs) - repeated - sum(int((line.points.n + line.points.diverged).sum()) for line in lines)
    if repeated:
        notes.append(f"{counted(repeated, 'repeated run')} of a seed left out.")
    if missing:
        notes.append(f"{counted(missing, 'run')} without {x} or {y} left out.")
    return notes


def marks_said(lines: Sequence[Line]) -> list[str]:
    """What crosses and stars mean, where there are any."""
    notes = []
    if any(line.points.diverged.any() for line in lines):
        some = any(line.partial.any() for line in lines)
        thin = " (thin: only some seeds; the hollow point is the mean of the others)" if some else ""
        notes.append(f"×: diverged{thin}.")
    if any(line.points.theorem.any() for line in lines):
        notes.append("Star: the value that the algorithm's theorem gives.")
    return notes
