"""What a reader must know to judge a figure: settings, seeds, n, meaning of the band, source of the data."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedbench.config.config import DEFAULT_STEPS
from fedbench.config.grouping import plain
from fedbench.errors import counted
from fedbench.figures import style
from fedbench.figures.lines import Line, PlotOptions, Series, band
from fedbench.figures.lines import place as value_at
from fedbench.figures.style import POINTS, SPREADS
from fedbench.files import seen_from_here
from fedbench.runs.records import Run

_STOPS = {"target": "at the target", "patience": "without further improvement"}  # key -> how a run ends by it
TASK = {"dataset": style.dataset, "model": style.model, "partition": style.partition}
"""What a run learns: key -> its words, from the run's choices."""
_COUNTS = ("clients.total", "clients.per_round", "schedule.concurrency", "local.steps", "local.epochs",
           "local.batch_size", "local.batch_share")  # fmt: skip


def common(runs: Iterable[Run]) -> dict[str, Any]:
    """The choices that all runs share."""
    return agreed([_with_steps(run.settings(), run.summary.get("local_steps")) for run in runs])


def agreed(configs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The keys that all of these have, with one value."""
    first, *others = configs or [{}]
    return {
        key: value
        for key, value in first.items()
        if all(key in other and plain(other[key]) == plain(value) for other in others)
    }


def settings_line(shared: Mapping[str, Any]) -> str:
    """Shared settings in words: `Fashion-MNIST, CNN, Dirichlet(0.5), N=100, S=10, K=5, B=32`."""
    parts = [word(shared) for key, word in TASK.items() if shared.get(key)]
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
    if shared.get("dataset.validation"):
        parts.append(f"{shared['dataset.validation']:g} of the training samples held out")
    return ", ".join(parts)


def _with_steps(choices: Mapping[str, Any], made: int | None = None) -> Mapping[str, Any]:
    """The choices with K, if they leave open both steps and epochs. `made`: K as the run says it."""
    unset = all(key in choices and choices[key] is None for key in ("local.steps", "local.epochs"))
    if unset and choices.get("local.epochs_range") is None:
        return {**choices, "local.steps": made or DEFAULT_STEPS}
    return choices


def seeds_line(series: Sequence[Series]) -> str:
    """`n = 3 seeds (0, 1, 2)`, or a range if lines differ in their number of seeds."""
    sets = [sorted(map(str, dict.fromkeys(line.seeds))) for line in series]
    counts = sorted({len(seeds) for seeds in sets})
    if len(counts) > 1:
        return f"n = {counts[0]} to {counts[-1]} seeds"
    listed = f" ({', '.join(sets[0])})" if all(seeds == sets[0] for seeds in sets) and counts[0] <= 8 else ""
    return f"n = {counted(counts[0], 'seed')}{listed}"


def fewer_line(lines: Sequence[Line], x: str) -> str:
    """A sentence if runs of these curves are shorter than others of their line, so that a mean is over fewer
    seeds there: `n falls after round 6 and is 1 at the end`. `x`: the column on the x axis. Else empty."""
    falling = [line for line in lines if line.points.n.nunique() > 1]
    if not falling:
        return ""
    first = min(line.points.x[line.points.n == line.points.n.max()].max() for line in falling)
    least = min(line.points.n.min() for line in falling)
    many, of, why = len(falling) > 1, _of(falling, lines), _why(falling)
    at, end = (" at the earliest", "the lowest") if many else ("", "the end")
    return f"n{of} falls after {x.replace('_', ' ')} {first:g}{at} and is {least} at {end}{why}."


def cut_line(lines: Sequence[Line], x: str) -> str:
    """A sentence if means of these curves cover a part of x only, as runs of a line begin or end at different
    x: `The mean covers virtual time 0 to 31, as all runs do; they end at 40 at the latest.` Else empty."""
    cut = [(line, line.beyond[1]) for line in lines if line.beyond and len(line.points)]
    if not cut:
        return ""
    some, name = [line for line, _ in cut], x.replace("_", " ")
    if len(cut) > 1:
        less = max(1 - line.points.x.iloc[-1] / latest for line, latest in cut)
        whose = f"that all runs of its line cover, up to {less:.0%} less than the longest of them"
        return f"A mean covers the {name} {whose}{_why(some)}."
    latest, at = cut[0][1], some[0].points.x
    covers = f"covers {name} {at.iloc[0]:.4g} to {at.iloc[-1]:.4g}, as all its runs do"
    return f"The mean{_of(some, lines)} {covers}; they end at {latest:.4g} at the latest{_why(some)}."


def _of(some: Sequence[Line], lines: Sequence[Line]) -> str:
    """Which of the lines these are."""
    if len(lines) == 1:
        return ""
    return f" of {len(some)} lines" if len(some) > 1 else f" of {some[0].series.label}"


def _why(lines: Sequence[Line]) -> str:
    """Why runs of these lines have ended early, if that is known."""
    runs = [run for line in lines for run in line.series.runs if not run.diverged]
    ends = [how for key, how in _STOPS.items() if any(run.choices.get(key) is not None for run in runs)]
    known = ends and all(run.status == "completed" for run in runs)
    return f", as runs stop {' or '.join(ends)}" if known else ""


def absent_line(runs: Sequence[Run], x: str) -> str:
    """A sentence if runs have no number for the choice `x` on the axis, such as null. Else empty."""
    absent = sum(value_at(run, x)[0] is None for run in runs)
    return f"Not drawn: {counted(absent, 'run')} without a number for {x}." if absent else ""


def of_data(runs: Sequence[Run]) -> list[str]:
    """Sentences that a reader needs whatever is drawn of these runs: how many did not complete, and how their
    data differ from the official data sets."""
    odd = Counter(run.status for run in runs if run.status != "completed")
    ends = f"Of {counted(len(runs), 'run')}: {', '.join(f'{n} {status}' for status, n in odd.items())}."
    return [*([ends] if odd else []), *data_notes(runs)]


def data_notes(runs: Iterable[Run]) -> list[str]:
    """How the data of these runs differ from the official data sets: two notes at most."""
    notes = distinct(run.summary.get("data_note") for run in runs)
    more = f" (and {counted(len(notes) - 2, 'more note')} like this)" if len(notes) > 2 else ""
    return [f"{note}." for note in [*notes[:1], *(f"{note}{more}" for note in notes[1:2])]]


def distinct(values: Iterable[Any]) -> list[Any]:
    """Each non-empty value once, in order of first appearance; values may be dicts."""
    return list({json.dumps(value, sort_keys=True, default=str): value for value in values if value}.values())


def place(path: str | Path) -> str:
    """A directory as a caption names it: relative to the current directory, or else its last two parts."""
    named = Path(seen_from_here(path))
    if named.is_absolute():
        return "/".join(named.parts[-2:])
    return str(named) if named.parts else Path.cwd().name


def band_line(series: Sequence[Series], spread: str) -> str:
    """What the band shows; both kinds if lines differ in it, `no band` if no line has two seeds."""
    if spread == POINTS:
        return "small points: the seeds"
    kinds = dict.fromkeys(SPREADS[band(spread, line.n)] for line in series if line.n > 1)
    return f"band: {' or '.join(kinds)}" if kinds else "no band"


def of_runs(
    runs: Sequence[Run],
    series: Sequence[Series],
    sources: Sequence[str | Path],
    options: PlotOptions,
    notes: Sequence[str],
) -> dict[str, Any]:
    """The caption as data: the content of the JSON file, with the caption's paragraphs under `text`. `runs`:
    all of them; `notes`: further sentences."""
    shared, shown, n = common(runs), band_line(series, options.spread), seeds_line(series)
    places = list(dict.fromkeys(map(place, sources)))
    more = f" and {len(places) - 3} more" if len(places) > 3 else ""
    lost = ", without diverged runs (×)" if any(run.diverged for run in runs) else ""
    repeated = sum(line.repeated for line in series)
    again = f"{counted(repeated, 'further run')} with a seed that their line already has: left out."
    said = [
        f"{settings_line(shared)}.".lstrip("."),
        f"{'' if shown == 'no band' else 'Mean over '}{n}{lost}; {shown}.",
        again if repeated else "",
        *notes,
        *of_data(runs),
    ]
    return {
        "x": options.x,
        "y": options.y,
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
                "repeated": line.repeated,
                "status": [run.status for run in line.runs],
                "runs": [run.source for run in line.runs],
            }
            for line in series
        ],
        "settings": shared,
        "data_notes": distinct(run.summary.get("data_note") for run in runs),
        "sources": places,
        "hardware": distinct(run.summary.get("hardware") for run in runs),
        "versions": distinct(run.summary.get("versions") for run in runs),
        "commits": sorted({str(run.summary["commit"]) for run in runs if run.summary.get("commit")}),
        "text": [" ".join(filter(None, [*said, f"Data: {', '.join(places[:3])}{more}."]))],
    }
