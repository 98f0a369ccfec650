"""What an experiment's files say: its base configuration, and the branches of its sweep."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from omegaconf import OmegaConf

from fedbench.compose.composer import compose
from fedbench.compose.overrides import Grid, Value
from fedbench.config.identity import ABSENT_AT_DEFAULT, digest, flat, identity
from fedbench.config.paths import conf_dir
from fedbench.errors import word
from fedbench.papers.figure import TUNING, Figure, Search
from fedbench.sweeps.plan import of_file

Fixed = Mapping[str, Value]


@dataclass(frozen=True)
class Branch:
    """One algorithm in one context: `context` holds fixed keys, `along` those swept when it is not tuned,
    `search` how it is searched at random, if it is."""

    algorithm: str
    context: Fixed
    along: Grid = field(default_factory=dict)
    search: Search | None = None

    @property
    def method(self) -> str:
        """The algorithm's name, with its estimator where it has one."""
        return "-".join(map(str, filter(None, (self.algorithm, self.context.get("algorithm.estimator")))))

    @property
    def stage(self) -> str:
        """The directory of its final runs: shared by branches of one search or swept along the same keys."""
        searched = [self.search.name] if self.search else []
        return "-".join(["final", *searched, *(key.split(".")[-1] for key in sorted(self.along))])

    def is_same_task(self, other: Branch) -> bool:
        """Whether both are tuned together."""
        return self.algorithm == other.algorithm and self.context == other.context


@dataclass(frozen=True)
class Experiment:
    """A figure at a scale: the choices of its configuration, the whole sweep's grid, its branches."""

    figure: Figure
    scale: str
    base: Fixed
    params: Grid
    branches: tuple[Branch, ...]

    @property
    def digest(self) -> str:
        """Twelve digits that change whenever the figure's configuration, grids or way of tuning change.

        Values of grids enter as an override writes them, as in all results kept so far.
        """
        algorithms = {branch.algorithm: _older(algorithm_file(branch.algorithm)) for branch in self.branches}
        params = {key: _said(values) for key, values in self.params.items()}
        branches = [
            [
                branch.algorithm,
                {key: _word(value) for key, value in branch.context.items()},
                {key: _said(values) for key, values in branch.along.items()},
            ]
            for branch in self.branches
        ]
        tuning = dataclasses.asdict(TUNING[self.scale])
        how = [tuning | {"seeds": _said(tuning["seeds"])}] if self.figure.tuned or self.figure.search else []
        how += [dict(self.start)] if self.start else []
        search = {one.name + str(dict(one.where)): _said_of(one, self.scale) for one in self.figure.search}
        factors = list(self.figure.factors)
        return digest([identity(self.base), params, branches, algorithms, how, search, factors])

    @property
    def stand_ins(self) -> str:
        """At scale smoke, what is run in place of the paper's data and model: `dataset=digits, model=mlp`."""
        swapped = [f"{key}={self.params[key][0]}" for key in ("dataset", "model") if key in self.params]
        return ", ".join(swapped) if self.scale == "smoke" else ""

    @property
    def start(self) -> Mapping[str, Grid]:
        """Method -> what its figure tries first of its grid."""
        return self.figure.start if self.scale == "cpu" else {}

    def tuned_keys(self, branch: Branch) -> dict[str, list[Value]]:
        """The grid of a branch, as in its algorithm's file; empty where nothing is tuned."""
        grid = algorithm_file(branch.algorithm).get("grid") or {} if self.figure.tuned else {}
        return {f"algorithm.{key}": list(values) for key, values in grid.items()}

    def pinned(self) -> Fixed:
        """Keys that the whole sweep varies, at their values in the base configuration: those of tuning."""
        return {
            key: self.base.get(key)
            for key, values in self.params.items()
            if len(values) > 1 and key not in ("algorithm", "seed") and not key.startswith("algorithm.")
        }


def experiment(figure: Figure, scale: str) -> Experiment:
    """Compose conf/experiment/<figure>.yaml at a scale."""
    cfg = compose([f"experiment={figure.name}", f"scale={scale}"]).cfg
    node: Any = OmegaConf.to_container(cfg.hydra.sweeper, resolve=True)
    base, (params, *grids) = flat(cfg), of_file([node["params"], *(node["grids"] or [{}])])
    branches = []
    for grid in grids:
        whole = {
            key: values for key, values in {**params, **grid}.items() if key not in ("algorithm", "seed")
        }
        along = {key: values for key, values in whole.items() if len(values) > 1}
        context = {key: values[0] for key, values in grid.items() if key in whole and key not in along}
        for name in map(str, {**params, **grid}.get("algorithm", [base["algorithm"]])):
            choices = {**context, "algorithm": name}
            search = next((one for one in figure.search if one.where.items() <= choices.items()), None)
            branches.append(Branch(name, context, along, search))
    return Experiment(figure, scale, base, params, tuple(branches))


def algorithm_file(name: str) -> dict[str, Any]:
    """A method's settings in conf/algorithm, and under "grid" its values to try in conf/grid.

    Keys younger than results that are kept are left out at their defaults.
    """
    settings = _content("algorithm", name)
    for key, value in ABSENT_AT_DEFAULT.items():
        own = key.removeprefix("algorithm.")
        if own in settings and settings[own] == value:
            del settings[own]
    return {**settings, "grid": _content("grid", name)}


def _content(group: str, name: str) -> dict[str, Any]:
    file = conf_dir() / group / f"{name}.yaml"
    content = OmegaConf.to_container(OmegaConf.load(file)) if file.exists() else {}
    assert isinstance(content, dict)
    return {str(key): value for key, value in content.items()}


def _older(content: Mapping[str, Any]) -> dict[str, Any]:
    """The content without keys that say what results older than the keys were made with."""
    return {k: v for k, v in content.items() if ABSENT_AT_DEFAULT.get(f"algorithm.{k}", ...) != v}


def _said_of(search: Search, scale: str) -> list[Any]:
    """What a random search is, of those with fewer rounds than the figure their finalists too."""
    rounds = search.rounds.get(scale)
    return [dict(search.space), *search.lacks, rounds, *([search.finalists] if rounds else [])]


def _said(values: Sequence[Value]) -> str:
    return ",".join(map(_word, values))


def _word(value: Value) -> str:
    return f"{value:.9g}" if isinstance(value, float) else word(value)
