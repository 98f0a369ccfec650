"""A user's own data: an .npz file with x_train, y_train, x_test, y_test, checked in full before use."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from fedbench.data.dataset import CHUNK, Dataset
from fedbench.data.npy import read_npz
from fedbench.data.provenance import file_record
from fedbench.errors import DataError

NAMES = ("x_train", "y_train", "x_test", "y_test")
MAX_CLASSES = 1_000_000  # a larger label is a mistake, not a class


def load_npz(path: Path, name: str, *, classes: int | None = None) -> Dataset:
    """The data set in an .npz file.

    x: uint8 or float; images (n, h, w) or (n, h, w, c) with 1 to 4 channels, or features (n, f). uint8 stands
    for value / 255. float32 and float64 are kept, so that a float64 run sees the file's own numbers.
    y: integers (n,), 0 .. classes - 1. `classes` defaults to the largest training label + 1.
    """
    arrays = read_npz(path, NAMES)
    x_train, x_test = (_samples(path, key, arrays[key]) for key in ("x_train", "x_test"))
    if x_train.shape[1:] != x_test.shape[1:] or x_train.dtype != x_test.dtype:
        a, b = (f"{x.dtype} {x.shape[1:]}" for x in (x_train, x_test))
        raise DataError(f"{path}: samples of x_train ({a}) and x_test ({b}) must have one shape and type")
    y_train = _labels(path, "y_train", arrays["y_train"], len(x_train))
    y_test = _labels(path, "y_test", arrays["y_test"], len(x_test))
    known = classes if classes is not None else int(y_train.max()) + 1
    limit = f"{name} has {known} classes" if classes is not None else f"the largest in y_train is {known - 1}"
    for key, y in (("y_train", y_train), ("y_test", y_test)):
        if y.max() >= known:
            raise DataError(f"{path}: {key} holds the label {y.max()}, but {limit}")
    return Dataset(
        name,
        *(torch.from_numpy(x_train), torch.from_numpy(y_train)),
        *(torch.from_numpy(x_test), torch.from_numpy(y_test)),
        known,
        files=(file_record(path),),
    )


def _samples(path: Path, key: str, x: np.ndarray) -> np.ndarray:
    """x checked, images as contiguous (n, c, h, w)."""
    if x.dtype != np.uint8 and x.dtype.kind != "f":
        raise DataError(f"{path}: {key} has type {x.dtype}; uint8 or a float type is expected")
    if x.ndim not in (2, 3, 4) or 0 in x.shape:
        raise DataError(
            f"{path}: {key} has shape {x.shape}; "
            "images (n, h, w) or (n, h, w, c), or features (n, f), at least one sample, are expected"
        )
    if x.ndim == 4 and x.shape[3] > 4:
        raise DataError(
            f"{path}: {key} has shape {x.shape}; (n, h, w, c) with 1 to 4 channels, last, is expected"
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
                raise DataError(f"{path}: {key} has a NaN or an infinity in sample {row}")
    return x


def _labels(path: Path, key: str, y: np.ndarray, samples: int) -> np.ndarray:
    if y.dtype.kind not in "iu":
        raise DataError(f"{path}: {key} has type {y.dtype}; integers are expected")
    if y.shape != (samples,):
        raise DataError(f"{path}: {key} has shape {y.shape}; ({samples},), one label per sample, is expected")
    if y.min() < 0 or y.max() >= MAX_CLASSES:
        wrong = y.min() if y.min() < 0 else y.max()
        raise DataError(
            f"{path}: {key} holds the label {wrong}; labels are 0 .. classes - 1, below {MAX_CLASSES:,}"
        )
    return y.astype(np.int64)
