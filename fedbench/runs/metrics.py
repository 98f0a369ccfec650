"""What is measured: a row of numbers per evaluated round, the rounds that a run needs to reach an accuracy,
and how the run ended."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from fedbench.config.config import CONFUSION, EVAL_METRICS, Eval

Row = dict[str, Any]
"""The numbers of an evaluated round, by column; None is written as an empty field. The task defines what an
accuracy is (fedbench.engine.objective)."""

ALWAYS = (
    *("round", "virtual_time", "train_loss", "test_loss", "test_accuracy", "grad_norm"),
    *("uplink_bytes", "downlink_bytes", "gradient_evaluations", "staleness_mean", "staleness_max"),
    "wall_seconds",
)
OF_OBJECTIVE = ("objective", "objective_grad_norm")  # with eval.objective; the second with eval.grad_norm too
OF_GLOBAL = ("global_loss", "global_accuracy")  # with eval.global_model
OF_VALIDATION = ("validation_loss", "validation_accuracy")  # with dataset.validation
_OVER_CLIENTS = ("mean", "worst", "std", "weighted")
OF_CLIENTS = tuple(f"client_accuracy_{name}" for name in _OVER_CLIENTS)  # with eval.clients
_USERS = re.compile(rf"(test|validation)_\w+|client_\w+_({'|'.join(_OVER_CLIENTS)})")
FINETUNED = tuple(f"finetuned_accuracy_{name}" for name in ("mean", "worst", "std"))
FURTHER = (*(f"{part}_{name}" for part in ("test", "validation") for name in EVAL_METRICS), *FINETUNED)
_OF_METRICS = (
    *FURTHER[: -len(FINETUNED)],
    *(f"client_{name}_{over}" for name in EVAL_METRICS for over in _OVER_CLIENTS),
)
COLUMNS = (*ALWAYS, *OF_OBJECTIVE, *OF_GLOBAL, *OF_VALIDATION, *OF_CLIENTS, *_OF_METRICS, *FINETUNED)
"""All columns of metrics.csv, in order; a run has those that it asks for, and of metrics that its user has
registered (`is_users`)."""
INTEGERS = ("round", "uplink_bytes", "downlink_bytes", "gradient_evaluations", "staleness_max")
COSTS = ("virtual_time", "uplink_bytes", "downlink_bytes", "gradient_evaluations")
GROWING = (*COSTS, "staleness_mean", "staleness_max", "wall_seconds")
"""Columns that come to their last value; all others but the round are measured."""
SCORES = tuple(name for name in COLUMNS if name not in ("round", "test_loss", "test_accuracy", *GROWING))
ENDS = (*(f"{when}_{name}" for name in SCORES for when in ("final", "best")), *COSTS)
"""What a run comes to in further columns: the mean of its last `eval.final_k` evaluations, and the best; of
costs the last. Where runs have them, runs.csv does."""
LEVELS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
"""Test accuracies for which every run counts the rounds needed."""
COLUMN = "rounds_to_"
"""Prefix of a level: the column of runs.csv with the rounds needed to reach it, empty if never reached."""


def is_users_column(name: str) -> bool:
    """Whether a name is, by its form, that of a column of a metric that fedbench does not have."""
    return _USERS.fullmatch(name) is not None and name not in COLUMNS


def is_users(name: str) -> bool:
    """Whether a column or an outcome is, by its form, of a metric that fedbench does not have."""
    return is_users_column(column_of(name))


def there(known: Sequence[str], names: Iterable[str]) -> list[str]:
    """Those of the `known` columns or outcomes that are among `names`; then those of users' metrics."""
    found = dict.fromkeys(names)
    return [*(name for name in known if name in found), *filter(is_users, found)]


def columns(asked: Eval, validated: bool) -> list[str]:
    """The columns of a run's metrics.csv. `validated`: some samples are held out."""
    held_out, clients = OF_VALIDATION if validated else (), OF_CLIENTS if asked.clients else ()
    minimised = OF_OBJECTIVE[: 1 + asked.grad_norm] if asked.objective else ()
    of_server = OF_GLOBAL if asked.global_model else ()
    return [*ALWAYS, *minimised, *of_server, *held_out, *clients, *further_columns(asked, validated)]


def further_columns(asked: Eval, validated: bool) -> list[str]:
    """The columns that eval.metrics and eval.finetune_steps add."""
    names = [name for name in asked.metrics if name != CONFUSION]
    parts = ["test", *(["validation"] if validated else [])]
    found = [f"{part}_{name}" for part in parts for name in names]
    each = [f"client_{name}_{over}" for name in names if asked.clients for over in _OVER_CLIENTS]
    return [*found, *each, *(FINETUNED if asked.finetune_steps else ())]


def is_finite(row: Row) -> bool:
    """Whether the losses are finite; those of a diverged run are not."""
    return math.isfinite(row["test_loss"]) and math.isfinite(row["train_loss"] or 0.0)


def metric_of(summaries: Iterable[Mapping[str, Any]]) -> str:
    """What the accuracies of these summaries measure; `score` if they differ."""
    found = {str(summary.get("metric", "accuracy")) for summary in summaries} or {"accuracy"}
    return found.pop() if len(found) == 1 else "score"


_LESS = ("loss", "error", "perplexity", "mae", "rmse", "norm", "objective", "_std", *GROWING)


def sign(metric: str) -> int:
    """1 if more of a metric is better, -1 if less is: of a loss, a perplexity, a cost, a spread."""
    of_clients = metric.rpartition("_")[0]  # client_perplexity_worst
    return -1 if metric.endswith(_LESS) or ("client_" in metric and of_clients.endswith(_LESS)) else 1


def outcome_of(column: str) -> str:
    """What a run comes to in a column of metrics.csv, by its name among outcomes. Other names stay."""
    if column == "test_accuracy":
        return "final_accuracy"
    measured = column in (*SCORES, "test_loss") or is_users_column(column)
    return f"final_{column}" if measured else column


def column_of(outcome: str) -> str:
    """The column of metrics.csv that an outcome is made of."""
    name = outcome.removeprefix("final_").removeprefix("best_")
    return "test_accuracy" if name == "accuracy" else name


def judging(metric: str | None, held_out: bool) -> str:
    """What a search looks at by a metric of eval.metrics, or None for the accuracy, measured on held-out
    samples if there are any; or by a column of metrics.csv."""
    on = "validation" if held_out else "test"
    return metric if metric in COLUMNS or (metric and is_users(metric)) else f"{on} {metric or 'accuracy'}"


def ends_of(rows: Sequence[Mapping[str, Any]], k: int, diverged: bool) -> dict[str, float | None]:
    """What rows of metrics.csv come to (`ENDS`): the mean of the last `k`, None if the run has diverged, and
    the best of those whose loss is finite. None for what is not finite."""
    named = there((*SCORES, *COSTS), rows[-1]) if rows else []
    has = [name for name in named if rows[-1].get(name) not in (None, "")]
    sound = [row for row in rows if math.isfinite(float(row.get("test_loss") or 0.0))] or rows
    found: dict[str, float | None] = {}
    for name in has:
        last, able = ([_number(row.get(name)) for row in part] for part in (rows[-k:], sound))
        if name in COSTS:
            found[name] = int(last[-1]) if name in INTEGERS else last[-1]
            continue
        mean, way = math.fsum(last) / len(last), sign(name)
        found[f"final_{name}"] = None if diverged or not math.isfinite(mean) else mean
        found[f"best_{name}"] = max(filter(math.isfinite, able), key=lambda one: way * one, default=None)
    return found


def _number(cell: Any) -> float:
    return math.nan if cell in (None, "") else float(cell)


def ends(name: str, metric: str) -> tuple[float, float]:
    """The least and the largest number that a column or an outcome of that name can be. `metric`: what an
    accuracy is."""
    if is_users(name):
        return -math.inf, math.inf
    least = worst(metric) if "accuracy" in name else 0.0
    is_share = any(share in name for share in ("accuracy", "f1", "recall", "auroc", "average_precision"))
    if name.endswith("_std"):
        return 0.0, 0.5 if is_share and not least else math.inf  # of shares, half of which are 0 and half 1
    if is_share:
        return least, 1.0
    return (1.0 if name.endswith("perplexity") else 0.0), math.inf


def worst(metric: str) -> float:
    """The score of a diverged run: the worst value of its metric (fedbench.engine.objective)."""
    return 0.0 if "accuracy" in metric and sign(metric) > 0 else -sign(metric) * math.inf


_ASKS = {
    "validation": "dataset.validation",
    "train_loss": "eval.train",
    "grad_norm": "eval.grad_norm",
    "objective": "eval.objective",
    "objective_grad": "eval.grad_norm",
    "client": "eval.clients",
    "finetuned": "eval.finetune_steps",
}


def asked_by(column: str) -> list[str]:
    """The keys that ask for a column of metrics.csv; none for one that every run has."""
    keys = [key for start, key in _ASKS.items() if column.startswith(start)]
    return [*keys, "eval.metrics"] if column in _OF_METRICS or is_users(column) else keys


R = TypeVar("R", bound=Mapping[str, Any])


def reaching(rows: Iterable[R], levels: Iterable[float], name: str) -> dict[str, R | None]:
    """Level (`0.9`) -> the first of these rows of metrics.csv in which a column is at least as good as that
    level; None: none is. A model whose loss is not finite reaches no level."""
    way = sign(name)
    points = [
        (way * float(row[name]), row)
        for row in rows
        if row.get(name) not in (None, "") and math.isfinite(float(row.get("test_loss") or 0.0))
    ]

    def first(level: float) -> R | None:
        return next((row for value, row in points if value >= way * level), None)

    return {f"{level:g}": first(level) for level in sorted(set(levels))}


def rounds_to(
    rows: Iterable[Mapping[str, Any]], levels: Iterable[float], name: str = "test_accuracy"
) -> dict[str, int | None]:
    """The rounds of `reaching`."""
    found = reaching(rows, levels, name).items()
    return {level: None if row is None else int(row["round"]) for level, row in found}


PAUSED = "paused"  # status of a run that has stopped at checkpoint.until


def ending(summary: Mapping[str, Any]) -> str:
    """How a run has ended or paused, how far it came, and its accuracy, by the content of summary.json."""
    status, done, accuracy = summary["status"], summary["rounds"], summary["final_accuracy"]
    reached = f"{done} of {summary['config']['rounds']} rounds"
    if stopped := summary.get("stopped"):
        reached += f" ({stopped})"
    elif status == PAUSED:
        reached += "; the same command with checkpoint.until=null goes on"
    elif status == "starved":
        reached += ", since too few clients were left to fill an update"
    else:
        reached = f"{done} rounds"
    metric, last = summary.get("metric", "accuracy"), "" if status == PAUSED else "final "
    held_out = summary.get("final_validation_accuracy")  # what a search looks at, if there is one
    if accuracy is None:
        shown = f"no final {metric}"
    elif held_out is not None:
        shown = f"{last}validation {metric} {held_out:.4f}, test {accuracy:.4f}"
    else:
        shown = f"{last}{metric} {accuracy:.4f}"
    if accuracy is not None and (many := summary.get("final_k") or 1) > 1:
        shown += f", the mean of the last {many} evaluations"
    return f"{status} after {reached}: {shown}"


def reason_to_stop(rows: Sequence[Row], patience: int | None, target: float | None) -> str | None:
    """Why a run ends with its last evaluation, as `key=value`; None: it goes on. The accuracy that counts is
    that of the validation, if there is one, else the test's.

    `rows`: all its evaluations, starting with the initial model. `patience`: the run ends after this many
    evaluations in a row without an improvement on the best before them.
    """
    name = "validation_accuracy" if "validation_accuracy" in rows[-1] else "test_accuracy"
    accuracies = [float(row[name]) for row in rows]
    if target is not None and accuracies[-1] >= target:
        return f"target={target:g}"
    if patience is not None and len(accuracies) > patience:
        best = max(range(len(accuracies)), key=accuracies.__getitem__)  # the first of equals
        if len(accuracies) - 1 - best >= patience:
            return f"patience={patience}"
    return None
