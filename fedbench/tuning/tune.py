"""`fedbench tune` from start to end: the request, the search, the winners' runs, two tables and a picture."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pandas as pd

from fedbench.config.overrides import Grid, Value
from fedbench.figures.results import FINAL, TRIALS, TUNING
from fedbench.files import write_json, write_text
from fedbench.runs.records import Run
from fedbench.sweeps.plan import preview
from fedbench.tuning.request import TuneOptions, read
from fedbench.tuning.search import Range, Task, search, single
from fedbench.tuning.selection import Selection, result_row, trials_table


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
    grids = [task.grid(values, plan.selecting) for task in plan.tasks for values in task.first]
    yield from preview(plan.trials.plan(plan.directory / TRIALS, grids))
    yield f"then {len(plan.tasks) * len(plan.final)} runs of the winners in {plan.directory / FINAL}"


def tune(overrides: Sequence[str], options: TuneOptions | None = None) -> Tuned:
    """Search, then run the winners; write trials.csv, results.csv, tune.json and a figure for
    each searched number (tuning-lr.png, .pdf and others).

    `overrides`: as on the command line. The keys of `algorithm.*` (or `options.keys`) that they sweep are
    searched, for every method and every point of the other swept keys. The same call goes on where another
    stopped. Raises UserError before anything is written if a run has invalid input; a run that fails does not
    stop the others.
    """
    options = options or TuneOptions()
    plan = read(overrides, options)
    print("\n".join(plan.announced), flush=True)
    place, stages, finals = plan.directory, plan.trials, plan.finals

    def trials(grids: Sequence[Grid]) -> list[Run]:
        try:
            return stages.run(place / TRIALS, grids)
        finally:
            if (place / TRIALS).is_dir():  # the runs are valid
                write_json(place / TUNING, plan.said)

    selections = search(plan.tasks, plan.selecting, trials, options.extend)
    found: list[tuple[Mapping[str, Value], Selection]] = []
    chosen, failures = [], stages.failures
    for task, selection in zip(plan.tasks, selections, strict=True):
        method = task.named["algorithm"]
        if selection is None:
            failures.append(f"all runs of {method} failed")
        elif selection.diverged:
            line = f"all {len(selection.trials)} configurations of {method} diverged"
            failures.append(f"{line}: smaller step sizes are needed")
            found.append((task.named, replace(selection, winner={})))
        else:
            found.append((task.named, selection))
            chosen.append((task, selection))
    if not found:
        return Tuned(place, failures)
    tried = trials_table(found)
    tried.insert(list(tried).index("seeds"), "metric", plan.measure)
    write_table(place / "trials.csv", tried)
    winners = [task.grid(single([won.winner])[0], plan.final) for task, won in chosen]
    of_winners = [task.named for task, _ in chosen]  # in the order of the winners
    write_json(place / TUNING, {**plan.said, "tasks": of_winners, "winners": winners})
    runs = finals.run(place / FINAL, winners) if winners else []
    rows = [
        result_row(task.named, grid, runs, options.metric, won)
        for (task, won), grid in zip(chosen, winners, strict=True)
    ]
    if rows:
        write_table(place / "results.csv", pd.DataFrame(rows))
    from fedbench.tuning.picture import draw

    rule = f"Winner: {plan.rule}. Winners {plan.of_winners}."
    for key, drawing in draw(found, plan.measure, rule, place).items():
        drawing.save(place / f"tuning-{key.rpartition('.')[2]}")
    again = "--extend" if plan.runs else "--extend in another directory"  # see `request.read`
    notes = [
        f"winners {plan.of_winners}",
        *(line for task, won in chosen for line in _edges(task, won, again)),
    ]
    return Tuned(place, [*failures, *finals.failures], pd.DataFrame(rows), notes)


def _edges(task: Task, found: Selection, again: str) -> Iterator[str]:
    """For every key in which the winner still lies at an edge of the values tried: a line with what may help.
    `again`: the option of more extensions. They do not help for an interval, nor beyond the values of a key
    that is no step size."""
    ahead = task.next(found, extends=True)
    for key, side in found.edges.items():
        wider = "a wider interval" if isinstance(task.space[key], Range) else "a wider grid"
        wider += f" or {again}" if any(grid[key] != [found.winner[key]] for grid in ahead) else ""
        yield f"{task.algorithm}: {key} is at the {side} end of what was tried; {wider} may find better"


def write_table(file: Path, table: pd.DataFrame) -> None:
    """Write a table as CSV."""
    write_text(file, table.to_csv(index=False, lineterminator="\n"))
