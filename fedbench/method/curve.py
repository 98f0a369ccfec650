"""Every method's accuracy on the quickstart's task: a small table in the repository, drawn as text."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

CURVES = Path(__file__).parents[2] / "outputs" / "benchmarks" / "methods_quickstart.csv"
"""Written by scripts/method_curves; a wheel does not carry it."""
NEEDS = {
    "ace": "clients.per_round=1 local.steps=1",
    "asyncfeded": "clients.per_round=1",
    "dude_asgd": "local.steps=1",
    "fafed": "clients.per_round=20",
    "fedasync": "clients.per_round=1",
    "fedbn": "model.norm=layer",
    "led": "clients.per_round=20",
    "ringmaster_asgd": "clients.per_round=1 local.steps=1",
    "vrl_sgd": "clients.per_round=20",
}
"""Settings of the task that a method's definition requires."""
_BARS = "▁▂▃▄▅▆▇█"


@dataclass(frozen=True)
class Point:
    """Test accuracy after `round` rounds: mean and sample standard deviation over n seeds."""

    round: int
    mean: float
    std: float
    n: int


def curve(name: str) -> list[Point]:
    """The method's points in order of the rounds; empty if it was not measured."""
    if not CURVES.is_file():
        return []
    with CURVES.open(newline="") as stream:
        rows = [row for row in csv.reader(stream) if row[0] == name]
    return [Point(int(t), float(mean), float(std), int(n)) for _, t, mean, std, n in rows]


def sparkline(shares: Sequence[float]) -> str:
    """One block character per number in [0, 1], as high as the number."""
    return "".join(_BARS[min(int(share * len(_BARS)), len(_BARS) - 1)] for share in shares)


def drawn(points: Sequence[Point]) -> list[str]:
    """The curve as lines of text."""
    first, last = points[0], points[-1]
    shown = [point for point in points if point.round in (0, 4, 12, 20, 40, last.round)]
    columns = [(str(p.round), f"{p.mean:.3f}", f"{p.std:.3f}") for p in shown]
    rows = zip(("round", "accuracy", "std"), *columns, strict=True)
    return [
        f"{sparkline([p.mean for p in points])}  rounds {first.round} to {last.round}, height 0 to 1",
        *("  ".join([title.ljust(8), *(cell.rjust(5) for cell in cells)]) for title, *cells in rows),
    ]
