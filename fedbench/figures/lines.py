"""Runs as the lines of a picture: the plot options, which runs make one line, and their mean and spread at
every x."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fedbench.config.grouping import differing, in_order, one_per_seed, split
from fedbench.errors import ConfigError, DataError
from fedbench.fields import AVERAGE
from fedbench.figures import style
from fedbench.figures.results import check_key, metric
from fedbench.figures.style import AUTO, POINTS, SPREADS, WIDTHS, LineStyle
from fedbench.runs.metrics import COLUMNS, ends
from fedbench.runs.records import Run, number
from fedbench.runs.run_directory import FINISHED

ALIASES = {"updates": "round", "server_updates": "round"}
"""Other names of metrics columns: a round is a server update."""
Floats = NDArray[np.float64]
_WRITTEN_BY = {
    "train_loss": "eval.train",
    "grad_norm": "eval.grad_norm",
    "objective": "eval.objective",
    "objective_grad_norm": "eval.grad_norm=true eval.objective",
}
_MOST_POINTS = 1000  # the most points of a line whose seeds were evaluated at different x
_HYPER = "algorithm."
_choices: Callable[[Run], Mapping[str, object]] = attrgetter("choices")


@dataclass(frozen=True)
class Series:
    """The runs of one line, how it looks, and the choices that set it apart."""

    choices: dict[str, object]
    style: LineStyle
    runs: tuple[Run, ...]
    repeated: int = 0  # further runs of the same seed, left out because they would falsify n and the spread

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
class PlotOptions:
    """What to draw of runs, and how it looks.

    `x`: a column of metrics.csv, or a swept key. `y`: a column of metrics.csv; against a key also an outcome
    such as best_accuracy. `by`: keys whose values make separate lines. `where`: key -> values of the runs to
    draw. `spread`: std, sem, minmax, points, or auto (minmax of two seeds, else std). `rows`: keys,
    separated by commas, with a picture for each value. `width`: one or two columns. `caption`: draw it too.
    `log`: logarithmic axes ("x", "y"). For the papers' figures: `limits`: axis -> its ends; `own_y`: each
    picture has its own y axis; `levels`: values of y to mark. Raises ConfigError for a value that is not
    allowed.
    """

    x: str = "round"
    y: str = "test_accuracy"
    by: Sequence[str] = ("algorithm",)
    where: Mapping[str, Sequence[object]] = field(default_factory=dict)
    spread: str = AUTO
    rows: str | None = None
    width: str = "one"
    caption: bool = False
    log: Collection[str] = ()
    limits: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    own_y: bool = False
    levels: Sequence[float] = ()

    def __post_init__(self) -> None:
        check_choice("width", self.width, WIDTHS)
        check_choice("spread", self.spread, (AUTO, *SPREADS, POINTS))
        for key, values in self.where.items():
            if isinstance(values, str) or not isinstance(values, Iterable):
                raise ConfigError(f"where {key}", values, "must be a list of values")


def check_choice(key: str, value: str, allowed: Collection[str]) -> None:
    """Raise ConfigError unless `value` is one of `allowed`."""
    if value not in allowed:
        raise ConfigError(key, value, f"must be one of {', '.join(allowed)}", allowed)


def listed(text: str) -> list[str]:
    """The words of a comma-separated list."""
    return [word.strip() for word in text.split(",") if word.strip()]


def group(
    runs: Sequence[Run],
    by: Sequence[str] = ("algorithm",),
    along: Collection[str] = (),
    swept: Sequence[str] = (),
) -> list[Series]:
    """Runs as lines, one per value of the keys `by`, in order of first appearance.

    If runs of a line differ in a further choice (other than `along`, the keys on an axis), their mean would
    mix different experiments. So they are split by that choice too, and the label states its value. So are
    runs that differ in a key of `swept`, whatever it says. Raises ConfigError for a key that no run has.
    """
    return rows_of(runs, (), by, along, swept)[""]


def rows_of(
    runs: Sequence[Run],
    keys: Sequence[str],
    by: Sequence[str],
    along: Collection[str] = (),
    swept: Sequence[str] = (),
) -> dict[str, list[Series]]:
    """Title -> lines, for each value of `keys` (no keys: all runs, untitled). A line looks the same under
    every title. Raises ConfigError for a key that no run has."""
    for name in (*by, *keys):
        allowed = "must be a choice of these runs, such as algorithm"
        check_key("rows" if name in keys else "by", name, allowed, runs)
    found: list[tuple[str, tuple[str | None, str, str], dict[str, object], list[Run]]] = []
    parts = split(runs, keys, _choices)
    for value in in_order(parts):
        part = parts[value]
        title = style.line(keys, part[0].choices, part[0].title)
        for shown, choices, members in _lines(part, by, along, swept):
            choices = {**dict(zip(keys, value, strict=True)), **choices}
            label = style.line_name(shown, members[0].choices, members[0].title)
            found.append((title, label, choices, members))
    labels = list(dict.fromkeys(label for _, label, _, _ in found))
    looks = dict(zip(labels, style.line_styles(labels), strict=True))
    rows: dict[str, list[Series]] = {}
    for title, label, choices, members in found:
        once = one_per_seed(members, _choices, lambda run: run.status in FINISHED, along)
        line = Series(choices, looks[label], tuple(once), len(members) - len(once))
        rows.setdefault(title, []).append(line)
    return rows


def _lines(
    runs: Sequence[Run], by: Sequence[str], along: Collection[str], swept: Sequence[str]
) -> list[tuple[list[str], dict[str, object], list[Run]]]:
    """For every line: the keys that its name shows, its choices, its runs."""
    first = split(runs, by, _choices)
    named = [key for rank, key in enumerate(by) if len({values[rank] for values in first}) > 1] or [by[0]]
    found = []
    for values, members in first.items():
        different = differing(map(_choices, members), swept)
        further = [key for key in different if key not in (*by, *along)]
        for more, parts in split(members, further, _choices).items():
            choices = {**dict(zip(by, values, strict=True)), **dict(zip(further, more, strict=True))}
            shown = [key for key in (*named, *further) if key in parts[0].choices]
            found.append((shown, choices, parts))
    return found


@dataclass(frozen=True)
class Line:
    """What is drawn of a series.

    `points`: columns x, mean, low, high (the spread; NaN if n < 2), n (runs in the mean, which excludes
    diverged ones), diverged (for results: how many runs diverged at this x) and theorem (whether x follows
    from a theorem, or is `average`, instead of being set). `lost`: for curves, x and y of every diverged run
    while they are finite. `each`: x and y of every run in a mean. `beyond`: the ends of x of all these runs,
    where the mean covers less; None: it covers all.
    """

    series: Series
    points: pd.DataFrame
    lost: tuple[pd.DataFrame, ...] = ()
    each: pd.DataFrame | None = None
    beyond: tuple[float, float] | None = None

    @property
    def empty(self) -> bool:
        """Whether there is nothing to draw."""
        return not (len(self.points) or self.lost)

    def positive(self) -> Line:
        """The part with x > 0. On a logarithmic x axis, a line from x = 0 would enter level from the side."""
        lost = (part[part.x > 0] for part in self.lost)
        points = self.points[self.points.x > 0].reset_index(drop=True)
        return replace(self, points=points, lost=tuple(part for part in lost if len(part)))


def check_columns(runs: Sequence[Run], **axes: str) -> None:
    """Raise ConfigError if an axis names no column of metrics.csv, and DataError if there are no rows or the
    column is empty in all runs."""
    for key, name in axes.items():
        if name not in COLUMNS and not any(name in run.metrics for run in runs):
            raise ConfigError(key, name, f"must be a column of metrics.csv: {', '.join(COLUMNS)}", COLUMNS)
        if not any(len(run.metrics) for run in runs):
            others = f", nor that of {len(runs) - 1} more" if len(runs) > 1 else ""
            raise DataError(f"{runs[0].source}: its metrics.csv has no whole row{others}")
        if not any(name in run.metrics and np.isfinite(run.metrics[name]).any() for run in runs):
            hint = f"; {_WRITTEN_BY[name]}=true writes it" if name in _WRITTEN_BY else ""
            raise DataError(f"{key}={name}: this column is empty in all runs{hint}")


def curve(series: Series, x: str, y: str, kind: str) -> Line:
    """Column `y` against column `x`: the mean over the runs that did not diverge, and each diverged run as
    far as it got.

    If the runs were evaluated at the same x (as with rounds), their values are used as they are; a shorter
    run simply ends, and n decreases there. If x differs between seeds (virtual time), each curve is
    interpolated linearly over the range that all of them cover; of several evaluations at one x the last one
    counts. `kind`: the spread, as in `PlotOptions`. Raises DataError if there is no mean, as x does not rise
    from one evaluation to the next.
    """
    trails = [(run.diverged, _finite(run, x, y)) for run in series.runs]
    kept = [trail for diverged, trail in trails if not diverged and len(trail)]
    grid = max((trail.x.to_numpy() for trail in kept), key=len, default=np.empty(0))
    same = all(np.array_equal(trail.x, grid[: len(trail)]) for trail in kept)
    beyond = None
    if len(kept) > 1 and not all(_rises(trail.x.to_numpy()) for trail in kept):
        why = "does not rise from one evaluation to the next, so there is no mean over seeds at an x"
        raise DataError(f"x={x}: {why}; --where seed={series.seeds[0]} draws a single run")
    if same:
        values = np.full((len(kept), len(grid)), np.nan)
        for row, trail in zip(values, kept, strict=True):
            row[: len(trail)] = trail.y
    else:
        kept = [trail.drop_duplicates("x", keep="last") for trail in kept]
        firsts, lasts = ([trail.x.iloc[at] for trail in kept] for at in (0, -1))
        start, end = max(firsts), min(lasts)
        beyond = None if (min(firsts), max(lasts)) == (start, end) else (min(firsts), max(lasts))
        grid = np.unique(np.concatenate([trail.x for trail in kept]))
        grid = grid[(grid >= start) & (grid <= end)]
        grid = grid if len(grid) <= _MOST_POINTS else np.linspace(start, end, _MOST_POINTS)
        values = np.stack([np.interp(grid, trail.x, trail.y) for trail in kept])
    points = spread(values, series, y, kind).assign(x=grid, diverged=0, theorem=False)
    lost = tuple(trail for diverged, trail in trails if diverged and len(trail))
    return Line(series, points, lost, pd.concat(kept) if kept else None, beyond)


def _rises(x: Floats) -> bool:
    """Whether x never falls, and is not the same all the way."""
    return len(x) < 2 or bool((np.diff(x) >= 0).all() and x[-1] > x[0])


def results(series: Series, x: str, y: str, kind: str) -> Line:
    """The runs' results `y` at each of their values of choice `x`. `kind`: spread, as in `PlotOptions`."""
    rows = [(*place(run, x), np.nan if run.diverged else run.result(y), run.diverged) for run in series.runs]
    found = pd.DataFrame(rows, columns=["x", "theorem", "y", "diverged"])
    found = found[found.x.notna() & (found.diverged | found.y.notna())].astype({"x": float, "y": float})
    found["rank"] = found.groupby(["x", "theorem"]).cumcount()
    values = found.pivot(index="rank", columns=["x", "theorem"], values="y").sort_index(axis=1)
    points = spread(values, series, y, kind).reset_index()
    points["diverged"] = found.groupby(["x", "theorem"]).diverged.sum().to_numpy(int)
    return Line(series, points.astype({"theorem": bool}), each=found.loc[~found.diverged, ["x", "y"]])


def place(run: Run, x: str) -> tuple[float | None, bool]:
    """A run's value of choice `x` and whether it follows from a theorem or from other rates (the choice is
    null or `average`, and `hyper` has the number)."""
    given = run.choices.get(x)
    if given in (None, AVERAGE) and x.startswith(_HYPER):
        return number(run.hyper.get(x.removeprefix(_HYPER))), True
    return number(given), False


def table(lines: Sequence[Line], x: str, y: str, of_curves: bool) -> pd.DataFrame:
    """What is drawn, as a tidy table: one row per line and x. For curves, diverged runs have rows of their
    own with n = 0."""
    frames = []
    ends = {"x": x, "mean": f"{y}_mean", "low": f"{y}_low", "high": f"{y}_high", "n": "n"}
    more = {} if of_curves else {"diverged": "diverged", "theorem": "theorem"}
    for line in lines:
        parts = [("mean", line.points[[*ends, *more]].rename(columns=ends))]
        lost = (part.rename(columns={"x": x, "y": f"{y}_mean"}).assign(n=0) for part in line.lost)
        for part, found in [*parts, *(("diverged", one) for one in lost)]:
            said = {"series": line.series.label, **line.series.choices}
            said |= {"part": part} if of_curves else {}
            frames.append(pd.DataFrame({**said, **found}, index=found.index))
    return pd.concat(frames, ignore_index=True)


def band(spread: str, seeds: int) -> str:
    """The spread to show over this number of seeds. The two values of two seeds say more than their
    standard deviation."""
    return spread if spread not in (AUTO, POINTS) else "minmax" if seeds == 2 or spread == POINTS else "std"


def spread(values: Floats | pd.DataFrame, series: Series, y: str, kind: str) -> pd.DataFrame:
    """Columns mean, low, high (ends of the spread `kind`) and n of the values (runs, points) of column `y`.
    NaN and infinity count as no value, and fewer than two values have no spread. No end is a value that `y`
    cannot have."""
    kept = pd.DataFrame(values).replace([np.inf, -np.inf], np.nan)
    n, mean = kept.count(), kept.mean()
    if band(kind, series.n) == "minmax":
        low, high = kept.min(), kept.max()
    else:
        half = kept.std(ddof=1) / (np.sqrt(n) if kind == "sem" else 1.0)
        bounds = ends(y, metric(series.runs))
        low, high = (mean - half).clip(*bounds), (mean + half).clip(*bounds)
    found: dict[str, Any] = {"mean": mean, "low": low.where(n > 1), "high": high.where(n > 1), "n": n}
    return pd.DataFrame(found)


def _finite(run: Run, x: str, y: str) -> pd.DataFrame:
    """The points (x, y) of a run at which both are finite."""
    if x not in run.metrics or y not in run.metrics:
        return pd.DataFrame({"x": [], "y": []}, dtype=float)
    found = pd.DataFrame({"x": run.metrics[x], "y": run.metrics[y]}, dtype=float)
    return found.replace([np.inf, -np.inf], np.nan).dropna(ignore_index=True)
