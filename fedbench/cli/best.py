"""`fedbench best DIR`: the settings with the best results, over seeds."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path

from fedbench.config.arguments import Parser
from fedbench.errors import ConfigError, DataError

METRICS = {"final_accuracy": 1, "best_accuracy": 1, "final_test_loss": -1}
"""What may be best, and its sign."""


def main(argv: Sequence[str]) -> int:
    """Print one line per value of the keys `--by`, the best first, and where its runs lie; exit code 0."""
    parser = Parser(
        prog="fedbench best",
        description="The best setting of every algorithm: the largest mean over its seeds. Runs that agree\n"
        "in all but the seed are one setting; one with a run that failed, diverged or has not ended is\n"
        "left out.",
    )
    add = parser.add_argument
    add("directories", nargs="+", metavar="DIR", help="of runs or sweeps")
    add("--metric", default="final_accuracy", help=f"{', '.join(METRICS)} (the smallest loss)")
    add("--by", default="algorithm", help="keys, with commas: the best setting for each of their values")
    args = parser.parse_args(argv)
    if args.metric not in METRICS:
        raise ConfigError("--metric", args.metric, f"must be one of {', '.join(METRICS)}", METRICS)
    print("\n".join(lines(args.directories, args.metric, args.by.split(","))))
    return 0


def lines(directories: Sequence[str], metric: str, by: Sequence[str]) -> list[str]:
    """The table, then the directories of the best setting of all. Raises DataError, ConfigError."""
    from fedbench.config.grouping import differing, one_per_seed, split
    from fedbench.figures.results import outcomes, read
    from fedbench.runs.stored import FINISHED
    from fedbench.sweeps.manifest import swept_in
    from fedbench.sweeps.table import aligned

    runs = read(directories)
    known = sorted({key for run in runs for key in run.choices})
    for key in by:
        if key not in known:
            raise ConfigError("--by", key, "must be a key of these runs, such as algorithm", known)
    swept = [key for key in swept_in(Path(run.source) for run in runs) if key in known]
    keys = list(dict.fromkeys([*by, *swept, *differing(run.choices for run in runs)]))
    runs = one_per_seed(runs, lambda run: run.choices, lambda run: run.status in FINISHED, keys)
    groups = split(list(zip(runs, outcomes(runs), strict=True)), keys, lambda pair: pair[0].choices)
    found = []
    for setting, members in groups.items():
        values = [
            row[metric] for run, row in members if run.status == "completed" and row[metric] is not None
        ]
        if len(values) == len(members):
            found.append((METRICS[metric] * statistics.fmean(values), setting, values, members))
    if not found:
        raise DataError(f"{', '.join(directories)}: no setting has completed all its runs with a {metric}")
    found.sort(key=lambda one: -one[0])
    best = {one[1][: len(by)]: one for one in reversed(found)}
    table = [[*keys, metric.replace("_", " "), "n"]]
    for _, setting, values, _ in sorted(best.values(), key=lambda one: -one[0]):
        spread = f" +- {statistics.stdev(values):.4f}" if len(values) > 1 else ""
        shown = ["" if value is None else str(value) for value in setting]
        table.append([*shown, f"{statistics.fmean(values):.4f}{spread}", str(len(values))])
    out = len(groups) - len(found)
    note = (
        [f"({out} setting{'s' if out > 1 else ''} left out: a run failed, diverged or not ended)"]
        if out
        else []
    )
    return [*aligned(table), *note, "", *(run.source for run, _ in found[0][3])]
