"""Which compiled programs later runs take over, in one process and through the cache on disk. The compiler is
left out (`packed`)."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tests_support
import torch
from tests_support import fixed_trace, make_walk
from torch import nn

from fedbench import algorithms
from fedbench.engine.choose import Sizes, make_executor
from fedbench.engine.compiled import CompileCache, Programs

SIZES = (3, 9, 14, 6)
COHORTS = [[0, 1, 2], [1, 2, 3], [0, 2, 3]]
EQUAL: dict[str, Any] = {"steps": 4}
MASKED: dict[str, Any] = {"steps": None, "epochs": 2}
"""2, 6, 8 and 4 steps of clients whose batches have the same shapes as with EQUAL."""


def result(
    monkeypatch: pytest.MonkeyPatch,
    programs: Programs | None,
    name: str = "scaffold",
    values: dict[str, Any] | None = None,
    **options: Any,
) -> torch.Tensor:
    """The model after three rounds of unequal clients; without `programs` by the plain loop."""
    rng = np.random.default_rng(0)
    assignment = np.repeat(np.arange(len(SIZES)), SIZES)
    x, y = rng.normal(size=(len(assignment), 5)), rng.integers(0, 3, len(assignment))
    torch.manual_seed(0)
    monkeypatch.setattr(tests_support, "make_executor", partial(make_executor, programs=programs))
    monkeypatch.setattr(tests_support, "Sizes", partial(Sizes, width=4))
    options = {"chunk": 2, **options, "engine": "loop" if programs is None else "compile"}
    algorithm = algorithms.get(name).create({"lr": 0.3, **(values or {})})
    walk = make_walk(
        algorithm, nn.Linear(5, 3), x, y, assignment, fixed_trace(COHORTS, 4), per_round=3, batch=4, **options
    )
    for _ in COHORTS:
        walk.update()
    return walk.theta


CHANGES: dict[str, tuple[dict[str, Any], dict[str, Any], bool]] = {
    "masked steps": (EQUAL, MASKED, True),
    "equal steps": (MASKED, EQUAL, True),
    "step size": (EQUAL, EQUAL | {"values": {"lr": 0.05}}, False),
    "seed": (MASKED, MASKED | {"seed": 3}, False),
    "more epochs": (MASKED, MASKED | {"epochs": 3}, False),
    "method": (
        EQUAL | {"name": "fedavg"},
        EQUAL | {"name": "fedprox", "values": {"mu": 2.0}},
        True,
    ),
    "variant": (
        EQUAL | {"name": "padamfed", "values": {"server_lr": 0.3, "beta": 0.4}},
        EQUAL | {"name": "padamfed", "values": {"server_lr": 0.3, "beta": 0.4, "normalise": False}},
        True,
    ),
    "estimator": (
        EQUAL | {"name": "fedproxvr", "values": {"estimator": "sgd"}},
        EQUAL | {"name": "fedproxvr", "values": {"estimator": "svrg"}},
        True,
    ),
    "chunk": (EQUAL, EQUAL | {"chunk": 3}, True),
    "precision": (EQUAL, EQUAL | {"dtype": torch.float32}, True),
}


@pytest.mark.parametrize("place", ["process", "disk"])
@pytest.mark.parametrize("change", CHANGES)
def test_a_run_after_another_gives_what_it_gives_alone(
    monkeypatch: pytest.MonkeyPatch, packed: list, tmp_path: Path, change: str, place: str
) -> None:
    """Whatever ran before, in this process or in one that left its programs on disk; and where only numbers
    differ nothing is compiled again."""
    before, after, recompiles = CHANGES[change]
    (tmp_path / "programs").mkdir(mode=0o700)

    def fresh() -> Programs:
        cache = CompileCache(tmp_path / "programs") if place == "disk" else None
        return Programs(cache, objective="the same")

    programs = fresh()
    result(monkeypatch, programs, **before)
    count = len(packed)
    assert count
    if place == "disk":
        programs = fresh()  # of another process
    found = result(monkeypatch, programs, **after)
    assert (len(packed) > count) == recompiles
    rounding = 1e-4 if change == "precision" else 1e-11
    torch.testing.assert_close(found, result(monkeypatch, None, **after), rtol=rounding, atol=rounding)
