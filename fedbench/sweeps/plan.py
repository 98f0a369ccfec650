"""Planning a sweep: every job composed, checked and named before the first one starts."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedbench.compose.composer import JobComposer
from fedbench.compose.names import job_name
from fedbench.compose.overrides import Grid, Value, written
from fedbench.compose.validate import validate
from fedbench.config.config import Config
from fedbench.config.identity import digest, flat
from fedbench.errors import UsageError, UserError
from fedbench.sweeps.grids import points

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Job:
    """One run of a sweep."""

    name: str  # its directory below the sweep's
    overrides: list[str]  # as Hydra's launchers want them
    choices: dict[str, Value]  # swept key -> this job's value
    config: Config


def plan(
    fixed: Sequence[str],
    grids: Sequence[Grid],
    composer: JobComposer,
    check: Callable[[Config], None],
    searchpath: Sequence[Path] = (),
) -> list[Job]:
    """The jobs of the grids, in order, each once. Raises a UserError, which names the job, if any of them is
    bad input.

    `fixed`: overrides of all jobs; a grid's keys count more. `check`: what needs torch and the data, once for
    all seeds. `searchpath`: the user's own directories of options.
    """
    every = [point for grid in grids for point in points(grid)]
    if not every:
        raise UsageError("nothing to run: a sweep over no values")
    jobs: dict[str, Job] = {}
    for point in every:
        choices = {key.lstrip("+"): value for key, value in point.items()}
        rest = [text for text in fixed if text.partition("=")[0].lstrip("+") not in choices]
        overrides = [*rest, *(f"{key}={written(value)}" for key, value in point.items())]
        with _naming_the_job(choices, len(every)):
            cfg = composer.compose(overrides)
            config = validate(cfg, searchpath)
        name = job_name(config, {key: written(value) for key, value in choices.items()})
        if name in jobs:
            log.info("twice the same run, done once: %s", " ".join(overrides))
        jobs.setdefault(name, Job(name, overrides, choices, config))
    composer.check_places([job.overrides for job in jobs.values()])
    _check_kinds(list(jobs.values()), len(every), check)
    return list(jobs.values())


def _check_kinds(jobs: Sequence[Job], count: int, check: Callable[[Config], None]) -> None:
    checked: set[str] = set()
    for job in jobs:
        kind = digest({key: value for key, value in flat(job.config.given).items() if key != "seed"})
        if kind not in checked:
            with _naming_the_job(job.choices, count):
                check(job.config)
            checked.add(kind)


@contextlib.contextmanager
def _naming_the_job(choices: Mapping[str, Value], jobs: int) -> Iterator[None]:
    try:
        yield
    except UserError as error:
        if jobs == 1:
            raise
        words = " ".join(f"{key}={written(value)}" for key, value in choices.items())
        refusal = UsageError(f"{error} (in the run {words}; none of the {jobs} was started)")
        refusal.exit_code = error.exit_code
        raise refusal from error
