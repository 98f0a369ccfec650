"""Making a figure: tune, run what is missing, draw."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
    add_to_captions,
    say_how_it_was_tuned,
    write_made,
    write_tables,
    write_tuning,
)
from fedbench.sweeps.plan import preview
from fedbench.tuning.request import SHARE, VALIDATION
from fedbench.tuning.search import Task, first_values, single
from fedbench.tuning.selection import Selection
from fedbench.tuning.tuning import Chosen, Stage, Tuning, TuningRuns


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
    write_made(out, figure, scale, figure.draw(out))
    return []


def changes(extra: Sequence[str]) -> list[str]:
    """The overrides that change what is computed, not how."""
    keys = {word: word.lstrip("+~").partition("=")[0] for word in extra}
    return [word for word, key in keys.items() if role(key) != HOW and not key.startswith("hydra.")]


class Maker:
    """The tuning behind one figure at one scale, and what is kept and drawn of it."""

    def __init__(self, made: Experiment, extra: Sequence[str], root: Path, out: Path) -> None:
        self.made, self.figure, self.how = made, made.figure, TUNING[made.effort]
        self.root, self.out, self.runs = root, out, root / RUNS  # figures share runs
        self.lists = lists_of(made.figure.name, made.scale, root)
        swept = [item.input_line for item in parse(made.changed) if item.is_sweep_override()]
        extra = [word for word in extra if word not in swept]  # the grids of the final runs have them
        self.words = [f"experiment={made.figure.name}", f"scale={made.scale}", *extra]
        self.words.append("hydra/launcher=processes")
        self.title = f"{made.figure.name}, {made.scale}"
        self.chosen: Chosen = ()

    def go(self) -> list[str]:
        """Tune, run the winners and draw the figure; return a line for each failure."""
        tuning = self.tuning()
        lists = tuning.go()
        runs = {f"{place.name}/{run.directory.name}": run for place, found in lists.items() for run in found}
        write_tables(self.out, runs)
        files = self.figure.draw(self.out)
        say_how_it_was_tuned(self.out, files, self.validation)
        write_made(self.out, self.figure, self.made.scale, files, runs.values(), self.chosen,
                   self.validation, self.made.changed)  # fmt: skip
        if self.made.changed:
            add_to_captions(files, f"Not the published figure: {' '.join(self.made.changed)}.")
            write_page_of_changed(self.figure, self.made.scale, self.out, self.root)
        return [f"{self.figure.name}: {line}" for line in tuning.failures]

    def forecast(self) -> Iterator[str]:
        """Yield lines that say what `go` would run first, what of it is finished, and how many runs follow.
        Writes nothing. Raises UserError if a run has invalid input."""
        tuning = self.tuning()
        for stage, lines in zip(tuning.stages, tuning.forecast(), strict=True):
            yield f"{self.title}: the first runs of a search for {len(stage.tasks)} methods"
            yield from lines
        finals = self.stages(()).items()
        planned = [run for place, grids in finals for run in tuning.winners.plan(place, grids)]
        if tuning.stages:
            yield f"then what the search still asks for, and {len(planned)} runs of the winners"
        else:
            yield f"{self.title}: nothing is searched"
            yield from preview(planned)

    def tuning(self) -> Tuning:
        """The searches of all tuned branches, and the final runs of all branches."""
        seeds = [SEARCHED + seed for seed in self.how.seeds]
        winners = TuningRuns(self.words, self.runs, title=self.title)
        return Tuning(list(self.searches()), seeds, self.finals, winners, self.how.extensions)

    def finals(self, chosen: Chosen) -> dict[Path, list[Grid]]:
        """Keep what the searches chose; the final runs, without branches whose searches all failed."""
        self.chosen = chosen
        write_tuning(self.out, chosen)
        return self.stages(chosen)

    def stages(self, chosen: Chosen) -> dict[Path, list[Grid]]:
        """What the winners of the searches are run on, by the directory of its list: other winners are in
        another list."""
        stages: dict[str, list[Grid]] = {}
        for branch in self.made.branches:
            selection = next((found for task, found in chosen if task.named == branch.named), None)
            stages.setdefault(branch.stage, []).append(self.final(branch, selection))
        return {self.lists / digest([self.made.digest, stages]) / stage: grids
                for stage, grids in stages.items()}  # fmt: skip

    def tuned(self) -> list[MethodRuns]:
        """The branches that are searched, each once."""
        tuned: list[MethodRuns] = []
        for branch in self.made.branches:
            searched = branch.search or self.made.tuned_keys(branch)
            if searched and all(branch.named != other.named for other in tuned):
                tuned.append(branch)
        return tuned

    def searches(self) -> Iterator[Stage]:
        """The searches, by the figure on whose task they are."""
        for other in dict.fromkeys(branch.elsewhere for branch in self.tuned()):
            ours = [word for word in self.words[1:] if not other or word not in self.made.changed]
            words = [f"experiment={other or self.figure.name}", *ours, f"{VALIDATION}={self.validation:g}"]
            tasks = [self.task(branch) for branch in self.tuned() if branch.elsewhere == other]
            place = self.lists / self.made.digest / (f"tuning-{other}" if other else "tuning")
            yield Stage(place, tasks, TuningRuns(words, self.runs, title=self.title))

    def task(self, branch: MethodRuns) -> Task:
        """The search of a branch: its algorithm's grid, or draws of its random search."""
        pinned, context = self.made.pinned(), branch.context
        if branch.elsewhere:
            schedule = str(context.get("schedule", self.made.base["schedule"]))
            other, there = self.made.elsewhere(branch.elsewhere, schedule)
            method = {key: value for key, value in context.items() if key.startswith("algorithm.")}
            pinned, context = other.pinned(), {**there, **method}
        fixed = {**pinned, **context, "algorithm": branch.algorithm}
        if branch.search is None:
            grid = self.made.tuned_keys(branch)
            usual = first_values(grid, algorithm_file(branch.algorithm), self.how)
            return Task(fixed, grid, [self.made.start.get(branch.method, usual)], called=branch.named)
        tried = branch.search.points(self.how.samples)
        space = {key: values for key, values in branch.search.space.items() if key in tried[0]}
        return Task(fixed, space, single(tried), extends=False, called=branch.named)

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
