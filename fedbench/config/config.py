"""The typed configuration of a run: what a command line is read into, and all that a run's code gets.

`Config` declares everything once: the keys, their defaults, ranges and meaning. `fedbench/fields.py` explains
why these are plain dataclasses.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

from omegaconf import DictConfig, OmegaConf

from fedbench import fields
from fedbench.data.division import PartitionOptions
from fedbench.data.options import DatasetOptions
from fedbench.fields import (
    Choice,
    choice,
    custom,
    integer,
    nonnegative,
    number,
    positive,
    section,
    share,
    switch,
    text,
)
from fedbench.fields import seed as seed_of
from fedbench.loggers.options import LoggerOptions
from fedbench.optimizer import PLAIN, Optimizer
from fedbench.schedule.laws import Law
from fedbench.schedule.options import Async, Sync
from fedbench.schedule.participation import UNIFORM, Participation
from fedbench.schedule.rates import UNSCHEDULED, RateSchedule

WHAT, WHEN, METHOD, RATES, SEED, MEASURED, HOW = (
    *("what", "when", "method", "rates", "seed", "measured", "how"),
)
"""Roles: what a difference between two runs in a key means.

what      another problem, whose steps are other programs: data, model, objective, arithmetic
when      another course of the same steps: which clients have what and work when, and when a run ends
method    another method, or a number of it
rates     another course of a method's rates
seed      a repetition
measured  the same experiment, started or measured in another way; a run of its own nevertheless
how       the same run, computed, shown or saved in another way
"""
GROUPS = {
    **{"dataset": WHAT, "partition": WHEN, "model": WHAT, "algorithm": METHOD, "schedule": WHEN},
    **{"delay": WHEN, "optimizer": METHOD, "lr_schedule": RATES, "server_lr_schedule": RATES},
    "participation": WHEN,
}
"""Config groups, with the roles of their keys; every run chooses one option of each."""


_RECALLS = [f"recall_at_{k}" for k in (2, 3, 5, 10)]
OF_NUMBERS = ("mae", "rmse")
EVAL_METRICS = ("macro_f1", "auroc", "average_precision", *_RECALLS, "perplexity", *OF_NUMBERS)
"""The metrics in `eval.metrics` that are single numbers (computed by fedbench.engine.metrics)."""
CONFUSION = "confusion_matrix"
METRICS_WORDS = f"a list of {', '.join((*EVAL_METRICS, CONFUSION))}"
MEAN_OF_TWO = "mean_of_two"
DEFAULT_STEPS = 10
"""Local steps of a run whose configuration names neither steps nor epochs."""


@dataclass(frozen=True)
class Clients:
    """The clients."""

    total: int = integer(20, low=1, help="N, number of clients")
    per_round: int = integer(
        5, low=1, help="S, clients per round (asynchronous: arrivals per server update)", role=WHAT
    )


def _range(value: Any) -> tuple[int, int]:
    whole = isinstance(value, list | tuple) and all(type(number) is int for number in value)
    if not whole or len(value) != 2 or not 1 <= value[0] <= value[1]:
        raise ValueError
    return value[0], value[1]


@dataclass(frozen=True)
class Local:
    """What a client does in one job."""

    steps: int | None = integer(
        None, low=1, null=f"{DEFAULT_STEPS}, unless epochs are given", help="K, local steps"
    )
    epochs: int | None = integer(
        None,
        low=1,
        words="an integer >= 1 (a part of an epoch is a number of local.steps)",
        null="not used",
        help="local epochs, instead of steps",
    )
    epochs_range: tuple[int, int] | None = custom(
        None,
        _range,
        "a list [low, high] of two integers, 1 <= low <= high",
        null="not used",
        help="[low, high]: every job makes a number of epochs drawn from low to high (FedNova)",
    )
    batch_size: int | None = integer(
        32, low=1, null="all samples of the client", help="B, samples of a mini-batch"
    )
    batch_share: float | None = share(
        None,
        null="local.batch_size",
        help="mini-batches are this share of each client's samples, rounded up, in place of "
        "local.batch_size (SCAFFOLD: 0.2)",
    )
    clip_norm: float | None = positive(
        None, null="off", help="longer gradients of mini-batches are shortened to this norm"
    )
    sampler: str | None = choice(
        None,
        ("blocks",),
        null="shuffled passes",
        help="blocks: one of floor(n/B) + 2 fixed blocks a step, one of them empty, two where B divides n "
        "(FedProxVR's scripts)",
    )


BALANCED = "balanced"


def _class_weight(value: Any) -> str | tuple[float, ...]:
    if value == BALANCED:
        return BALANCED
    fit = isinstance(value, list | tuple) and all(type(one) in (int, float) for one in value)
    if not fit or not all(0 < one < float("inf") for one in value):
        raise ValueError
    return tuple(map(float, value))


@dataclass(frozen=True)
class Loss:
    """The objective."""

    kind: str | None = choice(
        None,
        ("cross_entropy", "mse", "bce"),
        null="what the data's targets ask for",
        help="cross_entropy: classes; mse: numbers; bce: labels (with logits)",
    )
    weight_decay: float = nonnegative(0.0, help="w: adds w/2 |theta|^2 to the objective")
    scale: float = positive(1.0, help="multiplies the objective")
    class_weight: str | tuple[float, ...] | None = custom(
        None,
        _class_weight,
        f"{BALANCED}, or a list of positive numbers, one for each class",
        null="1 for every class",
        help="multiplies the loss of a training sample by the weight of its class; a batch's loss is the mean"
        " of these products. balanced: n / (classes * n_c), of n training samples of all clients with n_c of "
        "class c. test_loss and train_loss are without",
    )


def _names(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not all(isinstance(name, str) for name in value):
        raise ValueError
    return tuple(value)


def _metrics(value: Any) -> tuple[str, ...]:
    names = _names(value)
    if len({*names}) < len(names) or not all(re.fullmatch("[a-z][a-z0-9_]*", name) for name in names):
        raise ValueError
    return names  # a name that is not ours is looked up once the user's modules have been executed


@dataclass(frozen=True)
class Compress:
    """What clients send less of."""

    kind: str = choice(
        "none",
        ("none", "topk", "qsgd"),
        help="of methods whose clients send one difference. topk: the largest numbers, the others are 0; "
        "qsgd: all, rounded at random to multiples of norm / levels, without bias. uplink_bytes says what "
        "travels: topk, numbers and positions of 4 bytes; qsgd, a norm and the levels in whole bits",
    )
    share: float = number(
        0.01, low=0, high=1, without=(0,), help="of its numbers that topk sends, one at least"
    )
    levels: int = integer(4, low=1, high=2**20, help="s, of qsgd: numbers are multiples of norm / s")
    feedback: bool | None = switch(
        None,
        null="yes for topk, no for qsgd",
        help="clients keep what they left out, and add it to what they send next",
    )


@dataclass(frozen=True)
class Eval:
    """What is measured, and when. It never changes the training."""

    every: int | None = integer(
        None,
        low=1,
        null="so many that evaluating costs at most a tenth of training, by sizes alone",
        help="rounds between evaluations; always at round 0 and the last one; a row's staleness_mean and "
        "staleness_max are of all updates since the row before",
    )
    train: bool = switch(
        False, help="also train_loss: as test_loss, the mean over the samples, of all that are trained on"
    )
    grad_norm: bool = switch(False, help="also the norm of train_loss's gradient, whatever the method")
    objective: bool = switch(
        False,
        help="also the objective that is minimised: loss.scale (the training loss under the method's client "
        "weighting + loss.weight_decay / 2 |theta|^2); with grad_norm objective_grad_norm, its gradient's",
    )
    clients: bool = switch(
        False,
        help="also the clients' accuracies: mean, mean of the worst tenth (rounded up), standard deviation, "
        "mean weighted by test samples (by training samples where the test set does not say whose they are); "
        "and where it does, of eval.metrics too; clients.csv has each, with finetune_steps before and after "
        "its own steps",
    )
    global_model: bool = switch(
        False,
        help="also global_loss and global_accuracy: of the server's model on the test set, where a method's "
        "clients evaluate models of their own",
    )
    final_k: int = integer(1, low=1, help="final_accuracy is the mean of the last k evaluations")
    batch_size: int | None = integer(None, low=1, null="chosen", help="samples evaluated at once")
    model: str = choice(
        "last",
        ("last", MEAN_OF_TWO),
        help="what is evaluated: the server's model; mean_of_two: the mean of its last two (FedExP). "
        "model.pt is the server's last",
    )
    metrics: tuple[str, ...] = custom(
        [],
        _metrics,
        METRICS_WORDS,
        help="further metrics: columns test_NAME (and validation_NAME) of metrics.csv; auroc and "
        "average_precision by scikit-learn, the mean over classes (of two, average_precision is the second "
        "one's), perplexity is exp(loss) (of all positions, if labels have some), mae and rmse "
        "are of regressions (whose accuracy is R2), in the target's unit, the others by torchmetrics, or "
        "your own under @register_metric; confusion_matrix is no column but drawn at the end. Where "
        "clients evaluate models of their own, the columns are means over clients, and the matrix counts all "
        "clients' test samples",
    )
    finetune_steps: int = integer(
        0,
        low=0,
        help="also the clients' accuracies after this many SGD steps, each on its own data, from the "
        "global model, or from its own where clients have such: mean, mean of the worst tenth, standard "
        "deviation",
    )
    finetune_lr: float | None = positive(None, null="algorithm.lr", help="of these steps")


@dataclass(frozen=True)
class Checkpoint:
    """Saving checkpoints to resume from."""

    seconds: float = nonnegative(10.0, help="training seconds between checkpoints")
    until: int | None = integer(
        None, low=0, null="the end", help="pause at the first evaluation from this round on, to go on later"
    )
    keep: bool = switch(True, help="keep checkpoint.pt, with all clients' state, when the run has ended")


@dataclass(frozen=True)
class State:
    """What clients keep between their jobs (control variates and the like)."""

    place: str = choice(
        "auto",
        ("auto", "memory", "disk"),
        help="where clients' state lies; auto: on disk where it would take more than half of the memory",
    )
    directory: str | None = text(
        None,
        words="a directory",
        null="the run's directory",
        help="where state on disk is kept until the run has ended, by the path of the run's directory, which "
        "must stay where it is; needs space for two rows of every client that works",
    )


@dataclass(frozen=True)
class Data:
    """Where data lies."""

    root: str = text(
        "data", words="a directory", help="directory of the data files (environment: FEDBENCH_DATA)"
    )


DEVICE = r"auto|cpu|cuda(:\d+)?"
_HALF = "a model kept in 16 bits loses every step below 1/256 of a parameter; precision=bf16 computes in it"


@dataclass(frozen=True)
class Settings:
    """All keys but the groups."""

    rounds: int = integer(
        50, low=0, help="T, number of server updates; 0 evaluates the initial model", role=WHEN
    )
    patience: int | None = integer(
        None,
        low=1,
        null="never",
        help="stop after this many evaluations without a better test accuracy",
        role=WHEN,
    )
    aggregation: str = choice(
        "mean",
        ("mean", "median", "trimmed_mean", "krum"),
        help="of what clients send; the others count all uploads alike, coordinate by coordinate (median, "
        "trimmed_mean), or take one client's (krum)",
        role=METHOD,
    )
    byzantine: int = integer(
        1, low=0, help="f, uploads of an update that may be anything, for trimmed_mean and krum", role=METHOD
    )
    compress: Compress = section(Compress, METHOD)
    target: float | None = share(None, null="never", help="stop when the test accuracy reaches it", role=WHEN)
    clients: Clients = section(Clients, WHEN)
    local: Local = section(Local, METHOD)
    seed: int = seed_of(
        help="of all randomness: partition, initial model, cohorts, mini-batches, delays", role=SEED
    )
    dtype: str = choice(
        "float32",
        ("float32", "float64"),
        help="of parameters and arithmetic",
        role=WHAT,
        why_not=dict.fromkeys(("bfloat16", "float16"), _HALF),
    )
    precision: str = choice(
        "float32",
        ("float32", "tf32", "bf16"),
        help="of products inside a client's gradient; vectors stay float32 (tf32: CUDA, evaluations too; "
        "bf16: torch's autocast; CUDA has norms, sums and powers in float32, a CPU in bfloat16)",
        role=WHAT,
    )
    loss: Loss = section(Loss, WHAT)
    eval: Eval = section(Eval, MEASURED)
    init_from: str | None = text(
        None, words="the path of a model.pt", null="none", help="a model to start from", role=MEASURED
    )
    deterministic: bool = switch(True, help="only deterministic kernels", role=MEASURED)
    trace: bool = switch(False, help="write jobs.csv: who worked when", role=MEASURED)
    imports: tuple[str, ...] = custom(
        [],
        _names,
        "a list such as [a, b], each the name of a module or a path to a .py file",
        help="your own modules, or paths of .py files, to execute first",
        role=MEASURED,
    )
    hooks: tuple[str, ...] = custom(
        [],
        _names,
        "a list such as [a, b], each the name of a module or a path to a .py file",
        help="like imports, for code that only observes (loggers): not part of a run's identity",
        role=HOW,
    )
    device: str = text(
        "auto",
        words="auto, cpu, cuda, or cuda:1 (one of several GPUs)",
        pattern=DEVICE,
        help="where to compute",
        role=HOW,
    )
    engine: str = choice(
        "auto", ("auto", "loop", "vmap", "compile"), help="how to run a cohort; compile: on a CPU", role=HOW
    )
    cuda_graph: str = choice(
        "auto",
        ("auto", "off", "unchecked"),
        help="on CUDA, local steps as a graph (auto: where the first chunk confirms it)",
        role=HOW,
    )
    chunk: int | None = integer(None, low=1, null="chosen", help="clients computed at once", role=HOW)
    threads: int | None = integer(
        None, low=1, high=1024, null="as many as the work of a step is worth", help="CPU threads", role=HOW
    )
    resume: bool = switch(True, help="resume where the run stopped; false: compute it again", role=HOW)
    checkpoint: Checkpoint = section(Checkpoint, HOW)
    data: Data = section(Data, HOW)
    state: State = section(State, HOW)
    progress: str = choice("auto", ("auto", "bar", "lines", "none"), help="how progress is shown", role=HOW)


@dataclass(frozen=True, kw_only=True)
class Config(Settings):
    """The configuration of a run, made by `fedbench.config.options.read_config`."""

    dataset: DatasetOptions
    partition: PartitionOptions
    model: Choice
    algorithm: Choice
    schedule: Sync | Async
    delay: Law
    optimizer: Optimizer = PLAIN
    lr_schedule: RateSchedule = UNSCHEDULED
    server_lr_schedule: RateSchedule = UNSCHEDULED
    participation: Participation = UNIFORM
    logger: tuple[LoggerOptions, ...] = ()

    @cached_property
    def given(self) -> dict[str, Any]:
        """All choices as plain, nested values, from which `read_config` makes an equal configuration. They
        are used for config.yaml, the identity and the tables.

        They follow from the typed fields alone, so they are also right after `dataclasses.replace(config,
        ...)`.
        """
        values = fields.plain(self)
        for group in GROUPS:
            options = getattr(self, group)
            chosen = options if isinstance(options, Choice) else getattr(options, "chosen", Choice(""))
            declared = {} if isinstance(options, Choice) else fields.plain(options)
            values[group] = {"name": options.name, **declared, **fields.unread(chosen.options)}
        if self.logger:
            values["logger"] = {logger.name: fields.plain(logger) for logger in self.logger}
        return values

    @cached_property
    def choices(self) -> dict[str, Any]:
        """`given` under dotted keys (`flat`)."""
        return dict(_walk(self.given, ""))


_ROLES = {**fields.roles(Settings), "experiment": WHAT, "scale": WHAT, "logger": HOW, "hydra": HOW}
_ROLES["verbose"] = HOW  # of older runs


@cache  # it is asked for every key of every run
def role(key: str) -> str | None:
    """The role of a dotted key of a run or a sweep; None: there is no such key."""
    top = key.split(".")[0]
    return GROUPS.get(top) or _ROLES.get(key) or _ROLES.get(top)


USUAL = {item.name: item.default.name for item in dataclasses.fields(Config) if hasattr(item.default, "name")}
"""Groups that a configuration may leave out, and the option that it then has."""
_NAMES = {f"{group}.name" for group in GROUPS}
_TUNING = "algorithm.grid"  # values to try when tuning, in older files: advice, not a choice


def flat(cfg: Config | DictConfig | Mapping[str, Any]) -> dict[str, Any]:
    """All choices under dotted keys, resolved. A group's chosen option stands under the group's own name
    (`dataset`, not `dataset.name`). Lists are values. Hydra's own node and `algorithm.grid` are left out."""
    if isinstance(cfg, Config):
        return cfg.choices
    return dict(_walk(container(cfg) if isinstance(cfg, DictConfig) else cfg, ""))


def _walk(node: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for name, value in node.items():
        key = prefix + name
        if isinstance(value, Mapping) and value and key != "hydra":
            yield from _walk(value, f"{key}.")
        elif not key.startswith(("hydra", _TUNING)):
            yield key.removesuffix(".name") if key in _NAMES else key, value


def container(cfg: DictConfig) -> dict[str, Any]:
    """A composed configuration as plain values, resolved, without Hydra's node (which may refer to it)."""
    absent = ("logger", *USUAL)  # null if the user's primary file lacks them
    plain = {}
    for key in map(str, cfg):
        if key == "hydra":
            continue
        value = "???" if OmegaConf.is_missing(cfg, key) else cfg[key]
        value = OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value
        if value or key not in absent:
            plain[key] = value
    return plain
