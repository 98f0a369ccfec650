"""The columns of numbers of `fedbench best`: metrics, what it costs to get to a level, paired differences."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedbench.errors import ConfigError, word
from fedbench.figures import style
from fedbench.figures.results import dotted
from fedbench.runs.metrics import COLUMNS, COSTS, ENDS, column_of, ends, metric_of, outcome_of, reaching, sign
from fedbench.runs.records import Run
from fedbench.sweeps.tables import interval, mean_and_spread, of_reached, unlike_rounds

METRICS = ("final_accuracy", "best_accuracy", "final_test_loss", *ENDS, *COLUMNS[1:])
"""What settings can be ranked by: outcomes, and columns of metrics.csv, whose final values count."""
_TO_LEVEL = ("rounds", "uplink_bytes", "gradient_evaluations", "virtual_time")
_REACHED = "reached"
_COSTS = ("rounds", *COSTS, "wall_seconds", _REACHED)
_UNITS = {1e12: "TB", 1e9: "GB", 1e6: "MB", 1e3: "kB", 1.0: "B"}


@dataclass(frozen=True)
class Shown:
    """What is shown of the best settings. `to`: the level, of what ranks, that costs are counted to.
    `against`: the values of the line from which the others' differences are shown. `names`: keys and metrics,
    in place of the usual ones. `percent`: shares as per cent. `digits`: decimals of all numbers."""

    to: float | None = None
    against: Sequence[str] = ()
    names: Sequence[str] = ()
    percent: bool = False
    digits: int | None = None


@dataclass(frozen=True)
class Standing:
    """The best setting of a method on a task: its runs, one per seed."""

    runs: Sequence[Run]

    @property
    def choices(self) -> Mapping[str, Any]:
        """Its choices, with the first run's seed."""
        return self.runs[0].choices

    def numbers(self, metric: str) -> list[float]:
        """A metric of its runs, of those that have it."""
        return [value for run in self.runs if (value := run.result(metric)) is not None]

    def mean(self, metric: str) -> float:
        """The mean over seeds."""
        return statistics.fmean(self.numbers(metric))


@dataclass(frozen=True)
class Column:
    """A column. `cell`: a standing as text. `numbers`: what the best of a task is found by, more being better
    with `way` 1, less with -1; None: none is the best."""

    title: str
    cell: Callable[[Standing], str]
    numbers: Callable[[Standing], Sequence[float]] | None = None
    way: int = 1

    def best(self, standings: Sequence[Standing]) -> tuple[Standing | None, list[Standing]]:
        """The one with the best mean, the first of equals, and those whose mean is within its sample standard
        deviation. One that lacks a seed's number is neither."""
        each = [(one, self.numbers(one)) for one in standings] if self.numbers else []
        means = [(one, statistics.fmean(v), v) for one, v in each if len(v) == len(one.runs)]
        if not means:
            return None, []
        best, mean, values = max(means, key=lambda found: self.way * found[1])
        away = statistics.stdev(values) if len(values) > 1 else -1.0
        return best, [one for one, other, _ in means if one is not best and abs(other - mean) <= away]


class Columns:
    """Makes the columns of a table of standings."""

    def __init__(
        self, shown: Shown, ranked: str, by: Sequence[str], tasks: Iterable[Sequence[Standing]]
    ) -> None:
        """`ranked`: the metric that ranks. `by`: the keys that make a line. Raises ConfigError."""
        self.shown, self.ranked, self.by, self.tasks = shown, ranked, by, [*tasks]
        self.standings = [one for standings in self.tasks for one in standings]
        self.runs = [run for one in self.standings for run in one.runs]
        self.measured = metric_of(run.summary for run in self.runs)
        self.there: dict[int, Mapping[str, str] | None] = {}  # of a run: the row that gets to the level
        if (to := shown.to) is not None:
            name, (low, high) = column_of(ranked), ends(column_of(ranked), self.measured)
            if name in _COSTS or not (low < to <= high if sign(name) > 0 else low <= to < high):
                allowed = f"must be a {name.replace('_', ' ')} between {low:g} and {high:g}, such as 0.7"
                raise ConfigError("--to", to, "needs a metric that has levels" if name in _COSTS else allowed)
            self.there = {id(run): reaching(run.rows, [to], name)[f"{to:g}"] for run in self.runs}

    def of(self, usual: Sequence[str]) -> list[Column]:
        """The columns that are asked for by name, else the `usual` metrics and costs; and differences."""
        names = self.shown.names or [*usual, *((*_TO_LEVEL, _REACHED) if self.there else ())]
        return [*map(self._named, names), *(self._differences() if self.shown.against else ())]

    def notes(self) -> list[str]:
        """What a reader must know of the costs and differences, as sentences."""
        name = self.words(column_of(self.ranked))
        said = []
        if self.there:
            how = "at most" if sign(self.ranked) < 0 else "at least"
            said += [f"costs: until the {name} is first {how} {self.level}, over the seeds that get there"]
            every = sorted({run.summary.get("evaluated_every") or 1 for run in self.runs})
            often = " or ".join(map(str, every))
            said += [f"evaluated every {often} rounds, and reached in one of these"] if every[-1] > 1 else []
            said += unlike_rounds(one.choices for one in self.standings)
        if self.shown.against:
            said += ["differences are paired by seed; their interval is Student's, over seeds alone"]
        return said

    def words(self, metric: str, runs: Sequence[Run] | None = None) -> str:
        """A metric in words, by what the accuracies of these runs measure."""
        title = style.axis(metric, metric_of(run.summary for run in runs) if runs else self.measured)
        return title[0].lower() + title[1:]

    @property
    def level(self) -> str:
        """The level that costs are counted to, as it is shown."""
        scale, unit, _ = self._scale(self.ranked)
        return f"{(self.shown.to or 0.0) * scale:g}{unit}"

    def _named(self, name: str) -> Column:
        if self.there and name in _COSTS:
            return self._cost(name)
        if (metric := outcome_of(name)) not in METRICS and not any(
            run.result(metric) is not None for run in self.runs
        ):
            allowed = "must be a key of these runs, a column of metrics.csv, or final_ or best_ of one"
            key = dotted("--columns", name, self.runs, allowed, (*METRICS, *_COSTS))
            return Column(key, lambda one: word(one.choices[key]) if key in one.choices else "")
        scale, unit, digits = self._scale(metric)
        if metric.endswith("_bytes"):
            scale, unit = self._bytes([v for one in self.standings for v in one.numbers(metric)])

        def cell(one: Standing) -> str:
            return mean_and_spread([v * scale for v in one.numbers(metric)], digits)

        title = self.words(metric).removesuffix(" (bytes)") + (f" ({unit.strip()})" if unit else "")
        return Column(title, cell, lambda one: one.numbers(metric), sign(metric))

    def _scale(self, metric: str) -> tuple[float, str, int]:
        """By what the numbers of a metric are multiplied, their unit, and their decimals."""
        is_share = self.shown.percent and ends(metric, self.measured) in ((0.0, 1.0), (0.0, 0.5))
        digits = self.shown.digits if self.shown.digits is not None else 2 if is_share else 4
        return (100.0, " %", digits) if is_share else (1.0, "", digits)

    def _bytes(self, numbers: Sequence[float]) -> tuple[float, str]:
        size = next((size for size in _UNITS if max(numbers, default=0.0) >= size), 1.0)
        return 1 / size, _UNITS[size]

    def _cost(self, name: str) -> Column:
        """A cost until the level is reached; of `reached`, how many seeds reach it."""
        digits = 1 if self.shown.digits is None else self.shown.digits
        key, scale, unit = "round" if name == "rounds" else name, 1.0, ""

        def numbers(one: Standing) -> list[float]:
            rows = (self.there[id(run)] for run in one.runs)
            return [float(row.get(key) or "nan") for row in rows if row is not None]

        def cell(one: Standing) -> str:
            return of_reached([value * scale for value in numbers(one)], len(one.runs), digits)

        if name == _REACHED:
            key = "round"
            return Column(f"reached {self.level}", lambda one: f"{len(numbers(one))} of {len(one.runs)}")
        if name.endswith("_bytes"):
            scale, unit = self._bytes([value for one in self.standings for value in numbers(one)])
        title = self.words(name).removesuffix(" (bytes)") + (f" ({unit})" if unit else "")
        return Column(f"{title} to {self.level}", cell, numbers, -1)

    def _differences(self) -> list[Column]:
        """The mean paired difference from a line of the same task, its interval, and in how many seeds a line
        is the better of the two."""
        scale, unit, digits = self._scale(self.ranked)

        def named(one: Standing) -> str:
            return ",".join(word(one.choices.get(key)) for key in self.by)

        wanted, there = ",".join(self.shown.against), [*dict.fromkeys(map(named, self.standings))]
        if wanted not in there:
            raise ConfigError("--against", wanted, f"must be one of {', '.join(there)}", there)
        rivals = {
            id(one): other for task in self.tasks for one in task for other in task if named(other) == wanted
        }

        def gaps(one: Standing) -> list[float]:
            other = rivals.get(id(one), one)
            pair = [one.runs, other.runs] if other is not one else [[], []]
            mine, theirs = ({run.seed: run.result(self.ranked) for run in runs} for runs in pair)
            pairs = [(a, theirs.get(seed)) for seed, a in mine.items() if seed is not None]
            return [(a - b) * scale for a, b in pairs if a is not None and b is not None]

        def mean(one: Standing) -> str:
            return f"{statistics.fmean(found):+.{digits}f}" if (found := gaps(one)) else "-"

        def between(one: Standing) -> str:
            _, low, high = interval(gaps(one))
            return f"{low:+.{digits}f} to {high:+.{digits}f}" if low == low else "-"

        def better(one: Standing) -> str:
            found = gaps(one)
            return f"{sum(sign(self.ranked) * gap > 0 for gap in found)} of {len(found)}" if found else "-"

        first = next(one for one in self.standings if named(one) == wanted)
        title = f"difference from {style.line(self.by, first.choices, first.runs[0].title)}"
        title += " (points)" if unit else ""
        return [Column(title, mean), Column("95 % interval", between), Column("better in", better)]
