"""The short table at the end of a sweep: final accuracy, over seeds where there are several."""

from __future__ import annotations

import csv
import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

from fedbench.config.grouping import split
from fedbench.runs.provenance import mixed_code
from fedbench.runs.reached import COLUMN
from fedbench.runs.stored import summary
from fedbench.sweeps.collect import IDENTITY, OUTCOME
from fedbench.sweeps.manifest import levels_asked

LIMIT = 40  # rows; a longer table is read in runs.csv


def outcome(runs: Path) -> str:
    """What runs.csv says, as text: one line per setting that differs in more than the seed, best first."""
    with runs.open(newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    if not rows:
        return "no run has ended"
    summaries = [found for row in rows if (found := summary(runs.parent / row["dir"]))]
    beside = ("dir", "seed", *OUTCOME)
    keys = [key for key in rows[0] if key not in beside and not key.startswith(COLUMN)]
    reached = [f"{COLUMN}{level:g}" for level in levels_asked(runs.parent)]
    reached = [column for column in reached if column in rows[0]]
    shown = [key for key in keys if len({row[key] for row in rows}) > 1] or ["algorithm"]
    shown.sort(key=lambda key: key in IDENTITY and key != "algorithm")
    groups = list(split(rows, shown, lambda row: row).items())
    groups.sort(key=lambda group: _mean(group[1]), reverse=True)
    words = [column.replace("_", " ") for column in reached]
    lines = [[*shown, f"final {_metric(summaries)}", "best", *words, "n"]]
    for setting, members in groups:
        spreads = [_spread(members, "final_accuracy"), _spread(members, "best_accuracy")]
        spreads += [_rounds(members, column) for column in reached]
        lines.append([*map(str, setting), *spreads, _count(members)])
    mixed = mixed_code(summaries)
    more = [f"... and {len(lines) - 1 - LIMIT} more lines: {runs}"] if len(lines) - 1 > LIMIT else []
    return "\n".join([*aligned(lines[: LIMIT + 1]), *more, *([mixed] if mixed else [])])


def _metric(summaries: Sequence[Mapping[str, object]]) -> str:
    """What the accuracies are; `score` where runs measure several things."""
    metrics = {found.get("metric", "accuracy") for found in summaries} or {"accuracy"}
    return str(metrics.pop()) if len(metrics) == 1 else "score"


def _mean(rows: Sequence[Mapping[str, str]]) -> float:
    """Of the final accuracy; below all others where there is none."""
    numbers = [float(row["final_accuracy"]) for row in rows if row["final_accuracy"]]
    return statistics.fmean(numbers) if numbers else -math.inf


def _spread(rows: Sequence[Mapping[str, str]], column: str) -> str:
    """Mean, and sample standard deviation where there are several."""
    numbers = [float(row[column]) for row in rows if row[column]]
    if not numbers:
        return "-"
    mean = f"{statistics.fmean(numbers):.4f}"
    return mean if len(numbers) == 1 else f"{mean} +- {statistics.stdev(numbers):.4f}"


def _rounds(rows: Sequence[Mapping[str, str]], column: str) -> str:
    """Mean number of rounds over the runs that got there, and how many did where not all."""
    numbers = [float(row[column]) for row in rows if row[column]]
    if not numbers:
        return "never"
    mean = f"{statistics.fmean(numbers):.1f}"
    return mean if len(numbers) == len(rows) else f"{mean} ({len(numbers)} of {len(rows)})"


def _count(rows: Sequence[Mapping[str, str]]) -> str:
    odd = [row["status"] for row in rows if row["status"] != "completed"]
    return f"{len(rows)}" + "".join(f", {odd.count(status)} {status}" for status in dict.fromkeys(odd))


def aligned(lines: Sequence[Sequence[str]]) -> list[str]:
    """Lines of cells, one below another."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]
