"""What a reader must know to judge a figure: settings, seeds, n, what the band is, where it came from."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from fedbench.config.grouping import plain
from fedbench.figures.read.results import Run
from fedbench.figures.read.series import Series
from fedbench.figures.read.statistics import SPREADS

_DATASETS = {
    "mnist": "MNIST",
    "fmnist": "Fashion-MNIST",
    "emnist": "EMNIST",
    "cifar10": "CIFAR-10",
    "cifar100": "CIFAR-100",
}
_STEPS = 10  # local steps of a run whose config names neither steps nor epochs
_SYMBOLS = (
    ("clients.total", "N"),
    ("clients.per_round", "S"),
    ("schedule.concurrency", "M"),
    ("local.steps", "K"),
    ("local.epochs", "epochs"),
    ("local.batch_size", "B"),
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


def settings_line(shared: dict[str, Any]) -> str:
    """Shared settings in words: `Fashion-MNIST, cnn, dirichlet(0.5), N=100, S=10, K=5, B=32`."""
    parts = []
    if shared.get("dataset"):
        parts.append(_DATASETS.get(shared["dataset"], str(shared["dataset"])))
    if shared.get("model"):
        parts.append(str(shared["model"]))
    if shared.get("partition"):
        detail = shared.get("partition.alpha", shared.get("partition.labels"))
        parts.append(
            f"{shared['partition']}({detail:g})" if isinstance(detail, int | float) else shared["partition"]
        )
    for group, usual in (("schedule", "sync"), ("delay", "none")):
        if shared.get(group) not in (None, usual):
            parts.append(f"{group} {shared[group]}")
    if "local.steps" in shared and shared["local.steps"] is shared.get("local.epochs") is None:
        shared = {**shared, "local.steps": _STEPS}
    parts += [f"{symbol}={shared[key]}" for key, symbol in _SYMBOLS if shared.get(key) is not None]
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
    return f"n = {counts[0]} seed{'s' if counts[0] != 1 else ''}{listed}"


def counted(number: int, noun: str) -> str:
    """`1 run`, `2 runs`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def data_notes(runs: Iterable[Run]) -> list[str]:
    """What sets the data of these runs apart from the official sets, as sentences."""
    return [f"{note}." for note in distinct(run.extra.get("data_note") for run in runs)]


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


def data(
    runs: Sequence[Run],
    series: Sequence[Series],
    sources: Sequence[str | Path],
    *,
    x: str,
    y: str,
    spread: str,
    notes: Sequence[str],
) -> dict[str, Any]:
    """The caption as data: what JSON keeps, and under `text` the paragraphs that are drawn."""
    shared = common(runs)
    several = any(len(set(map(str, line.seeds))) > 1 for line in series)
    band = f"band: {SPREADS[spread]}" if several else "no band"
    said = [
        f"{settings_line(shared)}.".lstrip("."),
        f"{'Mean over ' if several else ''}{seeds_line(series)}; {band}.",
    ]
    notes = [*notes, *data_notes(runs)]
    places = list(dict.fromkeys(map(place, sources)))
    more = f" and {len(places) - 3} more" if len(places) > 3 else ""
    data = f"Data: {', '.join(places[:3])}{more}."
    return {
        "x": x,
        "y": y,
        "statistic": "mean over seeds",
        "band": band,
        "n": seeds_line(series),
        "series": [
            {
                "label": line.label,
                "choices": line.choices,
                "hyper": line.runs[0].hyper,
                "n": len(set(map(str, line.seeds))),
                "seeds": line.seeds,
                "status": [run.status for run in line.runs],
                "runs": [run.source for run in line.runs],
            }
            for line in series
        ],
        "settings": shared,
        "notes": list(notes),
        "sources": places,
        "hardware": distinct(run.extra.get("hardware") for run in runs),
        "versions": distinct(run.extra.get("versions") for run in runs),
        "commits": sorted({str(run.extra["commit"]) for run in runs if run.extra.get("commit")}),
        "text": [" ".join(filter(None, [*said, *notes, data]))],
    }
