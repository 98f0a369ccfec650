"""Making a figure: tune, run what is missing, draw, and keep small results with their provenance."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fedbench.compose.composer import compose
from fedbench.compose.overrides import Grid, written
from fedbench.config.identity import digest
from fedbench.papers import store
from fedbench.papers.experiment import Branch, Experiment, algorithm_file, experiment
from fedbench.papers.figure import RUNS, TUNING, Figure, runs_of, shown
from fedbench.papers.kept import write_kept
from fedbench.sweeps.execute import Result
from fedbench.sweeps.launch import sweep
from fedbench.tuning.search import Task, decide, search, single
from fedbench.tuning.selection import Selection
from fedbench.tuning.space import first_values

Chosen = list[tuple[Branch, Selection]]


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
        self.made, self.figure, self.how = made, made.figure, TUNING[made.scale]
        self.root, self.out = root, out
        self.words = [f"experiment={made.figure.name}", f"scale={made.scale}", *extra]
        self.failures: list[str] = []

    def go(self) -> list[str]:
        """All stages, in order."""
        if self.made.stand_ins:
            said = "in place of the paper's: this shows that the figure can be made, nothing else"
            print(f"{self.figure.name}, smoke: {self.made.stand_ins} {said}", flush=True)
        place = runs_of(self.figure.name, self.made.scale, self.root)
        chosen = self._tune(place / self.made.digest / "tuning")
        store.write_tuning(self.out, chosen)
        stages: dict[str, list[Grid]] = {}
        for branch in self.made.branches:
            selection = next((found for task, found in chosen if task.is_same_task(branch)), None)
            stages.setdefault(branch.stage, []).append(self._final(branch, selection))
        place /= digest([self.made.digest, stages])  # other winners run in another directory
        results = [result for stage, grids in stages.items() for result in self._sweep(place / stage, grids)]
        store.write_runs(self.out, [place / stage for stage in stages])
        write_kept(self.out, [place / stage for stage in stages], self.root)
        files = self.figure.draw(place, self.out)
        places = [result.directory for result in results]
        store.write_meta(self.out, self.figure, self.made.scale, self.made.digest, files, places, chosen)
        return self.failures

    def _tune(self, place: Path) -> Chosen:
        """Search every tuned branch once, extending the search where a winner lies at an edge."""
        branches: list[Branch] = []
        for branch in self.made.branches:
            searched = branch.search or self.made.tuned_keys(branch)
            if searched and not any(branch.is_same_task(other) for other in branches):
                branches.append(branch)
        tasks = [self._task(branch) for branch in branches]
        found = search(tasks, self.how.seeds, lambda grids: self._sweep(place, grids), self.how.extensions)
        last = place.with_name("finalists")
        found = decide(tasks, found, self.how.seeds, lambda grids: self._sweep(last, grids))
        chosen = list(zip(branches, found, strict=True))
        lost = [branch.method for branch, selection in chosen if selection is None]
        self.failures += [f"{self.figure.name}: all tuning runs of {method} failed" for method in lost]
        return [(branch, selection) for branch, selection in chosen if selection is not None]

    def _task(self, branch: Branch) -> Task:
        fixed = {**self.made.pinned(), **branch.context, "algorithm": branch.algorithm}
        if branch.search is None:
            grid = self.made.tuned_keys(branch)
            usual = first_values(grid, algorithm_file(branch.algorithm), self.how)
            return Task(fixed, grid, [self.made.start.get(branch.method, usual)])
        rounds = branch.search.rounds.get(self.made.scale)
        less, last = ({"rounds": rounds}, branch.search.finalists) if rounds else ({}, 0)
        tried = branch.search.points(self.how.samples)
        space = {key: values for key, values in branch.search.space.items() if key in tried[0]}
        return Task({**fixed, **less}, space, single(tried), extends=False, finalists=last)

    def _final(self, branch: Branch, selection: Selection | None) -> Grid:
        """The grid of a branch's final runs: its winner's values, below what is swept."""
        winner = selection.winner if selection else {}
        fixed = {**branch.context, "algorithm": branch.algorithm, **winner}
        grid: Grid = {**{key: [value] for key, value in fixed.items()}, **branch.along}
        if self.figure.factors:
            lr = float(winner.get("algorithm.lr") or self._theorem_lr(branch))
            grid = {**grid, "algorithm.lr": [float(f"{lr * factor:.6g}") for factor in self.figure.factors]}
        return {key: values for key, values in grid.items() if self.made.params.get(key) != values}

    def _theorem_lr(self, branch: Branch) -> float:
        """The learning rate that a branch's theorem gives."""
        from fedbench.runs.plan import make_plan

        params = {key: values[0] for key, values in self.made.params.items() if key != "seed"}
        given = {**params, **self.made.pinned(), **branch.context, "algorithm": branch.algorithm}
        words = [f"{key}={written(value)}" for key, value in given.items()]
        config = compose([*self.words, "hydra/launcher=processes", *words]).config
        return make_plan(config).hyper["lr"]

    def _sweep(self, place: Path, grids: Sequence[Grid]) -> list[Result]:
        """Run what is missing of a stage. Failed runs are noted, and the others go on."""
        print(f"{self.figure.name}, {self.made.scale}: {place.name}", flush=True)
        words = [*self.words, "hydra/launcher=processes"]
        results = sweep(words, grids, place, self.root / RUNS)  # other figures' runs serve too
        failed = [result for result in results if result.status == "failed"]
        if failed:
            count = f"{len(failed)} of {len(results)} runs failed"
            line = f"{self.figure.name}, {place.name}: {count}: {failed[0].error} (see {place / 'runs.csv'})"
            self.failures.append(line)
        return results
