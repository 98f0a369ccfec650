"""The parser of subcommands: argparse, with its errors as one line like all others."""

from __future__ import annotations

import argparse
from typing import NoReturn

from fedbench.errors import UsageError


class BadArguments(UsageError):
    """What a parser refuses, and the parser."""

    def __init__(self, message: str, parser: argparse.ArgumentParser) -> None:
        super().__init__(message)
        self.parser = parser


class Parser(argparse.ArgumentParser):
    """An ArgumentParser that raises BadArguments instead of printing its usage and exiting."""

    def error(self, message: str) -> NoReturn:
        """Raise `message`, naming the command."""
        line = f"{self.prog.removeprefix('fedbench ')}: {message} (see {self.prog} --help)"
        raise BadArguments(line, self)
