"""Data in LEAF's JSON: FEMNIST and others whose samples are numbers, and Shakespeare.

Caldas et al., "LEAF: a benchmark for federated settings", arXiv:1812.01097.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedbench.data.dataset import Dataset, from_arrays
from fedbench.data.files import file_record, without_samples
from fedbench.errors import DataError, first_line, printable, refusing

LETTERS = "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}"
"""LEAF's characters for Shakespeare. Token 0 is padding; the one after the last is any other character."""
_OTHER = len(LETTERS) + 1
_EXPECTED = "lists of numbers with class numbers, or Shakespeare's texts with the character that follows each"


def load_leaf(directory: Path, *, task: str) -> Dataset:
    """Load the data set in `directory`/train/*.json and `directory`/test/*.json, with users by name.

    A sample is a list of numbers: features, or an image of 28 x 28 if there are 784; its label is a class
    number. Or it is a text of Shakespeare's: every character is a token, and the label is the character that
    follows. With `task`=sequence every character of a text has the one that follows as its label. Any other
    sample is refused. Raises DataError.
    """
    parts = train, test = [_Part(directory / name) for name in ("train", "test")]
    fields: dict[str, Any] = {"task": task}
    if isinstance(train.x[0], str):
        fields |= {"classes": _OTHER + 1, "vocabulary": _OTHER + 1}
        longest = max(len(text) for part in parts for text in part.x)
        pairs = [part.texts(longest, task) for part in parts]
        if all(letter.isdigit() for part in parts for letter in part.y):
            raise DataError(f"{directory}: all labels of the texts are digits; {_EXPECTED}, are expected")
    elif task == "sequence":
        kind = type(train.x[0]).__name__
        raise DataError(f"{directory}: dataset.task=sequence needs texts, and a sample is a {kind}")
    else:
        pairs = [part.numbers() for part in parts]
    data = from_arrays(
        "leaf",
        *pairs[0],
        *pairs[1],
        client=np.array(train.who),
        test_client=np.array(test.who),
        files=(*train.files, *test.files),
        where=directory,
        **fields,
    )
    return data if data.vocabulary is not None else without_samples(data)


class _Part:
    """Samples, labels and users of all files of a directory, sorted by file name, and the files' records."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.x: list[Any] = []
        self.y: list[Any] = []
        self.who: list[str] = []
        files = sorted(directory.glob("*.json"))
        seen: set[str] = set()
        for file in files:
            try:
                content = json.loads(file.read_text(encoding="utf-8-sig"))
                users, data = content["users"], content["user_data"]
                if sorted(users) != sorted(data) or seen & {*users}:
                    raise ValueError("`users` must name each user in `user_data` once, and no file's twice")
                for user in users:
                    own = data[user]
                    if len(own["x"]) != len(own["y"]):
                        raise ValueError(f"{user} has {len(own['x'])} samples and {len(own['y'])} labels")
                    self.x += own["x"]
                    self.y += own["y"]
                    self.who += [user] * len(own["y"])
                seen |= {*users}
            except (OSError, ValueError, KeyError, TypeError) as error:
                why = printable(first_line(error, named=True))
                raise DataError(f"{file}: is not LEAF's JSON ({why})") from error
        if not self.x:
            raise DataError(f"{directory}: no samples; files as LEAF writes them, *.json, are expected")
        self.files = [file_record(file) for file in files]

    def texts(self, longest: int, task: str) -> tuple[np.ndarray, np.ndarray]:
        """Tokens (n, longest), padded in front, and the labels: the characters that follow."""
        for text, letter in zip(self.x, self.y, strict=True):
            if not (isinstance(text, str) and text and isinstance(letter, str) and len(letter) == 1):
                raise self._unexpected(text, letter)
        tokens, last = _tokens(self.x, longest), _tokens(self.y, 1)
        after = np.where(tokens > 0, np.concatenate([tokens[:, 1:], last], axis=1), 0)
        return tokens, after if task == "sequence" else last[:, 0]

    def numbers(self) -> tuple[np.ndarray, np.ndarray]:
        """Features (n, f) or images (n, 28, 28) in float32, and labels (n,)."""
        rows = []
        with refusing(f"{self.directory}: all samples must have the same number of values"):
            for values, label in zip(self.x, self.y, strict=True):
                row = np.array(values, dtype=object)  # beside numbers, true and false would become numbers
                number = type(label) in (int, float) and label == int(label) and abs(label) < 1 << 53
                if not {*map(type, row.flat)} <= {int, float} or not number:
                    raise self._unexpected(values, label)
                rows.append(row.astype(np.float32))
            array = np.stack(rows)
        array = array.reshape(-1, 28, 28) if array.ndim == 2 and array.shape[1] == 784 else array
        return array, np.array([*map(int, self.y)])

    def _unexpected(self, sample: Any, label: Any) -> DataError:
        unread = f"the sample {str(sample)[:40]!a} has the label {str(label)[:40]!a}"
        return DataError(f"{self.directory}: {unread}; {_EXPECTED}, are expected")


def _tokens(texts: Sequence[str], length: int) -> np.ndarray:
    """The characters' numbers (n, length) int32, padded in front."""
    numbers = {letter: number for number, letter in enumerate(LETTERS, start=1)}
    tokens = np.zeros((len(texts), length), dtype=np.int32)
    for row, text in zip(tokens, texts, strict=True):
        row[-len(text) :] = [numbers.get(letter, _OTHER) for letter in text]
    return tokens
