"""Declared options: what each kind allows, what is read, and the line of what is refused."""

from __future__ import annotations

import math
from dataclasses import dataclass, make_dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any, Optional, get_type_hints

import pytest

from fedbench import compose_config
from fedbench.counting import exact
from fedbench.errors import ConfigError
from fedbench.fields import (
    choice,
    custom,
    decay,
    defaults,
    integer,
    number,
    options_of,
    plain,
    positive,
    read,
    read_named,
    section,
    seed,
    share,
    switch,
    text,
)
from fedbench.own_options import options_of_function


def pair(value: Any) -> tuple[float, float]:
    if not isinstance(value, list) or len(value) != 2:
        raise ValueError
    return float(value[0]), float(value[1])


@dataclass(frozen=True)
class Below:
    up: float | None = positive(None, null="off")


@dataclass(frozen=True)
class Some:
    alpha: float = number(0.5, low=0, high=1, without=(0,))
    count: int = integer(3, low=1, high=10)
    on: bool = switch(True)
    mode: str = choice("a", ("a", "bb"))
    path: str | None = text(None, words="the path of a file")
    band: tuple[float, float] = custom([1, 2], pair, "a list [low, high]")
    rate: float | None = positive(None, null="from the theorem")
    weight: float = share(1.0)
    memory: float = decay(0.9)
    size: int | None = integer(32, low=1, null="all")
    transfer: Below = section(Below)


GOOD: dict[str, Any] = {"path": "x"}


def test_defaults_stand_once_and_are_read() -> None:
    assert defaults(Some)["band"] == [1, 2]
    assert defaults(Some)["transfer"] == {"up": None}
    some = read(Some, GOOD, "group")
    assert (some.alpha, some.count, some.on, some.mode, some.band) == (0.5, 3, True, "a", (1.0, 2.0))
    assert some.rate is None
    assert some.transfer.up is None


def test_null_is_its_own_value_whatever_the_default() -> None:
    assert read(Some, {**GOOD, "size": None}, "group").size is None
    assert read(Some, GOOD, "group").size == 32
    assert plain(read(Some, {**GOOD, "size": None}, "group"))["size"] is None
    config = compose_config(["local.batch_size=null"])
    assert (config.local.batch_size, config.given["local"]["batch_size"]) == (None, None)
    assert compose_config().local.batch_size == 32


def test_plain_values_are_read_as_the_same_options() -> None:
    some = read(Some, {**GOOD, "alpha": 1, "band": [3, 4], "transfer": {"up": 2}}, "group")
    assert read(Some, plain(some), "group") == some
    assert plain(some)["band"] == [3.0, 4.0]


def test_whole_numbers_are_numbers_and_come_as_floats() -> None:
    assert type(read(Some, {**GOOD, "alpha": 1}, "group").alpha) is float


@pytest.mark.parametrize(
    ("key", "value", "line"),
    [
        ("alpha", 0, "group.alpha=0: must be a number in (0, 1]"),
        ("alpha", float("nan"), "group.alpha=nan: must be a number in (0, 1]"),
        ("alpha", True, "group.alpha=true: must be a number in (0, 1]"),
        ("count", 1.0, "group.count=1.0: must be an integer in [1, 10]"),
        ("count", 11, "group.count=11: must be an integer in [1, 10]"),
        ("on", 1, "group.on=1: must be true or false"),
        ("path", "", "group.path=: must be the path of a file"),
        ("band", 3, "group.band=3: must be a list [low, high]"),
        ("rate", 0, "group.rate=0: must be a number > 0, or null (from the theorem)"),
        ("weight", None, "group.weight=null: must be a number in (0, 1]"),
        ("memory", 1.0, "group.memory=1.0: must be a number in [0, 1)"),
        ("transfer", {"down": 1}, "group.transfer.down=1: no such key; group.transfer has up"),
    ],
)
def test_what_is_refused_is_one_line(key: str, value: Any, line: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(Some, {**GOOD, key: value}, "group")
    assert str(caught.value) == line


@dataclass(frozen=True)
class Base:
    speed: float | None = positive(None, null="off")


@dataclass(frozen=True)
class Own(Base):
    name = "own"
    a: float = number(0.0)
    key: int | None = seed(null="the run's")
    listed: tuple[int, ...] = custom([1, 2], tuple, "a list")


def function(  # type: ignore[no-untyped-def]
    needed: int, n: int = 4, rate: float = math.inf, on: Optional[bool] = None,  # noqa: UP045
    words: str | None = "", steps: int = None, free=3,  # noqa: RUF013
):  # fmt: skip
    """Of a user's. Its annotations are texts, as this module has `annotations`."""


@pytest.mark.parametrize("evaluated", [False, True])
def test_parameters_of_a_function_allow_what_their_annotations_say(evaluated: bool) -> None:
    if evaluated:
        function.__annotations__ = get_type_hints(function)
    made = make_dataclass("Of", options_of_function("net", function))
    asked = {"needed": 2, "rate": 1, "on": "yes", "words": 5, "steps": 3, "free": [1]}
    assert vars(read(made, asked, "model")) == {**asked, "n": 4, "on": True, "words": "5"}
    assert vars(read(made, {"needed": 2}, "model"))["rate"] == math.inf
    assert vars(read(made, {"needed": 2, "words": None}, "model"))["words"] is None
    null = ", or null (as the function says)"
    for key, value, says in [
        ("needed", None, "null: net needs a value"), ("needed", 1.5, "1.5: must be an integer"),
        ("n", "a", "a: must be an integer"), ("n", None, "null: must be an integer"),
        ("rate", "x", "x: must be a number"), ("on", 3, f"3: must be true or false{null}"),
        ("words", True, f"true: must be a text{null}"), ("steps", "a", f"a: must be an integer{null}"),
    ]:  # fmt: skip
        with pytest.raises(ConfigError) as caught:
            read(made, {"needed": 2, key: value}, "model")
        assert str(caught.value) == f"model.{key}={says}"


def test_a_class_says_its_own_options_before_those_that_it_shares() -> None:
    assert [*options_of(Own)] == ["a", "key", "listed", "speed"]
    with pytest.raises(ConfigError, match=r"group=own has a, key, listed, speed"):
        read(Own, {"b": 1}, "group", "group=own")


def test_a_class_made_without_values_has_what_is_read_of_its_defaults() -> None:
    assert Own() == read(Own, {}, "group")
    assert Own().listed == (1, 2)
    assert defaults(Own)["listed"] == [1, 2]


@pytest.mark.parametrize("value", [-1, 2**64, 1.0, "a", True])
def test_seeds(value: Any) -> None:
    assert read(Own, {"key": 2**64 - 1}, "group").key == 2**64 - 1
    with pytest.raises(ConfigError, match=r"group.key=.*: must be an integer >= 0 and < 2\*\*64, or null"):
        read(Own, {"key": value}, "group")


def test_a_name_chooses_a_class() -> None:
    assert read_named({"own": Own}, {"name": "own", "a": 1}, "group") == Own(a=1.0)
    for name in ("onw", None, ["own"]):
        with pytest.raises(ConfigError, match=r"^group=.*: must be one of own"):
            read_named({"own": Own}, {"name": name}, "group")


@pytest.mark.parametrize("text", ["0.8", "0.2", "0.07", "0.29", "0.575", "0.1", "0.999999", "0.123456789"])
def test_a_share_times_a_count_is_what_the_decimals_say(text: str) -> None:
    for count in (*range(1, 300), 1437, 60_000, 999_983):
        by_hand = Decimal(text) * count
        assert math.floor(exact(float(text)) * count) == math.floor(by_hand)
        assert math.floor((1 - exact(float(text))) * count) == math.floor((1 - Decimal(text)) * count)
        assert round(exact(float(text)) * count) == round(by_hand)


def test_a_ratio_is_exact_too() -> None:
    assert all(exact(n / count) * count == n for count in range(1, 120) for n in range(count + 1))
    assert exact(1 / 3) == Fraction(1, 3)
