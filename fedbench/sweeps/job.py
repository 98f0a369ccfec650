"""One job: what Hydra prepares for it, and the function that every launcher calls, alone or in a sweep."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra.core.hydra_config import HydraConfig
from hydra.core.utils import configure_log
from omegaconf import DictConfig, OmegaConf, open_dict, read_write

from fedbench.config.compose import config_directories, validate
from fedbench.config.config import METHOD, WHAT, Config, flat, role
from fedbench.config.explain import line_of
from fedbench.config.identity import digest, identity
from fedbench.config.register import register_resolvers
from fedbench.errors import RunError, UserError
from fedbench.files import InUse, as_yaml
from fedbench.machine import Loading
from fedbench.process_group import ALONE, ProcessGroup
from fedbench.runs.metrics import ending
from fedbench.runs.run_directory import FAILED, FINISHED, PAUSED, STAGING, RunDirectory
from fedbench.sweeps.tables import collect

if TYPE_CHECKING:
    from fedbench.runs.run import Run
    from fedbench.runs.session import Session

log = logging.getLogger(__name__)
_traceback_log = logging.getLogger("fedbench.traceback")  # goes to run.log alone

register_resolvers()  # a launcher's worker process imports this module before it resolves a configuration


@functools.cache
def session() -> Session:
    """What the jobs of this process share."""
    with Loading():
        from fedbench.runs.session import Session

    return Session()


def run_here(config: Config, group: ProcessGroup = ALONE) -> Run:
    """A run that this process computes, checked. Raises ConfigError and DataError."""
    with Loading():
        from fedbench.runs.run import Run

    return Run(config, session(), group)


@contextlib.contextmanager
def prepared(cfg: DictConfig, place: Path) -> Iterator[None]:
    """The directory `place` of a job, its log and its files in .hydra/ while the job of the composed
    configuration is computed: what Hydra's run_job does, with the same content, in a tenth of its time."""
    before, here = HydraConfig.instance().cfg, os.getcwd()
    with read_write(cfg.hydra), open_dict(cfg.hydra.runtime):
        cfg.hydra.runtime.output_dir = os.path.abspath(place)
    plain: Any = OmegaConf.to_container(cfg, resolve=False, enum_to_str=True)
    hydra = plain.pop("hydra")
    try:
        HydraConfig.instance().cfg = cfg  # type: ignore[assignment]  # set_config would copy it first
        files = place / ".hydra"
        files.mkdir(parents=True, exist_ok=True)
        for name, content in {
            "config": plain,
            "hydra": {"hydra": hydra},
            "overrides": hydra["overrides"]["task"],
        }.items():
            (files / f"{name}.yaml").write_text(as_yaml(content), encoding="utf-8")
        if cfg.hydra.job.chdir:
            os.chdir(place)
        configure_log(cfg.hydra.job_logging, cfg.hydra.verbose)
        yield
    finally:
        HydraConfig.instance().cfg = before
        os.chdir(here)


def computed(config: Config, compute: Callable[[], object]) -> None:
    """Compute a run in the directory that was prepared. An error's traceback goes to run.log."""
    for name in config.imports:
        log.info("imports: this run uses the code of %s", name)
    try:
        compute()
    except InUse:
        raise  # run.log belongs to the process that has the run
    except Exception as error:
        _traceback_log.error("the run failed", exc_info=error)
        raise


class RunJob:
    """Computes, resumes or reports the run of a sweep that Hydra has prepared."""

    def __init__(self) -> None:
        self._to_come: Counter[str] = Counter()
        self._ended = self._total = 0
        self._next_tables = 0.0
        self.tables = True
        """Whether each run's end brings the sweep's tables up to date; else who started the process does."""

    def expect(self, configs: Iterable[Config]) -> None:
        """Announce the runs to come, so that a step that several of them need is compiled sooner."""
        self._to_come = Counter(program(config) for config in configs)
        self._total = self._to_come.total()

    def to_come(self, config: Config) -> int:
        """How many of the runs to come share this one's program, itself included."""
        return self._to_come.get(program(config), 1)

    def __call__(self, cfg: DictConfig) -> None:
        """Compute the run, unless another process has it. A failure is recorded in the run's directory, and
        the sweep's tables are brought up to date (`tables`) whatever happens. Raises RunError if a failure
        cannot be recorded."""
        hydra = HydraConfig.get()
        directory = Path(hydra.runtime.output_dir)
        given: DictConfig | Config = cfg
        for handler in logging.getLogger().handlers:
            if type(handler) is logging.StreamHandler:
                handler.addFilter(_of_a_sweep)
        try:
            given = config = validate(cfg, config_directories(hydra))
            session().runs_to_come = self.to_come(config)
            computed(config, lambda: run_here(config).go(directory))
            self._say(directory, cfg.resume)
        except InUse:
            pass
        except Exception as error:
            line = line_of(error)
            try:
                record_failure(directory, given, line)
            except (UserError, OSError):  # the first error is the one to report
                raise RunError(line) from error
            self._say(directory, cfg.resume)
        finally:
            if self.tables:
                self.make_tables(Path(os.path.join(hydra.runtime.cwd, hydra.sweep.dir)))

    def make_tables(self, directory: Path) -> None:
        """Bring the sweep's tables up to date. They hold all its runs, so this process leaves them for nine
        times as long as they took. The sweep makes them at its end."""
        begun = time.monotonic()
        if begun >= self._next_tables:
            with contextlib.suppress(UserError, OSError):
                collect(directory)
            self._next_tables = time.monotonic() + 9 * (time.monotonic() - begun)

    def _say(self, directory: Path, resume: bool) -> None:
        self._ended += 1
        line = ended_line(RunDirectory(directory), resume)
        print(f"{self._ended} of {self._total}: {line}" if self._total else line, flush=True)

    def __getstate__(self) -> dict[str, Any]:  # another process counts none
        return {**vars(self), "_ended": 0, "_total": 0, "_next_tables": 0.0}


def _of_a_sweep(record: logging.LogRecord) -> bool:
    """Whether the terminal shows a log line of a run of a sweep; run.log has all lines."""
    whose = record.name.removeprefix("fedbench.runs.")
    return record.levelno >= logging.WARNING or whose not in ("run", "training")


# ---- which jobs need the same compiled step --------------------------------------------------------------


def program(config: Config) -> str:
    """A digest shared by runs with the same compiled step; seeds, rounds, N and methods' numbers may
    differ."""
    shaping = {}
    for key, value in config.choices.items():
        number = value is None or (isinstance(value, int | float) and not isinstance(value, bool))
        if role(key) in (WHAT, METHOD) and not (key.startswith("algorithm.") and number):
            shaping[key] = value
    return digest(shaping)


# ---- how a run ended, without torch ----------------------------------------------------------------------


def finished_line(found: Mapping[str, Any], directory: Path) -> str:
    """One line about a run that had finished before; `found` is its summary."""
    how, text = "paused" if found["status"] == PAUSED else "finished", ending(found)
    if found.get("best_accuracy") is not None:
        text += f", best {found['best_accuracy']:.4f} at round {found.get('best_round')}"
    return f"{how} before: {text}: {directory} (resume=false computes it again)"


def ended_line(run: RunDirectory, resume: bool) -> str:
    """One line about a run of a sweep that has just ended, starting with its directory's name."""
    found = run.attempt(resume).summary or {}
    if found.get("status") in (*FINISHED, PAUSED):
        return f"{run.path.name}: {ending(found)}"
    return f"{run.path.name}: {found.get('status', run.status)}: {found.get('error', 'no summary.json')}"


def record_failure(directory: Path, config: DictConfig | Config, line: str) -> None:
    """Write a summary.json with status `failed` and the error's line; an earlier summary of a failure keeps
    its other entries. With resume=false the results of a run that is there stay, and the failure is recorded
    as that of a staged attempt. Does nothing if the directory is in use, or holds another run."""
    run = RunDirectory(directory)
    if run.in_use or run.identity not in (None, identity(config)):
        return
    if not config.resume and (run.summary or {}).get("status") in (*FINISHED, PAUSED):
        run = RunDirectory(directory / STAGING)
    run.path.mkdir(parents=True, exist_ok=True)
    before = run.summary or {}
    if before.get("status") != FAILED:
        before = {"status": FAILED, "config": flat(config)}
    run.write_summary({**before, "error": line})
