"""Keys of data sets that cannot be: one line that names key, value and what is allowed; and which partition a
data set brings along."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from option_helpers import refusal

from fedbench.api import compose_config
from fedbench.config.overrides import with_home

LABELS = "must be a list of two or more different labels, such as [0, 1, 7] or [cat, dog], or null (all)"
REFUSED: list[tuple[str, str, Any, str]] = [
    ("digits", "augment", "crop", "must be one of none, crop_flip (did you mean 'crop_flip'?)"),
    ("digits", "train_samples", 1438, "must be at most 1437, which is all there are, or null"),
    ("digits", "test_samples", 0, "must be an integer >= 1, or null (all)"),
    ("digits", "classes", [3, 3], LABELS),
    ("digits", "classes", 5, LABELS),
    ("synthetic", "alpha", -1, "must be a number >= 0"),
    ("synthetic", "test_fraction", 1.0, "must be a number in (0, 0.9]"),
]


@pytest.mark.parametrize(("name", "key", "value", "allowed"), REFUSED)
def test_what_a_key_allows(name: str, key: str, value: Any, allowed: str) -> None:
    shown = str(value).replace(" ", "")
    assert refusal({"name": name, key: value}) == f"dataset.{key}={shown}: {allowed}"


def test_a_label_that_is_not_there_and_a_name_that_is_none() -> None:
    there = "has no training or no test samples: digits has 10 classes, from 0 on"
    assert refusal({"name": "digits", "classes": [3, 10]}) == f"dataset.classes=10: {there}"
    assert refusal({"name": "digit"}).startswith("dataset=digit: must be one of digits, synthetic, mnist")


@pytest.mark.parametrize(
    ("words", "partition"),
    [
        ([], "iid"),
        (["dataset=synthetic"], "natural"),
        (["partition=dirichlet", "dataset=synthetic", "partition.alpha=2"], "dirichlet"),
    ],
)
def test_synthetic_takes_its_natural_partition_unless_told(words: list[str], partition: str) -> None:
    assert compose_config(words).partition.name == partition


@pytest.mark.parametrize(
    ("word", "key", "value"),
    [
        ("dataset.path=~/my data/t.csv", "path", "{home}/my data/t.csv"),
        ("dataset.path='~/t.csv'", "path", "~/t.csv"),  # and is found there when it is read
        ("dataset.test_path=~/t.csv", "test_path", "{home}/t.csv"),
    ],
)
def test_a_path_below_the_home_directory(
    word: str, key: str, value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shell leaves a ~ behind a = as it is."""
    monkeypatch.setenv("HOME", str(tmp_path))
    config = compose_config(["dataset=table", "dataset.path=t.csv", word])
    assert getattr(config.dataset, key) == value.format(home=tmp_path)


def test_several_paths_below_the_home_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert with_home("dataset.path=~/a.csv,~/b") == f"dataset.path={tmp_path}/a.csv,{tmp_path}/b"
