"""What a compiled program holds fixed of a method: its class and choices always, numbers of `h` never."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from problem import Problem, engine_path

from fedbench import algorithms
from fedbench.errors import RunError
from fedbench.fields import REGISTERED
from fedbench.method import Algorithm, Client, Record, Setting, Vectors, choice, nonnegative, positive


@dataclasses.dataclass
class Obedient(Algorithm):
    """Numbers from h, a variant from self, through a helper and super()."""

    lr: float = positive(0.1)
    scale: float = positive(1.0)
    decay: float | None = nonnegative(None, null="off")
    kind: str = choice("a", ("a", "b"))

    def local_step(self, local: Record, client: Client, h: Record) -> Vectors:
        return self.helper(super().local_step(local, client, h))

    def helper(self, step: Vectors) -> Vectors:
        return step if self.kind == "a" else {}

    def server_step(self, server: Any, mean: Any, n: Any, h: Any) -> Vectors:
        return {"theta": server.theta + mean.delta}


class ReadsANumber(Obedient):
    """One level down, through a property."""

    @property
    def twice(self) -> Any:
        return torch.ones(()) * self.scale

    def helper(self, step: Vectors) -> Vectors:
        return {**step, "z": self.twice}


class HandsItselfOn(Obedient):
    """Whatever the function reads, this cannot see."""

    def helper(self, step: Vectors) -> Vectors:
        return {**step, "y": step["y"] * getattr(self, "sc" + "ale")}


def test_numbers_that_arrive_in_h_are_not_held_fixed() -> None:
    assert Obedient().key == Obedient(lr=0.3, scale=5.0).key
    assert Obedient().key != Obedient(kind="b").key


def test_a_number_that_is_off_is() -> None:
    """A method may leave a term out where it is null."""
    assert Obedient(decay=0.1).key == Obedient(decay=0.2).key
    assert Obedient(decay=0.1).key != Obedient().key
    assert Obedient().without_numbers().decay is None


@pytest.mark.parametrize("cls", [ReadsANumber, HandsItselfOn])
def test_a_number_read_from_self_is_an_error(cls: type[Obedient], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(REGISTERED, ("algorithm", "disobedient"), cls)
    p = Problem()
    with pytest.raises(TypeError, match="ReadFromH"):
        engine_path(p, "disobedient", p.cohorts(2, 2), steps=2, values={})


class Counts(Obedient):
    """Its clients' steps get shorter with every call."""

    calls = 0

    def helper(self, step: Vectors) -> Vectors:
        self.calls += 1
        return {**step, "y": step["y"] / self.calls}


class Remembers(Obedient):
    """Its server keeps a vector where no checkpoint looks."""

    def server_step(self, server: Any, mean: Any, n: Any, h: Any) -> Vectors:
        self.before = server.theta
        return {"theta": self.before + mean.delta}


class Collects(Obedient):
    """Its server keeps a vector, and what it has seen, in what it has had from the start."""

    def bind(self, setting: Setting) -> None:
        self.kept: dict[str, Any] = {"sum": torch.zeros(setting.d, dtype=torch.float64)}

    def server_step(self, server: Any, mean: Any, n: Any, h: Any) -> Vectors:
        self.kept["sum"].add_(mean.delta)
        return {"theta": server.theta + self.kept["sum"]}


class Lists(Collects):
    def server_step(self, server: Any, mean: Any, n: Any, h: Any) -> Vectors:
        self.kept[str(n.t)] = 1
        return {"theta": server.theta + mean.delta / len(self.kept)}


@pytest.mark.parametrize("engine", ["loop", "vmap"])
@pytest.mark.parametrize(
    ("cls", "name"), [(Counts, "calls"), (Remembers, "before"), (Collects, "kept"), (Lists, "kept")]
)
def test_a_method_that_changes_itself_is_refused(
    cls: type[Obedient], name: str, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Recorded steps would go on with the first values."""
    monkeypatch.setitem(REGISTERED, ("algorithm", "disobedient"), cls)
    p = Problem()
    with pytest.raises(RunError, match=rf"changes self\.{name} during the run; what changes belongs to"):
        engine_path(p, "disobedient", p.cohorts(3, 2), steps=2, values={}, engine=engine)


def test_what_cannot_be_compared_is_not_shared() -> None:
    held = Obedient()
    held.found = SimpleNamespace()  # type: ignore[attr-defined]
    assert held.key is None
    held.found = (3, (4, "x"))  # type: ignore[attr-defined]
    assert held.key is not None
    assert held.key != Obedient().key


def test_classes_differ() -> None:
    assert Obedient().key != ReadsANumber().key


@pytest.mark.parametrize("name", algorithms.names())
def test_no_method_of_ours_holds_a_number_fixed(name: str) -> None:
    """Changing a number recompiles nothing."""
    one, other = algorithms.get(name)(), algorithms.get(name)()
    for number in one.numbers():
        setattr(one, number, 0.25)
        setattr(other, number, 0.5)
    assert one.key is not None
    assert one.key == other.key
