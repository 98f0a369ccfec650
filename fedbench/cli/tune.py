"""`fedbench tune KEY=VALUE...`: search hyper-parameters method by method, then run the winners."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fedbench.errors import Lines, Parser, RunError

if TYPE_CHECKING:
    from fedbench.tuning.tune import Tuned

_EXAMPLES = """examples:
  fedbench tune algorithm=fedavg,scaffold algorithm.lr=0.01,0.1 "seed=range(4)"
  fedbench tune algorithm=fedavg,feddyn,fedadam --small "seed=range(4)"       at most 20 points a method
  fedbench tune algorithm=fedavg,fedadam "seed=range(6)" --seeds 3            values of conf/grid
  fedbench tune algorithm=fedavg,fedadam --keys lr partition=iid,dirichlet    each split by itself
  fedbench tune 'algorithm.lr=tag(log,interval(0.001,1))' --search optuna --trials 30
  fedbench tune algorithm=fedavg,fedadam target=0.9                           the fewest rounds to 0.9
  fedbench tune 'eval.metrics=[macro_f1]' --metric macro_f1 algorithm.lr=0.1,1  by another metric
  fedbench tune experiment=quickstart --keys lr rounds=30 dataset=fmnist
  fedbench tune DIR rounds=1000 "seed=range(10)"                    its winners: longer, with more seeds
  fedbench tune DIR dataset.validation=0                            its winners: trained on everything
Swept keys of algorithm.* are searched (or the keys of --keys); if none is swept, the method's values in \
conf/grid. Every combination of the other swept keys is a task, which is tuned separately.
A tenth of every client's training samples is held out (dataset.validation=0.1; another share where it is \
given, and with 0 the test set decides). The winner has the highest mean final validation accuracy over \
the first --seeds seeds (a diverged run counts 0). It is run again with the other seeds, or with the same \
where there are no others, and measured on the test set: results.csv has these numbers. So seed=range(4) \
gives three seeds that have not selected. A swept key applies to the methods that have it; the plan says \
to which it does not, and which keys stay untuned. A method of your own without a file grid/METHOD.yaml in \
--config-dir is searched over conf/grid/own_method.yaml, by the names of its fields.
With target=ACCURACY, runs stop at that accuracy, and the fewest mean rounds to reach it win. A run that \
does not reach it counts twice its rounds; a tie goes to the more accurate setting.
A winner at the edge of a grid is flagged, and the search goes on past it. The same command goes on where \
it stopped. Below outputs/tune/ (or hydra.sweep.dir=DIR): trials.csv, results.csv, tuning-lr.png, \
tune.json, and the runs in trials/ and final/, which are sweeps. best, plot and report of DIR show the \
winners; those of DIR/trials show the search. Tunings with other options, such as --keys, have directories \
of their own; a given DIR with winners refuses other options.
tune DIR KEY=VALUE... runs the winners again in DIR/final-..., each with its own values. Keys that say \
only how a run is computed (threads, hydra.launcher.*, ...) are no part of that name."""


def main(argv: Sequence[str]) -> int:
    """`fedbench tune`. Returns the exit code. Raises UserError (RunError if runs failed, or all diverged)."""
    from fedbench.config.config import EVAL_METRICS
    from fedbench.figures.lines import listed
    from fedbench.tuning.again import again, forecast_again
    from fedbench.tuning.methods import SMALL
    from fedbench.tuning.request import SEARCHES, TuneOptions
    from fedbench.tuning.tune import dry_run, tune

    default = TuneOptions()
    parser = Parser(
        prog="fedbench tune",
        description="Search hyper-parameters method by method, then run every winner over further seeds.",
        epilog=_EXAMPLES,
        formatter_class=Lines,
    )
    add = parser.add_argument
    add("overrides", nargs="*", metavar="KEY=VALUE", help="as for a sweep")
    add("--search", choices=SEARCHES, default=default.search, help="how points are chosen (default: grid)")
    count = f"points of a random or Optuna search, for each task (default: {default.trials})"
    add("--trials", type=int, default=default.trials, metavar="N", help=count)
    add("--seeds", type=int, default=1, metavar="N", help="seeds to select by, the first N (default: 1)")
    past = f"how many times a search continues past an edge (default: {default.extend})"
    add("--extend", type=int, default=default.extend, metavar="N", help=past)
    add("--keys", default="", metavar="KEY[,KEY]", help="what is searched (lr, or algorithm.lr)")
    names = ", ".join(EVAL_METRICS)
    further = "or by a column of metrics.csv that eval asks for, such as client_accuracy_worst"
    words = f"select by one of eval.metrics, not by accuracy ({names}), on what is held out; {further}"
    add("--metric", metavar="NAME", help=words)
    small = f"of the values in conf/grid, at most {SMALL} points a method, nearest to the defaults"
    add("--small", action="store_true", help=small)
    add("--config-dir", metavar="DIR", help="your own options, and grid/METHOD.yaml")
    add("--dry-run", action="store_true", help="say what would run, and run nothing")
    args = parser.parse_intermixed_args(list(argv))
    keys = tuple(listed(args.keys))
    options = TuneOptions(
        args.search, args.trials, args.seeds, args.extend, keys, args.config_dir, args.metric, args.small
    )
    tuned = Path(args.overrides[0]) if args.overrides and "=" not in args.overrides[0] else None
    if args.dry_run:
        lines = forecast_again(tuned, args.overrides[1:]) if tuned else dry_run(args.overrides, options)
        for line in lines:
            print(line, flush=True)
        return 0
    return _shown(again(tuned, args.overrides[1:]) if tuned else tune(args.overrides, options))


def _shown(tuned: Tuned) -> int:
    """Print the results and the files. Raises RunError if runs failed."""
    if len(tuned.results):
        print(f"\n{tuned.results.dropna(axis='columns', how='all').to_string(index=False)}\n")
    for line in tuned.notes:
        print(line)
    pictures = sorted(tuned.directory.glob("tuning-*.png"))
    for file in [tuned.directory / "trials.csv", tuned.directory / "results.csv", *pictures]:
        if file.is_file():
            print(file)
    if tuned.failures:
        more = f" and {len(tuned.failures) - 1} more" if len(tuned.failures) > 1 else ""
        raise RunError(f"{tuned.failures[0]}{more}")
    return 0
