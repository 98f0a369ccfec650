"""What a reader must know to judge a figure: settings, seeds, n, meaning of the band, source of the data."""

from __future__ import annotations

import json
import logging
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

from fedbench.config.grouping import plain
from fedbench.figures import style
from fedbench.figures.lines import Line, Series, band
from fedbench.figures.results import Run, number
from fedbench.figures.style import POINTS, SPREADS

log = logging.getLogger(__name__)
STEPS = 10
"""Local steps of a run whose configuration names neither steps nor epochs."""
OWN_STEPS = {"ace": 1, "dude_asgd": 1, "ringmaster_asgd": 1}
"""The same for methods that define K themselves (`fixed_steps`; reading it there would import torch)."""
_EARLY = {
    "starved": "ended early, since too few clients were left to fill an update",
    "running": "not finished",
    "failed": "failed",
    "paused": "paused before the last round",
}
"""Statuses of runs whose lines stop early."""
_COUNTS = ("clients.total", "clients.per_round", "schedule.concurrency", "local.steps", "local.epochs",
           "local.batch_size", "local.batch_share")  # fmt: skip
_NUMBER = re.compile(r"\d[\d,.]*\d|\d")


def common(runs: Iterable[Run]) -> dict[str, Any]:
    """The choices that all runs share."""
    first, *others = [_with_steps(run.settings()) for run in runs] or [{}]
    return {
        key: value
        for key, value in first.items()
        if all(key in other and plain(other[key]) == plain(value) for other in others)
    }


def settings_line(shared: Mapping[str, Any]) -> str:
    """Shared settings in words: `Fashion-MNIST, CNN, Dirichlet(0.5), N=100, S=10, K=5, B=32`."""
    said = {"dataset": style.dataset, "model": style.model, "partition": style.partition}
    parts = [word(shared) for key, word in said.items() if shared.get(key)]
    if shared.get("schedule") not in (None, "sync"):
        parts.append(style.option(shared["schedule"]))
    if shared.get("delay") not in (None, "none"):
        parts.append(f"delays {shared['delay']}")
    shared = _with_steps(shared)
    if shared.get("local.batch_share") is not None:
        shared = {**shared, "local.batch_size": None}
    parts += [f"{style.SYMBOLS[key]}={shared[key]}" for key in _COUNTS if shared.get(key) is not None]
    if shared.get("loss.scale", 1) != 1:
        parts.append(f"loss × {shared['loss.scale']:g}")
    return ", ".join(parts)


def _with_steps(choices: Mapping[str, Any]) -> Mapping[str, Any]:
    """The choices with K, if they leave open both steps and epochs."""
    unset = all(key in choices and choices[key] is None for key in ("local.steps", "local.epochs"))
    if unset and choices.get("local.epochs_range") is None:
        return {**choices, "local.steps": local_steps(choices)}
    return choices


def local_steps(choices: Mapping[str, Any]) -> int:
    """K of a run without epochs: as configured, as its method defines it, or the default `STEPS`."""
    return choices.get("local.steps") or OWN_STEPS.get(str(choices.get("algorithm")), STEPS)


def seeds_line(series: Sequence[Series]) -> str:
    """`n = 3 seeds (0, 1, 2)`, or a range if lines differ in their number of seeds."""
    sets = [sorted(map(str, dict.fromkeys(line.seeds))) for line in series]
    counts = sorted({len(seeds) for seeds in sets})
    if len(counts) > 1:
        return f"n = {counts[0]} to {counts[-1]} seeds"
    listed = f" ({', '.join(sets[0])})" if all(seeds == sets[0] for seeds in sets) and counts[0] <= 8 else ""
    return f"n = {counted(counts[0], 'seed')}{listed}"


def counted(number: int, noun: str) -> str:
    """`1 run`, `2 runs`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def of_data(runs: Sequence[Run]) -> list[str]:
    """Sentences that a reader needs whatever is drawn of these runs: how they ended, and their data."""
    return [*ends(runs), *held_out(runs), *data_notes(runs)]


def held_out(runs: Iterable[Run]) -> list[str]:
    """A sentence if runs were trained without a part of their training samples, which validates."""
    shares = sorted({number(run.choices.get("dataset.validation")) or 0.0 for run in runs})
    if not any(shares):
        return []
    said = " or ".join(f"{share:g}" for share in shares)
    return [f"Held out of every client's training samples: {said} (dataset.validation)."]


def data_notes(runs: Iterable[Run]) -> list[str]:
    """How the data of these runs differ from the official data sets. Sentences that differ only in numbers
    are merged into one with the ranges of the numbers."""
    found: dict[str, list[list[str]]] = {}
    for note in distinct(run.extra.get("data_note") for run in runs):
        for part in note.split("; "):
            found.setdefault(_NUMBER.sub("\0", part), []).append(_NUMBER.findall(part))
    said = []
    for pattern, numbers in found.items():
        words = "".join(
            chain(*zip_longest(pattern.split("\0"), map(_range, zip(*numbers, strict=True)), fillvalue=""))
        )
        said.append(f"{words}.")
    return said


def _range(numbers: Iterable[str]) -> str:
    ordered = sorted(set(numbers), key=lambda text: float(text.replace(",", "")))
    return " to ".join(dict.fromkeys((ordered[0], ordered[-1])))


def weightings(runs: Iterable[Run]) -> list[str]:
    """A sentence if methods weight unequal clients differently, since their objectives then differ."""
    found: dict[str, dict[str, None]] = {}
    for run in runs:
        if run.choices.get("partition", "iid") != "iid":
            name = style.of_algorithm(str(run.choices.get("algorithm"))).label
            found.setdefault(str(run.choices.get("algorithm.weighting") or "uniform"), {})[name] = None
    if len(found) < 2:
        return []
    said = "; ".join(f"{how}: {', '.join(names)}" for how, names in found.items())
    return [f"Clients are weighted differently ({said}), so the objectives differ."]


def ends(runs: Sequence[Run]) -> list[str]:
    """Sentences on how many runs ended before their last round, and why. Diverged runs are drawn as such."""
    count = Counter(run.status for run in runs)
    total = counted(len(runs), "run")
    return [f"{count[status]} of {total} {words}." for status, words in _EARLY.items() if count[status]]


def distinct(values: Iterable[Any]) -> list[Any]:
    """Each non-empty value once, in order of first appearance; values may be dicts."""
    return list({json.dumps(value, sort_keys=True, default=str): value for value in values if value}.values())


def place(path: str | Path) -> str:
    """A directory as a caption names it: relative to the current directory, or else its last two parts."""
    resolved, here = Path(path).resolve(), Path.cwd().resolve()
    if resolved.is_relative_to(here):
        return str(resolved.relative_to(here)) if resolved != here else here.name
    return "/".join(resolved.parts[-2:])


def band_line(series: Sequence[Series], spread: str) -> str:
    """What the band shows; both kinds if lines differ in it, `no band` if no line has two seeds."""
    if spread == POINTS:
        return "small points: the seeds"
    kinds = dict.fromkeys(SPREADS[band(spread, line.n)] for line in series if line.n > 1)
    return f"band: {' or '.join(kinds)}" if kinds else "no band"


def of_runs(
    runs: Sequence[Run], series: Sequence[Series], sources: Sequence[str | Path], *, x: str, y: str,
    spread: str, notes: Sequence[str],
) -> dict[str, Any]:  # fmt: skip
    """The caption as data: the content of the JSON file, with the caption's paragraphs under `text`."""
    shared, shown, n = common(runs), band_line(series, spread), seeds_line(series)
    unequal = weightings(runs)
    for line in unequal:
        log.warning("%s algorithm.weighting=uniform makes them one", line)
    notes = [*notes, *unequal, *of_data(runs)]
    places = list(dict.fromkeys(map(place, sources)))
    more = f" and {len(places) - 3} more" if len(places) > 3 else ""
    said = [
        f"{settings_line(shared)}.".lstrip("."),
        f"{'' if shown == 'no band' else 'Mean over '}{n}; {shown}.",
    ]
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
        "text": [" ".join(filter(None, [*said, *notes, f"Data: {', '.join(places[:3])}{more}."]))],
    }


def notes_of_curves(lines: Sequence[Line], y: str) -> list[str]:
    """What a reader of curves must know, as sentences that name the lines they are about."""
    said: dict[str, list[str]] = {}

    def note(about: str, line: Line, what: str = "") -> None:
        said.setdefault(about, []).append(f"{line.series.label} {what}".strip())

    for one in lines:
        runs, n = one.series.runs, one.points.n
        status = Counter(run.status for run in runs)
        if one.empty:
            note(f"Without {y}, not drawn", one)
        if status["diverged"]:
            note("Diverged (×), not in the mean", one, f"({status['diverged']} of {len(runs)})")
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
    notes = []
    if any(line.points.diverged.any() for line in lines):
        some = any(line.partial.any() for line in lines)
        thin = " (thin: only some seeds; the hollow point is the mean of the others)" if some else ""
        notes.append(f"×: diverged{thin}.")
    swept = [line for line in lines if not line.points.theorem.all()]
    places = {at for line in swept for at in line.points.x[~line.points.theorem]}
    if stars := [at for line in lines for at in line.points.x[line.points.theorem]]:
        beyond = places and (min(stars) < min(places) or max(stars) > max(places))
        side = "; one at the side lies beyond" if beyond else ""
        notes.append(f"Star: the value that the method's theorem gives{side}.")
    if short := [line.series.label for line in swept if places - set(line.points.x)]:
        notes.append(f"No mark at a value: not run there ({'; '.join(dict.fromkeys(short))}).")
    repeated = sum(line.series.repeated for line in lines)
    missing = len(runs) - repeated - sum(int((line.points.n + line.points.diverged).sum()) for line in lines)
    if repeated:
        notes.append(f"{counted(repeated, 'repeated run')} of a seed left out.")
    if missing:
        notes.append(f"{counted(missing, 'run')} without {x} or {y} left out.")
    return notes
