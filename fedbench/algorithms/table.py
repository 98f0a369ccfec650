"""The table of all methods: what each sends and keeps, measured from its code, and which test checks it."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from fedbench.algorithms.base import Algorithm, Counts, Setting
from fedbench.algorithms.cost import measure
from fedbench.algorithms.registry import get, names

_D, _NORM = 1000, 7  # a pretend model: numbers in all, and in normalisation layers


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


def table() -> list[Entry]:
    """All registered methods, by name."""
    return [entry(get(name)) for name in names()]


def entry(cls: type[Algorithm]) -> Entry:
    """The table's row of one method at its class defaults."""
    algorithm = cls()
    counts = Counts(S=2, N=2, K=4, T=4)
    setting = Setting(counts, algorithm.schedules[0], False, _D, torch.arange(_NORM))
    algorithm.bind(setting)
    cost = measure(algorithm, setting)
    once = f" (+{_units(cost.survey_uplink)} once)" if cost.survey_uplink else ""
    steps = "" if cost.calls_per_step == 1 else str(cost.calls_per_step)
    passes = "full pass + " if cost.full_passes else ""
    first = "(K-1)" if algorithm.first_step else "K"
    theorem = set(cls.theorem_keys())
    tuned = [f.name for f in cls.hyper_fields() if "number" in f.metadata and f.name not in theorem]
    return Entry(
        name=cls.name,
        paper=cls.paper,
        uplink=_units(cost.uplink) + once,
        downlink=_units(cost.downlink),
        client_state=_units(cost.client_state),
        server_state=_units(cost.server_state),
        gradients=f"{passes}{steps}{first}",
        tuned=", ".join(tuned) or "none",
        problem_dependent=", ".join(cls.problem_dependent) or "no",
        schedules=", ".join(cls.schedules) + (" (full participation)" if cls.full_participation else ""),
    )


def _units(size: int) -> str:
    if size == 0:
        return "0"
    if size % _D == 0:
        return f"{size // _D}d"
    if size == _NORM:
        return "norm layers"
    if (size + _NORM) % _D == 0:
        return f"{(size + _NORM) // _D}d - norm layers"
    return f"{size / _D:g}d"
