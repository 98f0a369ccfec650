"""`fedbench collect SWEEP_DIR`: the tables of a sweep, made again from its runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fedbench.config.arguments import Parser
from fedbench.errors import ConfigError
from fedbench.sweeps.collect import MANIFEST, collect


def main(argv: Sequence[str]) -> int:
    """Run the subcommand; the exit code. Raises ConfigError where the directory is that of no sweep."""
    parser = Parser(
        prog="fedbench collect", description="Rebuild runs.csv and rounds.csv of a sweep from its runs."
    )
    parser.add_argument("directory", type=Path, metavar="SWEEP_DIR")
    directory = parser.parse_args(argv).directory
    must = "must be the directory of a sweep"
    if not directory.is_dir():
        raise ConfigError("SWEEP_DIR", directory, must)
    if not (directory / MANIFEST).is_file():
        if (directory / "summary.json").exists() or (directory / "config.yaml").exists():
            raise ConfigError("SWEEP_DIR", directory, f"{must}; it is that of a single run")
        if not any(directory.rglob("summary.json")):
            raise ConfigError("SWEEP_DIR", directory, f"{must}; it holds no runs")
    for file in collect(directory):
        print(file)
    return 0
