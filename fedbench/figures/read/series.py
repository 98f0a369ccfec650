"""Which runs make one line: those that agree in everything but the seed."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from fedbench.config.grouping import differing, plain, split
from fedbench.config.schema import GROUPS
from fedbench.errors import ConfigError
from fedbench.figures.draw import style
from fedbench.figures.draw.style import LineStyle
from fedbench.figures.read.results import Run

_SHORT = {
    "algorithm.lr": "lr",
    "algorithm.server_lr": "server lr",
    "algorithm.estimator": "",
    "partition.alpha": "α",
    "schedule.concurrency": "M_c",
    "clients.per_round": "S",
    "clients.total": "N",
    "local.steps": "K",
    "local.epochs": "epochs",
    "local.batch_size": "B",
    "rounds": "T",
}


@dataclass(frozen=True)
class Series:
    """The runs of one line, how it looks, and the choices that set it apart."""

    choices: dict[str, Any]
    style: LineStyle
    runs: tuple[Run, ...]
    repeated: int = 0  # further runs of the same seed, which would make n and the spread untrue; left out

    @property
    def label(self) -> str:
        """The line's name in the figure."""
        return self.style.label

    @property
    def seeds(self) -> list[Any]:
        """Seeds of its runs, in order."""
        return [run.seed for run in self.runs]


def group(
    runs: Sequence[Run], by: Sequence[str] = ("algorithm",), along: Collection[str] = ()
) -> list[Series]:
    """Runs as lines, one per value of the keys `by`, in order of first appearance.

    Runs of a line that differ in any further choice (but for `along`, the keys on an axis) would make a
    mean over different experiments, so they are split by that choice too, and the label says its value.
    Raises ConfigError for a key that no run has.
    """
    for key in by:
        if not any(key in run.choices for run in runs):
            known = {name for run in runs for name in run.settings()}
            raise ConfigError("by", key, "must be a choice of these runs, such as algorithm", sorted(known))
    first = split(runs, by, _choices)
    named = [key for rank, key in enumerate(by) if len({values[rank] for values in first}) > 1] or [by[0]]
    series: list[Series] = []
    for values, members in first.items():
        further = [key for key in differing(map(_choices, members)) if key not in (*by, *along)]
        for more, parts in split(members, further, _choices).items():
            choices = {**dict(zip(by, values, strict=True)), **dict(zip(further, more, strict=True))}
            shown = sorted((*named, *further), key=lambda key: key != "algorithm")
            label = ", ".join(filter(None, (words(key, choices[key]) for key in shown)))
            algorithm = choices.get("algorithm") if "algorithm" in shown else None
            once = _one_per_seed(parts, along)
            look = _look(algorithm, label, series)
            series.append(Series(choices, look, tuple(once), len(parts) - len(once)))
    return series


def _choices(run: Run) -> dict[str, Any]:
    return run.choices


def _look(algorithm: Any, label: str, before: Sequence[Series]) -> LineStyle:
    """The algorithm's own style, varied where it has several lines; else the style of the line's rank."""
    if algorithm is None:
        return style.of_rank(label, len(before))
    base = style.of_algorithm(str(algorithm))
    return style.variant(base, sum(line.choices.get("algorithm") == algorithm for line in before), label)


def _one_per_seed(runs: Sequence[Run], along: Collection[str]) -> list[Run]:
    once: dict[Any, Run] = {}
    for rank, run in enumerate(runs):
        place = tuple(plain(run.choices.get(key)) for key in along)
        once.setdefault((run.seed, *place) if run.seed is not None else (None, rank), run)
    return list(once.values())


def words(key: str, value: Any) -> str:
    """A choice in a label: `lr=0.1`, `SCAFFOLD`, `dirichlet`."""
    if key == "algorithm":
        return style.of_algorithm(str(value)).label
    if key in GROUPS and value is not None:
        return str(value)
    name = _SHORT.get(key, key.split(".")[-1].replace("_", " "))
    nothing = "theorem" if key.startswith("algorithm.") else "full" if key == "local.batch_size" else "none"
    shown = nothing if value is None else f"{value:g}" if isinstance(value, float) else str(value)
    return f"{name}={shown}" if name else shown
