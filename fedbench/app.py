"""Running Hydra: what `hydra.main` does, with every check before anything is written, and errors as lines.

A single run is composed, checked, then handed to Hydra's `run_job`; a sweep goes to the sweeper that the
configuration names, ours by default. No torch is imported before a run is known to be needed.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from hydra import version
from hydra._internal.callbacks import Callbacks
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.config_repository import CachingConfigRepository
from hydra._internal.hydra import Hydra
from hydra._internal.utils import create_config_search_path
from hydra.core.config_search_path import SearchPathQuery
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.object_type import ObjectType
from hydra.core.override_parser.types import Override, Quote, QuotedString
from hydra.core.plugins import Plugins
from hydra.core.utils import JobReturn, JobStatus, configure_log
from hydra.core.utils import run_job as hydra_run_job
from hydra.types import HydraContext, RunMode
from omegaconf import DictConfig, OmegaConf

from fedbench.config import trust
from fedbench.config.config import GROUPS
from fedbench.config.explain import HYDRA_ERRORS, UsageError, explain
from fedbench.config.overrides import first_values, parse, recorded
from fedbench.config.paths import conf_dir
from fedbench.config.stored_run import finished, refuse_other
from fedbench.config.validate import validate
from fedbench.errors import RunError
from fedbench.sweeps.collect import collect
from fedbench.sweeps.compose import user_directories, without_hydra
from fedbench.sweeps.composed import register
from fedbench.sweeps.job import check_deeply, run_job
from fedbench.sweeps.results import report
from fedbench.sweeps.table import outcome


def _lenient(text: str) -> str:
    """Two overrides that Hydra wants with another number of + than people write."""
    key = text.partition("=")[0]
    if key in {f"+{group}" for group in (*GROUPS, "experiment")}:  # a group that has a default
        return text[1:]
    if key == "hydra.sweeper.params" or key.startswith("hydra.sweeper.params."):  # a dict that is open
        return "++" + text
    return text


@contextlib.contextmanager
def _hydra_raises() -> Iterator[None]:
    """Hydra raises its errors and leaves them to us; afterwards the environment is what it was."""
    before = os.environ.get("HYDRA_FULL_ERROR")
    os.environ["HYDRA_FULL_ERROR"] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ["HYDRA_FULL_ERROR"]
        else:
            os.environ["HYDRA_FULL_ERROR"] = before


def _list_quickly(loader: ConfigLoaderImpl) -> None:
    """Let `loader` list its groups from one repository: Hydra copies all of it for every group (1.3 s)."""
    repository = CachingConfigRepository(loader.repository)

    def options(group_name: str, results_filter: ObjectType | None = ObjectType.CONFIG) -> list[str]:
        return repository.get_group_options(group_name, results_filter)

    loader.get_group_options = options  # type: ignore[method-assign, assignment]


class App:
    """One invocation of the command line by Hydra's flags and overrides."""

    def __init__(self, args: argparse.Namespace) -> None:
        """`args`: as parsed by Hydra's own parser."""
        version.setbase("1.3")
        register()
        self.config_name: str = args.config_name or "config"
        self.overrides: list[str] = [_lenient(text) for text in args.overrides]
        path = create_config_search_path(
            os.path.abspath(args.config_path) if args.config_path else str(conf_dir())
        )
        if args.config_dir:
            directory = os.path.abspath(args.config_dir)
            if not os.path.isdir(directory):
                raise UsageError(f"--config-dir {args.config_dir}: there is no such directory")
            path.prepend("command-line", f"file://{directory}", SearchPathQuery(provider="schema"))
        GlobalHydra.instance().clear()
        self.hydra = Hydra.create_main_hydra2("fedbench", path)
        loader = self.hydra.config_loader
        assert isinstance(loader, ConfigLoaderImpl)
        self.loader = loader

    @contextlib.contextmanager
    def one_line(self, *more: type[Exception]) -> Iterator[None]:
        """Turn Hydra's errors into ours; `more`: what it also raises where input is odd."""
        try:
            yield
        except (*HYDRA_ERRORS, *more) as error:
            raise explain(error, self.overrides, self.loader, self.config_name) from error

    def check_trust(self, overrides: Sequence[str]) -> None:
        """Refuse what would execute code, before anything is composed."""
        trust.check_overrides(overrides)
        trust.check_files(self.loader, self.config_name, overrides)

    def compose(self, overrides: Sequence[str]) -> DictConfig:
        """The whole configuration, free of things that would execute code."""
        with self.one_line(ValueError, TypeError, AttributeError):
            self.check_trust(overrides)
            cfg = self.hydra.compose_config(self.config_name, list(overrides), RunMode.RUN)
        trust.check_composed(cfg)
        return cfg

    def launch(self, multirun: bool) -> Path | None:
        """Run what the overrides say; return the directory of the sweep if it was one.

        Raises UserError, with exit code 1 if a job of the sweep failed.
        """
        with self.one_line():
            parsed = parse(self.overrides, self.loader)
            self.loader.validate_sweep_overrides_legal(parsed, RunMode.MULTIRUN, from_shell=True)
            first = first_values(self.overrides, self.loader)
        cfg = self.compose(first)
        if multirun or cfg.hydra.mode == RunMode.MULTIRUN:
            return self._sweep(cfg, parsed)
        with self.one_line():
            self.loader.validate_sweep_overrides_legal(parsed, RunMode.RUN, from_shell=True)
        self._run(cfg)
        return None

    def _run(self, cfg: DictConfig) -> None:
        """Run, resume or report a single run."""
        OmegaConf.set_readonly(cfg.hydra, False)
        cfg.hydra.mode = RunMode.RUN
        HydraConfig.instance().set_config(cfg)
        job = without_hydra(cfg)
        validate(job, user_directories(cfg.hydra))
        with self.one_line():
            directory = Path(str(cfg.hydra.run.dir))
        refuse_other(directory, job)
        done = finished(directory, job)
        if done is not None:
            print(report(done, directory))
            return
        configure_log(cfg.hydra.hydra_logging, cfg.hydra.verbose)
        check_deeply(job)
        callbacks = Callbacks(cfg)
        callbacks.on_run_start(config=cfg, config_name=self.config_name)
        result = hydra_run_job(
            hydra_context=HydraContext(config_loader=self.loader, callbacks=callbacks),
            task_function=run_job,
            config=cfg,
            job_dir_key="hydra.run.dir",
            job_subdir_key=None,
        )
        callbacks.on_run_end(config=cfg, config_name=self.config_name, job_return=result)
        if result.status == JobStatus.FAILED:
            raise result._return_value

    def _sweep(self, cfg: DictConfig, parsed: Sequence[Override]) -> Path:
        """Run the sweep of which `cfg` is the first job's configuration."""
        OmegaConf.set_readonly(cfg.hydra, False)
        cfg.hydra.mode = RunMode.MULTIRUN
        cfg.hydra.overrides.task = [item.input_line for item in parsed if not item.is_hydra_override()]
        HydraConfig.instance().set_config(cfg)
        with self.one_line():
            directory = str(cfg.hydra.sweep.dir)
        OmegaConf.set_readonly(cfg.hydra, False)
        cfg.hydra.sweep.dir = directory
        place = QuotedString(directory, Quote.single).with_quotes()
        cfg.hydra.overrides.hydra += ["hydra.mode=MULTIRUN", f"hydra.sweep.dir={place}"]
        configure_log(cfg.hydra.hydra_logging, cfg.hydra.verbose)
        callbacks = Callbacks(cfg)
        callbacks.on_multirun_start(config=cfg, config_name=self.config_name)
        context = HydraContext(config_loader=self.loader, callbacks=callbacks)
        chosen = Plugins.instance().instantiate_sweeper(
            config=cfg, hydra_context=context, task_function=run_job
        )
        try:
            with self.one_line():
                results = chosen.sweep(arguments=recorded(cfg, "task"))
        except KeyboardInterrupt:
            print(f"stopped; the same command goes on with what is missing in {directory}", file=sys.stderr)
            raise
        callbacks.on_multirun_end(config=cfg, config_name=self.config_name)
        if Path(directory).is_dir():
            table, rounds = collect(Path(directory))
            print(f"\n{outcome(table)}\n\n{table}\n{rounds}")
        failed = [r for r in results or [] if isinstance(r, JobReturn) and r.status == JobStatus.FAILED]
        if failed:
            raise RunError(
                f"{len(failed)} of {len(results)} runs failed: {failed[0]._return_value} (see {table})"
            )
        return Path(directory)

    def show(self, args: argparse.Namespace, parser: argparse.ArgumentParser) -> None:
        """Hydra's flags that show something instead of running."""
        with _hydra_raises(), self.one_line():
            if not args.shell_completion:
                self.check_trust(self.overrides)
            if args.help:
                _list_quickly(self.loader)
                self.hydra.app_help(config_name=self.config_name, args_parser=parser, args=args)
            elif args.hydra_help:
                self.hydra.hydra_help(config_name=self.config_name, args_parser=parser, args=args)
            elif args.cfg:
                self.hydra.show_cfg(self.config_name, self.overrides, args.cfg, args.package, args.resolve)
            elif args.info:
                self.hydra.show_info(args.info, config_name=self.config_name, overrides=self.overrides)
            else:
                self.hydra.shell_completion(config_name=self.config_name, overrides=self.overrides)
