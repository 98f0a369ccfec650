"""What a paper's file declares (figures, tables, claims, how far a figure is tuned), and what the files of a
figure's experiment say: its base configuration and the branches of its sweep.

conf/experiment/<name>.yaml and conf/scale/ define the runs. This module has only what a sweep cannot express.
"""

from __future__ import annotations

import dataclasses
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
from omegaconf import OmegaConf

from fedbench.config.compose import compose
from fedbench.config.config import flat
from fedbench.config.identity import digest, identity
from fedbench.config.options import conf_dir
from fedbench.config.overrides import Grid, Value, first_values, parse, typed, written
from fedbench.config.places import CHANGED, SHOWN, SMOKE, SWEEPS
from fedbench.errors import ConfigError
from fedbench.files import write_text
from fedbench.papers.claims import Claim
from fedbench.papers.evidence import SCALES, runs_in
from fedbench.sweeps.plan import of_file
from fedbench.tuning.search import Effort, draws
from fedbench.tuning.tune import write_table

TUNING = {
    "smoke": Effort(first=2, others=1, extensions=0, seeds=(0,), samples=2),
    "cpu": Effort(first=4, others=2, extensions=2, seeds=(0,), samples=8),
    "paper": Effort(first=None, others=None, extensions=2, seeds=(0, 1), samples=40),
}
SEARCHED = 100
"""Offset added to the seeds of an `Effort`, so that no seed that chooses hyper-parameters is evaluated."""


def shown(name: str, scale: str, root: Path = Path(), changed: Sequence[str] = ()) -> Path:
    """The directory of a figure's results. `changed`: the settings of one's own that it is made with."""
    if changed:
        return root / CHANGED / name / scale / re.sub(r"[^\w.=,+-]+", "_", " ".join(changed))
    return root / SMOKE / name if scale == "smoke" else root / SHOWN / name / scale


def lists_of(name: str, scale: str, root: Path = Path()) -> Path:
    """The directory of a figure's sweeps."""
    return root / SWEEPS / name / scale


def command(name: str, scale: str, changed: Sequence[str] = ()) -> str:
    """The command line that makes a figure again."""
    return shlex.join(["scripts/figures", name, "--scale", scale, *changed])


# ---- what a paper's file declares ----------------------------------------------------------------------


@dataclass(frozen=True)
class Search:
    """A random search over `space` (key -> values) for branches that have the choices `where`: their
    `algorithm` or keys that their grid fixes. Their final runs are in the stage `final-<name>`. `lacks`: keys
    that are drawn but not set, so that a method without them shares the draws of one with them. `unless`:
    keys that a branch must not fix to have this search. `task`: a figure on whose first task with the same
    schedule the values are chosen, so that nothing of this figure's own task is used; empty: on its own."""

    name: str
    where: Mapping[str, Value]
    space: Mapping[str, Sequence[Value]]
    lacks: Sequence[str] = ()
    unless: Sequence[str] = ()
    task: str = ""

    def points(self, count: int) -> list[dict[str, Value]]:
        """The points to try of `count` draws: each point once, without the keys that the method lacks."""
        made: list[dict[str, Value]] = []
        for drawn in draws(self.space, count):
            point = {key: value for key, value in drawn.items() if key not in self.lacks}
            made += [] if point in made else [point]
        return made


@dataclass(frozen=True)
class Figure:
    """One figure or table.

    `about`: one line on what it shows. `draw(out)`: draws the runs whose tables are in the directory
    `out` into it and returns the files. `tuned`: the algorithms' grids are searched first. `search`:
    random searches that replace the grid for some branches. `start`: method -> key -> values of a grid that
    are tried first with the effort of scale cpu, instead of those nearest to the defaults. `few`: at scale
    paper too it is tuned with the effort of scale cpu (PAdaMFed's Figure 1: all grids would take 924 runs, 45
    minutes of an H200; a few points, extended at edges, took 18). `factors`: the learning rates of the final
    stage are these multiples of each algorithm's tuned or prescribed one. `panels`: figures with runs of
    their own that are made with it. `runs`: whether the figure needs runs.
    """

    name: str
    about: str
    draw: Callable[[Path], Sequence[Path]]
    tuned: bool = False
    search: Sequence[Search] = ()
    start: Mapping[str, Grid] = field(default_factory=dict)
    few: bool = False
    factors: Sequence[float] = ()
    panels: Sequence[str] = ()
    runs: bool = True

    @property
    def scales(self) -> tuple[str, ...]:
        """The scales at which it is made. Without runs, these differ only in where the figure is kept."""
        return SCALES if self.runs else ("smoke", "paper")


@dataclass(frozen=True)
class Paper:
    """A paper, or what belongs to several papers: its title, figures and claims. `first`: what a reader asks
    first: names of its claims, each with the figure that is shown beside it."""

    name: str
    title: str
    figures: tuple[Figure, ...]
    claims: tuple[Claim, ...] = ()
    first: Mapping[str, str] = field(default_factory=dict)

    @property
    def headlines(self) -> list[tuple[Claim, str]]:
        """The claims that come first, and the figure beside each."""
        named = {claim.name: claim for claim in self.claims}
        return [(named[name], figure) for name, figure in self.first.items()]


def picture(
    out: Path,
    name: str,
    x: str,
    stages: Sequence[str] = (),
    y: str = "final_accuracy",
    notes: Sequence[str] = (),
    **options: Any,
) -> list[Path]:
    """Draw `y` against `x` of the runs in `out`, of these `stages` or all, as `<out>/<name>.*`. Returns the
    files.

    `notes`: sentences for the caption. `options`: those of `PlotOptions`. With `rows` the figure is two
    columns wide.
    """
    from fedbench.figures.drawing import draw_results  # Matplotlib is not loaded before a figure is drawn
    from fedbench.figures.lines import PlotOptions

    width = "two" if options.get("rows") else "one"
    asked = PlotOptions(x, y, width=width, **options)
    return draw_results(runs_in(out, *stages), [out], asked, notes).save(out / name)


def save_table(table: pd.DataFrame, out: Path, name: str, *texts: str) -> list[Path]:
    """Write a table as `<out>/<name>.csv`, and in Markdown with paragraphs of text below it as `.md`. Return
    both files."""
    files = [out / f"{name}.csv", out / f"{name}.md"]
    write_table(files[0], table)
    write_text(files[1], "\n\n".join([markdown(table).rstrip(), *texts]) + "\n")
    return files


def markdown(table: pd.DataFrame) -> str:
    """A table in Markdown, with floats to four digits."""
    lines = [list(map(str, table.columns)), ["---"] * len(table.columns)]
    lines += [[_cell(value) for value in row] for row in table.itertuples(index=False)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def _cell(value: object) -> str:
    if value is None or (isinstance(value, float) and pd.isna(value)):
        return ""
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    return text.replace("|", "\\|").replace("\n", " ")


# ---- what the files of its experiment say ----------------------------------------------------------------


@dataclass(frozen=True)
class MethodRuns:
    """One algorithm in one context. `context`: fixed keys; `along`: keys that its final runs sweep; `search`:
    its random search, if it has one."""

    algorithm: str
    context: Mapping[str, Value]
    along: Grid = field(default_factory=dict)
    search: Search | None = None

    @property
    def method(self) -> str:
        """The algorithm's name, with its estimator where it has one."""
        return "-".join(map(str, filter(None, (self.algorithm, self.context.get("algorithm.estimator")))))

    @property
    def elsewhere(self) -> str:
        """The figure on whose task its values are chosen; empty: on its own."""
        return self.search.task if self.search else ""

    @property
    def stage(self) -> str:
        """The directory of its final runs; branches with the same search and swept keys share it."""
        searched = [self.search.name] if self.search else []
        return "-".join(["final", *searched, *(key.split(".")[-1] for key in sorted(self.along))])

    @property
    def named(self) -> dict[str, Value]:
        """What sets its search apart. Branches of the same name are tuned together."""
        search: dict[str, Value] = {"search": self.search.name} if self.search else {}
        return {**search, "algorithm": self.algorithm, **self.context}


@dataclass(frozen=True)
class Experiment:
    """A figure at a scale: the choices of its configuration, the whole sweep's grid, its branches, and what
    the user changed in all of them: as words, and as key -> values."""

    figure: Figure
    scale: str
    base: Mapping[str, Value]
    params: Grid
    branches: tuple[MethodRuns, ...]
    changed: tuple[str, ...] = ()
    own: Grid = field(default_factory=dict)

    @property
    def digest(self) -> str:
        """Twelve hexadecimal digits that change with the figure's configuration, its grids and its tuning."""
        figure, searches = self.figure, []
        for one in figure.search:
            said: list[Any] = [one.name, one.where, one.space, one.lacks]
            said += [one.unless] if one.unless or one.task else []
            if one.task:  # that figure's configuration, and its first task
                other, choices = self.elsewhere(one.task, str(self.base["schedule"]))
                said += [identity(other.base), choices]
            searches.append(said)
        return digest(
            {
                "base": identity(self.base),
                "params": self.params,
                "branches": [[branch.algorithm, branch.context, branch.along] for branch in self.branches],
                "grids": [self.tuned_keys(branch) for branch in self.branches],
                "tuning": dataclasses.asdict(TUNING[self.effort]) if figure.tuned or figure.search else None,
                "start": self.start,
                "searches": searches,
                "factors": figure.factors,
            }
        )

    @property
    def start(self) -> Mapping[str, Grid]:
        """Method -> the values of its grid that the figure tries first; empty unless the effort is cpu's, and
        the user has changed none of its keys."""
        started = {key for grid in self.figure.start.values() for key in grid}
        return self.figure.start if self.effort == "cpu" and not started & set(self.own) else {}

    @property
    def effort(self) -> str:
        """The scale whose tuning effort it uses."""
        return "cpu" if self.figure.few and self.scale == "paper" else self.scale

    def tuned_keys(self, branch: MethodRuns) -> dict[str, list[Value]]:
        """The grid of a branch, from the file of its algorithm in conf/grid; empty if nothing is tuned."""
        grid = algorithm_file(branch.algorithm)["grid"] if self.figure.tuned else {}
        found = {f"algorithm.{key}": list(values) for key, values in grid.items()}
        return {key: values for key, values in found.items() if key not in self.own}

    def elsewhere(self, task: str, schedule: str) -> tuple[Experiment, dict[str, Value]]:
        """The experiment of the figure `task` at this scale, and the choices of its first task under a
        schedule, without those of the method."""
        other = experiment(dataclasses.replace(self.figure, name=task, search=()), self.scale)
        usual = other.base["schedule"]
        first = next(one for one in other.branches if one.context.get("schedule", usual) == schedule)
        return other, {key: value for key, value in first.context.items() if not key.startswith("algorithm")}

    def pinned(self) -> dict[str, Value]:
        """Keys that the whole sweep varies, at their base values, which tuning uses."""
        return {
            key: self.base.get(key)
            for key, values in self.params.items()
            if len(values) > 1 and key not in ("algorithm", "seed") and not key.startswith("algorithm.")
        }


def experiment(figure: Figure, scale: str, changed: Sequence[str] = ()) -> Experiment:
    """Compose conf/experiment/<figure>.yaml at a scale. `changed`: overrides, which replace what the figure
    says of their keys. Raises UserError if one is wrong."""
    parsed = parse(changed)
    own = {str(one.key_or_group): typed(one) for one in parsed}
    for key in {key for search in figure.search for key in search.space} & set(own):
        raise ConfigError(
            key, ",".join(map(written, own[key])), f"is searched by {figure.name}: leave it out"
        )
    composed = compose([f"experiment={figure.name}", f"scale={scale}", *first_values(parsed)])
    if changed:
        _ = composed.config  # a wrong key or value is refused before anything is written
    cfg = composed.cfg
    node: Any = OmegaConf.to_container(cfg.hydra.sweeper, resolve=True)
    base, (params, *grids) = flat(cfg), of_file([node["params"], *(node["grids"] or [{}])])
    params = {**params, **own}
    branches = []
    for grid in grids:
        grid = {key: values for key, values in grid.items() if key not in own}
        whole = {**params, **grid}
        names = map(str, whole.pop("algorithm", [base["algorithm"]]))
        along = {key: values for key, values in whole.items() if len(values) > 1 and key != "seed"}
        context = {key: values[0] for key, values in grid.items() if key not in ("algorithm", "seed", *along)}
        for name in names:
            choices = {**context, "algorithm": name}
            search = next((one for one in figure.search if one.where.items() <= choices.items()
                           and not set(one.unless) & set(choices)), None)  # fmt: skip
            branches.append(MethodRuns(name, context, along, search))
    return Experiment(figure, scale, base, params, tuple(branches), tuple(changed), own)


def algorithm_file(name: str) -> dict[str, Any]:
    """A method's settings in conf/algorithm, and under "grid" its values to try in conf/grid."""
    return {**_content("algorithm", name), "grid": _content("grid", name)}


def _content(group: str, name: str) -> dict[str, Any]:
    file = conf_dir() / group / f"{name}.yaml"
    content = OmegaConf.to_container(OmegaConf.load(file)) if file.exists() else {}
    assert isinstance(content, dict)
    return {str(key): value for key, value in content.items()}
