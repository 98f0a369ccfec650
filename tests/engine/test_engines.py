"""The engines compute the same numbers: mini-batches, unequal step counts, masks, chunks."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import tests_support
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests_support import fixed_trace, make_walk
from torch import nn

from fedbench import algorithms
from fedbench.engine import unequal, vectorised
from fedbench.engine.choose import make_executor
from fedbench.engine.compiled import signature
from fedbench.fields import REGISTERED
from fedbench.models.layers import BatchNorm2d, Dropout

SIZES = (3, 9, 14, 6, 10, 5)
COHORTS = [[0, 1, 3, 5], [1, 2, 3, 4], [0, 2, 4, 5]]


def small_net(kind: str) -> nn.Module:
    torch.manual_seed(0)
    if kind == "dropout":
        return nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.Tanh(), Dropout(0.5), nn.Linear(8, 3))
    if kind == "batchnorm":
        return nn.Sequential(nn.Conv2d(1, 2, 3), BatchNorm2d(2), nn.Tanh(), nn.Flatten(), nn.Linear(8, 3))
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 3))


def final(
    name: str,
    engine: str,
    kind: str = "linear",
    chunk: int = 1000,
    sizes: tuple[int, ...] = SIZES,
    work: Sequence[float] | None = None,
    **options: object,
) -> torch.Tensor:
    rng = np.random.default_rng(0)
    assignment = np.repeat(np.arange(len(sizes)), sizes)
    x = rng.normal(size=(len(assignment), 1, 4, 4))
    y = rng.integers(0, 3, len(assignment))
    options = {"steps": 4, "batch": 4, **options}
    trace = fixed_trace(COHORTS, len(sizes))
    if work is not None:
        trace = replace(trace, work=np.array(work))
    walk = make_walk(
        algorithms.get(name).create({}), small_net(kind), x, y, assignment, trace,
        per_round=4, engine=engine, chunk=chunk, **options,
    )  # fmt: skip
    for _ in COHORTS:
        walk.update()
    return torch.cat([walk.theta, *walk.statistics.values()])


def close(a: torch.Tensor, b: torch.Tensor) -> None:
    assert float((a - b).norm() / b.norm()) < 1e-10


@pytest.mark.parametrize("kind", ["linear", "dropout", "batchnorm"])
@pytest.mark.parametrize("name", ["fedavg", "scaffold", "padamfed_vr"])
def test_loop_and_vmap_agree(name: str, kind: str) -> None:
    close(final(name, "vmap", kind), final(name, "loop", kind))


@pytest.mark.parametrize("chunk", [1, 3])
def test_chunks_agree(chunk: int) -> None:
    close(final("scaffold", "vmap", "dropout", chunk), final("scaffold", "vmap", "dropout"))


def test_unequal_steps_agree() -> None:
    """Two local epochs: 2 to 8 steps per client."""
    options = {"steps": None, "epochs": 2}
    close(final("scaffold", "vmap", **options), final("scaffold", "loop", **options))


@pytest.mark.parametrize("kind", ["linear", "dropout", "batchnorm"])
@pytest.mark.parametrize("name", ["scaffold", "fedavg", "fedproxvr"])
@pytest.mark.parametrize("batch", [4, None])
def test_clients_that_have_ended_leave_the_chunk(
    monkeypatch: pytest.MonkeyPatch, name: str, kind: str, batch: int | None
) -> None:
    """2 to 40 steps per client (whole local batches: as many as jobs take of 20): once two of four clients
    have ended, two rows are computed, and one once three have."""
    rows: list[int] = []
    real = unequal.eagerly

    def counted(step: Callable[..., Any], *rest: Any) -> Any:
        return real(
            lambda local, *more: rows.append(len(next(iter(local.values())))) or step(local, *more), *rest
        )

    monkeypatch.setattr(unequal, "eagerly", counted)
    options: dict[str, Any] = {"steps": None, "epochs": 2, "sizes": (3, 80, 14, 6, 37, 5)}
    if batch is None:
        options = {"steps": 20, "batch": None, "work": [1, 0.1, 0.4, 0.2, 0.1, 1, 0.1, 0.1, 0.3, 0.5, 1, 0.2]}
    close(final(name, "vmap", kind, **options), final(name, "loop", kind, **options))
    assert set(rows) == {4, 2, 1}
    assert rows.count(4) < rows.count(1)


@settings(deadline=None)
@given(st.lists(st.integers(1, 40), min_size=1, max_size=12).map(np.array), st.integers(0, 1))
def test_every_step_is_in_one_stage(steps: np.ndarray, first: int) -> None:
    """A stage has the rows of all clients that have steps left; all but the first are powers of two. No
    smaller one would do, unless too few steps are left."""
    begin, computed = first, np.zeros((len(steps), 41), dtype=int)
    for start, end, rows in unequal.stages(steps, first):
        assert start == begin <= end
        assert len(set(rows)) == len(rows)
        for k in range(start, end):
            needed = int((steps > k).sum())
            smaller = [2**n for n in range(4) if 2**n < len(rows)]
            assert steps.max() - k <= unequal.FEWEST or all(needed > size for size in smaller)
        assert len(rows) in (len(steps), 1, 2, 4, 8)
        computed[rows, start:end] += 1
        begin = end
    assert begin == max(first, steps.max())
    needed = np.arange(41) < steps[:, None]
    assert (computed[:, first:] >= needed[:, first:]).all()
    assert computed.max() <= 1


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["dropout", "batchnorm"])
def test_compiled_agrees(kind: str) -> None:
    """One client at a time; chunks of 3 and 1, the second padded, with 2 to 8 steps per client."""
    close(final("padamfed_vr", "compile", kind, 1), final("padamfed_vr", "loop", kind))
    options = {"steps": None, "epochs": 2}
    close(final("scaffold", "compile", kind, 3, **options), final("scaffold", "loop", kind, **options))


@pytest.mark.parametrize("wide", [math.inf, 0])
@pytest.mark.parametrize("kind", ["dropout", "batchnorm"])
@pytest.mark.parametrize("name", ["scaffold", "fedproxvr"])
def test_one_client_at_a_time_is_compiled_without_a_client_axis(
    monkeypatch: pytest.MonkeyPatch, name: str, kind: str, wide: float
) -> None:
    """It computes what the loop does, unequal steps and padding included. The compiler is left out here."""
    seen: set[str] = set()

    def as_it_is(function: Callable[..., object], *_: object) -> Callable[..., object]:
        seen.add(function.__qualname__.split(".")[0])
        return function

    monkeypatch.setattr(vectorised, "Compiled", as_it_is)
    monkeypatch.setattr(tests_support, "make_executor", partial(make_executor, wide=wide))
    unequal: dict[str, object] = {"steps": None, "epochs": 2}
    close(final(name, "compile", kind, 1, **unequal), final(name, "loop", kind, **unequal))
    alone = name == "fedproxvr" and wide == 0  # a full gradient's batches, one after another
    assert seen == ({"of_one", "LocalProgram"} if alone else {"of_one"})


@pytest.mark.parametrize("wide", [math.inf, 0])
@pytest.mark.parametrize("chunk", [1, 3])
def test_a_compiled_function_is_called_with_arguments_of_one_form(
    monkeypatch: pytest.MonkeyPatch, chunk: int, wide: float
) -> None:
    """A survey's batches are narrower than a full gradient's. The compiler is left out here."""

    def of_one_form(function: Callable[..., object], *_: object) -> Callable[..., object]:
        forms = set()

        def call(*args: object) -> object:
            forms.add(signature(args))
            assert len(forms) == 1
            return function(*args)

        return call

    both = type("Both", (algorithms.get("padamfed"),), {"full_gradient": True})
    monkeypatch.setitem(REGISTERED, ("algorithm", "both"), both)
    monkeypatch.setattr(vectorised, "Compiled", of_one_form)
    monkeypatch.setattr(tests_support, "make_executor", partial(make_executor, wide=wide))
    close(final("both", "compile", chunk=chunk), final("both", "loop"))


@pytest.mark.parametrize(("wide", "expected_calls"), [(math.inf, 2), (257, 2), (256, 7)])
def test_full_gradients_of_unequal_clients(
    monkeypatch: pytest.MonkeyPatch, wide: float, expected_calls: int
) -> None:
    """700, 20, 20 and 300 samples are 3 + 1 + 1 + 2 batches of at most 256: packed two calls for four
    clients, not three, where they are wide a call for each; a client's gradient is that of its own data."""
    sizes = [700, 20, 20, 300]
    x, y = torch.randn(sum(sizes), 4, dtype=torch.float64), torch.arange(sum(sizes)) % 3
    assignment = np.repeat(np.arange(4), sizes)
    algorithm = algorithms.get("fedproxvr").create({"lr": 0.1})
    walk = make_walk(
        algorithm,
        nn.Linear(4, 3),
        x.numpy(),
        y.numpy(),
        assignment,
        fixed_trace([[0, 1, 2, 3]], 4),
        per_round=4,
        batch=32,
    )
    calls: list[int] = []
    real = walk.trainer.program.accumulate
    monkeypatch.setattr(walk.trainer.program, "accumulate", lambda *given: calls.append(1) or real(*given))
    trainer, everyone = walk.trainer, np.arange(4)
    monkeypatch.setattr(trainer.executor, "wide", wide)
    blocks = trainer._full_pass(trainer.planner.jobs(everyone, np.zeros_like(everyone)))
    found = trainer.executor.gradients(walk.theta, {}, *blocks)
    assert len(calls) == expected_calls
    for client in everyone:
        own = assignment == client
        weight = walk.theta.clone().requires_grad_()
        out = x[own] @ weight[:12].reshape(3, 4).T + weight[12:]
        (expected,) = torch.autograd.grad(nn.functional.cross_entropy(out, y[own]), weight)
        torch.testing.assert_close(found[client], expected, rtol=1e-12, atol=1e-12)
