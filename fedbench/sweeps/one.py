"""One run as requested on the command line: computed, resumed, or reported if it has finished.

No torch is imported to report a run. If several processes (torchrun) compute a run together, all do the same;
the first one's files, log and lines are the run's.
"""

from __future__ import annotations

import contextlib
import logging
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from hydra.core.hydra_config import HydraConfig
from hydra.core.utils import configure_log

from fedbench import process_group
from fedbench.config.compose import Composed, Composer
from fedbench.config.explain import line_of
from fedbench.errors import SaidElsewhere, UserError
from fedbench.files import one_line_os_errors
from fedbench.process_group import ALONE, ProcessGroup
from fedbench.runs.run_directory import RunDirectory
from fedbench.runs.signals import stop_with_parent
from fedbench.runs.stored import finished, refuse_other
from fedbench.sweeps.formats import evaluations
from fedbench.sweeps.job import computed, finished_line, prepared, run_here

if TYPE_CHECKING:
    from fedbench.runs.run import Run


def run(composer: Composer, composed: Composed, group: ProcessGroup = ALONE) -> None:
    """Run, resume or report a single run. Its evaluations are printed unless `progress` is none. In a
    `group`, the first process's files are the run's; the others have theirs in a place of their own for a
    while. If one process fails, the others raise SaidElsewhere."""
    cfg, config = composed.cfg, composed.config
    if not group.is_writer:
        config = replace(config, logger=(), progress="none")

    def found() -> tuple[RunDirectory, dict[str, object] | None]:
        here = RunDirectory(composer.place(composed))
        if not group.is_writer:
            return here, None
        refuse_other(here, config)
        return here, finished(here, config)

    here, done = group.agree(found)
    if group.broadcast(done is not None):
        if done is not None:
            print(finished_line(done, here.path))
        return
    if group.is_writer:
        configure_log(cfg.hydra.hydra_logging, cfg.hydra.verbose)

    def make() -> Run:
        made = run_here(config, group)
        if group.is_writer:
            made.refuse_full_disk(here.path)
        return made

    made = group.agree(make)
    if not group.is_writer:
        with tempfile.TemporaryDirectory(prefix="fedbench-") as place:
            made.go(Path(place))
        return

    with contextlib.ExitStack() as stack:
        with one_line_os_errors(f"write {here.path}"):  # what is prepared
            stack.enter_context(prepared(cfg, here.path))
        computed(config, lambda: made.go(Path(HydraConfig.get().runtime.output_dir)))
    if config.progress != "none":
        print(evaluations(here.rows()))


def run_with_others(composer: Composer, overrides: Sequence[str], multirun: bool, here: ProcessGroup) -> None:
    """Compute the run of these overrides together with the other processes; `here` is this one. If it fails,
    one process raises UserError and the others SaidElsewhere."""

    def composed_here() -> Composed:
        composed = composer.read(overrides)
        if multirun or composed.sweeps:
            process_group.refuse_several("a sweep")
        return composed.one_run()

    if not here.is_writer:
        logging.disable()
    stop_with_parent()
    with process_group.connected(here) as group:
        try:
            run(composer, group.agree(composed_here), group)
        except SaidElsewhere:
            raise
        except KeyboardInterrupt as stop:
            if here.is_writer:
                raise
            raise SaidElsewhere("stopped", getattr(stop, "exit_code", 130)) from stop
        except Exception as error:
            if here.is_writer:
                raise
            refusal = UserError(f"process {here.rank}: {line_of(error)}")
            refusal.exit_code = getattr(error, "exit_code", 1)
            raise refusal from error
