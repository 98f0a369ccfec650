"""What a paper's file declares: its figures and tables, its claims, and how far a figure is tuned at a scale.

What is run stands in conf/experiment/<name>.yaml and conf/scale/; here is only what a sweep cannot say.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fedbench.compose.overrides import Grid, Value
from fedbench.papers.claims import SCALES, Claim
from fedbench.tuning.space import Tuning, samples

SHOWN = "outputs/figures"
"""Where results are kept: `<SHOWN>/<figure>/<scale>/`. Small files, meant to be committed."""
SMOKE = "outputs/smoke"
"""Where those of scale smoke are, which only exercise the machinery: `<SMOKE>/<figure>/`. Never committed."""
RUNS = "outputs/runs"
"""Where the runs behind them are: `<RUNS>/<figure>/<scale>/<digest of what is run>/<stage>/`."""


@dataclass(frozen=True)
class Search:
    """A random search of the branches that have the choices `where` (of `algorithm` or of what their grid
    fixes): key -> values in `space`. Their final runs stand in the stage `final-<name>`. `lacks`: keys that
    are drawn without being set, so that a method without them shares the draws of one with them. `rounds`:
    of a point, by scale (absent: the figure's own); with fewer, the best `finalists` are run at the figure's
    own too (as many again, where all of these diverge), and the best of these wins."""

    name: str
    where: Mapping[str, Value]
    space: Mapping[str, Sequence[Value]]
    lacks: Sequence[str] = ()
    rounds: Mapping[str, int] = field(default_factory=dict)
    finalists: int = 2

    def points(self, count: int) -> list[dict[str, Value]]:
        """What is tried of `count` draws: each point once, without the keys that the method lacks."""
        made: list[dict[str, Value]] = []
        for drawn in samples(self.space, count):
            point = {key: value for key, value in drawn.items() if key not in self.lacks}
            made += [] if point in made else [point]
        return made


@dataclass(frozen=True)
class Figure:
    """One figure or table.

    `about`: one line on what it shows. `draw(runs, out)`: draws the sweep directory `runs` into the directory
    `out` and returns the files. `tuned`: the algorithms' grids are searched first. `search`: the branches
    that are searched at random instead. `start`: method -> key -> what scale cpu tries first of a grid,
    instead of the values nearest to the defaults. `factors`: the learning rates of the final stage are these
    multiples of each algorithm's tuned or prescribed one. `runs`: whether it has any.
    """

    name: str
    about: str
    draw: Callable[[Path, Path], Sequence[Path]]
    tuned: bool = False
    search: Sequence[Search] = ()
    start: Mapping[str, Grid] = field(default_factory=dict)
    factors: Sequence[float] = ()
    runs: bool = True

    @property
    def scales(self) -> tuple[str, ...]:
        """The scales at which it differs: without runs, only where it is kept does."""
        return SCALES if self.runs else ("smoke", "paper")


@dataclass(frozen=True)
class Paper:
    """A paper, or what belongs to several: its figures, its claims, and the picture (figure, file) that is on
    the report's first page."""

    citation: str
    figures: tuple[Figure, ...]
    claims: tuple[Claim, ...] = ()
    picture: tuple[str, str] = ("", "")


TUNING = {
    "smoke": Tuning(first=2, others=1, extensions=0, seeds=(0,), samples=2),
    "cpu": Tuning(first=4, others=2, extensions=2, seeds=(0,), samples=8),
    "paper": Tuning(first=None, others=None, extensions=2, seeds=(0, 1), samples=40),
}


def shown(name: str, scale: str, root: Path = Path()) -> Path:
    """The directory of a figure's results."""
    return root / SMOKE / name if scale == "smoke" else root / SHOWN / name / scale


def runs_of(name: str, scale: str, root: Path = Path()) -> Path:
    """Where the runs of a figure are."""
    return root / RUNS / name / scale
