"""A tuning: searches that stand side by side, and then the runs of their winners."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from fedbench.config.overrides import Grid
from fedbench.runs.records import Run
from fedbench.sweeps.launch import asked, failures
from fedbench.sweeps.plan import PlannedRun, preview
from fedbench.tuning.search import Task, search
from fedbench.tuning.selection import Selection

Chosen = Sequence[tuple[Task, Selection]]
"""Tasks of which not all runs failed, each with what was selected."""


@dataclass
class TuningRuns:
    """Sweeps that belong together. `words`: overrides of all their runs. `runs`: where these lie (None: in
    the directories of the sweeps). `title`: what is printed before the name of each sweep's directory, if
    anything. `begun`: called after every sweep whose runs are valid. Failed runs are recorded, and the others
    go on."""

    words: Sequence[str]
    runs: Path | None
    config_dir: str | None = None
    title: str = ""
    begun: Callable[[], None] | None = None
    failures: list[str] = field(default_factory=list)

    def plan(self, place: Path, grids: Sequence[Grid]) -> list[PlannedRun]:
        """The runs of a stage in `place`. Writes nothing. Raises UserError."""
        with asked(self.words, grids, place, self.runs, self.config_dir) as sweep:
            return sweep.plan()

    def run(self, place: Path, grids: Sequence[Grid]) -> list[Run]:
        """Run the missing runs of a stage in `place`; return all its results."""
        if self.title:
            print(f"{self.title}: {place.name}", flush=True)
        try:
            with asked(self.words, grids, place, self.runs, self.config_dir) as sweep:
                results = sweep.run()
        finally:
            if self.begun and place.is_dir():
                self.begun()
        if line := failures(results, place):
            self.failures.append(f"{place.name}: {line}")
        return results


@dataclass(frozen=True)
class Stage:
    """Tasks that are searched together: the directory of their list, and their runs."""

    place: Path
    tasks: Sequence[Task]
    runs: TuningRuns


@dataclass
class Tuning:
    """The searches of `stages`, over `seeds`, and then the runs of what won. A winner at an edge extends its
    search at most `extensions` times.

    `finals`: told what was chosen, keeps it, and says what is run then: the directory of a list -> its grids.
    `winners`: computes these. `failures`: a line for each.
    """

    stages: Sequence[Stage]
    seeds: Sequence[int]
    finals: Callable[[Chosen], Mapping[Path, Sequence[Grid]]]
    winners: TuningRuns
    extensions: int
    failures: list[str] = field(default_factory=list)

    def forecast(self) -> Iterator[list[str]]:
        """Yield, for each stage, lines that say what it would run first, and what of it is finished. Writes
        nothing. Raises UserError if a run has invalid input."""
        for stage in self.stages:
            grids = [task.grid(values, self.seeds) for task in stage.tasks for values in task.first]
            yield [*preview(stage.runs.plan(stage.place, grids))]

    def go(self) -> dict[Path, list[Run]]:
        """Search, then run what `finals` says; return its runs by their lists. The same call goes on where
        another stopped. Raises UserError; a run that fails does not stop the others."""
        chosen: list[tuple[Task, Selection]] = []
        for stage in self.stages:
            run = partial(stage.runs.run, stage.place)
            found = search(stage.tasks, self.seeds, run, self.extensions)
            self.failures += stage.runs.failures
            for task, selection in zip(stage.tasks, found, strict=True):
                if selection is None:
                    self.failures.append(f"all runs of {task.words} failed")
                else:
                    chosen.append((task, selection))
        runs = {place: self.winners.run(place, grids) for place, grids in self.finals(chosen).items()}
        self.failures += self.winners.failures
        return runs
