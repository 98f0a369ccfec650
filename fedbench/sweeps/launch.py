"""Sweeps requested by a command line, a script or another package of fedbench, run by the sweeper and the
launcher that they name."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hydra.core.hydra_config import HydraConfig
from hydra.core.plugins import Plugins
from hydra.core.utils import configure_log
from hydra.types import RunMode
from omegaconf import OmegaConf

from fedbench import process_group
from fedbench.config.compose import Composed, Composer, composing
from fedbench.config.config import Config
from fedbench.config.identity import RUNS
from fedbench.config.overrides import Grid, recorded, written
from fedbench.config.register import JOB_DIR, OUR_LAUNCHER, OUR_SWEEPER, SWEEP_DIR
from fedbench.errors import ConfigError
from fedbench.sweeps.job import RunJob
from fedbench.sweeps.launcher import Launcher
from fedbench.sweeps.sweeper import Result as Result
from fedbench.sweeps.sweeper import Sweeper

Places = list[tuple[Path, Config]]
"""Directory and configuration of every planned run."""


@dataclass(frozen=True)
class FinishedSweep:
    """A finished sweep: its directory and its results."""

    directory: Path
    results: Sequence[Result]

    @property
    def failures(self) -> list[str]:
        """The errors of failed runs."""
        return [result.error or "failed" for result in self.results if result.status == "failed"]


def run_sweep(
    composer: Composer,
    composed: Composed,
    chooses: bool = False,
    grids: Sequence[Grid] = (),
    runs: Path | None = None,
) -> FinishedSweep:
    """Run the composed sweep; a failed run does not stop the others. `chooses`: whether worker processes may
    be started unasked, which can break scripts and notebooks. `grids`, `runs`: see `sweep`.

    Raises UserError before anything is written if any run has invalid input.
    """
    process_group.refuse_several("a sweep")
    chosen, words = _prepare(composer, composed)
    cfg = composed.cfg
    chosen.chooses, chosen.typed, chosen.runs = chooses, grids, runs or chosen.runs
    configure_log(cfg.hydra.hydra_logging, cfg.hydra.verbose)
    try:
        with composer.one_line(words):
            results = chosen.sweep(arguments=words)
    except KeyboardInterrupt:
        line = f"stopped; the same command goes on with what is missing in {cfg.hydra.sweep.dir}"
        print(line, file=sys.stderr)
        raise
    return FinishedSweep(Path(str(cfg.hydra.sweep.dir)), results)


def planned(
    composer: Composer, composed: Composed, grids: Sequence[Grid] = (), runs: Path | None = None
) -> Places:
    """The checked runs of the composed sweep, none of them started. Raises UserError."""
    chosen, words = _prepare(composer, composed)
    chosen.typed, chosen.runs = grids, runs or chosen.runs
    with composer.one_line(words):
        return chosen.planned_places(words)


def first_run(composer: Composer, composed: Composed) -> tuple[Composed, list[Grid]]:
    """The first run of the composed sweep by itself, and all grids. Reads no data. Raises UserError."""
    chosen, words = _prepare(composer, composed)
    with composer.one_line(words):
        overrides, grids = chosen.first(words)
    ours = [str(item.input_line) for item in composed.parsed if item.is_hydra_override()]
    return composer.read([*ours, *overrides]), grids


def _prepare(composer: Composer, composed: Composed) -> tuple[Sweeper, list[str]]:
    """The composed sweeper with its directory set, and the overrides of its task. Raises ConfigError for
    another package's sweeper."""
    cfg = composed.cfg
    if (name := cfg.hydra.runtime.choices.get("hydra/sweeper")) != "fedbench":
        allowed = "must be fedbench; `fedbench tune --search optuna` searches"
        raise ConfigError("hydra/sweeper", name, allowed)
    OmegaConf.set_readonly(cfg.hydra, False)
    cfg.hydra.mode = RunMode.MULTIRUN
    cfg.hydra.overrides.task = [item.input_line for item in composed.parsed if not item.is_hydra_override()]
    HydraConfig.instance().set_config(cfg)
    words = recorded(cfg, "task")
    sweep = cfg.hydra.sweep
    given = [sweep._get_node(name)._value() for name in ("dir", "subdir")] != [SWEEP_DIR, JOB_DIR]
    with composer.one_line(words):
        directory = str(sweep.dir)
    OmegaConf.set_readonly(cfg.hydra, False)
    cfg.hydra.sweep.dir = directory
    cfg.hydra.overrides.hydra += ["hydra.mode=MULTIRUN", f"hydra.sweep.dir={written(directory)}"]
    plugins, context = Plugins.instance(), composer.context()
    for name, cls in ((OUR_LAUNCHER, Launcher), (OUR_SWEEPER, Sweeper)):  # repeating it changes nothing
        plugins.register(cls)
        plugins.class_name_to_class[name] = cls
    chosen = plugins.instantiate_sweeper(config=cfg, hydra_context=context, task_function=RunJob())
    assert isinstance(chosen, Sweeper)
    if not given:
        chosen.runs = Path(RUNS)
    return chosen, words


# ---- from Python -----------------------------------------------------------------------------------------


def sweep(
    overrides: Sequence[str],
    grids: Sequence[Grid],
    directory: Path,
    runs: Path | None = None,
    config_dir: str | None = None,
) -> list[Result]:
    """Run the union of typed `grids` below `directory`; runs that have finished there are not run again.

    `overrides`: those of all runs, as on the command line (`hydra/launcher=processes` among them). `grids`:
    applied over the `params` of an experiment's file; if empty, that file's. `runs`: where the runs lie that
    the sweep lists, and where those of other sweeps are found (None: below `directory`). `config_dir`: the
    user's own options. A failed run does not stop the others.
    Raises UserError before anything is written if any run has invalid input. Leaves Hydra as it was.
    """
    with composing(config_dir) as composer:
        composed = composer.read(_words(overrides, directory))
        return [*run_sweep(composer, composed, False, grids, runs).results]


def sweep_planned(
    overrides: Sequence[str],
    grids: Sequence[Grid],
    directory: Path,
    runs: Path | None = None,
    config_dir: str | None = None,
) -> Places:
    """What `planned` returns for such a sweep."""
    with composing(config_dir) as composer:
        return planned(composer, composer.read(_words(overrides, directory)), grids, runs)


def _words(overrides: Sequence[str], directory: Path) -> list[str]:
    ours = [text for text in overrides if not text.startswith("hydra/sweeper=")]
    return [*ours, f"hydra.sweep.dir={written(str(directory))}"]
