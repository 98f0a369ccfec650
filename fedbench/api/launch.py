"""Runs and sweeps from Python: composed, checked and computed by what the command line is made of."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hydra.core.global_hydra import GlobalHydra
from hydra.types import RunMode

from fedbench.api.directories import Place, Run, Sweep
from fedbench.config.compose import Composed, Composer
from fedbench.config.config import Config
from fedbench.config.identity import run_dir
from fedbench.config.options import checked
from fedbench.config.overrides import refuse_sweeps, written
from fedbench.errors import UsageError
from fedbench.loggers.options import refuse_missing
from fedbench.process_group import refuse_several
from fedbench.runs.run_directory import RunDirectory
from fedbench.sweeps.tables import collect

Overrides = Sequence[str] | Mapping[str, Any]
"""`["algorithm=scaffold", "rounds=20"]`, as on the command line, or `{"algorithm": "scaffold", "rounds":
20}`."""

log = logging.getLogger(__name__)


def compose_config(overrides: Overrides = (), config_dir: Place | None = None) -> Config:
    """What one run `fedbench --config-dir DIR OVERRIDES...` is, checked. Leaves Hydra as it was. Raises
    UserError."""
    with _composer(config_dir) as composer:
        return _one(composer, _words(overrides)).config


def run(
    overrides: Overrides | Config = (), directory: Place | None = None, config_dir: Place | None = None
) -> Run:
    """Compute a run, go on with it, or report it where it is finished.

    `overrides`: what follows `fedbench` on the command line, or a configuration (`compose_config`,
    `Run.config`). `directory`: where the run lies; None: where the command line would put it, below
    outputs/. `config_dir`: your own files of options; a method that is registered in this process needs none.
    Ctrl-C saves a checkpoint; the same call goes on from there. Everything is left that the
    command line leaves but Hydra's own files (`.hydra/`, `run.log`): what happens is said to Python's
    logging, under "fedbench".

    Raises UserError, in one line: ConfigError before anything is written, RunError where it cannot go on.
    """
    refuse_several("fedbench.run")
    if isinstance(overrides, Config):
        config = checked(overrides)
        place = Path("outputs") / run_dir(config)
    else:
        with _composer(config_dir) as composer:
            composed = _one(composer, _words(overrides))
            config, place = composed.config, composer.place(composed)
    place = Path(directory) if directory is not None else place
    refuse_missing(config.logger)
    here = RunDirectory(place)
    done = here.finished(config)
    if done is not None:  # no torch is imported to say that a run is finished
        here.catch_up(config, done)
    else:
        from fedbench.runs.run import Run as ComputedRun
        from fedbench.sweeps.job import session

        ComputedRun(config, session()).go(place)
    return Run(place)


def sweep(
    overrides: Overrides = (),
    grid: Mapping[str, Iterable[Any]] | None = None,
    directory: Place | None = None,
    processes: int | None = None,
    config_dir: Place | None = None,
) -> Sweep:
    """Run all points of a grid; what is there already is not run again.

    `overrides`: of all runs, as on the command line, so that `"seed=0,1"` sweeps too; `grid`: the same as
    typed values, `{"algorithm.lr": [0.01, 0.1], "seed": range(3)}`. `directory`: None: where `fedbench
    --multirun` would put it. `processes`: so many runs side by side, each in a process of its own (in a
    script, under `if __name__ == "__main__":`); None: one after another, or as `hydra/launcher=...` says.
    `config_dir`: your own files of options.

    A failed run does not stop the others: it is logged, and a row of `Sweep.results` with its status and
    error. Raises UserError before anything is written if any run is bad input.
    """
    from fedbench.sweeps.launch import run_sweep

    words = [*_words(overrides), *(f"{key}={_several(key, values)}" for key, values in (grid or {}).items())]
    if directory is not None:
        words.append(f"hydra.sweep.dir={written(str(directory))}")
    if processes is not None:
        words += ["hydra/launcher=processes", f"hydra.launcher.processes={processes}"]
    with _composer(config_dir) as composer, _logging_kept():
        ended = run_sweep(composer, *composer.read(words))
        collect(ended.directory)
    if ended.failures:
        counted = f"{len(ended.failures)} of {len(ended.results)} runs failed"
        log.warning("%s: %s (see %s)", counted, ended.failures[0], ended.directory / "runs.csv")
    return Sweep(ended.directory)


def _words(overrides: Overrides) -> list[str]:
    if isinstance(overrides, str):
        raise UsageError(f"{overrides}: a list of overrides is needed, such as ['{overrides}']")
    if isinstance(overrides, Mapping):
        return [f"{key}={written(value)}" for key, value in overrides.items()]
    return list(overrides)


def _several(key: str, values: Iterable[Any]) -> str:
    texts = [] if isinstance(values, str) else [written(value) for value in values]
    if not texts:
        raise UsageError(f"grid: {key}: must be a list of values, such as [0, 1]")
    return ",".join(texts)


def _one(composer: Composer, words: Sequence[str]) -> Composed:
    """What one run is. Raises UserError where several are meant."""
    parsed, composed = composer.read(words)
    refuse_sweeps(parsed)
    if composed.cfg.hydra.mode == RunMode.MULTIRUN:
        raise UsageError(f"{' '.join(words)}: is a sweep, which fedbench.sweep runs")
    return composed


@contextlib.contextmanager
def _composer(config_dir: Place | None = None) -> Iterator[Composer]:
    """A composer; afterwards Hydra's global state is what it was."""
    before = GlobalHydra.instance().hydra
    try:
        yield Composer(config_dir=None if config_dir is None else str(config_dir))
    finally:
        GlobalHydra.instance().hydra = before


@contextlib.contextmanager
def _logging_kept() -> Iterator[None]:
    """Hydra's launchers set up logging for their jobs; afterwards the root logger is what it was."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
