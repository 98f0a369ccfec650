"""Errors that a user can fix: one line that names the key, the value and what is allowed."""

from __future__ import annotations

import argparse
import contextlib
import difflib
import os
import re
import shutil
import sys
import sysconfig
import textwrap
import traceback
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NoReturn, TextIO

OWN_CODE = ", or your own, which imports=[FILE.py] registers"
"""Follows the names of methods, models and data sets in error lines."""
_PYTHON = sysconfig.get_path("stdlib")
FEW = 15  # at most this many options are listed in a line


class UserError(Exception):
    """An error whose message is one complete line for the user. `exit_code`: that of the process."""

    exit_code = 1


class ConfigError(UserError):
    """Bad input. The line reads `key=value: what is allowed (did you mean ...?)`; exit code 2."""

    exit_code = 2

    def __init__(self, key: str, value: object, allowed: str, options: Iterable[object] = ()) -> None:
        """`allowed` says what would be accepted; `options` are searched for the nearest match to `value`."""
        self.key, self.value, self.allowed, self.options = key, value, allowed, tuple(options)
        near = nearest(value, self.options)
        hint = f" (did you mean '{near}'?)" if near else ""
        super().__init__(f"{shortened(key)}={shortened(_said(value))}: {allowed}{hint}")

    def within(self, where: str) -> ConfigError:
        """The same error, with the file that has the value."""
        return ConfigError(self.key, self.value, f"{self.allowed} (in {where})", self.options)


class UsageError(UserError):
    """Bad input that is no key=value pair; exit code 2."""

    exit_code = 2


class DataError(UserError):
    """Data that cannot be read or fetched; exit code 2, because the input has to change."""

    exit_code = 2


class RunError(UserError):
    """A run that could not go on (a full disk, a directory in use); exit code 1."""


class SaidElsewhere(UserError):
    """Another process of the same run reports the error; this one ends without a line."""

    def __init__(self, line: str, exit_code: int) -> None:
        super().__init__(line)
        self.exit_code = exit_code


def word(value: object) -> str:
    """A value as a configuration writes it: null, true, false, or its text."""
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _said(value: object) -> str:
    """A value as on a command line, with a section as `{...}`."""
    if isinstance(value, list | tuple):
        return f"[{','.join(map(_said, value))}]"
    return "{...}" if isinstance(value, dict) else word(value)


def shortened(value: object, limit: int = 200) -> str:
    """The text of a value, with its middle left out if it is longer than `limit`."""
    text = str(value)
    return text if len(text) <= limit else f"{text[: limit // 2]}...{text[-limit // 4 :]}"


def some_of(names: Sequence[str]) -> str:
    """The first twenty of some names, and how many more there are."""
    return ", ".join(names[:20]) + (f" and {len(names) - 20} more" if names[20:] else "")


def printable(text: str, limit: int = 120) -> str:
    """A text made fit for a line: a damaged file's may be long and unprintable."""
    text = "".join(letter if letter.isprintable() else "?" for letter in " ".join(text.split()))
    return shortened(text, limit)


def reason_of(error: BaseException) -> str:
    """An error's message in one short printable line, or its type if it has none."""
    return printable(str(error)) or type(error).__name__


@contextlib.contextmanager
def refusing(what: str) -> Iterator[None]:
    """Turn whatever a library raises for bad data into a DataError, `WHAT (REASON)`."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # a damaged file may raise anything
        raise DataError(f"{what} ({reason_of(error)})") from error


def nearest(value: object, options: Iterable[object]) -> str | None:
    """Return the option most similar to `value`, or None if none is close."""
    return next(iter(_nearest(value, options, 1)), None)


def _nearest(value: object, options: Iterable[object], count: int) -> list[str]:
    if len(str(value)) > 100:
        return []
    return difflib.get_close_matches(str(value), [str(option) for option in options], n=count, cutoff=0.5)


def chain(error: BaseException | None) -> Iterator[BaseException]:
    """The error, and those that led to it."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def users_line(error: BaseException) -> str | None:
    """The innermost file and line of the user's code (not ours, not a library's) that led to the error."""
    frames = [frame for cause in chain(error) for frame in traceback.extract_tb(cause.__traceback__)]
    for frame in reversed(frames):
        file = Path(frame.filename)
        ours = file.is_relative_to(Path(__file__).parent) or "site-packages" in file.parts
        if not ours and not file.is_relative_to(_PYTHON) and file.is_file():
            return f"{file}, line {frame.lineno}"
    return None


def failure(error: BaseException) -> str:
    """What went wrong in a user's code, and where: `ValueError: too few (FILE, line 3)`."""
    line = users_line(error)
    return first_line(error, named=True) + (f" ({line})" if line else "")


def counted(number: int, noun: str) -> str:
    """`1 run`, `2 runs`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def needs(package: str, extra: str) -> str:
    """What an error line says of a package that is missing. `extra`: that of ours which installs it."""
    ours = "-e '." if (Path(__file__).parents[1] / "pyproject.toml").is_file() else "'fedbench-runner"
    return f"needs {package}: pip install {ours}[{extra}]'"


def first_line(error: BaseException, named: bool = False) -> str:
    """The first line of an error's message, or its type if it has none. `named`: the type, and that line."""
    name, line = type(error).__name__, next(iter(str(error).splitlines()), "")
    return f"{name}: {line}" if named else line or name


def unknown_option(group: str, name: object, options: Sequence[str], more: str) -> ConfigError:
    """The error for a name that is not among a group's options. It suggests the nearest (three if there are
    many options). `more`: what else is allowed."""
    near = [f"'{option}'" for option in _nearest(name, options, 3 if len(options) > FEW else 1)]
    hint = f" (did you mean {', '.join(near[:-1])}{' or ' if near[1:] else ''}{near[-1]}?)" if near else ""
    return ConfigError(group, name, f"must be one of {shown(group, options)}{more}{hint}")


def shown(group: str, options: Sequence[str]) -> str:
    """The names of a group's options; if there are many, the command that lists them."""
    few = len(options) <= FEW
    return ", ".join(options) if few else f"the {len(options)} that `fedbench list {group}s` shows"


WIDEST = 118  # columns of a text, however wide the terminal is


def columns() -> int:
    """Columns for a text: the terminal's (80 where there is none), or COLUMNS, and at most WIDEST."""
    return min(shutil.get_terminal_size().columns, WIDEST)


def fitted(text: str, width: int) -> str:
    """A text whose lines fit a width. One that is too long goes on below its last column, that is what
    follows two spaces or more; a column that begins in the right half of the width gets a line of its own."""
    lines = []
    for line in text.splitlines():
        lead = len(line) - len(line.lstrip()) + 4
        last = max((gap.end() for gap in re.finditer(r"\S {2,}(?=\S)", line)), default=0)
        parts, indent = [line], last or (lead if line[:1] == " " else 0)
        if len(line) > width and last > width / 2:
            parts, indent = [line[:last].rstrip(), " " * lead + line[last:]], lead
        for part in parts:
            lines += textwrap.wrap(
                part,
                width,
                subsequent_indent=" " * indent,
                break_on_hyphens=False,
                break_long_words=False,
            ) or [""]
    return "\n".join(lines)


class Lines(argparse.HelpFormatter):
    """Keeps the lines of a description and an epilog, as far as they fit."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return fitted(text, width)


class Parser(argparse.ArgumentParser):
    """The parser of a subcommand: an error is one line like all others."""

    def error(self, message: str) -> NoReturn:
        """Raise a UsageError that names the command."""
        raise UsageError(f"{self.prog.removeprefix('fedbench ')}: {message} (see {self.prog} --help)")


_COLOURS = {"completed": 32, "running": 36, "queued": 36, "diverged": 33, "stopped": 33, "failed": 31}
_COLOURS["error"] = _COLOURS["failed"]


def coloured(text: str, status: str, stream: TextIO | None = None) -> str:
    """A text in the colour of a status if the stream is a terminal and NO_COLOR is not set."""
    shows = (stream or sys.stdout).isatty() and not os.environ.get("NO_COLOR")
    shows = shows and os.environ.get("TERM") != "dumb" and status in _COLOURS
    return f"\033[{_COLOURS[status]}m{text}\033[0m" if shows else text
