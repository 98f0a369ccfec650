"""LEAF's JSON: images and texts of roles; tokens and labels against a plain derivation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from option_helpers import load, refusal

from fedbench.api import compose_config
from fedbench.config.identity import run_hash
from fedbench.data import Dataset
from fedbench.data.leaf import LETTERS
from fedbench.errors import DataError
from fedbench.runs.run import Run

RNG = np.random.default_rng(0)
USERS = {"f0001_41": 6, "f0002_07": 4, "f0003_99": 9}
IMAGES = {
    part: {user: (RNG.random((n, 784)).round(3), 61 - 7 * np.arange(n)[::-1]) for user, n in USERS.items()}
    for part in ("train", "test")
}
PLAY = {"HAMLET": ["To be, or not to be, that is the question", "é?"], "OPHELIA": ["Good my lord"]}


def write(directory: Path, parts: dict[str, dict[str, tuple[Any, Any]]]) -> Path:
    """A file for each user, as LEAF writes them."""
    for part, users in parts.items():
        (directory / part).mkdir(parents=True, exist_ok=True)
        for number, (user, (x, y)) in enumerate(users.items()):
            data = {"x": x if isinstance(x, list) else x.tolist(), "y": list(map(_plain, y))}
            content = {"users": [user], "num_samples": [len(y)], "user_data": {user: data}}
            (directory / part / f"all_data_{number}.json").write_text(json.dumps(content))
    return directory


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def texts() -> dict[str, dict[str, tuple[Any, Any]]]:
    users = {who: ([text[:-1] for text in said], [text[-1] for text in said]) for who, said in PLAY.items()}
    return {"train": users, "test": users}


def read(path: Path, **keys: Any) -> Dataset:
    return load({"name": "leaf", "path": str(path), "normalize": False, **keys}, "unused", seed=0, clients=1)


def test_femnist(tmp_path: Path) -> None:
    data = read(write(tmp_path, IMAGES))
    assert data.shape == (1, 28, 28)
    for part, x, y, who in (
        ("train", data.x_train, data.y_train, data.client),
        ("test", data.x_test, data.y_test, data.test_client),
    ):
        stored = IMAGES[part]
        np.testing.assert_allclose(x.flatten(1), np.concatenate([x for x, _ in stored.values()]), rtol=1e-6)
        np.testing.assert_array_equal(y, np.concatenate([y for _, y in stored.values()]))
        np.testing.assert_array_equal(who, np.repeat(list(USERS), list(USERS.values())))


def test_images_as_rows_of_numbers(tmp_path: Path) -> None:
    image = np.arange(12.0).reshape(2, 2, 3)
    data = read(write(tmp_path, {part: {"a": (image, np.array([0, 1]))} for part in ("train", "test")}))
    np.testing.assert_array_equal(data.x_train, image[:, None])


def test_labels_may_be_written_as_floats_and_gaps_are_noted(tmp_path: Path) -> None:
    x = [[0.5, 1.0], [1.0, 0.5]]
    data = read(write(tmp_path, {part: {"a": (x, [1.0, 3.0])} for part in ("train", "test")}))
    assert data.y_train.tolist() == [1, 3]
    assert data.note == "no training sample has the label 0, 2 of 0 .. 3; labels start at 0"
    write(tmp_path, {"train": {"a": (x, [0, 2.5])}})
    assert "has the label '2.5'" in refusal({"name": "leaf", "path": str(tmp_path)})


def test_labels_of_texts_and_of_the_test_part(tmp_path: Path) -> None:
    x = [[0.5, 1.0], [1.0, 0.5]]
    write(tmp_path, {"train": {"a": (x, [0, 1])}, "test": {"a": (x, [0, 7])}})
    with pytest.raises(DataError, match=r"y_test holds the label 7, but leaf has 2 classes, 0 \.\. 1"):
        read(tmp_path)
    with pytest.raises(DataError, match=r"dataset.task=sequence needs texts, and a sample is a list"):
        read(tmp_path, task="sequence")


def test_shakespeare(tmp_path: Path) -> None:
    data = read(write(tmp_path, texts()))
    said = [line for lines in PLAY.values() for line in lines]
    longest = max(map(len, said)) - 1
    assert len(LETTERS) == 80
    assert (data.vocabulary, data.classes, data.shape) == (82, 82, (longest,))
    number = {letter: 1 + at for at, letter in enumerate(LETTERS)}
    for row, label, line in zip(data.x_train.tolist(), data.y_train.tolist(), said, strict=True):
        expected = [number.get(letter, 81) for letter in line]
        assert row == [0] * (longest + 1 - len(line)) + expected[:-1]
        assert label == expected[-1]
    whole = read(tmp_path, task="sequence")
    for row, labels, line in zip(whole.x_train.tolist(), whole.y_train.tolist(), said, strict=True):
        expected = [number.get(letter, 81) for letter in line]
        start = longest + 1 - len(line)
        assert row[start:] == expected[:-1]
        assert labels == [0] * start + expected[1:]


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        (IMAGES, ["model=cnn", "clients.total=3"]),
        (texts(), ["model=char_lstm", "dataset.task=sequence", "clients.total=2"]),
    ],
    ids=["femnist", "shakespeare"],
)
def test_each_trains(parts: Any, words: list[str], tmp_path: Path) -> None:
    base = ["dataset=leaf", f"dataset.path={write(tmp_path / 'data', parts)}", *words, "clients.per_round=2"]
    config = compose_config([*base, "rounds=1", "local.steps=1", "local.batch_size=1", "progress=none"])
    assert config.partition.name == "natural"
    assert Run(config).go(tmp_path / "run")["status"] == "completed"
    before = run_hash(config)
    file = next((tmp_path / "data" / "test").glob("*.json"))
    file.write_text(file.read_text() + " ")
    assert run_hash(config) != before  # the files' content counts


def file(users: Any, data: Any) -> str:
    return json.dumps({"users": users, "user_data": data})


ONE = {"x": [[0.5, 1.0]], "y": [1]}


@pytest.mark.parametrize(
    ("contents", "why"),
    [
        ([], "train: no samples; files as LEAF writes them"),
        (["{"], "f0.json: is not LEAF's JSON (JSONDecodeError"),
        (["{}"], "f0.json: is not LEAF's JSON (KeyError: 'users'"),
        ([file(["a"], {"a": {"x": [], "y": [1]}})], "is not LEAF's JSON (ValueError: a has 0 samples"),
        ([file(["a", "a"], {"a": ONE, "b": ONE})], "must name each user in `user_data` once"),
        ([file(["a"], {"a": ONE, "b": ONE})], "must name each user in `user_data` once"),
        ([file(["a", "b"], {"a": ONE})], "must name each user in `user_data` once"),
        ([file(["a"], {"a": ONE}), file(["a"], {"a": ONE})], "no file's twice"),
        ([file(["a", "b"], {"a": ONE, "b": {"x": [[1.0]], "y": [0]}})], "must have the same number"),
    ],
)
def test_files_that_are_not_leafs(contents: list[str], why: str, tmp_path: Path) -> None:
    for part in ("train", "test"):
        (tmp_path / part).mkdir()
        for number, content in enumerate(contents):
            (tmp_path / part / f"f{number}.json").write_text(content)
    assert why in refusal({"name": "leaf", "path": str(tmp_path)})


@pytest.mark.parametrize(
    ("x", "y", "why"),
    [
        (["img_1.jpg", "img_2.jpg"], [0, 1], "the sample 'img_1.jpg' has the label '0'"),  # CelebA
        (["img_1.jpg", "img_2.jpg"], ["0", "1"], "all labels of the texts are digits"),
        (["To be or not", "good lor"], ["t", "rd"], "the sample 'good lor' has the label 'rd'"),
        ([["1467", "Mon", "I love it"]] * 2, [0, 4], "has the label '0'"),  # Sent140
        ([[0.5, 1.0], [1.0, 0.5]], ["0", "1"], "the sample '[0.5, 1.0]' has the label '0'"),
        ([[0.5, 1.0], [1.0, 0.5]], [0, -1], "holds the label -1"),
        ([[0.5, 1.0], "text"], [0, 1], "the sample 'text' has the label '1'"),
        ([[0.5, None], [1.0, 0.5]], [0, 1], "the sample '[0.5, None]' has the label '0'"),
        ([[1, True], [1, 0]], [0, 1], "the sample '[1, True]' has the label '0'"),
        ([[[1, 0], [0, False]]], [0], "the sample '[[1, 0], [0, False]]' has the label '0'"),
    ],
)
def test_samples_that_are_neither_numbers_nor_shakespeare(x: Any, y: Any, why: str, tmp_path: Path) -> None:
    write(tmp_path, {part: {"a": (x, y)} for part in ("train", "test")})
    assert why in refusal({"name": "leaf", "path": str(tmp_path)})
