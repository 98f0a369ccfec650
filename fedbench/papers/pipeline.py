"""Making a figure: tune, run what is missing, draw, and keep small results with their provenance."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from hydra._internal.utils import get_args_parser

from fedbench.config.identity import digest
from fedbench.errors import RunError
from fedbench.papers import store
from fedbench.papers.experiment import (
    Branch,
    Experiment,
    Grid,
    algorithm_file,
    experiment,
    grids_override,
    word,
)
from fedbench.papers.figure import RUNS, TUNING, Figure, runs_of, shown
from fedbench.papers.tuning import Selection, beyond, first_values, samples, select
from fedbench.sweeps.composed import composed

log = logging.getLogger(__name__)


def make(figure: Figure, scale: str, extra: Sequence[str] = (), root: Path = Path()) -> list[str]:
    """Make a figure at a scale below `root`; return the lines of what failed (empty: nothing did).

    Finished runs are not repeated, so the same call goes on where another stopped. `extra`: overrides of how
    it is computed (`data.root=...`, `device=cpu`).
    """
    out = shown(figure.name, scale, root)
    out.mkdir(parents=True, exist_ok=True)
    if not figure.runs:
        files = figure.draw(root, out)
        store.write_meta(out, figure, scale, "", files)
        return []
    return _Maker(experiment(figure, scale), extra, root, out).go()


class _Maker:
    """The stages of one figure at one scale."""

    def __init__(self, made: Experiment, extra: Sequence[str], root: Path, out: Path) -> None:
        self.made, self.extra, self.root, self.out = made, extra, root, out
        self.name, self.scale, self.how = made.figure.name, made.scale, TUNING[made.scale]
        self.failures: list[str] = []
        self.place = runs_of(self.name, self.scale, self.root)
        self.digest = made.digest  # other configurations, or other winners, run in another directory

    def go(self) -> list[str]:
        """All stages, in order."""
        chosen = self._tune()
        store.write_tuning(self.out, chosen)
        stages: dict[str, list[Grid]] = {}
        for branch in self.made.branches:
            stages.setdefault(branch.stage, []).append(self._final(branch, _of(chosen, branch)))
        self.digest = digest([self.made.digest, stages])
        for stage, grids in stages.items():
            self._sweep(stage, grids)
        directories = [self._directory(stage) for stage in stages]
        store.write_runs(self.out, directories)
        files = self.made.figure.draw(self.place / self.digest, self.out)
        store.write_meta(self.out, self.made.figure, self.scale, self.made.digest, files, directories, chosen)
        return self.failures

    def _directory(self, stage: str) -> Path:
        return self.place / self.digest / stage

    def _tune(self) -> list[tuple[Branch, Selection]]:
        """Search every tuned branch once, extending the search where a winner lies at an edge."""
        tasks: list[Branch] = []
        for branch in self.made.branches:
            if (self.made.tuned_keys(branch) or branch.method in self.made.figure.search) and not any(
                branch.is_same_task(other) for other in tasks
            ):
                tasks.append(branch)
        if not tasks:
            return []
        grids = [grid for task in tasks for grid in self._tried_first(task)]
        for _ in range(self.how.extensions + 1):
            self._sweep("tuning", grids)
            found = [(task, self._selected(task)) for task in tasks]
            grids = [
                self._tuning_grid(task, {key: word(value) for key, value in point.items()})
                for task, selection in found
                if selection is not None and task.method not in self.made.figure.search
                for point in beyond(selection, self.made.tuned_keys(task))
            ]
            if not grids:
                break
        for task, selection in found:
            if selection is None:
                self.failures.append(f"{self.name}: all tuning runs of {task.method} failed")
        return [(task, selection) for task, selection in found if selection is not None]

    def _tried_first(self, task: Branch) -> list[Grid]:
        space = self.made.figure.search.get(task.method)
        if space is not None:
            points = samples(space, self.how.samples)
            return [self._tuning_grid(task, {k: word(v) for k, v in point.items()}) for point in points]
        values = first_values(self.made.tuned_keys(task), algorithm_file(task.algorithm), self.how)
        return [self._tuning_grid(task, {key: ",".join(map(word, some)) for key, some in values.items()})]

    def _tuning_grid(self, task: Branch, values: Mapping[str, str]) -> Grid:
        fixed = {"algorithm": task.algorithm, "seed": self.how.seeds}
        return {**self.made.pinned(), **task.context, **fixed, **values}

    def _selected(self, task: Branch) -> Selection | None:
        keys = list(self.made.figure.search.get(task.method) or self.made.tuned_keys(task))
        rows = pd.read_csv(self._directory("tuning") / "runs.csv")
        return select(rows[belongs(rows, task, keys)], keys)

    def _final(self, branch: Branch, selection: Selection | None) -> Grid:
        """The grid of a branch's final runs: its winner's values, below what is swept."""
        winner = {key: word(_plain(value)) for key, value in selection.winner.items()} if selection else {}
        grid: Grid = {**branch.context, "algorithm": branch.algorithm, **winner, **branch.along}
        if self.made.figure.factors:
            lr = float(winner.get("algorithm.lr") or self._theorem_lr(branch))
            grid["algorithm.lr"] = ",".join(f"{lr * factor:.6g}" for factor in self.made.figure.factors)
        return {key: value for key, value in grid.items() if self.made.params.get(key) != value}

    def _theorem_lr(self, branch: Branch) -> float:
        """The learning rate that a branch's theorem gives."""
        from fedbench.runs.plan import make_plan
        from fedbench.runs.summary import hyper

        params = {k: v for k, v in self.made.params.items() if k not in ("algorithm", "seed")}
        given = {**params, **self.made.pinned(), **branch.context, "algorithm": branch.algorithm}
        words = ["hydra/launcher=processes", *(f"{key}={value}" for key, value in given.items())]
        cfg = composed([f"experiment={self.name}", f"scale={self.scale}", *words, *self.extra])
        return float(hyper(make_plan(cfg))["lr"])

    def _sweep(self, stage: str, grids: Sequence[Grid]) -> None:
        """Run what is missing of a stage. A failed run is noted, and the others go on."""
        from fedbench.app import App

        print(f"{self.name}, {self.scale}: {stage}", flush=True)
        words = [f"experiment={self.name}", f"scale={self.scale}", "hydra/launcher=processes"]
        words += [f"hydra.sweep.dir='{self._directory(stage)}'", grids_override(grids)]
        words += [f"hydra.sweeper.reuse='{self.root / RUNS}'", *self.extra]  # other figures' runs
        try:
            App(get_args_parser().parse_intermixed_args([*words, "--multirun"])).launch(multirun=True)
        except RunError as error:
            self.failures.append(f"{self.name}, {stage}: {error}")


def _of(chosen: Sequence[tuple[Branch, Selection]], branch: Branch) -> Selection | None:
    return next((selection for task, selection in chosen if task.is_same_task(branch)), None)


def belongs(rows: pd.DataFrame, task: Branch, tuned: Sequence[str]) -> pd.Series:
    """Which rows of a tuning sweep are the task's: those of its algorithm and context, but for tuned keys."""
    mine = rows.algorithm == task.algorithm
    for key, value in task.context.items():
        if key in rows and key not in tuned:
            same = rows[key].map(lambda cell, value=value: same_value(cell, value))
            mine &= same
    return mine


def same_value(cell: Any, text: str) -> bool:
    """Whether a cell of runs.csv holds the value that an override writes as `text`."""
    if pd.isna(cell):
        return text in ("null", "")
    try:
        return float(cell) == float(text)
    except ValueError:
        return str(cell).lower() == text.lower()


def _plain(value: Any) -> Any:
    """A NumPy scalar as Python's own; whole floats of integer keys as integers."""
    number = value.item() if hasattr(value, "item") else value
    return int(number) if isinstance(number, float) and number.is_integer() else number
