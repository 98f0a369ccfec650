"""What an experiment's files say: its base configuration, and the branches of its sweep."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from omegaconf import DictConfig, OmegaConf

from fedbench.config.identity import digest, flat, identity
from fedbench.config.overrides import swept
from fedbench.config.paths import conf_dir
from fedbench.papers.figure import TUNING, Figure
from fedbench.sweeps.composed import composed

Grid = dict[str, str]


@dataclass(frozen=True)
class Branch:
    """One algorithm in one context: `context` holds fixed keys, `along` those swept when it is not tuned."""

    algorithm: str
    context: Grid
    along: Grid = field(default_factory=dict)

    @property
    def method(self) -> str:
        """The algorithm's name, with its estimator where it has one."""
        return "-".join(filter(None, (self.algorithm, self.context.get("algorithm.estimator"))))

    @property
    def stage(self) -> str:
        """The directory of its final runs: branches swept along the same keys share one."""
        return "-".join(["final", *(key.split(".")[-1] for key in sorted(self.along))])

    def is_same_task(self, other: Branch) -> bool:
        """Whether both are tuned together."""
        return self.algorithm == other.algorithm and self.context == other.context


@dataclass(frozen=True)
class Experiment:
    """A figure at a scale, composed."""

    figure: Figure
    scale: str
    cfg: DictConfig
    params: Grid
    branches: tuple[Branch, ...]

    @property
    def digest(self) -> str:
        """Twelve digits that change whenever the figure's configuration, grids or way of tuning change."""
        algorithms = {branch.algorithm: algorithm_file(branch.algorithm) for branch in self.branches}
        said = [[b.algorithm, b.context, b.along] for b in self.branches]
        how = [dataclasses.asdict(TUNING[self.scale])] if self.figure.tuned or self.figure.search else []
        search = {method: {k: list(v) for k, v in s.items()} for method, s in self.figure.search.items()}
        choices = identity(flat(self.cfg))
        return digest([choices, self.params, said, algorithms, how, search, list(self.figure.factors)])

    def tuned_keys(self, branch: Branch) -> dict[str, list[Any]]:
        """The grid of a branch, as in its algorithm's file; empty where nothing is tuned."""
        grid = algorithm_file(branch.algorithm).get("grid") or {} if self.figure.tuned else {}
        return {f"algorithm.{key}": list(values) for key, values in grid.items()}

    def pinned(self) -> Grid:
        """Keys that the whole sweep varies, at their values in the base configuration: those of tuning."""
        return {
            key: word(OmegaConf.select(self.cfg, key))
            for key, value in self.params.items()
            if _several(key, value) and key not in ("algorithm", "seed") and not key.startswith("algorithm.")
        }


def experiment(figure: Figure, scale: str) -> Experiment:
    """Compose conf/experiment/<figure>.yaml at a scale."""
    cfg = composed([f"experiment={figure.name}", f"scale={scale}"], hydra_node=True)
    node: Any = OmegaConf.to_container(cfg.hydra.sweeper, resolve=True)
    params = {key: word(value) for key, value in node["params"].items()}
    branches = []
    for given in node["grids"] or [{}]:
        grid = {key: word(value) for key, value in given.items()}
        names = {**params, **grid}.get("algorithm", cfg.algorithm.name)
        varied = {k: v for k, v in {**params, **grid}.items() if _several(k, v)}
        along = {k: v for k, v in varied.items() if k not in ("algorithm", "seed")}
        context = {k: v for k, v in grid.items() if k not in ("algorithm", "seed") and k not in along}
        branches += [Branch(name.strip(), context, along) for name in names.split(",")]
    return Experiment(figure, scale, cfg, params, tuple(branches))


def algorithm_file(name: str) -> dict[str, Any]:
    """The content of conf/algorithm/<name>.yaml."""
    content = OmegaConf.to_container(OmegaConf.load(conf_dir() / "algorithm" / f"{name}.yaml"))
    assert isinstance(content, dict)
    return {str(key): value for key, value in content.items()}


def word(value: Any) -> str:
    """A value as an override writes it."""
    if isinstance(value, float):
        return f"{value:.9g}"
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def grids_override(grids: Sequence[Mapping[str, str]]) -> str:
    """`hydra.sweeper.grids=[{...}]` in Hydra's grammar."""
    distinct = dict.fromkeys(tuple(grid.items()) for grid in grids)
    texts = ("{" + ",".join(f"{key}:'{value}'" for key, value in grid) + "}" for grid in distinct)
    return f"hydra.sweeper.grids=[{','.join(texts)}]"


def _several(key: str, value: str) -> bool:
    return key in swept([f"{key}={value}"])
