"""Making a figure: tune, run what is missing, draw."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from fedbench.config.compose import compose
from fedbench.config.config import HOW, role
from fedbench.config.identity import digest
from fedbench.config.overrides import Grid, parse, written
from fedbench.config.places import RUNS
from fedbench.errors import UsageError
from fedbench.papers.figure import (
    SEARCHED,
    TUNING,
    Experiment,
    Figure,
    MethodRuns,
    algorithm_file,
    experiment,
    lists_of,
    shown,
)
from fedbench.papers.figure_page import write_page_of_changed
from fedbench.papers.kept import (
    Chosen,
    add_to_captions,
    how_tuned,
    made_from,
    say_how_it_was_tuned,
    write_made,
    write_tables,
    write_tuning,
)
from fedbench.runs.records import Run
from fedbench.sweeps.plan import preview
from fedbench.tuning.request import SHARE, VALIDATION
from fedbench.tuning.search import Task, TuningRuns, first_values, search, single
from fedbench.tuning.selection import Selection


def make(figure: Figure, scale: str, extra: Sequence[str] = (), root: Path = Path()) -> list[str]:
    """Make a figure at a scale below `root`; return a line for each failure.

    Finished runs are not repeated, so the same call resumes where an earlier one stopped. `extra`: overrides
    of how it is computed (`data.root=...`, `device=cpu`). Others change what is computed: such a figure lies
    in a directory of its own, and its page shows the published one beside it. Raises UserError.
    """
    changed = changes(extra)
    if changed and not figure.runs:
        raise UsageError(f"figures {figure.name} {changed[0]}: it has no runs, so nothing of it can be set")
    out = shown(figure.name, scale, root, changed)
    if figure.runs:
        made = experiment(figure, scale, changed)  # before anything is written
        out.mkdir(parents=True, exist_ok=True)
        return Maker(made, extra, root, out).go()
    out.mkdir(parents=True, exist_ok=True)
    write_made(out, figure, scale, figure.draw(out), made_from([]))
    return []


def changes(extra: Sequence[str]) -> list[str]:
    """The overrides that change what is computed, not how."""
    keys = {word: word.lstrip("+~").partition("=")[0] for word in extra}
    return [word for word, key in keys.items() if role(key) != HOW and not key.startswith("hydra.")]


class Maker:
    """The stages of one figure at one scale."""

    def __init__(self, made: Experiment, extra: Sequence[str], root: Path, out: Path) -> None:
        self.made, self.figure, self.how = made, made.figure, TUNING[made.effort]
        self.root, self.out, self.runs = root, out, root / RUNS  # figures share runs
        self.place = lists_of(made.figure.name, made.scale, root)
        swept = [one.input_line for one in parse(made.changed) if one.is_sweep_override()]
        extra = [word for word in extra if word not in swept]  # the grids of the final runs have them
        self.words = [f"experiment={made.figure.name}", f"scale={made.scale}", *extra]
        self.words.append("hydra/launcher=processes")
        self.seeds = [SEARCHED + seed for seed in self.how.seeds]
        self.failures: list[str] = []

    def go(self) -> list[str]:
        """Run all stages in order and draw the figure; return a line for each failure."""
        chosen = self.tune()
        write_tuning(self.out, chosen)
        stages = self.stages(chosen)
        place = self.place / digest([self.made.digest, stages])  # other winners are in another list
        finals = TuningRuns(self.words, self.runs)
        runs = {f"{stage}/{run.directory.name}": run for stage, grids in stages.items()
                for run in self.sweep(finals, place / stage, grids)}  # fmt: skip
        write_tables(self.out, runs)
        files = self.figure.draw(self.out)
        say_how_it_was_tuned(self.out, files, self.validation)
        said = {**how_tuned(chosen, self.validation), **made_from(runs.values())}
        write_made(self.out, self.figure, self.made.scale, files, said, self.made.changed)
        if self.made.changed:
            add_to_captions(files, f" Not the published figure: {' '.join(self.made.changed)}.")
            write_page_of_changed(self.figure, self.out, shown(self.figure.name, self.made.scale, self.root))
        return [f"{self.figure.name}: {line}" for line in [*self.failures, *finals.failures]]

    def stages(self, chosen: Chosen) -> dict[str, list[Grid]]:
        """What the winners of the searches are run on, by stage."""
        found: dict[str, list[Grid]] = {}
        for branch in self.made.branches:
            selection = next((one for task, one in chosen if task.is_same_task(branch)), None)
            found.setdefault(branch.stage, []).append(self.final(branch, selection))
        return found

    def forecast(self) -> Iterator[str]:
        """Yield lines that say what `go` would run first, what of it is finished, and how many runs follow.
        Writes nothing. Raises UserError if a run has invalid input."""
        said = f"{self.figure.name}, {self.made.scale}"
        searches, place = list(self.searches()), self.place / self.made.digest
        for name, branches, sweeps in searches:
            tasks = self.tasks(branches)
            yield f"{said}: the first runs of a search for {len(tasks)} methods"
            grids = [one.grid(values, self.seeds) for one in tasks.values() for values in one.first]
            yield from preview(sweeps.plan(place / name, grids))
        finals, stages = TuningRuns(self.words, self.runs), self.stages(())
        planned = [run for grids in stages.values() for run in finals.plan(place, grids)]
        if searches:
            yield f"then what the search still asks for, and {len(planned)} runs of the winners"
        else:
            yield f"{said}: nothing is searched"
            yield from preview(planned)

    def searches(self) -> Iterator[tuple[str, list[MethodRuns], TuningRuns]]:
        """The branches that are tuned, each once, by the task on which they are: the name of the search's
        list, the branches, and its sweeps."""
        tuned: list[MethodRuns] = []
        for branch in self.made.branches:
            searched = branch.search or self.made.tuned_keys(branch)
            if searched and not any(branch.is_same_task(other) for other in tuned):
                tuned.append(branch)
        for task in dict.fromkeys(branch.elsewhere for branch in tuned):
            own = [word for word in self.words[1:] if not task or word not in self.made.changed]
            words = [f"experiment={task or self.figure.name}", *own]
            sweeps = TuningRuns([*words, f"{VALIDATION}={self.validation:g}"], self.runs)
            mine = [branch for branch in tuned if branch.elsewhere == task]
            yield f"tuning-{task}" if task else "tuning", mine, sweeps

    def tune(self) -> Chosen:
        """Search every tuned branch once, and extend a grid search whose winner lies at an edge. Return the
        branches with their selections, without those whose runs all failed."""
        chosen: list[tuple[MethodRuns, Selection]] = []
        for name, branches, sweeps in self.searches():
            tasks = self.tasks(branches)
            run = partial(self.sweep, sweeps, self.place / self.made.digest / name)
            found = search(list(tasks.values()), self.seeds, run, self.how.extensions)
            selections = dict(zip(tasks, found, strict=True))
            self.failures += sweeps.failures
            for branch in branches:
                if (selection := selections[str(self.task(branch).fixed)]) is None:
                    self.failures.append(f"all tuning runs of {branch.method} failed")
                else:
                    chosen.append((branch, selection))
        return chosen

    def tasks(self, branches: Sequence[MethodRuns]) -> dict[str, Task]:
        """The searches of these branches by what is fixed in them. On another figure's task some are the
        same."""
        return {str(task.fixed): task for task in map(self.task, branches)}

    def task(self, branch: MethodRuns) -> Task:
        """The search of a branch: its algorithm's grid, or draws of its random search."""
        pinned, context = self.made.pinned(), branch.context
        if branch.elsewhere:
            schedule = str(context.get("schedule", self.made.base["schedule"]))
            other, there = self.made.elsewhere(branch.elsewhere, schedule)
            own = {key: value for key, value in context.items() if key.startswith("algorithm.")}
            pinned, context = other.pinned(), {**there, **own}
        fixed = {**pinned, **context, "algorithm": branch.algorithm}
        if branch.search is None:
            grid = self.made.tuned_keys(branch)
            usual = first_values(grid, algorithm_file(branch.algorithm), self.how)
            return Task(fixed, grid, [self.made.start.get(branch.method, usual)])
        tried = branch.search.points(self.how.samples)
        space = {key: values for key, values in branch.search.space.items() if key in tried[0]}
        return Task(fixed, space, single(tried), extends=False)

    def final(self, branch: MethodRuns, selection: Selection | None) -> Grid:
        """The grid of a branch's final runs: its winner's values, overridden by what the branch sweeps."""
        winner = selection.winner if selection else {}
        fixed = {**branch.context, "algorithm": branch.algorithm, **winner}
        grid: Grid = {**{key: [value] for key, value in fixed.items()}, **branch.along}
        if self.figure.factors:
            lr = float(winner.get("algorithm.lr") or self.theorem_lr(branch))
            grid = {**grid, "algorithm.lr": [float(f"{lr * factor:.6g}") for factor in self.figure.factors]}
        grid = {key: values for key, values in grid.items() if self.made.params.get(key) != values}
        return {**grid, **self.made.own}

    def theorem_lr(self, branch: MethodRuns) -> float:
        """The learning rate that a branch's theorem gives."""
        from fedbench.runs.run import Run as ComputedRun

        params = {key: values[0] for key, values in self.made.params.items() if key != "seed"}
        given = {**params, **self.made.pinned(), **branch.context, "algorithm": branch.algorithm}
        words = [f"{key}={written(value)}" for key, value in given.items()]
        return ComputedRun(compose([*self.words, *words]).config).problem.hyper["lr"]

    @property
    def validation(self) -> float:
        """The share of training samples that is held out while hyper-parameters are chosen. The final runs
        follow the experiment's own setting."""
        return float(str(self.made.base.get(VALIDATION) or SHARE))

    def sweep(self, sweeps: TuningRuns, place: Path, grids: Sequence[Grid]) -> list[Run]:
        """Run the missing runs of a stage."""
        print(f"{self.figure.name}, {self.made.scale}: {place.name}", flush=True)
        return sweeps.run(place, grids)
