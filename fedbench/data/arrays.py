"""From NumPy arrays to a data set, checked in full: what a user's file or function brings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedbench.data.dataset import CHUNK, Dataset
from fedbench.errors import DataError

MAX_CLASSES = 1_000_000  # a larger label is a mistake, not a class


def from_arrays(
    name: str,
    x_train: np.ndarray,
    y_train: np.ndarray,
    x_test: np.ndarray,
    y_test: np.ndarray,
    *,
    classes: int | None = None,
    task: str = "classification",
    vocabulary: int | None = None,
    client: np.ndarray | None = None,
    test_client: np.ndarray | None = None,
    files: tuple[dict[str, Any], ...] = (),
    where: str | Path | None = None,
) -> Dataset:
    """A data set of arrays. DataError, one line, for what cannot be used.

    x: uint8 or float; images (n, h, w) or (n, h, w, c) with 1 to 4 channels, or features (n, f). uint8 stands
    for value / 255. float32 and float64 are kept, so that a float64 run sees the arrays' own numbers. With a
    `vocabulary`: tokens (n, t), integers.
    y: integers (n,), 0 .. classes - 1, `classes` by default the largest training label + 1; for regression
    numbers (n,) or (n, k); for multilabel 0 and 1, (n, k).
    `client` (n,), `test_client`: the client of every sample, where the data have clients of their own.
    `where`: what messages begin with.
    """
    place = str(where or f"dataset={name}")
    take = _samples if vocabulary is None else _tokens
    x_train, x_test = take(place, "x_train", x_train), take(place, "x_test", x_test)
    if x_train.shape[1:] != x_test.shape[1:] or x_train.dtype != x_test.dtype:
        a, b = (f"{x.dtype} {x.shape[1:]}" for x in (x_train, x_test))
        raise DataError(f"{place}: samples of x_train ({a}) and x_test ({b}) must have one shape and type")
    if task == "classification":
        y_train = _labels(place, "y_train", y_train, len(x_train))
        y_test = _labels(place, "y_test", y_test, len(x_test))
        known = _classes(place, name, y_train, y_test, classes)
    else:
        y_train, y_test = _targets(place, "y_train", y_train), _targets(place, "y_test", y_test)
        known = y_train.shape[1]
    for key, who, x in (("client", client, x_train), ("client_test", test_client, x_test)):
        if who is not None and (who.dtype.kind not in "iu" or who.shape != (len(x),)):
            allowed = f"integers ({len(x)},), one client per sample, are expected"
            raise DataError(f"{place}: {key} is {who.dtype} of shape {who.shape}; {allowed}")
    return Dataset(
        name,
        *(torch.from_numpy(x_train), torch.from_numpy(y_train)),
        *(torch.from_numpy(x_test), torch.from_numpy(y_test)),
        known,
        files=files,
        client=client,
        test_client=None if test_client is None else test_client.astype(np.int64),
        task=task,
        vocabulary=vocabulary,
    )


def _samples(place: str, key: str, x: np.ndarray) -> np.ndarray:
    """x checked, images as contiguous (n, c, h, w)."""
    if x.dtype != np.uint8 and x.dtype.kind != "f":
        raise DataError(f"{place}: {key} has type {x.dtype}; uint8 or a float type is expected")
    if x.ndim not in (2, 3, 4) or 0 in x.shape:
        raise DataError(
            f"{place}: {key} has shape {x.shape}; "
            "images (n, h, w) or (n, h, w, c), or features (n, f), at least one sample, are expected"
        )
    if x.ndim == 4 and x.shape[3] > 4:
        raise DataError(
            f"{place}: {key} has shape {x.shape}; (n, h, w, c) with 1 to 4 channels, last, is expected"
        )
    if x.ndim == 3:
        x = x[:, None]
    elif x.ndim == 4:
        x = x.transpose(0, 3, 1, 2)
    if x.dtype != np.uint8:
        x = x.astype(np.float32 if x.dtype.itemsize <= 4 else np.float64, copy=False)
    x = np.ascontiguousarray(x)
    step = max(1, CHUNK // x[0].size)
    if x.dtype != np.uint8:
        for start in range(0, len(x), step):
            finite = np.isfinite(x[start : start + step])
            if not finite.all():
                row = start + int(np.argwhere(~finite)[0, 0])
                raise DataError(f"{place}: {key} has a NaN or an infinity in sample {row}")
    return x


def _tokens(place: str, key: str, x: np.ndarray) -> np.ndarray:
    """x (n, t) as int32; that it is below the vocabulary is the `Dataset`'s to check."""
    if x.dtype.kind not in "iu" or x.ndim != 2 or 0 in x.shape:
        raise DataError(
            f"{place}: {key} is {x.dtype} of shape {x.shape}; tokens (n, t), integers, are expected"
        )
    limit = np.iinfo(np.int32)
    if x.min() < 0 or x.max() > limit.max:
        raise DataError(f"{place}: {key} holds a token that is negative or above {limit.max}")
    return np.ascontiguousarray(x, dtype=np.int32)


def _labels(place: str, key: str, y: np.ndarray, samples: int) -> np.ndarray:
    if y.dtype.kind not in "iu":
        raise DataError(f"{place}: {key} has type {y.dtype}; integers are expected")
    if y.shape != (samples,):
        raise DataError(
            f"{place}: {key} has shape {y.shape}; ({samples},), one label per sample, is expected"
        )
    if y.min() < 0 or y.max() >= MAX_CLASSES:
        wrong = y.min() if y.min() < 0 else y.max()
        raise DataError(
            f"{place}: {key} holds the label {wrong}; labels are 0 .. classes - 1, below {MAX_CLASSES:,}"
        )
    return y.astype(np.int64)


def _classes(place: str, name: str, y_train: np.ndarray, y_test: np.ndarray, given: int | None) -> int:
    known = given if given is not None else int(y_train.max()) + 1
    limit = f"{name} has {known} classes" if given is not None else f"the largest in y_train is {known - 1}"
    for key, y in (("y_train", y_train), ("y_test", y_test)):
        if y.max() >= known:
            raise DataError(f"{place}: {key} holds the label {y.max()}, but {limit}")
    return known


def _targets(place: str, key: str, y: np.ndarray) -> np.ndarray:
    """Numbers (n, k) as float32, or float64 where they are."""
    if y.dtype.kind not in "iufb" or y.ndim not in (1, 2) or 0 in y.shape:
        raise DataError(
            f"{place}: {key} is {y.dtype} of shape {y.shape}; numbers (n,) or (n, k) are expected"
        )
    y = y[:, None] if y.ndim == 1 else y
    return np.ascontiguousarray(y, dtype=np.float64 if y.dtype == np.float64 else np.float32)
