"""A recorded function gives the bits of the function itself, or is not recorded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from fedbench.engine.tape import CALLS, MOST_FORMS, Taped

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


@pytest.mark.parametrize("function", [reads, masks, writes], ids=lambda each: each.__name__)
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
