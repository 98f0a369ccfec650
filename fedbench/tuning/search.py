"""The search: what is tried first for every method in every context, and what then."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from fedbench.compose.overrides import Grid, Value
from fedbench.sweeps.execute import Result
from fedbench.tuning.selection import Selection, select
from fedbench.tuning.space import Point, Space, beyond, is_grid


class Asks(Protocol):
    """A search that learns from what was tried."""

    def more(self, selection: Selection | None) -> Sequence[Point]:
        """The next points, given what all tried so far says; none: it is done."""


@dataclass(frozen=True)
class Task:
    """What is tuned by itself: a method in a context, both in `fixed`, over the values of `space`.

    `first`: the grids over the keys of `space` that are tried first; `extends`: whether a winner at an edge
    carries the search on at last, also beyond the values of `space`; `asks`: says what comes after `first`;
    `finalists`: where `rounds` is in `fixed`, how many of the best are run without it at last.
    """

    fixed: Mapping[str, Value]
    space: Space
    first: Sequence[Grid]
    extends: bool = True
    asks: Asks | None = None
    finalists: int = 0

    def grid(self, values: Grid, seeds: Sequence[int]) -> Grid:
        """The runs of some values of its space. These count more than `fixed`."""
        return {**{key: [value] for key, value in self.fixed.items()}, "seed": list(seeds), **values}

    def owns(self, run: Result) -> bool:
        """Whether a run is one of its search: of its method and context, but for what is searched."""
        fixed: Space = {key: [value] for key, value in self.fixed.items() if key not in self.space}
        allowed = fixed if self.extends else {**fixed, **self.space}
        return all(run.choices.get(key) in values for key, values in allowed.items())

    def selected(self, runs: Iterable[Result]) -> Selection | None:
        """What its runs say; None where all of them failed."""
        return select(filter(self.owns, runs), list(self.space))


def search(
    tasks: Sequence[Task],
    seeds: Sequence[int],
    run: Callable[[Sequence[Grid]], Iterable[Result]],
    extensions: int,
) -> list[Selection | None]:
    """Search all tasks together: what is tried first, what is asked for then, and at last at most so many
    `extensions` past edges.

    `run` runs the union of grids. The selections are in the order of the tasks; None: all runs failed.
    """
    wanted: list[Sequence[Grid]] = [task.first for task in tasks]
    tried: dict[Path, Result] = {}
    found: list[Selection | None] = [None] * len(tasks)
    while any(wanted):
        grids = [task.grid(v, seeds) for task, part in zip(tasks, wanted, strict=True) for v in part]
        tried |= {result.directory: result for result in run(grids)}
        found = [task.selected(tried.values()) for task in tasks]
        wanted = [
            single(task.asks.more(selection)) if task.asks else ()
            for task, selection in zip(tasks, found, strict=True)
        ]
        if not any(wanted) and extensions:
            extensions -= 1
            wanted = [_past(task, selection) for task, selection in zip(tasks, found, strict=True)]
    return found


def single(points: Iterable[Point]) -> list[Grid]:
    """Points as grids."""
    return [{key: [value] for key, value in point.items()} for point in points]


def _past(task: Task, selection: Selection | None) -> Sequence[Grid]:
    if selection is None or not task.extends or not is_grid(task.space):
        return ()
    return single(beyond(selection, task.space))
