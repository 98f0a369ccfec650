"""Data in LEAF's JSON: FEMNIST, Shakespeare, Sent140, and whatever has their form.

Caldas et al., "LEAF: a benchmark for federated settings", arXiv:1812.01097.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedbench.data.dataset import Dataset, from_arrays
from fedbench.data.files import file_record, line_of
from fedbench.errors import DataError

LETTERS = "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}"
"""Characters of Shakespeare, LEAF's; number 0 is padding, and behind them comes what is none of them."""
_TEXT = 4  # of a tweet's fields
UNKNOWN = 1  # a word that is not among the most frequent ones


def load_leaf(directory: Path, *, task: str, length: int, vocabulary: int) -> Dataset:
    """The data set in `directory`/train/*.json and `directory`/test/*.json, with users by name.

    A sample is a list of numbers (784 of them: an image of 28 x 28), a text, of which every character is a
    token and the label is the character that follows, or the fields of a tweet, of which the `length` first
    words of the text are tokens, numbered by their frequency in the training set. `task`=sequence: of texts,
    every character's label is the one that follows. Raises DataError.
    """
    (x, y, who, files), (x_test, y_test, who_test, more) = (
        _part(directory / part) for part in ("train", "test")
    )
    kind, size = type(x[0]), None
    if task == "sequence" and kind is not str:
        raise DataError(f"{directory}: dataset.task=sequence needs texts, and a sample is a {kind.__name__}")
    if kind is str:
        size, longest = len(LETTERS) + 2, max(map(len, (*x, *x_test)))
        numbers = {letter: number for number, letter in enumerate(LETTERS, start=1)}
        pairs = []
        for texts, following in ((x, y), (x_test, y_test)):
            tokens = _tokens([list(text) for text in texts], numbers, longest, size - 1)
            last = _tokens([[str(letter)[:1]] for letter in following], numbers, 1, size - 1)
            after = np.where(tokens > 0, np.concatenate([tokens[:, 1:], last], axis=1), 0)
            pairs.append((tokens, after if task == "sequence" else last[:, 0]))
    elif isinstance(x[0], list) and x[0] and isinstance(x[0][0], str):
        size = vocabulary
        split = [
            [re.findall(r"\w+|[^\w\s]", fields[_TEXT].lower())[:length] for fields in part]
            for part in (x, x_test)
        ]
        often = Counter(word for words in split[0] for word in words).most_common(vocabulary - UNKNOWN - 1)
        numbers = {word: number for number, (word, _) in enumerate(often, start=UNKNOWN + 1)}
        given = np.unique(np.array([*y, *y_test]).astype(str), return_inverse=True)[1]
        labels = given[: len(y)], given[len(y) :]
        pairs = [
            (_tokens(part, numbers, length, UNKNOWN), own) for part, own in zip(split, labels, strict=True)
        ]
    else:
        pairs = [(_numbers(directory, part), np.array(own)) for part, own in ((x, y), (x_test, y_test))]
    return from_arrays(
        "leaf",
        *(array for pair in pairs for array in pair),
        task=task,
        classes=size if kind is str else 1 + max(int(own.max()) for _, own in pairs),
        vocabulary=size,
        client=np.array(who),
        test_client=np.array(who_test),
        files=(*files, *more),
        where=directory,
    )


def _part(directory: Path) -> tuple[list[Any], list[Any], list[str], list[dict[str, Any]]]:
    """Samples, labels and users of all files of a directory, in the order of their names; the files."""
    x: list[Any] = []
    y: list[Any] = []
    who: list[str] = []
    files = sorted(directory.glob("*.json"))
    for file in files:
        try:
            content = json.loads(file.read_text(encoding="utf-8"))
            for user in content["users"]:
                own = content["user_data"][user]
                if len(own["x"]) != len(own["y"]):
                    raise ValueError(f"{user} has {len(own['x'])} samples and {len(own['y'])} labels")
                x += own["x"]
                y += own["y"]
                who += [user] * len(own["y"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DataError(
                f"{file}: is not LEAF's JSON ({type(error).__name__}: {line_of(error)})"
            ) from error
    if not x:
        raise DataError(f"{directory}: no samples; files as LEAF writes them, *.json, are expected")
    return x, y, who, [file_record(file) for file in files]


def _tokens(words: Sequence[Sequence[str]], numbers: dict[str, int], length: int, other: int) -> np.ndarray:
    """(n, length) int32 of the words' numbers, padded in front; `other`: what has none."""
    tokens = np.zeros((len(words), length), dtype=np.int32)
    for row, own in zip(tokens, words, strict=True):
        if own:
            row[-len(own) :] = [numbers.get(word, other) for word in own]
    return tokens


def _numbers(directory: Path, x: list[Any]) -> np.ndarray:
    try:
        array = np.array(x, dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise DataError(
            f"{directory}: samples must be equally many numbers each ({line_of(error)})"
        ) from error
    return array.reshape(-1, 28, 28) if array.ndim == 2 and array.shape[1] == 784 else array
