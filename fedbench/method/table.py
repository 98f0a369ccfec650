"""The table of all methods: what each sends and keeps, measured from its code, and which test checks it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass

import torch

from fedbench.method.cost import Cost, measure
from fedbench.method.interface import Algorithm, Setting
from fedbench.theory.setting import Counts

_SIZES = (600, 393, 7)  # tensors of a made-up model; the last belongs to normalisation layers
_NAMES = ("body.weight", "head.weight", "head.bias")
_D, _NORM, _HEAD, _B = sum(_SIZES), _SIZES[-1], sum(_SIZES[1:]), len(_SIZES)


@dataclass(frozen=True)
class Entry:
    """One method. Sizes in units of d, per client and round unless said otherwise."""

    name: str
    paper: str
    uplink: str
    downlink: str
    client_state: str
    server_state: str
    gradients: str
    tuned: str  # hyper-parameters without a theorem's value
    problem_dependent: str
    schedules: str
    checked_by: str  # the file of the test that compares it with its paper


def cost_of(cls: type[Algorithm]) -> Cost:
    """What a method at its class defaults sends, keeps and computes, for a made-up model."""
    algorithm = cls()
    counts = Counts(S=2, N=2, K=4, T=4)
    setting = Setting(counts, algorithm.schedules[0], _D, torch.arange(_NORM), _SIZES, names=_NAMES)
    algorithm.bind(setting)
    return measure(algorithm, setting)


def entry(cls: type[Algorithm], cost: Cost) -> Entry:
    """The table's row of one method at its class defaults, which cost that much."""
    algorithm = cls()
    once = f" (+{_units(cost.survey_uplink)} once)" if cost.survey_uplink else ""
    steps = "" if cost.calls_per_step == 1 else str(cost.calls_per_step)
    passes = "full pass + " if cost.full_passes else ""
    first = "(K-1)" if algorithm.first_step else "K"
    cohort = " (full participation)" if cls.full_participation else " (S = 1)" if cls.every_arrival else ""
    untuned = (*cls.theorem_keys(), "scale")  # `scale` is 1 unless the user sets it
    tuned = [name for name in cls.numbers() if name not in untuned]
    return Entry(
        name=cls.name,
        paper=cls.paper,
        uplink=_units(cost.uplink) + once,
        downlink=_units(cost.downlink),
        client_state=_units(cost.client_state),
        server_state=_units(cost.server_state)
        + (" + Nd" if algorithm.caches else "")
        + (" + Sd" if algorithm.stacks else ""),
        gradients=f"{passes}{steps}{first}",
        tuned=", ".join(tuned) or "none",
        problem_dependent=", ".join(cls.problem_dependent) or "no",
        schedules=", ".join(cls.schedules) + cohort,
        checked_by=cls.checked_by.partition("::")[0].rpartition("/")[2],
    )


def markdown(methods: Iterable[type[Algorithm]]) -> str:
    """The table as Markdown, for the README."""
    titles = [field.name.replace("_", " ") for field in dataclasses.fields(Entry)]
    entries = (dataclasses.astuple(entry(cls, cost_of(cls))) for cls in methods)
    rows = [titles, ["---"] * len(titles), *entries]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows) + "\n"


def _units(size: int) -> str:
    if size == 0:
        return "0"
    if size % _D == 0:
        return f"{size // _D}d"
    if size % _D == _B:
        return f"{size // _D}d + B"
    for name, part in (("norm layers", _NORM), ("last layers", _HEAD)):
        if size == part:
            return name
        if (size + part) % _D == 0:
            return f"{(size + part) // _D}d - {name}"
    return f"{size / _D:g}d"
