"""`fedbench tune` from start to end: the request, the search, the winners' runs, two tables and a picture."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd

from fedbench.config.overrides import Grid, Value
from fedbench.figures.results import FINAL, TRIALS, TUNING
from fedbench.files import write_json, write_text
from fedbench.sweeps.launch import sweep_planned
from fedbench.sweeps.plan import preview
from fedbench.sweeps.records import RunRecord
from fedbench.tuning.request import TuneOptions as TuneOptions
from fedbench.tuning.request import TuningPlan as TuningPlan
from fedbench.tuning.request import read as read
from fedbench.tuning.search import Task, TuningRuns, search, single
from fedbench.tuning.selection import Selection, Trial, result_row, trials_table


@dataclass(frozen=True)
class Tuned:
    """The outcome of a tuning: its directory, its two tables, one line per failure, and what a reader of the
    results must know."""

    directory: Path
    trials: pd.DataFrame
    results: pd.DataFrame
    failures: Sequence[str]
    notes: Sequence[str] = ()

    @property
    def edges(self) -> list[str]:
        """The winners that still lie at an edge of the values tried, in words."""
        return [
            f"{row['algorithm']}: {edge.replace(':', ' is at the ')} end of what was tried"
            for row in self.results.to_dict("records")
            for edge in str(row.get("edge", "")).split()
        ]


def dry_run(overrides: Sequence[str], options: TuneOptions) -> Iterator[str]:
    """Yield lines that say what `tune` would do, and which of the first trials are finished. Writes nothing.
    Raises UserError if a run has invalid input."""
    plan = read(overrides, options)
    yield from plan.announced
    grids = [task.grid(values, plan.selecting) for task in plan.tasks for values in task.first]
    place = plan.directory / TRIALS
    words = [*plan.words, *plan.of_trials]
    yield from preview(sweep_planned(words, grids, place, plan.runs, options.config_dir))
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
    stages, place = TuningRuns(plan.words, plan.runs, options.config_dir), plan.directory

    further = plan.of_trials

    def trials(grids: Sequence[Grid]) -> list[RunRecord]:
        try:
            return stages.run(place / TRIALS, grids, further)
        finally:
            if (place / TRIALS).is_dir():  # the runs are valid
                write_json(place / TUNING, plan.said)

    selections = search(plan.tasks, plan.selecting, trials, options.extend)
    found: list[tuple[Mapping[str, Value], Selection]] = []
    chosen = []
    for task, selection in zip(plan.tasks, selections, strict=True):
        method = task.named["algorithm"]
        if selection is None:
            stages.failures.append(f"all runs of {method} failed")
        elif selection.diverged:
            line = f"all {len(selection.trials)} configurations of {method} diverged"
            stages.failures.append(f"{line}: smaller step sizes are needed")
            found.append((task.named, replace(selection, winner={})))
        else:
            found.append((task.named, selection))
            chosen.append((task, selection))
    if not found:
        return Tuned(place, pd.DataFrame(), pd.DataFrame(), stages.failures)
    tried = trials_table(found)
    tried.insert(list(tried).index("seeds"), "metric", plan.measure)
    written_table(place / "trials.csv", tried)
    winners = [task.grid(single([won.winner])[0], plan.final) for task, won in chosen]
    write_json(place / TUNING, {**plan.said, "winners": winners})
    runs = stages.run(place / FINAL, winners) if winners else []
    results = pd.DataFrame(
        [
            result_row(task.named, won.winner, _final(task, won.winner, runs), options.metric, won)
            for task, won in chosen
        ]
    )
    if len(results):
        written_table(place / "results.csv", results)
    from fedbench.tuning.picture import draw

    rule = f"Winner: {plan.rule}. Winners {plan.of_winners}."
    for key, drawing in draw(found, plan.measure, rule, place).items():
        drawing.save(place / f"tuning-{key.rpartition('.')[2]}")
    return Tuned(place, tried, results, stages.failures, [f"winners {plan.of_winners}"])


def _final(task: Task, winner: Mapping[str, Value], runs: Sequence[RunRecord]) -> Trial:
    """The winner's runs, measured on the test set."""
    mine = [run for run in runs if task.owns(run) and all(run.choices.get(k) == v for k, v in winner.items())]
    return Trial(winner, mine)


def written_table(file: Path, table: pd.DataFrame) -> pd.DataFrame:
    """Write a table as CSV, and return it."""
    write_text(file, table.to_csv(index=False, lineterminator="\n"))
    return table
