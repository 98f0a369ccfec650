"""Planning a sweep: every job composed, checked and named before the first one starts."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from omegaconf import DictConfig

from fedbench.config.explain import UsageError
from fedbench.config.identity import digest, flat
from fedbench.config.overrides import parse, swept
from fedbench.config.validate import validate
from fedbench.errors import UserError
from fedbench.sweeps.compose import JobComposer
from fedbench.sweeps.job import check_deeply
from fedbench.sweeps.names import job_name

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Job:
    """One run of a sweep."""

    name: str  # its directory below the sweep's
    overrides: list[str]
    axes: dict[str, str]  # swept key -> this job's value
    cfg: DictConfig  # without Hydra's node


def plan(
    arguments: Sequence[str],
    master: DictConfig,
    loader: ConfigLoaderImpl,
    searchpath: Sequence[Path] = (),
    varied: Collection[str] = (),
) -> list[Job]:
    """The jobs of the grid, in order, without repetitions. Raises a UserError, which names the overrides of
    the job, if any of them is bad input. `searchpath`: the user's own directories of options. `varied`: keys
    with one value here that differ in another grid of the same sweep; they count as swept."""
    axes = {*swept(arguments, loader), *varied}
    grid = BasicSweeper.split_arguments(parse(arguments, loader), None)[0]
    if not grid:
        raise UsageError("nothing to run: a sweep over no values")
    composer = JobComposer(master, loader)
    jobs: dict[str, Job] = {}
    for overrides in grid:
        pairs = (text.lstrip("+~").partition("=") for text in overrides)
        mine = {key: value for key, _, value in pairs if key in axes}
        with _naming_the_job(mine, len(grid)):
            cfg = composer.compose(overrides)
            validate(cfg, searchpath)
        name = job_name(cfg, mine)
        if name in jobs:
            log.info("twice the same run, done once: %s", " ".join(overrides))
        jobs.setdefault(name, Job(name, overrides, mine, cfg))
    checked: set[str] = set()
    for job in jobs.values():
        kind = digest({key: value for key, value in flat(job.cfg).items() if key != "seed"})
        if kind not in checked:
            with _naming_the_job(job.axes, len(grid)):
                check_deeply(job.cfg)
            checked.add(kind)
    return list(jobs.values())


@contextlib.contextmanager
def _naming_the_job(axes: Mapping[str, str], jobs: int) -> Iterator[None]:
    try:
        yield
    except UserError as error:
        if jobs == 1:
            raise
        words = " ".join(f"{key}={value}" for key, value in axes.items())
        refusal = UsageError(f"{error} (in the run {words}; none of the {jobs} was started)")
        refusal.exit_code = error.exit_code
        raise refusal from error
