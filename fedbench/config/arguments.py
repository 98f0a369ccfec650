"""The parser of subcommands: argparse, with its errors as one line like all others."""

from __future__ import annotations

import argparse
from typing import NoReturn

from fedbench.errors import UsageError


class Parser(argparse.ArgumentParser):
    """An ArgumentParser that raises UsageError instead of printing its usage and exiting."""

    def error(self, message: str) -> NoReturn:
        """Raise `message`, naming the command."""
        raise UsageError(f"{self.prog.removeprefix('fedbench ')}: {message} (see {self.prog} --help)")
