"""`fedbench compare RUN RUN`: in which keys, versions and numbers two runs differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedbench.config.arguments import Parser

_ENDS = (
    "status",
    "rounds",
    "final_accuracy",
    "best_accuracy",
    "best_round",
    "final_test_loss",
    "wall_seconds",
)
_HOW = ("engine", "chunk", "device", "commit", "parameters")
_ABSENT = object()


def main(argv: Sequence[str]) -> int:
    """Print what differs; exit code 0 (`fedbench rerun` and `replay` judge whether numbers are the same)."""
    parser = Parser(
        prog="fedbench compare",
        description="What differs between two runs: keys, versions and hardware, results, and the first row\n"
        "of metrics.csv in which their numbers are not the same.",
    )
    parser.add_argument("one", type=Path, metavar="RUN_DIR")
    parser.add_argument("other", type=Path, metavar="RUN_DIR")
    args = parser.parse_args(argv)
    print("\n".join(lines(args.one, args.other)))
    return 0


def lines(one: Path, other: Path) -> list[str]:
    """A table of three columns: what, and its value in either run. Raises DataError."""
    from fedbench.api.stored import Run
    from fedbench.config.identity import flat
    from fedbench.sweeps.table import aligned

    runs = Run(one), Run(other)
    before, after = (run.summary for run in runs)
    configs = [flat(run.config) for run in runs]
    parts = {
        "configuration": _differing(*configs),
        "computed with": [*_differing(_how(before), _how(after))],
        "results": _differing(*({name: found.get(name) for name in _ENDS} for found in (before, after))),
        "metrics.csv": _first_row(runs[0].metrics, runs[1].metrics),
    }
    table = [["", str(one), str(other)]]
    for title, rows in parts.items():
        found = list(rows)
        table.append([f"{title}:" if found else f"{title}: the same", "", ""])
        table += [[f"  {name}", _text(a), _text(b)] for name, a, b in found]
    return aligned(table)


def _how(found: Mapping[str, Any]) -> dict[str, Any]:
    own = {name: found.get(name) for name in _HOW}
    return {**own, **(found.get("versions") or {}), **(found.get("hardware") or {})}


def _differing(one: Mapping[str, Any], other: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    for name in dict.fromkeys([*one, *other]):
        a, b = one.get(name, _ABSENT), other.get(name, _ABSENT)
        if a != b:
            yield name, a, b


def _first_row(one: Any, other: Any) -> Iterator[tuple[str, Any, Any]]:
    """The first evaluated round that both have with other numbers, and the largest distance of each
    column."""
    rounds = sorted({*one["round"]} & {*other["round"]})
    a, b = (frame.set_index("round").loc[rounds] for frame in (one, other))
    columns = [name for name in a if name in b and name != "wall_seconds"]
    same = (a[columns] == b[columns]) | (a[columns].isna() & b[columns].isna())
    if not same.all(axis=None):
        first = same.index[~same.all(axis=1)][0]
        for name in same.columns[~same.loc[first]]:
            yield f"{name} in round {first}", a.loc[first, name], b.loc[first, name]
    if len(rounds) < max(len(one), len(other)):
        yield "rows", len(one), len(other)


def _text(value: object) -> str:
    return "-" if value is _ABSENT else "null" if value is None else str(value)
