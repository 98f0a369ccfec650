"""A sweep from Python: a union of typed grids over the runs of an experiment."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.utils import configure_log

from fedbench.compose import inside
from fedbench.compose.composer import Composer
from fedbench.compose.overrides import Grid, recorded, written
from fedbench.sweeps.execute import Result
from fedbench.sweeps.job import RunJob
from fedbench.sweeps.plugins import Sweeper, register


def sweep(
    overrides: Sequence[str],
    grids: Sequence[Grid],
    directory: Path,
    reuse: Path | None = None,
    config_dir: str | None = None,
) -> list[Result]:
    """Run the union of `grids` below `directory`; what is there already is not run again.

    `overrides`: what all runs have in common, as on the command line (`hydra/launcher=processes` among them).
    `grids`: over the `params` of an experiment's file; without any, that file's. `reuse`: a directory, the
    finished runs below which are taken over, and those that have stopped gone on with. `config_dir`: the
    user's own options. A failed run does not stop the others. Raises UserError before anything is written if
    any run is bad input. Leaves Hydra as it was.
    """
    before = GlobalHydra.instance().hydra
    try:
        composer = Composer(config_dir=config_dir)
        place = f"hydra.sweep.dir={written(str(directory))}"
        cfg = composer.compose([*overrides, "hydra.mode=MULTIRUN", place]).cfg
        register()
        HydraConfig.instance().set_config(cfg)
        context = inside.context(composer.loader, cfg)
        node = cfg.hydra.sweeper
        sweeper = Sweeper(None, node.get("params"), node.get("grids") or (), reuse)
        sweeper.setup(hydra_context=context, task_function=RunJob(), config=cfg)
        configure_log(cfg.hydra.hydra_logging, cfg.hydra.verbose)
        with composer.one_line(overrides):
            return sweeper.sweep(recorded(cfg, "task"), grids)
    finally:
        GlobalHydra.instance().hydra = before
