"""A recorded function gives the bits of the function itself, or is not recorded."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import CodeType
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fedbench.engine.tape import CALLS, MOST_FORMS, Taped
from fedbench.torch_internals import TorchDispatchMode

HELD = torch.arange(12.0, dtype=torch.float64).view(4, 3)
Vectors = dict[str, Tensor]


def gradient_step(state: Vectors, h: Vectors, samples: Tensor) -> tuple[Vectors, Vectors]:
    """A step of two layers, with an output that is an input, and one that is computed in place."""

    def loss(theta: Tensor) -> Tensor:
        hidden = torch.relu(HELD[samples] @ theta[:6].view(3, 2) + theta[6:8])
        return (hidden @ theta[8:].view(2, 1)).square().mean()

    moved = state["y"] - h["lr"] * torch.func.grad(loss)(state["y"])
    count = moved[:3] * 2
    count += 1
    first, *_ = moved.split(5)
    return {"y": moved, "same": h["lr"], "count": count}, {"first": first, "kept": state["y"]}


def drawn(seed: int, clients: int = 5) -> tuple[Vectors, Vectors, Tensor]:
    one = torch.Generator().manual_seed(seed)
    y = torch.randn(clients, 10, generator=one, dtype=torch.float64)
    lr = torch.rand((), generator=one, dtype=torch.float64)
    return {"y": y}, {"lr": lr}, torch.randint(4, (clients, 3), generator=one)


def test_a_recorded_step_gives_the_same_bits() -> None:
    step, calls = torch.func.vmap(gradient_step, in_dims=(0, None, 0)), []
    taped = Taped(lambda *args: calls.append(1) or step(*args))
    for seed in range(CALLS + 10):
        args = drawn(seed, clients=5 if seed % 5 else 2)  # forms may change in between
        for found, expected in zip(taped(*args), step(*args), strict=True):
            assert found.keys() == expected.keys()
            assert all(torch.equal(found[name], expected[name]) for name in expected)
    assert len(calls) == CALLS + 1 + (CALLS + 10) // 5 + 1


def test_two_arguments_that_were_one_tensor_may_differ_later() -> None:
    taped, one = Taped(lambda a, b: a - b), torch.ones(2)
    for _ in range(CALLS + 2):
        assert taped(one, one).tolist() == [0, 0]
    assert taped(one, 3 * one).tolist() == [-2, -2]


# ---- aliases ---------------------------------------------------------------------------------------------

GIVEN = torch.linspace(-1, 1, 12, dtype=torch.float64).view(3, 4)
STEPS: list[Callable[[Tensor, Tensor, Tensor], Tensor]] = [  # of two values (3, 4) and numbers (3, 1)
    lambda a, b, s: a + b,
    lambda a, b, s: a - s * b,
    lambda a, b, s: torch.relu(b),
    lambda a, b, s: torch.where(a > s, a, b),
    lambda a, b, s: a.t().t(),
    lambda a, b, s: a.reshape(4, 3).t(),
    lambda a, b, s: a.reshape(2, 6)[1].view(3, 2).repeat(1, 2),
    lambda a, b, s: torch.cat([b[:, 2:], a.split(2, 1)[1]], 1),
    lambda a, b, s: b.expand(2, 3, 4)[1] * a[:, :1],
    lambda a, b, s: a + torch.full((3, 4), 0.5, dtype=a.dtype).cumsum(1),
    lambda a, b, s: torch.zeros_like(a),
    lambda a, b, s: GIVEN,
    lambda a, b, s: (a * 1).add_(b),
    lambda a, b, s: torch.zeros_like(a).index_add_(0, torch.arange(3).flip(0), b),
]
Step = tuple[int, int, int]


def values(x: Tensor, s: Tensor, steps: list[Step], out: list[int]) -> tuple[Tensor, ...]:
    """A program of such steps, each on what was there before; some of all values are its result."""
    found = [x, s * x]
    for kind, i, j in steps:
        found.append(STEPS[kind](found[i % len(found)], found[j % len(found)], s))
    return tuple(found[i % len(found)] for i in out)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, len(STEPS) - 1), st.integers(0, 99), st.integers(0, 99)), max_size=14),
    st.lists(st.integers(0, 99), min_size=1, max_size=3),
)
def test_no_recorded_operation_writes_over_what_is_read_later(steps: list[Step], out: list[int]) -> None:
    taped, before, kept = Taped(lambda x, s: values(x, s, steps, out)), GIVEN.clone(), []

    def called(seed: int) -> None:
        one = torch.Generator().manual_seed(seed)
        x, s = (torch.rand(3, n, generator=one, dtype=torch.float64) - 0.5 for n in (4, 1))
        copies, found = (x.clone(), s.clone()), taped(x, s)
        kept.append((found, values(*copies, steps, out)))
        assert torch.equal(x, copies[0])
        assert torch.equal(s, copies[1])
        assert torch.equal(GIVEN, before)

    for seed in range(CALLS + 5):
        called(seed)
    for found, expected in kept:  # what a call has given is the caller's
        assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
    for found, _ in kept:
        for each in found:
            if each.untyped_storage().data_ptr() != GIVEN.untyped_storage().data_ptr():
                each.fill_(7)
    called(99)
    assert all(torch.equal(a, b) for a, b in zip(*kept[-1], strict=True))


class Results(TorchDispatchMode):
    """Keeps what operations give."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.all: list[Tensor] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.all.append(func(*args, **(kwargs or {})))
        return self.all[-1]


def frames_of(call: Callable[[], object]) -> list[CodeType]:
    """The Python functions that are called."""
    frames: list[CodeType] = []
    sys.setprofile(lambda frame, event, _: frames.append(frame.f_code) if event == "call" else None)
    try:
        call()
    finally:
        sys.setprofile(None)
    return frames


def test_constants_are_made_once_and_operations_called_directly() -> None:
    def step(y: Tensor, lr: Tensor, grad: Tensor) -> Tensor:
        weights = torch.arange(4.0).view(2, 2).t().t() * torch.ones(2)
        return y - lr * torch.relu(grad * weights + y)

    taped, args = Taped(step), (torch.rand(3, 2, 2), torch.rand(3, 1, 1), torch.rand(3, 2, 2))
    for _ in range(CALLS + 1):
        taped(*args)
    with Results() as results:
        taped(*args)
    assert torch.equal(taped(*args), step(*args))
    called = frames_of(lambda: taped(*args))
    assert not [code for code in called if code.co_filename.endswith("_ops.py")]  # of torch, slow to call
    assert len(results.all) == 5  # product, sum, relu, product, difference
    assert all(each.shape == (3, 2, 2) for each in results.all)


# ---- what is not recorded --------------------------------------------------------------------------------


def reads(x: Tensor) -> Tensor:
    return x + 1 if x.sum() > 0 else x - 1


def masks(x: Tensor) -> Tensor:
    return x[x > 0].view(-1).sum() / len(x[x > 0])


def random(x: Tensor) -> Tensor:
    return x + torch.rand(())


def writes(x: Tensor) -> Tensor:
    fresh = torch.tensor([0.0, 0.0])  # made anew at every call
    fresh += x
    return fresh


def leaves(x: Tensor) -> Tensor:
    return x + torch.from_numpy(np.sign(x.numpy()))


def lists(x: Tensor) -> Tensor:
    return torch.tensor(sorted(x.tolist()))


@pytest.mark.parametrize("function", [reads, masks, writes, leaves, lists], ids=lambda each: each.__name__)
def test_a_function_that_no_tape_can_give_is_called(function: Callable[[Tensor], Tensor]) -> None:
    taped = Taped(function)
    for number in range(CALLS + 6):
        x = torch.tensor([1.0 - 2 * (number % 2), 3.0 * (number % 3) - 3])
        torch.testing.assert_close(taped(x), function(x), rtol=0, atol=0, equal_nan=True)


def test_what_is_random_is_drawn_at_every_call() -> None:
    taped, x = Taped(random), torch.zeros(())
    assert len({float(taped(x)) for _ in range(CALLS + 20)}) > CALLS + 10


def test_a_function_with_arguments_of_too_many_forms_is_called() -> None:
    taped: Any = Taped(lambda x: 2 * x)
    for size in range(MOST_FORMS + 3):
        for _ in range(CALLS + 2):
            assert taped(torch.ones(size)).sum() == 2 * size
