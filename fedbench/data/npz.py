"""A user's own data: an .npz file with x_train, y_train, x_test, y_test, checked in full before use."""

from __future__ import annotations

from pathlib import Path

from fedbench.data.arrays import from_arrays
from fedbench.data.dataset import Dataset
from fedbench.data.npy import read_npz
from fedbench.data.provenance import file_record

NAMES = ("x_train", "y_train", "x_test", "y_test")
CLIENTS = ("client", "client_test")


def load_npz(
    path: Path,
    name: str,
    *,
    classes: int | None = None,
    task: str = "classification",
    vocabulary: int | None = None,
) -> Dataset:
    """The data set in an .npz file; what its arrays may be: `from_arrays`. `client` and `client_test` are its
    clients of its own, where they are there."""
    arrays = read_npz(path, NAMES, CLIENTS)
    return from_arrays(
        name,
        *(arrays[key] for key in NAMES),
        classes=classes,
        task=task,
        vocabulary=vocabulary,
        client=arrays.get("client"),
        test_client=arrays.get("client_test"),
        files=(file_record(path),),
        where=path,
    )
