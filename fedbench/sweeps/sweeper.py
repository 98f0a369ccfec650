"""fedbench's sweeper: all jobs are checked before the first starts, and only what is missing is run."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.config_store import ConfigStore
from hydra.core.plugins import Plugins
from hydra.core.utils import JobReturn, JobStatus
from hydra.plugins.sweeper import Sweeper as HydraSweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf

from fedbench.config.overrides import parse
from fedbench.config.stored_run import finished
from fedbench.sweeps.collect import collect, write_manifest
from fedbench.sweeps.compose import user_directories
from fedbench.sweeps.estimate import seconds
from fedbench.sweeps.job import OUR_SWEEPER
from fedbench.sweeps.names import JOB_DIR
from fedbench.sweeps.plan import Job, plan
from fedbench.sweeps.processes import OUR_LAUNCHER, Launcher, LauncherConfig
from fedbench.sweeps.progress import duration
from fedbench.sweeps.reuse import Finished

log = logging.getLogger(__name__)


@dataclass
class SweeperConfig:
    """hydra.sweeper of `hydra/sweeper=fedbench`, with the keys of Hydra's basic sweeper."""

    _target_: str = OUR_SWEEPER
    max_batch_size: int | None = None
    params: dict[str, Any] = field(default_factory=dict)
    grids: list[Any] = field(default_factory=list)
    reuse: str | None = None


class Sweeper(HydraSweeper):
    """A full grid like that of Hydra's basic sweeper, with any launcher; its directory can be used again.

    With `grids` it is a union of grids: each adds its own keys to `params`, or replaces them there.
    """

    def __init__(
        self,
        max_batch_size: int | None = None,
        params: dict[str, Any] | None = None,
        grids: Sequence[Mapping[str, Any]] = (),
        reuse: str | None = None,
    ) -> None:
        """`max_batch_size`: jobs that the launcher gets at once; `params`: overrides that stand in a file;
        `grids`: the same, one dict for each grid of the union; `reuse`: a directory, the finished runs below
        which are taken over."""
        self.max_batch_size = max_batch_size
        self.params = dict(params or {})
        self.grids = [dict(grid) for grid in grids] or [{}]
        self.reuse = reuse

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Called by Hydra: make the launcher."""
        self.hydra_context = hydra_context
        self.config = config
        self.launcher = Plugins.instance().instantiate_launcher(
            hydra_context=hydra_context, task_function=task_function, config=config
        )

    def sweep(self, arguments: list[str]) -> list[JobReturn]:
        """Run the grid of `arguments`. Returns every job's result; a failed one does not stop the others.

        Raises a UserError with exit code 2 before anything is written if any job is bad input.
        """
        assert self.config is not None
        assert self.hydra_context is not None
        assert self.launcher is not None
        loader = self.hydra_context.config_loader
        assert isinstance(loader, ConfigLoaderImpl)
        jobs = self._plan(arguments, loader)
        directory = Path(self.config.hydra.sweep.dir)
        ours = self.config.hydra.sweep._get_node("subdir")._value() == JOB_DIR
        results: dict[str, JobReturn] = {}
        if ours:  # else directories may depend on a job's number, so all must be launched
            for job in jobs:
                done = finished(directory / job.name, job.cfg)
                if done is not None:
                    results[job.name] = _returned(job, done)
            results |= self._taken_over([job for job in jobs if job.name not in results], directory)
        pending = [job for job in jobs if job.name not in results]
        before = f", {len(results)} of them finished before" if results else ""
        log.info("%d run%s%s, in %s", len(jobs), "s" if len(jobs) != 1 else "", before, directory)
        if len(pending) > 1:
            ended = [job for job in jobs if job.name in results]
            together = getattr(self.launcher, "side_by_side", lambda jobs: 1)(len(pending))
            time = duration(seconds(pending, ended, directory) / together)
            log.info("%d to do, roughly %s", len(pending), time)
        directory.mkdir(parents=True, exist_ok=True)
        OmegaConf.save(self.config, directory / "multirun.yaml")
        swept = list(dict.fromkeys(key for job in jobs for key in job.axes))
        write_manifest(directory, swept, [job.name for job in jobs] if ours else [])
        collect(directory)
        for start, batch in _batches(pending, self.max_batch_size):
            launched = [
                [*job.overrides, f"hydra.sweep.subdir={job.name}"] if ours else job.overrides for job in batch
            ]
            returned = self.launcher.launch(launched, initial_job_idx=start)
            results.update({job.name: result for job, result in zip(batch, returned, strict=True)})
        collect(directory)
        return [results[job.name] for job in jobs]

    def _taken_over(self, missing: Sequence[Job], directory: Path) -> dict[str, JobReturn]:
        """Copy what has been run elsewhere below `reuse`; the results, by the jobs' names."""
        if self.reuse is None or not missing:
            return {}
        elsewhere = Finished(Path(self.reuse))
        found = {job.name: (job, elsewhere.take(job, directory / job.name)) for job in missing}
        taken = {name: _returned(job, done) for name, (job, done) in found.items() if done is not None}
        if taken:
            log.info("%d taken over from other sweeps below %s", len(taken), self.reuse)
        return taken

    def _plan(self, arguments: Sequence[str], loader: ConfigLoaderImpl) -> list[Job]:
        """The jobs of all grids, each once. What the command line says counts more than a grid's keys."""
        assert self.config is not None
        given = {item.key_or_group for item in parse(arguments, loader)}
        varied = {key for grid in self.grids for key in grid} - given
        jobs: dict[str, Job] = {}
        for grid in self.grids:
            mine = {key: value for key, value in {**self.params, **grid}.items() if key not in given}
            words = [*(f"{key}={_word(value)}" for key, value in mine.items()), *arguments]
            found = plan(words, self.config, loader, user_directories(self.config.hydra), varied)
            jobs.update((job.name, job) for job in found if job.name not in jobs)
        return list(jobs.values())


def _word(value: Any) -> str:
    """A value of a YAML file as an override writes it."""
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _batches(jobs: list[Job], size: int | None) -> Iterator[tuple[int, list[Job]]]:
    size = size or max(len(jobs), 1)
    for start in range(0, len(jobs), size):
        yield start, jobs[start : start + size]


def _returned(job: Job, done: dict[str, Any]) -> JobReturn:
    """The result of a job that need not run again."""
    result = JobReturn(overrides=job.overrides, cfg=job.cfg, status=JobStatus.COMPLETED)
    accuracy = done.get("final_accuracy")
    result.return_value = 0.0 if accuracy is None else accuracy
    return result


def register() -> None:
    """Make `hydra/sweeper=fedbench` and `hydra/launcher=processes` known. Hydra takes plugins only under a
    name in `hydra_plugins`."""
    plugins = Plugins.instance()
    plugins.register(Launcher)
    plugins.class_name_to_class[OUR_LAUNCHER] = Launcher
    ConfigStore.instance().store(
        group="hydra/launcher", name="processes", node=LauncherConfig, provider="fedbench"
    )
    plugins.register(Sweeper)
    plugins.class_name_to_class[OUR_SWEEPER] = Sweeper
    ConfigStore.instance().store(
        group="hydra/sweeper", name="fedbench", node=SweeperConfig, provider="fedbench"
    )
