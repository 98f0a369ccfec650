"""What a compiled local step holds fixed: numbers of `h` never, what is read from `self` always."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import pytest

from fedbench.method import Algorithm, registry
from fedbench.method.hyper import choice, is_number, positive
from fedbench.method.traced import traced


@dataclasses.dataclass
class Obedient(Algorithm):
    """Numbers from h, a variant from self, through a helper and super()."""

    lr: float = positive(0.1)
    scale: float = positive(1.0)
    kind: str = choice("a", ("a", "b"))

    def local_step(self, local: Any, client: Any, h: Any) -> Any:
        return self.helper(super().local_step(local, client, h))

    def helper(self, step: Any) -> Any:
        return step if self.kind == "a" else {}


class ReadsANumber(Obedient):
    """One level down, through a property."""

    @property
    def twice(self) -> float:
        return 2 * self.scale

    def helper(self, step: Any) -> Any:
        return {**step, "z": self.twice}


class HandsItselfOn(Obedient):
    """Whatever the function reads, this cannot see."""

    def helper(self, step: Any) -> Any:
        return {**step, "z": getattr(self, "sc" + "ale")}


class HoldsAnObject(Obedient):
    """Something set by bind that cannot be compared."""

    def helper(self, step: Any) -> Any:
        return {**step, "z": self.found}  # type: ignore[attr-defined]


def test_numbers_that_arrive_in_h_are_not_held_fixed() -> None:
    assert traced(Obedient()) == traced(Obedient(lr=0.3, scale=5.0))
    assert traced(Obedient()) != traced(Obedient(kind="b"))


@pytest.mark.parametrize("cls", [ReadsANumber, HandsItselfOn])
def test_a_number_read_from_self_is(cls: type[Obedient]) -> None:
    assert traced(cls(scale=2.0)) == traced(cls(scale=2.0))
    assert traced(cls(scale=2.0)) != traced(cls(scale=3.0))


def test_what_cannot_be_compared_is_not_shared() -> None:
    held = HoldsAnObject()
    held.found = SimpleNamespace()  # type: ignore[attr-defined]
    assert traced(held) is None
    held.found = 3  # type: ignore[attr-defined]
    assert traced(held) is not None


def test_classes_differ() -> None:
    assert traced(Obedient()) != traced(ReadsANumber())


@pytest.mark.parametrize("name", registry.names())
def test_no_method_of_ours_holds_a_number_fixed(name: str) -> None:
    """The promise of base.py: changing a number recompiles nothing."""
    one, other = registry.get(name)(), registry.get(name)()
    for field in one.hyper_fields():
        if is_number(field):
            setattr(one, field.name, 0.25)
            setattr(other, field.name, 0.5)
    assert traced(one) is not None
    assert traced(one) == traced(other)
