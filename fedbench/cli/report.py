"""`fedbench report DIR`: the runs of a directory as one HTML file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fedbench.config.arguments import Parser


def main(argv: Sequence[str]) -> int:
    """Write the page and print its path; exit code 0. Raises UsageError, DataError, RunError."""
    parser = Parser(
        prog="fedbench report",
        description="The runs of a sweep, or of any directory, as one HTML file that opens without network:\n"
        "what was run, tables to sort, curves to switch on and off, a heat map for every pair of searched\n"
        "keys, runs that failed or diverged with their reasons, links to the files (extra `report`: plotly).",
    )
    parser.add_argument("directory", type=Path, metavar="DIR", help="of a sweep or of a run")
    parser.add_argument("--out", type=Path, metavar="FILE", help="default: DIR/report.html")
    args = parser.parse_args(argv)
    out = args.out or args.directory / "report.html"
    from fedbench.webpage.page import write

    write(args.directory, out)
    print(out)
    return 0
