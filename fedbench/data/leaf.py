"""Data in LEAF's JSON: FEMNIST, Shakespeare, Sent140, Reddit, and other data in the same form.

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
"""LEAF's characters for Shakespeare. Token 0 is padding; the one after the last is any other character."""
_TEXT = 4  # index of the text in a tweet's fields
PADDING, UNKNOWN_WORD = "<PAD>", "<UNK>"  # in Reddit's comments
UNKNOWN = 1  # a word that is not among the most frequent ones


def load_leaf(directory: Path, *, task: str, length: int, vocabulary: int) -> Dataset:
    """Load the data set in `directory`/train/*.json and `directory`/test/*.json, with users by name.

    A sample is one of four kinds. A list of numbers: features, or an image of 28 x 28 if there are 784. A
    text: every character is a token, and the label is the character that follows. The fields of a tweet: the
    first `length` words of its text are tokens, numbered by their frequency in the training set. A Reddit
    comment: each of its sequences of words becomes a sample. With `task`=sequence (texts and comments), every
    character or word has the one that follows as its label. Raises DataError.
    """
    (x, y, who, files), (x_test, y_test, who_test, more) = (
        _part(directory / part) for part in ("train", "test")
    )
    kind, size = type(x[0]), None
    pairs: list[tuple[np.ndarray, np.ndarray]] = []
    comments = kind is list and [*map(type, x[0][:1])] == [list] and [*map(type, x[0][0][:1])] == [str]
    if task == "sequence" and kind is not str and not comments:
        raise DataError(f"{directory}: dataset.task=sequence needs texts, and a sample is a {kind.__name__}")
    if kind is str:
        size, longest = len(LETTERS) + 2, max(map(len, (*x, *x_test)))
        numbers = {letter: number for number, letter in enumerate(LETTERS, start=1)}
        for texts, following in ((x, y), (x_test, y_test)):
            tokens = _tokens([list(text) for text in texts], numbers, longest, size - 1)
            last = _tokens([[str(letter)[:1]] for letter in following], numbers, 1, size - 1)
            after = np.where(tokens > 0, np.concatenate([tokens[:, 1:], last], axis=1), 0)
            pairs.append((tokens, after if task == "sequence" else last[:, 0]))
    elif comments:
        if task != "sequence":
            raise DataError(
                f"{directory}: dataset.task={task}: comments have a label for each word (task=sequence)"
            )
        size = vocabulary
        (x, y, who), (x_test, y_test, who_test) = (
            _sequences(directory, *part) for part in ((x, y, who), (x_test, y_test, who_test))
        )
        special = {PADDING, UNKNOWN_WORD}
        numbers = {PADDING: 0, **_numbered([[w for w in words if w not in special] for words in x], size)}
        longest = max(map(len, (*x, *x_test)))
        pairs = [
            (_tokens(words, numbers, longest, UNKNOWN), _tokens(labels, numbers, longest, UNKNOWN))
            for words, labels in ((x, y), (x_test, y_test))
        ]
    elif isinstance(x[0], list) and x[0] and isinstance(x[0][0], str):
        size = vocabulary
        split = [
            [re.findall(r"\w+|[^\w\s]", fields[_TEXT].lower())[:length] for fields in part]
            for part in (x, x_test)
        ]
        numbers = _numbered(split[0], vocabulary)
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
        classes=size if kind is str or comments else 1 + max(int(own.max()) for _, own in pairs),
        vocabulary=size,
        client=np.array(who),
        test_client=np.array(who_test),
        files=(*files, *more),
        where=directory,
    )


def _part(directory: Path) -> tuple[list[Any], list[Any], list[str], list[dict[str, Any]]]:
    """Samples, labels and users of all files of a directory, sorted by file name, and the files' records."""
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


def _sequences(
    directory: Path, comments: list[Any], following: list[Any], who: list[str]
) -> tuple[list[list[str]], list[list[str]], list[str]]:
    """Words of every sequence of the comments, the words that follow (padding if they do not count), and the
    user."""
    x, y, whose = [], [], []
    try:
        for sequences, label, user in zip(comments, following, who, strict=True):
            parts = sequences, label["target_tokens"], label["count_tokens"]
            for words, after, counts in zip(*parts, strict=True):
                x.append(words)
                y.append(
                    [b if counts else PADDING for _, b, counts in zip(words, after, counts, strict=True)]
                )
                whose.append(user)
    except (KeyError, TypeError, ValueError) as error:
        why = f"{type(error).__name__}: {line_of(error)}"
        raise DataError(f"{directory}: comments are not as LEAF's Reddit has them ({why})") from error
    return x, y, whose


def _numbered(texts: Sequence[Sequence[str]], vocabulary: int) -> dict[str, int]:
    """Numbers of the most frequent words: after padding and `UNKNOWN`, below `vocabulary`."""
    often = Counter(word for words in texts for word in words).most_common(vocabulary - UNKNOWN - 1)
    return {word: number for number, (word, _) in enumerate(often, start=UNKNOWN + 1)}


def _tokens(words: Sequence[Sequence[str]], numbers: dict[str, int], length: int, other: int) -> np.ndarray:
    """The words' numbers (n, length) int32, padded in front; words without a number get `other`."""
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
            f"{directory}: all samples must have the same number of values ({line_of(error)})"
        ) from error
    return array.reshape(-1, 28, 28) if array.ndim == 2 and array.shape[1] == 784 else array
