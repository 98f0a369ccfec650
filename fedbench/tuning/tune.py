"""`fedbench tune` from start to end: the request, the search, the winners' runs, two tables and a picture."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pandas as pd

from fedbench.config.overrides import Grid, Value
from fedbench.errors import UserError
from fedbench.figures.results import FINAL, TUNING
from fedbench.files import write_json, write_text
from fedbench.sweeps.plan import examined
from fedbench.tuning.request import TuneOptions, read
from fedbench.tuning.search import Point, Range, Task, single
from fedbench.tuning.selection import Selection, result_row, trials_table
from fedbench.tuning.tuning import Chosen


@dataclass(frozen=True)
class Tuned:
    """The outcome of a tuning: its directory, one line per failure, the table of its results, and what a
    reader of it must know."""

    directory: Path
    failures: Sequence[str]
    results: pd.DataFrame = field(default_factory=pd.DataFrame)
    notes: Sequence[str] = ()


def dry_run(overrides: Sequence[str], options: TuneOptions) -> Iterator[str]:
    """Yield lines that say what `tune` would do, and which of the first trials are finished. Writes nothing.
    Raises UserError if a run has invalid input."""
    plan = read(overrides, options)
    yield from plan.announced
    for lines in plan.tuning(lambda _: {}).forecast():
        yield from lines
    yield f"then {len(plan.tasks) * len(plan.final)} runs of the winners in {plan.directory / FINAL}"


def tune(overrides: Sequence[str], options: TuneOptions | None) -> Tuned:
    """Search, then run the winners; write trials.csv, results.csv, tune.json and a figure for
    each searched number (tuning-lr.png, .pdf and others).

    `overrides`: as on the command line. The keys of `algorithm.*` (or `options.keys`) that they sweep are
    searched, for every method and every point of the other swept keys. The same call goes on where another
    stopped. Raises UserError before anything is written if a run has invalid input; a run that fails does not
    stop the others.
    """
    plan = read(overrides, options or TuneOptions())
    print("\n".join(plan.announced), flush=True)
    place, failures = plan.directory, list[str]()
    found: list[tuple[Mapping[str, Value], Selection]] = []
    won: list[tuple[Task, Selection, Grid]] = []

    def finals(chosen: Chosen) -> dict[Path, list[Grid]]:
        for task, selection in chosen:
            if selection.diverged:
                line = f"all {len(selection.trials)} configurations of {task.named['algorithm']} diverged"
                failures.append(f"{line}: smaller step sizes are needed")
                found.append((task.named, replace(selection, winner={})))
            else:
                found.append((task.named, selection))
                won.append((task, selection, task.grid(single([selection.winner])[0], plan.final)))
        if found:
            tried = trials_table(found)
            tried.insert(list(tried).index("seeds"), "metric", plan.measure)
            write_table(place / "trials.csv", tried)
            winners = {"tasks": [task.named for task, *_ in won], "winners": [grid for *_, grid in won]}
            write_json(place / TUNING, {**plan.said, **winners})
        return {place / FINAL: [grid for *_, grid in won]} if won else {}

    tuning = plan.tuning(finals)
    runs = tuning.go().get(place / FINAL, [])
    failures = [*tuning.failures, *failures]
    if not found:
        return Tuned(place, failures)
    rows = [result_row(task.named, grid, runs, plan.options.metric, one) for task, one, grid in won]
    if rows:
        write_table(place / "results.csv", pd.DataFrame(rows))
    from fedbench.tuning.picture import draw

    rule = f"Winner: {plan.rule}. Winners {plan.of_winners}."
    for key, drawing in draw(found, plan.measure, rule, place).items():
        drawing.save(place / f"tuning-{key.rpartition('.')[2]}")
    again = "--extend" if plan.runs else "--extend in another directory"  # see `request.read`

    def allowed(task: Task, point: Point) -> bool:
        """Whether a run may have these values."""
        try:
            examined(tuning.winners.plan(place / FINAL, [task.grid(single([point])[0], [0])]), 1)
        except UserError:
            return False
        return True

    edges = [line for task, selection, _ in won for line in _edges(task, selection, again, allowed)]
    return Tuned(place, failures, pd.DataFrame(rows), [f"winners {plan.of_winners}", *edges])


def _edges(task: Task, found: Selection, again: str, allowed: Callable[[Task, Point], bool]) -> Iterator[str]:
    """For every key in which the winner still lies at an edge of the values tried, and not of those that are
    allowed: a line with what may help. `again`: the option of more extensions. They do not help for an
    interval, nor beyond the values of a key that is no step size."""
    ahead = task.next(found, extends=True)
    for key, side in found.edges.items():
        extends = any(grid[key] != [found.winner[key]] for grid in ahead)
        value, up = float(str(found.winner[key])), 1 if side == "high" else -1
        near = [value + up * (abs(value) or 1) * 1e-6, round(value) + up]  # the latter: of integers
        if not extends and not any(allowed(task, {**found.winner, key: beyond}) for beyond in near):
            continue
        wider = "a wider interval" if isinstance(task.space[key], Range) else "a wider grid"
        wider += f" or {again}" if extends else ""
        end = f"{task.named['algorithm']}: {key} is at the {side} end of what was tried"
        yield f"{end}; {wider} may find better"


def write_table(file: Path, table: pd.DataFrame) -> None:
    """Write a table as CSV."""
    write_text(file, table.to_csv(index=False, lineterminator="\n"))
