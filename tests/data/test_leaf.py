"""LEAF's JSON: images, texts of roles, tweets, comments; tokens and labels against a plain derivation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from option_helpers import load

from fedbench.api import compose_config
from fedbench.config.identity import run_hash
from fedbench.data import Dataset
from fedbench.data.leaf import LETTERS
from fedbench.errors import DataError
from fedbench.runs.run import Run

RNG = np.random.default_rng(0)
USERS = {"f0001_41": 6, "f0002_07": 4, "f0003_99": 9}
IMAGES = {
    part: {user: (RNG.random((n, 784)).round(3), RNG.integers(0, 62, n)) for user, n in USERS.items()}
    for part in ("train", "test")
}
PLAY = {"HAMLET": ["To be, or not to be, that is the question", "é?"], "OPHELIA": ["Good my lord"]}
TWEETS = {"ann": ["I LOVE it, really", "no no no"], "bob": ["love it so"]}


def write(directory: Path, parts: dict[str, dict[str, tuple[Any, Any]]]) -> Path:
    """A file for each user, as LEAF writes them."""
    for part, users in parts.items():
        (directory / part).mkdir(parents=True, exist_ok=True)
        for number, (user, (x, y)) in enumerate(users.items()):
            data = {
                "x": np.asarray(x, object).tolist() if isinstance(x, list) else x.tolist(),
                "y": list(map(_plain, y)),
            }
            content = {"users": [user], "num_samples": [len(y)], "user_data": {user: data}}
            (directory / part / f"all_data_{number}.json").write_text(json.dumps(content))
    return directory


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def texts() -> dict[str, dict[str, tuple[Any, Any]]]:
    users = {
        user: ([line[:-1] for line in lines], [line[-1] for line in lines]) for user, lines in PLAY.items()
    }
    return {"train": users, "test": users}


def tweets() -> dict[str, dict[str, tuple[Any, Any]]]:
    def fields(text: str) -> list[str]:
        return ["1467", "Mon Apr 06", "NO_QUERY", "someone", text, "training"]

    users = {user: ([fields(text) for text in said], [4, 0][: len(said)]) for user, said in TWEETS.items()}
    return {"train": users, "test": {"ann": ([fields("LOVE unheard it")], [0])}}


COMMENTS = {"1": ["the cat and the dog", "the"], "2": ["a <UNK> cat"]}
WIDTH = 4


def comments() -> dict[str, dict[str, tuple[Any, Any]]]:
    """As LEAF cuts them: <BOS> words <EOS>, the same shifted by one, and where the first is no padding."""

    def cut(values: list[Any], filler: Any, length: int) -> list[list[Any]]:
        padded = values + [filler] * (length - len(values))
        return [padded[at : at + WIDTH] for at in range(0, length, WIDTH)]

    def one(comment: str) -> tuple[Any, Any]:
        words = comment.split()
        length = -(-(len(words) + 2) // WIDTH) * WIDTH
        after = cut([*words, "<EOS>", "<PAD>"], "<PAD>", length)
        counts = cut([1.0] * (len(words) + 2), 0.0, length)
        label = {"subreddit": "cats", "score": 1, "target_tokens": after, "count_tokens": counts}
        return cut(["<BOS>", *words, "<EOS>"], "<PAD>", length), label

    users = {
        user: tuple(map(list, zip(*(one(text) for text in said), strict=True)))
        for user, said in COMMENTS.items()
    }
    return {"train": users, "test": {"1": users["1"]}}  # type: ignore[dict-item]


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


def test_sent140(tmp_path: Path) -> None:
    data = read(write(tmp_path, tweets()), length=4, vocabulary=6)
    # counts in what is kept of the training tweets: no 3, love 2, it 2, "," 1, i 1, so 1: four have numbers
    number = {"no": 2, "love": 3, "it": 4, "i": 5}
    kept = [["i", "love", "it", ","], ["no", "no", "no"], ["love", "it", "so"]]
    expected = [[0] * (4 - len(words)) + [number.get(word, 1) for word in words] for words in kept]
    assert data.x_train.tolist() == expected
    assert data.x_test.tolist() == [[0, 3, 1, 4]]
    assert (data.y_train.tolist(), data.y_test.tolist(), data.classes) == ([1, 0, 1], [0], 2)
    assert list(data.client) == ["ann", "ann", "bob"]  # type: ignore[arg-type]


def test_reddit(tmp_path: Path) -> None:
    data = read(write(tmp_path, comments()), task="sequence", vocabulary=8)
    # counts of the training sequences: <BOS> 3, the 3, <EOS> 3, cat 2, and 1, dog 1, a 1: six have numbers
    number = {"<BOS>": 2, "the": 3, "<EOS>": 4, "cat": 5, "and": 6, "dog": 7}
    said = [
        ["<BOS>", "the", "cat", "and"],
        ["the", "dog", "<EOS>", None],
        ["<BOS>", "the", "<EOS>", None],
        ["<BOS>", "a", "?", "cat"],
        ["<EOS>", None, None, None],
    ]
    follows = [
        ["the", "cat", "and", "the"],
        ["dog", "<EOS>", None, None],
        ["the", "<EOS>", None, None],
        ["a", "?", "cat", "<EOS>"],
        [None] * 4,
    ]
    for got, expected in ((data.x_train, said), (data.y_train, follows)):
        assert got.tolist() == [[0 if w is None else number.get(w, 1) for w in row] for row in expected]
    assert (data.vocabulary, data.classes) == (8, 8)
    assert (list(data.client), list(data.test_client)) == (["1"] * 3 + ["2"] * 2, ["1"] * 3)  # type: ignore[arg-type]


def test_images_as_rows_of_numbers(tmp_path: Path) -> None:
    image = np.arange(12.0).reshape(2, 2, 3)
    data = read(write(tmp_path, {part: {"a": (image, np.array([0, 1]))} for part in ("train", "test")}))
    np.testing.assert_array_equal(data.x_train, image[:, None])


def test_a_word_that_does_not_count_has_no_label(tmp_path: Path) -> None:
    parts = comments()
    parts["train"]["1"][1][0]["count_tokens"][0] = [1, 0, 1, 1]
    assert read(write(tmp_path, parts), task="sequence").y_train[0].tolist() == [3, 0, 6, 3]


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        (IMAGES, ["model=cnn", "clients.total=3"]),
        (IMAGES, ["clients.total=2"]),
        (texts(), ["model=embedding_rnn", "clients.total=2"]),
        (texts(), ["model=char_lstm", "dataset.task=sequence", "clients.total=2"]),
        (tweets(), ["model=embedding_rnn", "clients.total=2", "dataset.vocabulary=50"]),
        (
            comments(),
            ["model=char_lstm", "dataset.task=sequence", "clients.total=2", "dataset.vocabulary=50"],
        ),
    ],
    ids=["femnist", "femnist subset", "shakespeare", "shakespeare sequence", "sent140", "reddit"],
)
def test_each_trains(parts: Any, words: list[str], tmp_path: Path) -> None:
    base = ["dataset=leaf", f"dataset.path={write(tmp_path / 'data', parts)}", *words, "clients.per_round=2"]
    config = compose_config([*base, "rounds=1", "local.steps=1", "local.batch_size=1", "progress=none"])
    assert config.partition.name == "natural"
    assert Run(config).go(tmp_path / "run").status == "completed"
    before = run_hash(config)
    file = next((tmp_path / "data" / "test").glob("*.json"))
    file.write_text(file.read_text() + " ")
    assert run_hash(config) != before  # the files' content counts


def test_what_is_wrong_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"train: no samples; files as LEAF writes them"):
        read(tmp_path / "none")
    file = write(tmp_path, IMAGES) / "train" / "all_data_0.json"
    with pytest.raises(DataError, match=r"dataset.task=sequence needs texts, and a sample is a list"):
        read(tmp_path, task="sequence")
    for content, why in (
        ("{", "JSONDecodeError"),
        ("{}", "KeyError: 'users'"),
        ('{"users": ["a"], "user_data": {"a": {"x": [], "y": [1]}}}', "a has 0 samples and 1 labels"),
    ):
        file.write_text(content)
        with pytest.raises(DataError, match=why) as error:
            read(tmp_path)
        assert str(error.value).startswith(f"{file}: is not LEAF's JSON")
        assert "\n" not in str(error.value)
    content = {"users": ["a"], "user_data": {"a": {"x": [[1.0, 2.0]], "y": [1]}}}
    file.write_text(json.dumps(content))
    with pytest.raises(DataError, match="all samples must have the same number of values"):
        read(tmp_path)
    file.unlink()
    parts = comments()
    for change, why in (
        (None, "dataset.task=classification: comments have a label for each word"),
        ({}, r"comments are not as LEAF's Reddit has them \(KeyError: 'target_tokens'\)"),
        ({"target_tokens": [["a"]], "count_tokens": [[1], [1]]}, "ValueError: zip"),
    ):
        if change is not None:
            parts["train"]["1"][1][0] = change
        write(tmp_path / "reddit", parts)
        with pytest.raises(DataError, match=why) as error:
            read(tmp_path / "reddit", task="classification" if change is None else "sequence")
        assert "\n" not in str(error.value)
