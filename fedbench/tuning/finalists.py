"""Finalists: where a search has fewer rounds than what it is for, its best few are run to the end, and the
best of these wins. What leads early may diverge later, or be overtaken by what rises slowly."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import islice

from fedbench.compose.overrides import Grid, Value
from fedbench.sweeps.execute import Result
from fedbench.tuning.search import Task, single
from fedbench.tuning.selection import Pruned, Selection
from fedbench.tuning.space import Point


def decide(
    tasks: Sequence[Task],
    found: Sequence[Selection | None],
    seeds: Sequence[int],
    run: Callable[[Sequence[Grid]], Iterable[Result]],
) -> list[Selection | None]:
    """What tasks have found, those with finalists after these have run, and where all of these diverge or
    fail the next best, as many again, and so on.

    `run` runs the union of grids. The selections are in the order of the tasks; None: all runs failed.
    """
    races = {
        number: (_last(task), selection, iter(_ranked(selection)))
        for number, (task, selection) in enumerate(zip(tasks, found, strict=True))
        if task.finalists and selection
    }
    ended: list[Result] = []
    while grids := [
        task.grid(values, seeds)
        for task, _, waiting in races.values()
        if _undecided(task, ended)
        for values in single(islice(waiting, task.finalists))
    ]:
        ended += run(grids)
    decided = list(found)
    for number, (task, selection, _) in races.items():
        decided[number] = _decided(selection, task.selected(ended), tasks[number].fixed["rounds"])
    return decided


def _last(task: Task) -> Task:
    """The task of its finalists, which have the rounds of what the search is for."""
    return replace(task, fixed={key: value for key, value in task.fixed.items() if key != "rounds"})


def _ranked(selection: Selection) -> list[Point]:
    """Who may be a finalist, the best first: none that has diverged in the search, but where all have."""
    ranked = selection.ranked
    stable = [one for one in ranked if any(run.status != "diverged" for run in one.runs)]
    return [one.values for one in stable or ranked]


def _undecided(task: Task, ended: Iterable[Result]) -> bool:
    """Whether none of a task's finalists so far has come to an end without diverging."""
    return all(run.status in ("diverged", "failed") for run in ended if task.owns(run))


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
