"""`fedbench collect SWEEP_DIR`: the tables of a sweep, made again from its runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fedbench.config.arguments import Parser
from fedbench.errors import ConfigError
from fedbench.sweeps.collect import collect
from fedbench.sweeps.manifest import MANIFEST, write_manifest
from fedbench.sweeps.table import outcome


def main(argv: Sequence[str]) -> int:
    """Run the subcommand; the exit code. Raises ConfigError where the directory is that of no sweep."""
    parser = Parser(
        prog="fedbench collect", description="Rebuild runs.csv and rounds.csv of a sweep from its runs."
    )
    parser.add_argument("directory", type=Path, metavar="SWEEP_DIR")
    words = "count rounds to these test accuracies too (rounds_to_0.85, ...), and show them"
    parser.add_argument("--levels", type=_levels, default=[], metavar="LEVEL[,LEVEL]", help=words)
    args = parser.parse_args(argv)
    directory = args.directory
    must = "must be the directory of a sweep"
    if not directory.is_dir():
        raise ConfigError("SWEEP_DIR", directory, must)
    if not (directory / MANIFEST).is_file():
        if (directory / "summary.json").exists() or (directory / "config.yaml").exists():
            raise ConfigError("SWEEP_DIR", directory, f"{must}; it is that of a single run")
        if not any(directory.rglob("summary.json")):
            raise ConfigError("SWEEP_DIR", directory, f"{must}; it holds no runs")
    if args.levels:
        write_manifest(directory, levels=args.levels)
    table, rounds = collect(directory)
    if args.levels:
        print(f"{outcome(table)}\n")
    print(f"{table}\n{rounds}")
    return 0


def _levels(text: str) -> list[float]:
    try:
        levels = [float(word) for word in text.split(",")]
    except ValueError:
        levels = [0.0]
    if not all(0 < level <= 1 for level in levels):
        raise ConfigError("--levels", text, "must be accuracies in (0, 1], such as 0.8,0.9")
    return levels
