"""Partitions that were made elsewhere: the row numbers of each client, or a client for each row.

flwr-datasets, FedLab and others give a list of row numbers for each client, or a dict of them. As JSON or
.npz such a file is read by `partition=file`. `fedbench.partition_file` writes one, with the labels that tell
whether the rows are in the same order.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedbench.data.division import UNUSED
from fedbench.errors import DataError
from fedbench.files import atomically

Rows = Sequence[Any] | Mapping[Any, Any] | np.ndarray


def partition_file(indices: Rows, labels: Any, path: str | Path = "partition.npz") -> Path:
    """Write the file of `partition=file partition.path=PATH`, and return its path.

    `indices`: for each client its row numbers in the training set, as a list of lists, or a dict from the
    clients 0 .. N-1 (integers or their texts) to them; or one integer for each row, its client, -1 for none.
    `labels` (n,): the label of every row, in the order of the training set that has been divided. A run
    compares them with its own data, since rows in another order would get other clients.
    Raises DataError for a row that two clients have, that is not there, or that is no whole number.
    """
    label = np.asarray(labels)
    client = client_of_rows(indices, len(label), "partition_file")
    if label.dtype.kind not in "biufSU":
        raise DataError(f"partition_file: labels have the type {label.dtype}; numbers or texts are expected")

    def write(file: Path) -> None:
        with file.open("wb") as stream:
            np.savez_compressed(stream, client=client, label=label)

    atomically(Path(path), write)
    return Path(path)


def client_of_rows(indices: Rows, rows: int, where: str) -> np.ndarray:
    """Client (rows,) of every row, UNUSED if no client has it, from what `partition_file` takes.
    Raises DataError, which begins with `where`."""
    if not isinstance(indices, Mapping):
        if len(indices) and all(np.ndim(row) == 0 for row in indices):
            return _numbers(indices, f"{where}: the clients of the rows")
        indices = dict(enumerate(indices))
    client = np.full(rows, UNUSED)
    for name, own in indices.items():
        number, what = _number(name, len(indices), where), f"{where}: client {name}"
        found = _numbers(own, f"{what}'s row numbers")
        if outside := found[(found < 0) | (found >= rows)].tolist():
            raise DataError(f"{what} has the row {outside[0]}; the data have the rows 0 .. {rows - 1}")
        values, count = np.unique(found, return_counts=True)
        if len(twice := values[(count > 1) | (client[values] != UNUSED)]):
            raise DataError(f"{what} has the row {twice[0]}, which is there twice; a row has one client")
        client[found] = number
    return client


def from_json(path: Path, rows: int) -> dict[str, np.ndarray]:
    """`client` (rows,), and `label` if the file has it, of a JSON file: what `partition_file` takes, or an
    object with `client` and, if it is to be compared, `label`. Raises DataError."""
    try:
        content = json.loads(path.read_text(encoding="utf-8-sig"))
    except ValueError as error:
        raise DataError(f"{path}: is not JSON: {error}") from error
    if not isinstance(content, list | dict):
        raise DataError(f"{path}: holds {json.dumps(content)[:40]}; row numbers of each client are expected")
    more = {}
    if isinstance(content, dict) and "client" in content:
        more = {"label": np.asarray(content["label"])} if "label" in content else {}
        content = content["client"]
    return {"client": client_of_rows(content, rows, str(path)), **more}


def _number(name: Any, clients: int, where: str) -> int:
    text = str(name)
    if not (text.isascii() and text.isdecimal() and str(int(text)) == text and int(text) < clients):
        raise DataError(f"{where}: client {name}: the clients are expected to be 0 .. {clients - 1}")
    return int(text)


def _numbers(values: Any, what: str) -> np.ndarray:
    try:
        array = np.asarray(values)
    except ValueError:  # lists of different lengths
        array = np.empty((0, 0))
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise DataError(f"{what} must be a list of whole numbers")
    return array if array.size else array.astype(np.int64)
