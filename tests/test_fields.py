"""Declared options: what each kind allows, what is read, and the line of what is refused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from fedbench.errors import ConfigError
from fedbench.fields import (
    choice,
    custom,
    decay,
    defaults,
    integer,
    number,
    positive,
    read,
    rules,
    section,
    share,
    switch,
    text,
)


def pair(value: Any) -> tuple[float, float]:
    if not isinstance(value, list) or len(value) != 2:
        raise ValueError
    return float(value[0]), float(value[1])


@dataclass(frozen=True)
class Below:
    up: float | None = positive(None, null="off")


@dataclass(frozen=True)
class Some:
    alpha: float = number(0.5, low=0, high=1, open_low=True)
    count: int = integer(3, low=1, high=10)
    on: bool = switch(True)
    mode: str = choice("a", ("a", "bb"))
    path: str | None = text(None, words="the path of a file")
    band: tuple[float, float] = custom([1, 2], pair, "a list [low, high]")
    rate: float | None = positive(None, null="from the theorem")
    weight: float = share(1.0)
    memory: float = decay(0.9)
    transfer: Below = section(Below)  # noqa: RUF009


GOOD: dict[str, Any] = {"path": "x"}


def test_defaults_stand_once_and_are_read() -> None:
    assert defaults(Some)["band"] == [1, 2]
    assert defaults(Some)["transfer"] == {"up": None}
    some = read(Some, GOOD, "group")
    assert (some.alpha, some.count, some.on, some.mode, some.band) == (0.5, 3, True, "a", (1.0, 2.0))
    assert some.rate is None
    assert some.transfer.up is None


def test_whole_numbers_are_numbers_and_come_as_floats() -> None:
    assert type(read(Some, {**GOOD, "alpha": 1}, "group").alpha) is float


@pytest.mark.parametrize(
    ("key", "value", "line"),
    [
        ("alpha", 0, "group.alpha=0: must be a number in (0, 1]"),
        ("alpha", float("nan"), "group.alpha=nan: must be a number in (0, 1]"),
        ("alpha", True, "group.alpha=true: must be a number in (0, 1]"),
        ("alpha", "x", "group.alpha=x: must be a number in (0, 1]"),
        ("count", 1.0, "group.count=1.0: must be an integer in [1, 10]"),
        ("count", 0, "group.count=0: must be an integer in [1, 10]"),
        ("on", 1, "group.on=1: must be true or false"),
        ("mode", "b", "group.mode=b: must be one of a, bb (did you mean 'bb'?)"),
        ("path", None, "group.path=null: must be the path of a file"),
        ("path", "", "group.path=: must be the path of a file"),
        ("band", 3, "group.band=3: must be a list [low, high]"),
        ("rate", 0, "group.rate=0: must be a number > 0, or null (from the theorem)"),
        ("weight", None, "group.weight=null: must be a number in (0, 1]"),
        ("memory", 1.0, "group.memory=1.0: must be a number in [0, 1)"),
        ("transfer", 3, "group.transfer=3: is a section; write group.transfer.KEY=VALUE"),
        ("transfer", {"down": 1}, "group.transfer.down=1: no such key; group.transfer has up"),
    ],
)
def test_what_is_refused_is_one_line(key: str, value: Any, line: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(Some, {**GOOD, key: value}, "group")
    assert str(caught.value) == line


def test_an_unknown_key_is_named_with_the_nearest_one_and_its_owner() -> None:
    with pytest.raises(
        ConfigError, match=r"group\.alpah=1: no such key; group=some has alpha, .*'group.alpha'"
    ):
        read(Some, {**GOOD, "alpah": 1}, "group", "group=some")


def test_all_options_are_found_with_those_of_sections() -> None:
    assert [name for name, _ in rules(Some)][-2:] == ["memory", "transfer.up"]
