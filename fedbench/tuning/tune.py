"""A tuning from start to end: the search, the winners over all seeds, two tables and a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from fedbench.compose.overrides import Grid, Value
from fedbench.files import write_text
from fedbench.sweeps.execute import Result
from fedbench.sweeps.sweep import sweep
from fedbench.tuning import tables
from fedbench.tuning.pruning import Rungs
from fedbench.tuning.search import Task, search
from fedbench.tuning.selection import Selection, Tried, select
from fedbench.tuning.tasks import Asked, How, check, read

RULE = (
    "the highest mean final test accuracy over the seeds of the search; a diverged run counts 0 (an R2: minus"
    " infinity), a failed one is left out, the first of equals wins"
)
TO_TARGET = (
    "the fewest mean rounds to the target over the seeds of the search; a run that does not get there counts"
    " twice its rounds, a failed one is left out, the more accurate of equals wins"
)


_Chosen = Sequence[tuple[Task, Mapping[str, Value], Selection]]  # a task, what sets it apart, its search


@dataclass(frozen=True)
class Tuned:
    """What came of a tuning: its directory, its two tables, and the lines of what failed."""

    directory: Path
    trials: pd.DataFrame
    results: pd.DataFrame
    failures: Sequence[str]

    @property
    def edges(self) -> list[str]:
        """The winners that still lie at an edge of what was tried, in words."""
        return [
            f"{row['algorithm']}: {edge.replace(':', ' is at the ')} end of what was tried"
            for row in self.results.to_dict("records")
            for edge in str(row["edge"]).split()
        ]


def tune(overrides: Sequence[str], how: How | None = None) -> Tuned:
    """Search, then run the winners over all seeds; write trials.csv, results.csv and tuning.png (and .pdf).

    `overrides`: as on the command line; what they sweep of `algorithm.*` (or `how.keys`) is searched, for
    every method and every point of what else they sweep. The same call goes on where another stopped. Raises
    UserError before anything is written where a run is bad input; a run that fails does not stop the others.
    """
    how = how or How()
    check(how)
    return _Tuning(read(overrides, how), how).go()


class _Tuning:
    def __init__(self, asked: Asked, how: How) -> None:
        self.asked, self.how = asked, how
        self.failures: list[str] = []
        self._rule = RULE if asked.config.target is None else TO_TARGET

    def go(self) -> Tuned:
        asked, how = self.asked, self.how
        print(self._said(), flush=True)
        k = asked.config.eval.final_k
        rungs = Rungs(self._trials, asked.tasks, how.prune, asked.config.rounds, k)
        seeds = asked.seeds[: how.seeds]
        found = search(asked.tasks, seeds, rungs, how.extend)
        self.failures += [
            f"all runs of {method} failed"
            for method, selection in zip(asked.methods, found, strict=True)
            if selection is None
        ]
        chosen = [
            (task, {"algorithm": method, **task.fixed}, selection)
            for task, method, selection in zip(asked.tasks, asked.methods, found, strict=True)
            if selection is not None
        ]
        if not chosen:
            return Tuned(asked.directory, pd.DataFrame(), pd.DataFrame(), self.failures)
        tried = tables.trials([(fixed, selection) for _, fixed, selection in chosen])
        self._write("trials", tried)
        results = pd.DataFrame(self._winners(chosen))
        self._write("results", results)
        from fedbench.tuning.picture import draw

        draw([(fixed, selection) for _, fixed, selection in chosen], f"Winner: {self._rule}.").save(
            asked.directory / "tuning"
        )
        return Tuned(asked.directory, tried, results, self.failures)

    def _said(self) -> str:
        """What is going to be done, as a line for each task."""
        lines = [f"rule: {self._rule}"]
        for task, method in zip(self.asked.tasks, self.asked.methods, strict=True):
            name = ", ".join([method, *(f"{k}={v}" for k, v in task.fixed.items() if k != "algorithm")])
            if not task.space:
                lines.append(f"{name}: nothing to search")
                continue
            count = self.how.trials if task.asks else len(task.first)
            over = "; ".join(
                f"{key} {', '.join(map(str, values)) if isinstance(values, Sequence) else values}"
                for key, values in task.space.items()
            )
            lines.append(f"{name}: {self.how.search} search, {count} trials over {over}")
        return "\n".join(lines)

    def _winners(self, chosen: _Chosen) -> list[dict[str, Value]]:
        """The winners over all seeds, as rows of results.csv."""
        grids = [
            task.grid({key: [value] for key, value in selection.winner.items()}, self.asked.seeds)
            for task, _, selection in chosen
        ]
        runs = self._sweep("final", grids)
        rows = []
        for task, fixed, selection in chosen:
            won = selection.winner
            mine = [run for run in runs if task.owns(run) and all(run.choices.get(k) == won[k] for k in won)]
            found = select(mine, list(won))
            final = found.tried[0] if found else Tried(won, mine)
            rows.append(tables.result(fixed, selection, final))
        return rows

    def _trials(self, grids: Sequence[Grid], until: int | None) -> list[Result]:
        return self._sweep("trials", grids, [f"checkpoint.until={until}"] if until is not None else [])

    def _sweep(self, stage: str, grids: Sequence[Grid], more: Sequence[str] = ()) -> list[Result]:
        """Run what is missing of a stage. Failed runs are noted, and the others go on."""
        asked, place = self.asked, self.asked.directory / stage
        words = [*asked.words, *more]
        results = sweep(words, grids, place, asked.directory, self.how.config_dir)
        failed = [result for result in results if result.status == "failed"]
        if failed:
            count = f"{len(failed)} of {len(results)} runs failed"
            self.failures.append(f"{stage}: {count}: {failed[0].error} (see {place / 'runs.csv'})")
        return results

    def _write(self, name: str, table: pd.DataFrame) -> None:
        write_text(self.asked.directory / f"{name}.csv", table.to_csv(index=False, lineterminator="\n"))
