"""Making a figure: tune, run what is missing, draw, and keep small results with their provenance."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from fedbench.compose.composer import compose
from fedbench.compose.overrides import Grid, written
from fedbench.config.identity import digest
from fedbench.papers import store
from fedbench.papers.experiment import Branch, Experiment, algorithm_file, experiment
from fedbench.papers.figure import RUNS, TUNING, Figure, runs_of, shown
from fedbench.papers.tuning import Selection, beyond, first_values, samples, select
from fedbench.sweeps.execute import Result
from fedbench.sweeps.sweep import sweep

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
        files = self.figure.draw(place, self.out)
        places = [result.directory for result in results]
        store.write_meta(self.out, self.figure, self.made.scale, self.made.digest, files, places, chosen)
        return self.failures

    def _tune(self, place: Path) -> Chosen:
        """Search every tuned branch once, extending the search where a winner lies at an edge."""
        tasks: list[Branch] = []
        for branch in self.made.branches:
            searched = branch.method in self.figure.search or self.made.tuned_keys(branch)
            if searched and not any(branch.is_same_task(other) for other in tasks):
                tasks.append(branch)
        grids = [grid for task in tasks for grid in self._tried_first(task)]
        tried: dict[Path, Result] = {}
        found: list[tuple[Branch, Selection | None]] = []
        for _ in range(self.how.extensions + 1):
            if not grids:
                break
            tried |= {result.directory: result for result in self._sweep(place, grids)}
            found = [(task, self._selected(task, tried.values())) for task in tasks]
            grids = [
                self._tuning_grid(task, {key: [value] for key, value in point.items()})
                for task, selection in found
                if selection is not None and task.method not in self.figure.search
                for point in beyond(selection, self.made.tuned_keys(task))
            ]
        lost = [task.method for task, selection in found if selection is None]
        self.failures += [f"{self.figure.name}: all tuning runs of {method} failed" for method in lost]
        return [(task, selection) for task, selection in found if selection is not None]

    def _tried_first(self, task: Branch) -> list[Grid]:
        space = self.figure.search.get(task.method)
        if space is None:
            defaults = algorithm_file(task.algorithm)
            return [self._tuning_grid(task, first_values(self.made.tuned_keys(task), defaults, self.how))]
        points = samples(space, self.how.samples)
        return [self._tuning_grid(task, {key: [value] for key, value in point.items()}) for point in points]

    def _tuning_grid(self, task: Branch, values: Grid) -> Grid:
        fixed = {**self.made.pinned(), **task.context, "algorithm": task.algorithm}
        return {**{key: [value] for key, value in fixed.items()}, "seed": list(self.how.seeds), **values}

    def _selected(self, task: Branch, tried: Iterable[Result]) -> Selection | None:
        keys = list(self.figure.search.get(task.method) or self.made.tuned_keys(task))
        return select((result for result in tried if belongs(result, task, keys)), keys)

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
        results = sweep(words, grids, place, self.root / RUNS)  # other figures' runs are taken over
        failed = [result for result in results if result.status == "failed"]
        if failed:
            count = f"{len(failed)} of {len(results)} runs failed"
            line = f"{self.figure.name}, {place.name}: {count}: {failed[0].error} (see {place / 'runs.csv'})"
            self.failures.append(line)
        return results


def belongs(result: Result, task: Branch, tuned: Sequence[str]) -> bool:
    """Whether a run of the tuning sweep is the task's: of its algorithm and context, but for tuned keys."""
    fixed = {"algorithm": task.algorithm, **task.context}
    return all(result.choices.get(key) == value for key, value in fixed.items() if key not in tuned)
