"""The typed schema of a run: which keys exist, of which type, in which range. Values live in conf/.

Hydra merges the YAML files into these dataclasses, so a wrong type is refused while composing; the
ranges, kept as metadata beside each field, are checked afterwards (`validate.py`).
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from omegaconf import MISSING

GROUPS = ("dataset", "partition", "model", "algorithm", "schedule", "delay")
"""Config groups that every run chooses one option of."""


def key(
    doc: str, *, low: float | None = None, above: float | None = None, choices: tuple[str, ...] = ()
) -> Any:
    """A key: what it means, and its range: at least `low`, greater than `above`, or one of `choices`."""
    return field(default=MISSING, metadata={"doc": doc, "low": low, "above": above, "choices": choices})


@dataclass
class Clients:
    """The clients."""

    total: int = key("N, number of clients", low=1)
    per_round: int = key("S, clients per round (asynchronous: arrivals per server update)", low=1)


@dataclass
class Local:
    """What a client does in one job."""

    steps: int | None = key("K, local steps (10 when neither steps nor epochs is given)", low=1)
    epochs: int | None = key("local epochs, instead of steps", low=1)
    batch_size: int | None = key("B, samples of a mini-batch; null: all samples of the client", low=1)


@dataclass
class Loss:
    """The objective beside the cross-entropy."""

    weight_decay: float = key("w: adds w/2 |theta|^2 to the objective", low=0)
    scale: float = key("multiplies the objective", above=0)


@dataclass
class Eval:
    """What is measured, and when."""

    every: int = key("rounds between evaluations; round 0 and the last one always", low=1)
    train: bool = key("also the loss on all training data")
    grad_norm: bool = key("also the norm of the full gradient")
    final_k: int = key("final_accuracy is the mean of the last k evaluations", low=1)
    batch_size: int | None = key("samples evaluated at once", low=1)


@dataclass
class Checkpoint:
    """Saving, to resume from."""

    seconds: float = key("training seconds between checkpoints", low=0)


@dataclass
class Data:
    """Where data lies."""

    root: str = key("directory of the data files (environment: FEDBENCH_DATA)")


@dataclass
class Config:
    """A run. The groups are checked against the file of the chosen option, and by those who read them."""

    rounds: int = key("T, number of server updates; 0 evaluates the initial model", low=0)
    clients: Clients = field(default_factory=Clients)
    local: Local = field(default_factory=Local)
    seed: int = key("of everything random: partition, initial model, cohorts, mini-batches, delays", low=0)
    dtype: str = key("of parameters and arithmetic", choices=("float32", "float64"))
    loss: Loss = field(default_factory=Loss)
    eval: Eval = field(default_factory=Eval)
    init_from: str | None = key("a model.pt to start from")
    deterministic: bool = key("only deterministic kernels")
    trace: bool = key("write jobs.csv: who worked when")
    imports: list[str] = key("your own modules or .py files to execute first")  # noqa: RUF009
    device: str = key("where to compute", choices=("auto", "cpu", "cuda"))
    engine: str = key("how to run a cohort", choices=("auto", "loop", "vmap", "compile"))
    chunk: int | None = key("clients computed at once; null: chosen", low=1)
    threads: int | None = key("CPU threads; null: all", low=1)
    resume: bool = key("go on where the run stopped; false: compute it again")
    checkpoint: Checkpoint = field(default_factory=Checkpoint)
    data: Data = field(default_factory=Data)
    progress: str = key("how progress is shown", choices=("auto", "bar", "lines", "none"))
    verbose: bool = key("more lines in the log")
    dataset: Any = MISSING
    partition: Any = MISSING
    model: Any = MISSING
    algorithm: Any = MISSING
    schedule: Any = MISSING
    delay: Any = MISSING


@dataclass(frozen=True)
class Key:
    """One key of the schema, under its dotted name."""

    name: str
    type: Any
    optional: bool
    doc: str
    low: float | None
    above: float | None
    choices: tuple[str, ...]

    def allowed(self) -> str:
        """What may be given, in words."""
        if self.choices:
            return f"must be one of {', '.join(self.choices)}"
        words = {int: "an integer", float: "a number", bool: "true or false", str: "a text"}.get(self.type)
        words = words or "a list such as [a, b]"
        if self.low is not None:
            words += f" >= {self.low:g}"
        if self.above is not None:
            words += f" > {self.above:g}"
        return f"must be {words}{', or null' if self.optional else ''}"


def all_keys(cls: type = Config, prefix: str = "") -> Iterator[Key]:
    """All keys of the schema but the groups, in order, nested ones under their dotted names."""
    hints = typing.get_type_hints(cls)
    for item in dataclasses.fields(cls):
        hint = hints[item.name]
        if dataclasses.is_dataclass(hint):
            yield from all_keys(typing.cast(type, hint), f"{prefix}{item.name}.")
        elif "doc" in item.metadata:
            members = [arm for arm in typing.get_args(hint) if arm is not type(None)]
            optional = type(None) in typing.get_args(hint)
            yield Key(prefix + item.name, members[0] if optional else hint, optional, **item.metadata)
