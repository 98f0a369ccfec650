"""dataset.split_column: what is for the test, by a column, inside each user."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fedbench.data.options import Table
from fedbench.data.tables import load_table
from fedbench.errors import ConfigError, DataError
from fedbench.fields import read as read_options

# the rows of two users, mixed; `x` says which row it is
WHO = ["b", "a", "a", "b", "a", "b", "a", "a", "b"]
YEAR = [2020, 2024, 2021, 2023, 2022, 2022, 2020, 2023, 2020]  # a: rows 6 2 4 7 1, b: rows 0 8 5 3
FRAME = pd.DataFrame({"x": range(9), "year": YEAR, "who": WHO, "y": ["no", "yes", "no"] * 3})
LATE = {"a": [1, 7], "b": [3, 5]}  # 0.4 of five and of four rows: two each (1.6 is rounded)


def load(tmp_path: Path, frame: pd.DataFrame = FRAME, **keys: Any) -> Any:
    file = tmp_path / "t.csv"
    frame.to_csv(file, index=False)
    keys = {"target": "y", "user": "who", "split_column": "year", "test_fraction": 0.4, **keys}
    return load_table(read_options(Table, {"path": str(file), **keys}, "dataset"), file, None)


def rows(data: Any, part: str, user: str | None = None) -> list[int]:
    x, who = getattr(data, f"x_{part}"), data.client if part == "train" else data.test_client
    assert x.shape[1] == 1  # the column is no feature
    return [int(row) for row, owner in zip(x[:, 0], who, strict=True) if user in (None, owner)]


@pytest.mark.parametrize("dates", [False, True], ids=["numbers", "dates"])
def test_the_last_rows_of_each_user_are_for_the_test(tmp_path: Path, dates: bool) -> None:
    frame = FRAME.assign(year=[f"{year}-02-28" for year in YEAR]) if dates else FRAME
    data = load(tmp_path, frame)
    for user, late in LATE.items():
        assert rows(data, "test", user) == late
        assert rows(data, "train", user) == [at for at in range(9) if WHO[at] == user and at not in late]


def test_without_users_they_are_the_last_of_all_rows(tmp_path: Path) -> None:
    """0.4 of nine: four. Of the two of 2022 (rows 4 and 5) the later one in the file."""
    data = load(tmp_path, FRAME.drop(columns="who"), user=None)
    assert sorted(data.x_test[:, 0].tolist()) == [1, 3, 5, 7]


def test_a_column_may_say_train_and_test(tmp_path: Path) -> None:
    part = np.where(np.arange(9) % 3 == 2, "test", "train")
    data = load(
        tmp_path, FRAME.drop(columns="year").assign(part=part), split_column="part", test_fraction=0.2
    )
    assert rows(data, "test") == [2, 5, 8]
    assert rows(data, "train") == [0, 1, 3, 4, 6, 7]


def test_a_users_only_row_is_trained_on(tmp_path: Path) -> None:
    data = load(tmp_path, FRAME.assign(who=["c", *WHO[1:]]))
    assert (rows(data, "train", "c"), rows(data, "test", "c")) == ([0], [])


@pytest.mark.parametrize(
    ("frame", "keys", "said"),
    [
        (FRAME, {"split_column": "yeer"}, "dataset.split_column=yeer: must be a column of"),
        (
            FRAME.assign(year=["train", "test", "test"] * 3),
            {},
            "dataset.test_fraction=0.4: must be left at its default, 0.2: the column year says",
        ),
        (
            FRAME.assign(**{f"c{n}": 0 for n in range(30)}),
            {"split_column": "yeer"},
            "c10, c11, c12, c13, c14, c15 and 14 more",
        ),
        (FRAME, {"drop": ["year"]}, "must not have dataset.split_column=year"),
        (
            FRAME.assign(year="train"),
            {},
            "the column year holds train alone; rows to train on",
        ),
        (
            FRAME.assign(year="late"),
            {},
            "the column year holds texts, such as 'late'; train and test, numbers",
        ),
        (
            FRAME.assign(year="31.12.2024"),
            {},
            "texts, such as '31.12.2024'; train and test, numbers or dates",
        ),
    ],
)
def test_what_does_not_say_it_is_refused(
    tmp_path: Path, frame: pd.DataFrame, keys: dict[str, Any], said: str
) -> None:
    with pytest.raises((ConfigError, DataError), match=r"dataset|column") as caught:
        load(tmp_path, frame, **keys)
    assert said in str(caught.value)
