"""One run computed by several processes (torchrun): the first has the run's files, log and lines; the others
do their share in silence."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from hydra.core.utils import configure_log
from hydra.types import RunMode

from fedbench.compose import inside
from fedbench.compose.composer import Composed, Composer
from fedbench.compose.explain import line_of
from fedbench.errors import SaidElsewhere, UserError
from fedbench.runs import ranks
from fedbench.runs.logged import catch_up
from fedbench.sweeps.job import RunJob
from fedbench.sweeps.launch import read
from fedbench.sweeps.results import report
from fedbench.sweeps.single import ended, run_checked

if TYPE_CHECKING:
    from fedbench.engine.spread import Spread


def launch(composer: Composer, overrides: Sequence[str], multirun: bool, here: ranks.Rank) -> None:
    """Run what the overrides say, with the other processes. Raises UserError; SaidElsewhere in all but one.

    `here`: which of them this one is.
    """
    from fedbench.engine.spread import connected

    if here.rank:
        logging.disable()
    with connected(here.rank, here.size, here.local, here.beside) as group:
        try:
            _run(composer, overrides, multirun, group)
        except SaidElsewhere:
            raise
        except KeyboardInterrupt as stop:
            if here.rank == 0:
                raise
            raise SaidElsewhere("stopped", getattr(stop, "exit_code", 130)) from stop
        except Exception as error:
            if here.rank == 0:
                raise
            said = UserError(f"process {here.rank}: {line_of(error)}")
            said.exit_code = getattr(error, "exit_code", 1)
            raise said from error


def _run(composer: Composer, overrides: Sequence[str], multirun: bool, group: Spread) -> None:
    composed = group.agree(lambda: _composed(composer, overrides, multirun))
    from fedbench.runs.follow import alike

    config, task = composed.config, RunJob(group)
    first = group.rank == 0
    directory = group.agree(lambda: composer.place(composed))
    done = group.agree(lambda: ended(composed, directory) if first else None)
    if group.first(done is not None):
        if done is not None:
            catch_up(config, directory, done)
            print(report(done, directory))
        return
    if first:
        configure_log(composed.cfg.hydra.hydra_logging, composed.cfg.hydra.verbose)
    plan = group.agree(lambda: task.plan(config, directory if first else None))
    group.same(alike(plan))
    del plan
    if first:
        run_checked(composer, composed, task, directory)
        return
    code = task.follow(config)
    if code:
        raise SaidElsewhere("stopped", code)


def _composed(composer: Composer, overrides: Sequence[str], multirun: bool) -> Composed:
    parsed, composed = read(composer, overrides)
    if multirun or composed.cfg.hydra.mode == RunMode.MULTIRUN:
        ranks.refuse_several("a sweep")
    with composer.one_line(overrides):
        inside.refuse_sweeps(parsed, RunMode.RUN)
    composed.config  # noqa: B018  # names the key that cannot be meant
    return composed
