"""Runs as the lines of a picture: which runs make one line, and their mean and spread at every x."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fedbench.config.grouping import differing, one_per_seed, split
from fedbench.errors import ConfigError, DataError
from fedbench.figures import names, style
from fedbench.figures.results import METRICS, Run, metric, number
from fedbench.figures.style import AUTO, LineStyle
from fedbench.runs.metrics import worst
from fedbench.runs.run_directory import FINISHED

Floats = NDArray[np.float64]
_WRITTEN_BY = {"train_loss": "eval.train", "grad_norm": "eval.grad_norm"}
_MOST_POINTS = 1000  # of a line whose seeds were evaluated at different x
_HYPER = "algorithm."


@dataclass(frozen=True)
class Series:
    """The runs of one line, how it looks, and the choices that set it apart."""

    choices: dict[str, object]
    style: LineStyle
    runs: tuple[Run, ...]
    repeated: int = 0  # further runs of the same seed, which would make n and the spread untrue; left out

    @property
    def label(self) -> str:
        """The line's name in the figure."""
        return self.style.label

    @property
    def seeds(self) -> list[Hashable]:
        """Seeds of its runs, in order."""
        return [run.seed for run in self.runs]

    @property
    def n(self) -> int:
        """Number of different seeds."""
        return len(set(map(str, self.seeds)))


@dataclass(frozen=True)
class Line:
    """What is drawn of a series.

    `points`: columns x, mean, low, high (the spread; NaN where n < 2), n (runs in the mean, which are those
    that did not diverge), diverged (how many did at this x; of results) and theorem (whether x was not given
    but followed from a theorem). `lost`: of curves, x and y of every diverged run, as far as it was finite.
    """

    series: Series
    points: pd.DataFrame
    lost: tuple[pd.DataFrame, ...] = ()
    interpolated: bool = False

    @property
    def partial(self) -> pd.Series[bool]:
        """Where only some of its runs diverged."""
        return (self.points.diverged > 0) & (self.points.n > 0)

    @property
    def empty(self) -> bool:
        """Whether there is nothing to draw."""
        return not (len(self.points) or self.lost)

    def drawn(self, across: float, up: float) -> Line:
        """The same in the units that axes are drawn in, which are so many of its own."""
        scale = {"x": across, "y": up, "mean": up, "low": up, "high": up}
        points, *lost = (
            part.assign(**{name: part[name] / scale[name] for name in part if name in scale})
            for part in (self.points, *self.lost)
        )
        return replace(self, points=points, lost=tuple(lost))

    def positive(self) -> Line:
        """What a logarithmic x axis can show: a line from x = 0 would come in from the side, level."""
        lost = (part[part.x > 0] for part in self.lost)
        points = self.points[self.points.x > 0].reset_index(drop=True)
        return replace(self, points=points, lost=tuple(part for part in lost if len(part)))


def group(
    runs: Sequence[Run], by: Sequence[str] = ("algorithm",), along: Collection[str] = ()
) -> list[Series]:
    """Runs as lines, one per value of the keys `by`, in order of first appearance.

    Runs of a line that differ in any further choice (but for `along`, the keys on an axis) would make a
    mean over different experiments, so they are split by that choice too, and the label says its value.
    Raises ConfigError for a key that no run has.
    """
    return rows_of(runs, None, by, along)[""]


def rows_of(
    runs: Sequence[Run], key: str | None, by: Sequence[str] = ("algorithm",), along: Collection[str] = ()
) -> dict[str, list[Series]]:
    """Title -> lines, for each value of `key` (None: all runs, untitled). A line looks the same in all."""
    keys = [key] if key else []
    for name in (*by, *keys):
        if not any(name in run.choices for run in runs):
            known = sorted({choice for run in runs for choice in run.settings()})
            allowed = "must be a choice of these runs, such as algorithm"
            raise ConfigError("rows" if name == key else "by", name, allowed, known)
    found: list[tuple[str, tuple[str | None, str, str], dict[str, object], list[Run]]] = []
    for value, part in split(runs, keys, _choices).items():
        title = names.line(keys, part[0].choices)
        for shown, choices, members in _lines(part, by, along):
            choices = {**dict(zip(keys, value, strict=True)), **choices}
            found.append((title, _named(shown, members[0].choices), choices, members))
    labels = list(dict.fromkeys(label for _, label, _, _ in found))
    looks = dict(zip(labels, style.apart(labels), strict=True))
    rows: dict[str, list[Series]] = {}
    for title, label, choices, members in found:
        once = one_per_seed(members, _choices, lambda run: run.status in FINISHED, along)
        line = Series(choices, looks[label], tuple(once), len(members) - len(once))
        rows.setdefault(title, []).append(line)
    return rows


def _lines(
    runs: Sequence[Run], by: Sequence[str], along: Collection[str]
) -> list[tuple[list[str], dict[str, object], list[Run]]]:
    """Of every line: the keys that name it, its choices, its runs."""
    first = split(runs, by, _choices)
    named = [key for rank, key in enumerate(by) if len({values[rank] for values in first}) > 1] or [by[0]]
    found = []
    for values, members in first.items():
        further = [key for key in differing(map(_choices, members)) if key not in (*by, *along)]
        for more, parts in split(members, further, _choices).items():
            choices = {**dict(zip(by, values, strict=True)), **dict(zip(further, more, strict=True))}
            shown = [key for key in (*named, *further) if key in parts[0].choices]
            found.append((shown, choices, parts))
    return found


def _named(shown: Sequence[str], choices: Mapping[str, object]) -> tuple[str | None, str, str]:
    """The algorithm that a line stands for (None: for no one's), its method, and the line's name. Named
    variants of an algorithm are methods of their own."""
    algorithm = str(choices["algorithm"]) if "algorithm" in shown else None
    variant = [key for key in shown if names.is_variant(key, choices.get(key))]
    return algorithm, names.line(["algorithm", *variant], choices), names.line(shown, choices)


def _choices(run: Run) -> Mapping[str, object]:
    return run.choices


def check_columns(runs: Sequence[Run], **axes: str) -> None:
    """ConfigError where an axis names no column of metrics.csv, DataError where the column is empty."""
    for key, name in axes.items():
        if name not in METRICS:
            raise ConfigError(key, name, f"must be a column of metrics.csv: {', '.join(METRICS)}", METRICS)
        if not any(name in run.metrics and np.isfinite(run.metrics[name]).any() for run in runs):
            hint = f"; {_WRITTEN_BY[name]}=true writes it" if name in _WRITTEN_BY else ""
            raise DataError(f"{key}={name}: this column is empty in all runs{hint}")


def curve(series: Series, x: str, y: str, kind: str) -> Line:
    """Column `y` against column `x`: the mean over the runs that did not diverge, and each diverged run as
    far as it got.

    Where the runs were evaluated at the same x (rounds always are), values are taken as they stand; a run
    that is shorter simply ends, and n says so. Where x differs between seeds (virtual time), each curve is
    interpolated linearly, over the stretch that all of them cover. `kind`: of the spread.
    """
    trails = [(run.diverged, _finite(run, x, y)) for run in series.runs]
    kept = [trail for diverged, trail in trails if not diverged and len(trail)]
    grid = max((trail.x.to_numpy() for trail in kept), key=len, default=np.empty(0))
    same = all(np.array_equal(trail.x, grid[: len(trail)]) for trail in kept)
    if same:
        values = np.full((len(kept), len(grid)), np.nan)
        for row, trail in zip(values, kept, strict=True):
            row[: len(trail)] = trail.y
    else:
        start, end = max(trail.x.iloc[0] for trail in kept), min(trail.x.iloc[-1] for trail in kept)
        grid = np.unique(np.concatenate([trail.x for trail in kept]))
        grid = grid[(grid >= start) & (grid <= end)]
        grid = grid if len(grid) <= _MOST_POINTS else np.linspace(start, end, _MOST_POINTS)
        values = np.stack([np.interp(grid, trail.x, trail.y) for trail in kept])
    points = spread(values, band(kind, series.n), within(y, series.runs))
    points = points.assign(x=grid, diverged=0, theorem=False)
    return Line(series, points, tuple(one for lost, one in trails if lost and len(one)), not same)


def results(series: Series, x: str, y: str, kind: str) -> Line:
    """The runs' results `y` at each of their values of choice `x`. `kind`: of the spread."""
    places: dict[tuple[float, bool], list[Run]] = {}
    for run in series.runs:
        at, by_theorem = place(run, x)
        if at is not None and (run.diverged or run.result(y) is not None):
            places.setdefault((at, by_theorem), []).append(run)
    ordered = sorted(places.items())
    kept = [[run.result(y) for run in runs if not run.diverged] for _, runs in ordered]
    values = np.full((len(series.runs), len(ordered)), np.nan)
    for column, found in enumerate(kept):
        values[: len(found), column] = found
    points = spread(values, band(kind, series.n), within(y, series.runs)).assign(
        x=np.array([at for (at, _), _ in ordered], dtype=float),
        diverged=np.array([sum(run.diverged for run in runs) for _, runs in ordered], dtype=int),
        theorem=np.array([by_theorem for (_, by_theorem), _ in ordered], dtype=bool),
    )
    return Line(series, points)


def place(run: Run, x: str) -> tuple[float | None, bool]:
    """A run's value of choice `x` and whether a theorem gave it (the choice is null, `hyper` has it)."""
    given = number(run.choices.get(x))
    if given is None and run.choices.get(x) is None and x.startswith(_HYPER):
        return number(run.hyper.get(x.removeprefix(_HYPER))), True
    return given, False


def table(lines: Sequence[Line], x: str, y: str, of_curves: bool) -> pd.DataFrame:
    """What is drawn, tidy: one row per line and x; of curves, diverged runs as rows of their own with n =
    0."""
    frames = []
    ends = {"x": x, "mean": f"{y}_mean", "low": f"{y}_low", "high": f"{y}_high", "n": "n"}
    more = {} if of_curves else {"diverged": "diverged", "theorem": "theorem"}
    for line in lines:
        parts = [("mean", line.points[[*ends, *more]].rename(columns=ends))]
        lost = (part.rename(columns={"x": x, "y": f"{y}_mean"}).assign(n=0) for part in line.lost)
        for part, found in [*parts, *(("diverged", one) for one in lost)]:
            said = {
                "series": line.series.label,
                **line.series.choices,
                **({"part": part} if of_curves else {}),
            }
            frames.append(pd.DataFrame({**said, **found}, index=found.index))
    return pd.concat(frames, ignore_index=True)


def band(spread: str, seeds: int) -> str:
    """The spread to show over so many seeds: of two, a standard deviation says less than the two values."""
    return spread if spread != AUTO else "minmax" if seeds == 2 else "std"


def within(y: str, runs: Sequence[Run]) -> tuple[float, float]:
    """What values column `y` can have in these runs; a band does not leave it."""
    return (worst(metric(runs)), 1.0) if y.endswith("accuracy") else (-np.inf, np.inf)


def spread(values: Floats, kind: str, bounds: tuple[float, float] = (-np.inf, np.inf)) -> pd.DataFrame:
    """Columns mean, low, high (ends of the spread `kind`) and n of values (runs, points); NaN or infinite
    means no value, and below two values there is no spread. `bounds`: what no end leaves."""
    kept = pd.DataFrame(values).replace([np.inf, -np.inf], np.nan)
    n, mean = kept.count(), kept.mean()
    if kind == "minmax":
        low, high = kept.min(), kept.max()
    else:
        half = kept.std(ddof=1) / (np.sqrt(n) if kind == "sem" else 1.0)
        low, high = (mean - half).clip(*bounds), (mean + half).clip(*bounds)
    found: dict[str, Any] = {"mean": mean, "low": low.where(n > 1), "high": high.where(n > 1), "n": n}
    return pd.DataFrame(found)


def _finite(run: Run, x: str, y: str) -> pd.DataFrame:
    """The points (x, y) of a run at which both are finite."""
    if x not in run.metrics or y not in run.metrics:
        return pd.DataFrame({"x": [], "y": []}, dtype=float)
    found = pd.DataFrame({"x": run.metrics[x], "y": run.metrics[y]}, dtype=float)
    return found.replace([np.inf, -np.inf], np.nan).dropna(ignore_index=True)
