"""The figures and tables, by name: which are drawn from runs, how those are tuned, and who draws them.

What is run stands in conf/experiment/<name>.yaml and conf/scale/; here is only what a sweep cannot say.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fedbench.errors import ConfigError
from fedbench.experiments import draw

SCALES = ("smoke", "cpu", "paper")
SHOWN = "outputs/figures"
"""Where results are kept: `<SHOWN>/<figure>/<scale>/`. Small files, meant to be committed."""
RUNS = "outputs/runs"
"""Where the runs behind them are: `<RUNS>/<figure>/<scale>/<digest of what is run>/<stage>/`."""


@dataclass(frozen=True)
class Figure:
    """One figure or table.

    `about`: one line on what it shows. `draw(runs, out)`: draws the sweep directory `runs` (None: no runs are
    needed) into the directory `out` and returns the files. `tuned`: the algorithms' grids are searched first.
    `search`: method -> key -> values for a random search instead of a grid; a method is an algorithm's name,
    for fedproxvr with its estimator (`fedproxvr-svrg`). `factors`: the learning rates of the final stage are
    these multiples of each algorithm's tuned or prescribed one.
    """

    name: str
    about: str
    draw: Callable[[Path, Path], Sequence[Path]]
    tuned: bool = False
    search: Mapping[str, Mapping[str, Sequence[object]]] = field(default_factory=dict)
    factors: Sequence[float] = ()
    runs: bool = True


@dataclass(frozen=True)
class Tuning:
    """How far a grid is searched at a scale.

    `first`, `others`: values of the first key (the learning rate) and of each other key that are tried at
    first, those nearest to the default. `extensions`: how often a winner at the edge of what was tried moves
    the search on, within the grid and beyond it. `seeds`: seeds that selection averages over. `samples`: of a
    random search.
    """

    first: int | None
    others: int | None
    extensions: int
    seeds: str
    samples: int


TUNING = {
    "smoke": Tuning(first=2, others=1, extensions=0, seeds="0", samples=2),
    "cpu": Tuning(first=4, others=2, extensions=2, seeds="0", samples=8),
    "paper": Tuning(first=None, others=None, extensions=2, seeds="0,1", samples=40),
}

_PROX: Mapping[str, Sequence[object]] = {
    "algorithm.beta": (5, 7, 9, 10, 15),
    "algorithm.mu": (0, 0.01, 0.1),
    "local.steps": (10, 20),
    "local.batch_size": (16, 32),
}
_AVG: Mapping[str, Sequence[object]] = {
    "algorithm.lr": (0.003, 0.01, 0.03, 0.1, 0.3),
    "local.steps": (10, 20),
    "local.batch_size": (16, 32),
}
_TABLE = {"fedavg": _AVG, "fedproxvr-svrg": _PROX, "fedproxvr-sarah": _PROX}

_ALL = (
    Figure(
        "padamfed/fig1",
        "Accuracy against rounds, EMNIST, iid and Dirichlet(1)",
        draw.by_split,
        tuned=True,
    ),
    Figure(
        "padamfed/fig2",
        "Accuracy against the step size, EMNIST, iid and Dirichlet(1)",
        draw.by_step_size,
        tuned=True,
    ),
    Figure(
        "padamfed/rnn_lr",
        "Accuracy against the learning rate, three-layer RNN, Dirichlet(1)",
        draw.by_lr,
        tuned=True,
    ),
    Figure(
        "padamfed/cifar10",
        "Accuracy against rounds, CIFAR-10, ResNet-18, Dirichlet(0.5)",
        draw.by_rounds,
        tuned=True,
    ),
    Figure(
        "adamasfl/fig1",
        "Accuracy against server updates and time, Fashion-MNIST, asynchronous",
        draw.by_updates,
        tuned=True,
    ),
    Figure(
        "adamasfl/fig2",
        "Accuracy under growing asynchrony M_c",
        draw.by_concurrency,
        tuned=True,
    ),
    Figure(
        "fedproxvr/beta_tau",
        "Effect of beta and of tau, convex and non-convex",
        draw.by_beta_tau,
    ),
    Figure(
        "fedproxvr/mu",
        "Effect of mu on synthetic(0, 0)",
        draw.by_mu,
    ),
    Figure(
        "fedproxvr/table1",
        "Best hyper-parameters, accuracy and T, convex",
        draw.best_table,
        search=_TABLE,
    ),
    Figure(
        "fedproxvr/table2",
        "Best hyper-parameters, accuracy and T, non-convex",
        draw.best_table,
        search=_TABLE,
    ),
    Figure(
        "speedup",
        "Mean gradient norm against S K T, with the theorems' slopes",
        draw.by_work,
    ),
    Figure(
        "loss_scale",
        "Accuracy against a factor on the loss, tuned at factor 1",
        draw.by_loss_scale,
        tuned=True,
    ),
    Figure(
        "lr_relative",
        "Accuracy against the learning rate relative to the best one",
        draw.by_relative_lr,
        tuned=True,
        factors=draw.FACTORS,
    ),
    Figure(
        "theory/optimum",
        "FedProxVR's optimal parameters against gamma",
        draw.optimum,
        runs=False,
    ),
    Figure(
        "theory/stepsizes",
        "Prescribed step sizes against T, S and K",
        draw.stepsizes,
        runs=False,
    ),
    Figure(
        "theory/comparison",
        "The papers' comparison tables",
        draw.comparison,
        runs=False,
    ),
)
FIGURES = {item.name: item for item in _ALL}


def figure(name: str) -> Figure:
    """The figure of that name. Raises ConfigError."""
    if name not in FIGURES:
        raise ConfigError("figure", name, f"must be one of {', '.join(FIGURES)}", FIGURES)
    return FIGURES[name]


def shown(name: str, scale: str, root: Path = Path()) -> Path:
    """The directory of a figure's results."""
    return root / SHOWN / name / scale


def runs_of(name: str, scale: str, root: Path = Path()) -> Path:
    """Where the runs of a figure are."""
    return root / RUNS / name / scale
