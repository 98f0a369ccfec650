"""One job of Hydra: the function that every launcher calls, alone or inside a sweep."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig

from fedbench.compose.composer import user_directories
from fedbench.compose.explain import line_of
from fedbench.compose.names import register_resolvers
from fedbench.compose.register import OUR_SWEEPER
from fedbench.compose.validate import validate
from fedbench.config import imports
from fedbench.errors import UserError
from fedbench.sweeps.collect import collect
from fedbench.sweeps.results import record_failure

if TYPE_CHECKING:
    from fedbench.runs.session import Session

log = logging.getLogger(__name__)
_traceback_log = logging.getLogger("fedbench.traceback")  # goes to run.log alone

register_resolvers()  # a launcher's worker process imports this module before it resolves a configuration


class JobFailed(UserError):
    """A job's error in a form that another process can send: its line and exit code."""

    def __init__(self, line: str, exit_code: int = 1) -> None:
        super().__init__(line, exit_code)
        self.line, self.exit_code = line, exit_code

    def __str__(self) -> str:
        return self.line


@functools.cache
def _session() -> Session:
    """What the jobs of this process share."""
    from fedbench.runs.session import Session

    return Session()


def check_deeply(cfg: DictConfig) -> None:
    """The checks that need the user's code and torch: hyper-parameters, data, model, device."""
    imports.load(cfg)
    from fedbench.runs.check import check

    check(cfg, _session())


def run_job(cfg: DictConfig) -> float:
    """Run, resume or report the job that Hydra has prepared; return its final accuracy (0 if it diverged).

    A single run raises what went wrong as it is. In a sweep the failure is first recorded in the job's
    directory, and the sweep's tables are rewritten whatever happens.
    """
    hydra = HydraConfig.get()
    directory = Path(hydra.runtime.output_dir)
    if hydra.mode != RunMode.MULTIRUN:
        return _run(cfg, directory)
    sweep = Path(os.path.join(hydra.runtime.cwd, hydra.sweep.dir))
    try:
        if hydra.sweeper.get("_target_") != OUR_SWEEPER:  # which has checked all jobs before
            validate(cfg, user_directories(hydra))
            check_deeply(cfg)
        accuracy = _run(cfg, directory)
    except Exception as error:
        with contextlib.suppress(UserError, OSError):  # what went wrong first is what to report
            record_failure(directory, cfg, line_of(error))
            collect(sweep)
        raise JobFailed(line_of(error), getattr(error, "exit_code", 1)) from error
    except KeyboardInterrupt:
        with contextlib.suppress(UserError, OSError):
            collect(sweep)
        raise
    collect(sweep)
    return accuracy


def _run(cfg: DictConfig, directory: Path) -> float:
    imports.load(cfg)
    for name in cfg.imports:
        log.info("imports: this run uses the code of %s", name)
    from fedbench.runs.plan import make_plan
    from fedbench.runs.runner import run

    session = _session()
    try:
        accuracy = run(make_plan(cfg, session), directory, session).final_accuracy
    except Exception as error:
        _traceback_log.error("the run failed", exc_info=error)
        raise
    return 0.0 if accuracy is None else accuracy
