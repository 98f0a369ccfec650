"""The runs of a page as settings: what agrees in everything but the seed, the best first."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from fedbench.config.grouping import differing
from fedbench.figures.lines import Series, group
from fedbench.figures.style import LineStyle, of_rank
from fedbench.sweeps.tables import swept_in
from fedbench.webpage.gather import COMPLETED, Entry

_SAME_COLOUR = 3  # lines; of more, dash and marker are not told apart on a screen


@dataclass(frozen=True)
class Setting:
    """The runs of one setting, one per seed, and its look on the page."""

    series: Series
    label: str

    @cached_property
    def values(self) -> list[float]:
        """Final accuracies of its runs that have one."""
        return [value for run in self.series.runs if (value := run.result("final_accuracy")) is not None]

    @property
    def complete(self) -> bool:
        """Whether all its runs have completed, with a result: only then is it compared with others."""
        return all(run.status == COMPLETED for run in self.series.runs) and len(self.values) == len(
            self.series.runs
        )

    @property
    def mean(self) -> float | None:
        """Of the runs that have a final accuracy."""
        return statistics.fmean(self.values) if self.values else None

    @property
    def deviation(self) -> float | None:
        """The sample standard deviation, of several."""
        return statistics.stdev(self.values) if len(self.values) > 1 else None

    @property
    def ends(self) -> str:
        """How its runs ended: `completed`, `2 completed, 1 diverged`."""
        counts = Counter(run.status for run in self.series.runs)
        if len(counts) == 1:
            return next(iter(counts))
        return ", ".join(f"{count} {status}" for status, count in counts.most_common())


def varied(entries: Sequence[Entry]) -> list[str]:
    """What their sweeps sweep, and every other key in which runs are different experiments; `algorithm` where
    there is none."""
    known = {key for entry in entries for key in entry.run.choices}
    swept = [key for key in swept_in(entry.place for entry in entries) if key in known]
    return [*dict.fromkeys([*swept, *differing(entry.run.choices for entry in entries)])] or ["algorithm"]


def settings(entries: Sequence[Entry]) -> list[Setting]:
    """The settings of all runs that say their algorithm, the best first, incomplete ones last."""
    runs = [entry.run for entry in entries if entry.whole and "algorithm" in entry.run.choices]
    if not runs:
        return []
    runs.sort(key=lambda run: run.status != COMPLETED)  # of two runs of a seed, the first is taken
    found = [Setting(series, "") for series in group(runs)]
    found.sort(key=lambda one: (not one.complete, -(one.mean or 0.0)))
    looks = _looks(found)
    return [
        Setting(replace(one.series, style=look), look.label) for one, look in zip(found, looks, strict=True)
    ]


def _looks(found: Sequence[Setting]) -> list[LineStyle]:
    """The looks that figures have; by rank where too many lines would have one colour."""
    looks = [one.series.style for one in found]
    if max(Counter(look.colour for look in looks).values()) <= _SAME_COLOUR:
        return looks
    return [of_rank(look.label, rank) for rank, look in enumerate(looks)]
