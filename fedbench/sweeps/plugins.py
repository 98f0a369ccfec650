"""Our sweeper and launcher as Hydra's plugins, which `hydra/sweeper=` and `hydra/launcher=` name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hydra.core.plugins import Plugins
from hydra.plugins.sweeper import Sweeper as HydraSweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig

from fedbench.compose.composer import JobComposer, config_directories
from fedbench.compose.overrides import Grid
from fedbench.compose.register import OUR_LAUNCHER, OUR_SWEEPER
from fedbench.sweeps.execute import Result, run_all
from fedbench.sweeps.grids import of_file, said
from fedbench.sweeps.job import RunJob
from fedbench.sweeps.plan import Job, plan
from fedbench.sweeps.processes import Launcher


class Sweeper(HydraSweeper):
    """A full grid like that of Hydra's basic sweeper, with any launcher; its directory can be used again.

    With `grids` it is a union of grids: each adds its own keys to `params`, or replaces them there.
    """

    def __init__(
        self,
        max_batch_size: int | None = None,
        params: Mapping[str, Any] | None = None,
        grids: Sequence[Mapping[str, Any]] = (),
        reuse: str | Path | None = None,
    ) -> None:
        """`max_batch_size`: jobs that the launcher gets at once; `params`: overrides that stand in a file;
        `grids`: the same, one dict for each grid of the union; `reuse`: a directory, the finished runs below
        which are taken over, and those that have stopped gone on with."""
        self.max_batch_size = max_batch_size
        self.params, self.grids = dict(params or {}), [dict(grid) for grid in grids]
        self.reuse = Path(reuse) if reuse is not None else None

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Called by Hydra: make the launcher."""
        assert isinstance(task_function, RunJob)
        self.hydra_context, self.config, self.task = hydra_context, config, task_function
        self.launcher = Plugins.instance().instantiate_launcher(
            hydra_context=hydra_context, task_function=task_function, config=config
        )

    def sweep(self, arguments: list[str], grids: Sequence[Grid] = ()) -> list[Result]:
        """Run the grids with the overrides `arguments`, which count more than `params` and `grids`; typed
        `grids` stand in for those of a file.

        Raises a UserError with exit code 2 before anything is written if any job is bad input.
        """
        jobs = self.jobs(arguments, grids)
        assert self.config is not None
        assert self.launcher is not None
        return run_all(jobs, self.config, self.launcher, self.task.expect, self.reuse, self.max_batch_size)

    def jobs(self, arguments: list[str], grids: Sequence[Grid] = ()) -> list[Job]:
        """The jobs of the grids, checked, none of them run."""
        assert self.config is not None
        assert self.hydra_context is not None
        loader = self.hydra_context.config_loader
        fixed, wanted = said(self.params, arguments, grids or of_file(self.grids, loader), loader)
        composer = JobComposer(self.config, loader)
        return plan(fixed, wanted, composer, self.task.check, config_directories(self.config.hydra))


def register() -> None:
    """Make the classes known to Hydra; a second time changes nothing."""
    plugins = Plugins.instance()
    for name, cls in ((OUR_LAUNCHER, Launcher), (OUR_SWEEPER, Sweeper)):
        plugins.register(cls)
        plugins.class_name_to_class[name] = cls
