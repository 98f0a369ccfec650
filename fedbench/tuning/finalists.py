"""Finalists: where a search has fewer rounds than what it is for, its best few are run to the end, and the
best of these wins. What leads early may diverge later, or be overtaken by what rises slowly."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from fedbench.compose.overrides import Grid, Value
from fedbench.sweeps.execute import Result
from fedbench.tuning.search import Task, single
from fedbench.tuning.selection import Pruned, Selection


def decide(
    tasks: Sequence[Task],
    found: Sequence[Selection | None],
    seeds: Sequence[int],
    run: Callable[[Sequence[Grid]], Iterable[Result]],
) -> list[Selection | None]:
    """What tasks have found, those with finalists after these have run.

    `run` runs the union of grids. The selections are in the order of the tasks; None: all runs failed.
    """
    last = [_last(task, selection) for task, selection in zip(tasks, found, strict=True)]
    grids = [task.grid(point, seeds) for task in last if task for point in task.first]
    ended = list(run(grids)) if grids else []
    decided = list(found)
    for number, (task, selection) in enumerate(zip(last, found, strict=True)):
        if task and selection:
            decided[number] = _decided(selection, task.selected(ended), tasks[number].fixed["rounds"])
    return decided


def _last(task: Task, selection: Selection | None) -> Task | None:
    """The task of its finalists, which have the rounds of what the search is for; None: it has none."""
    if not task.finalists or selection is None:
        return None
    fixed = {key: value for key, value in task.fixed.items() if key != "rounds"}
    return replace(task, fixed=fixed, first=single(one.values for one in selection.ranked[: task.finalists]))


def _decided(search: Selection, final: Selection | None, rounds: Value) -> Selection | None:
    """A search and its finalists together: all others count as stopped at the search's `rounds`."""
    if final is None:
        return None
    ended = [one.values for one in final.tried]
    others = [
        replace(one, runs=[Pruned.at(int(rounds), run) for run in one.runs])
        for one in search.tried
        if one.values not in ended
    ]
    return Selection((*others, *final.tried), final.winner)
