"""Hydra's flags that show something instead of running: --help, --cfg, --info, --hydra-help, -sc."""

from __future__ import annotations

import argparse
import contextlib
import os
from collections.abc import Iterator

from hydra.types import RunMode

from fedbench.compose import inside, trust
from fedbench.compose.composer import Composer


def show(composer: Composer, args: argparse.Namespace, parser: argparse.ArgumentParser) -> None:
    """Print what the flags ask for."""
    hydra, name, words = composer.hydra, composer.config_name, args.overrides
    with _hydra_raises(), composer.one_line(words):
        if not args.shell_completion:
            composer.check_trust(words)
        if args.help or args.cfg or args.info:
            trust.check_composed(composer.loader.load_configuration(name, words, RunMode.MULTIRUN))
        if args.help:
            inside.list_quickly(composer.loader)
            hydra.app_help(config_name=name, args_parser=parser, args=args)
        elif args.hydra_help:
            hydra.hydra_help(config_name=name, args_parser=parser, args=args)
        elif args.cfg:
            hydra.show_cfg(name, words, args.cfg, args.package, args.resolve)
        elif args.info:
            hydra.show_info(args.info, config_name=name, overrides=words)
        else:
            hydra.shell_completion(config_name=name, overrides=words)


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
