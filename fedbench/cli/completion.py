"""What a shell may complete: subcommands, their options and choices, and Hydra's overrides.

Hydra's scripts (`fedbench -sc install=bash|zsh|fish`) ask `fedbench -sc query=SHELL`, with the line so far in
COMP_LINE. No user's code is executed.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
from collections.abc import Iterable, Mapping

from hydra.plugins.completion_plugin import CompletionPlugin

from fedbench.cli import run
from fedbench.compose import inside
from fedbench.compose.composer import Composer
from fedbench.config.arguments import BadArguments
from fedbench.config.options import options


def asked(argv: list[str]) -> bool:
    """Whether a shell's script asks."""
    return argv[:1] in (["-sc"], ["--shell-completion"]) and argv[1:2] != [] and argv[1].startswith("query=")


def answer(subcommands: Mapping[str, str]) -> int:
    """Print a word on each line; the exit code. A line that cannot be completed is none to complain of."""
    with contextlib.suppress(Exception):
        line = CompletionPlugin.strip_python_or_app_name(os.environ.get("COMP_LINE", "fedbench"))
        words = line.split()
        current = words.pop() if words and not line.endswith(" ") else ""
        found = {word for word in _words(words, current, subcommands) if word.startswith(current)}
        print("\n".join(sorted(found)))
    return 0


def _words(words: list[str], current: str, subcommands: Mapping[str, str]) -> Iterable[str]:
    command = words[0] if words and words[0] in subcommands else None
    parser = run.parser() if command is None else _parser(subcommands[command])
    option = parser._option_string_actions.get(words[-1]) if words else None
    if option is not None and option.nargs != 0:
        return option.choices or ()
    if current.startswith("-"):
        return parser._option_string_actions
    if command is None:
        return [*_overrides(words, current), *([] if words else subcommands)]
    if command == "show":
        return options("algorithm")
    if command == "figures":
        from fedbench.papers.registry import FIGURES

        return FIGURES
    places = parser._get_positional_actions()
    found = [word for place in places for word in place.choices or ()]
    takes = any("KEY=VALUE" in str(place.metavar) for place in places)
    return [*found, *(_overrides(words[1:], current) if takes else ())]


def _parser(module: str) -> argparse.ArgumentParser:
    """The parser of a subcommand, which it makes where it is called; it comes with what it refuses."""
    try:
        importlib.import_module(module).main(["--no-such-option"])
    except BadArguments as refusal:
        return refusal.parser
    raise AssertionError(f"{module} has no parser")


def _overrides(words: list[str], current: str) -> list[str]:
    given = [word for word in words if "=" in word and not word.startswith("-")]
    composer = Composer()
    inside.list_quickly(composer.loader)
    return inside.completions(composer.loader, composer.config_name, [*given, current])
