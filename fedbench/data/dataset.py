"""The `Dataset` class: tensors on the CPU, task and provenance; how to build it from arrays, and subsets."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedbench.data.options import TASKS
from fedbench.errors import ConfigError, DataError
from fedbench.fields import exact

CHUNK = 1 << 17  # numbers processed at once: they fit in a core's cache


@dataclass(frozen=True)
class Dataset:
    """A training and a test set. Samples keep the stored type; `to_input` turns a batch into model input."""

    name: str
    x_train: (
        Tensor  # (n, *shape): uint8 images (n, C, H, W), float images or features (n, F), or tokens (n, T)
    )
    y_train: (
        Tensor  # (n,) int64 in 0..classes-1; regression: (n, classes) float; multilabel: the same, of 0 and 1
    )
    x_test: Tensor
    y_test: Tensor
    classes: int  # number of model outputs: classes, targets or labels
    mean: Tensor | None = (
        None  # float64, (C, 1, 1), (C, H, W) or (F,), in units after uint8 / 255; None: not normalised
    )
    std: Tensor | None = None
    augment: str = "none"  # "none" or "crop_flip"
    files: tuple[dict[str, Any], ...] = ()  # {"path", "bytes", "sha256"} of every file read
    client: np.ndarray | None = None  # (n,) each sample's own client, a number or name, if known
    test_client: np.ndarray | None = None  # (test samples,) the same for the test set
    note: str | None = None  # what a reader of the results should know about the data's origin
    task: str = "classification"  # one of fedbench.data.options.TASKS
    vocabulary: int | None = None  # samples are sequences of tokens 0 .. vocabulary - 1; 0 is padding

    on_disk: tuple[str, ...] = ()  # which of x_train and x_test are memory-mapped files

    def __post_init__(self) -> None:
        if self.task not in TASKS:
            raise DataError(f"dataset={self.name}: task {self.task} must be one of {', '.join(TASKS)}")
        for part, x, y in (("train", self.x_train, self.y_train), ("test", self.x_test, self.y_test)):
            where = f"dataset={self.name}: y_{part}"
            if self.task == "sequence":
                if self.vocabulary is None or y.shape != x.shape:
                    allowed = f"tokens {tuple(x.shape)} below a vocabulary, with a label each, are expected"
                    raise DataError(f"{where} has shape {tuple(y.shape)}; {allowed}")
                check_labels(where, y.flatten(), y.numel(), self.name, self.classes)
                if not bool((labelled := (y > 0).any(1)).all()):
                    sample = int((~labelled).nonzero()[0])
                    raise DataError(f"{where} has no label in sample {sample}: all are 0, which is padding")
            elif self.task == "classification":
                check_labels(where, y, len(x), self.name, self.classes)
            else:
                check_targets(where, y, len(x), self.classes, self.task)
            if self.vocabulary is not None:
                check_tokens(f"dataset={self.name}: x_{part}", x, self.vocabulary)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one sample: (C, H, W), (F,), or (T,) for tokens."""
        return tuple(self.x_train.shape[1:])

    @property
    def black(self) -> Tensor:
        """Model input for a raw 0, broadcastable to one sample: -mean/std, or 0 without normalisation."""
        if self.mean is None or self.std is None:
            return torch.zeros((), dtype=torch.float64)
        return -self.mean / self.std


def of_users(
    name: str, drawn: Sequence[tuple[np.ndarray, np.ndarray]], test_fraction: float, **more: Any
) -> Dataset:
    """A data set from each user's samples (n, *shape) and labels (n,). Of each user, the last
    max(1, round(test_fraction * n)) samples form the test set. `more`: further fields of the `Dataset`."""
    held_out = [max(1, round(exact(test_fraction) * len(y))) for _, y in drawn]
    train = [(x[:-n], y[:-n]) for (x, y), n in zip(drawn, held_out, strict=True)]
    test = [(x[-n:], y[-n:]) for (x, y), n in zip(drawn, held_out, strict=True)]
    x, y, x_test, y_test = (
        torch.from_numpy(np.concatenate(one)) for part in (train, test) for one in zip(*part, strict=True)
    )
    client, whose = (np.repeat(np.arange(len(part)), [len(y) for _, y in part]) for part in (train, test))
    return Dataset(name, x, y, x_test, y_test, client=client, test_client=whose, **more)


def check_labels(where: str, y: Tensor, samples: int, name: str, classes: int, lowest: int = 0) -> None:
    """Raise DataError unless y (n,) holds a label in `lowest` .. lowest + classes - 1 for every sample."""
    if y.shape != (samples,):
        raise DataError(
            f"{where} has shape {tuple(y.shape)}; ({samples},), one label per sample, is expected"
        )
    for wrong in (int(y.min()), int(y.max())):
        if not lowest <= wrong < lowest + classes:
            labels = f"{lowest} .. {lowest + classes - 1}"
            raise DataError(f"{where} holds the label {wrong}, but {name} has {classes} classes, {labels}")


def check_targets(where: str, y: Tensor, samples: int, outputs: int, task: str) -> None:
    """Raise DataError unless y (n, outputs) holds finite floats (`multilabel`: 0 or 1) for every sample."""
    if y.shape != (samples, outputs) or not y.is_floating_point():
        raise DataError(
            f"{where} is {y.dtype} of shape {tuple(y.shape)}; floats ({samples}, {outputs}) are expected"
        )
    if not bool(torch.isfinite(y).all()):
        raise DataError(f"{where} holds a NaN or an infinity in sample {_first(~torch.isfinite(y))}")
    if task == "multilabel" and not bool(((y == 0) | (y == 1)).all()):
        raise DataError(f"{where} holds a value other than 0 and 1 in sample {_first((y != 0) & (y != 1))}")


def check_tokens(where: str, x: Tensor, vocabulary: int) -> None:
    """Raise DataError unless x is (n, T) integers in 0 .. vocabulary - 1."""
    if x.dim() != 2 or x.dtype not in (torch.int16, torch.int32, torch.int64):
        raise DataError(
            f"{where} is {x.dtype} of shape {tuple(x.shape)}; int16, int32 or int64 tokens (n, T) are needed"
        )
    for wrong in (int(x.min()), int(x.max())):
        if not 0 <= wrong < vocabulary:
            raise DataError(
                f"{where} holds the token {wrong}, but the vocabulary has {vocabulary}: 0 .. {vocabulary - 1}"
            )


def _first(wrong: Tensor) -> int:
    """Index of the first sample with a wrong entry."""
    return int(wrong.flatten(1).any(1).nonzero()[0])


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
    """Build a data set from arrays. Raises a one-line DataError if an array cannot be used.

    x: uint8 or float; images (n, h, w) or (n, h, w, c), or features (n, f). uint8 stands
    for value / 255. float32 and float64 are kept, so that a float64 run sees the arrays' own numbers. With a
    `vocabulary`: integer tokens (n, t).
    y: integers (n,) in 0 .. classes - 1; `classes` defaults to the largest training label + 1. For
    regression: numbers (n,) or (n, k). For multilabel: 0 and 1, (n, k). For sequence: integers (n, t), a
    label for each token.
    `client` (n,), `test_client`: the client of every sample, by number or name, if the data have clients of
    their own.
    `where`: the start of every error message, by default `dataset=NAME`.
    """
    place = str(where or f"dataset={name}")
    on_disk = {"x_train": x_train, "x_test": x_test}
    take = _samples if vocabulary is None else _tokens
    x_train, x_test = take(place, "x_train", x_train), take(place, "x_test", x_test)
    if x_train.shape[1:] != x_test.shape[1:] or x_train.dtype != x_test.dtype:
        a, b = (f"{x.dtype} {x.shape[1:]}" for x in (x_train, x_test))
        raise DataError(f"{place}: samples of x_train ({a}) and x_test ({b}) must have one shape and type")
    if task in ("classification", "sequence"):
        shapes = [x.shape if task == "sequence" else (len(x),) for x in (x_train, x_test)]
        y_train = _labels(place, "y_train", y_train, shapes[0])
        y_test = _labels(place, "y_test", y_test, shapes[1])
        known = _classes(place, name, y_train, y_test, classes)
    else:
        y_train, y_test = _targets(place, "y_train", y_train), _targets(place, "y_test", y_test)
        known = y_train.shape[1]
    for key, who, x in (("client", client, x_train), ("client_test", test_client, x_test)):
        if who is not None and (who.dtype.kind not in "iuSU" or who.shape != (len(x),)):
            allowed = f"integers ({len(x)},), one client per sample, are expected, or texts"
            raise DataError(f"{place}: {key} is {who.dtype} of shape {who.shape}; {allowed}")
        if who is not None and who.dtype.kind in "SU" and not (named := np.char.str_len(who) > 0).all():
            raise DataError(f"{place}: {key} is empty in sample {int(named.argmin())}")
    return Dataset(
        name,
        *(_tensor(x_train), torch.from_numpy(y_train)),
        *(_tensor(x_test), torch.from_numpy(y_test)),
        known,
        files=files,
        client=client,
        test_client=test_client,
        task=task,
        vocabulary=vocabulary,
        on_disk=tuple(key for key, x in on_disk.items() if isinstance(x, np.memmap)),
    )


def _tensor(x: np.ndarray) -> Tensor:
    """A tensor that shares the memory of x. Silences torch's warning about read-only (mapped) arrays."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.from_numpy(x)


def _samples(place: str, key: str, x: np.ndarray) -> np.ndarray:
    """Check x and return it, images as contiguous (n, c, h, w). A memory-mapped x is not copied, and not
    searched for NaN and infinity."""
    if x.dtype != np.uint8 and x.dtype.kind != "f":
        raise DataError(f"{place}: {key} has type {x.dtype}; uint8 or a float type is expected")
    if x.ndim not in (2, 3, 4) or 0 in x.shape:
        raise DataError(
            f"{place}: {key} has shape {x.shape}; "
            "images (n, h, w) or (n, h, w, c), or features (n, f), at least one sample, are expected"
        )
    if x.ndim == 4 and x.shape[1] <= 4 < x.shape[3]:  # channels first
        allowed = "(n, h, w, c) with 1 to 4 channels, last, is expected, or more where h is larger"
        raise DataError(f"{place}: {key} has shape {x.shape}; {allowed}")
    if x.ndim == 3:
        x = x[:, None]
    elif x.ndim == 4:
        x = x.transpose(0, 3, 1, 2)
    if isinstance(x, np.memmap):
        if x.dtype.itemsize == 2 or x.dtype.itemsize > 8 or not x.dtype.isnative:
            allowed = "uint8, float32 or float64 of this machine's byte order is expected of a .npy file"
            raise DataError(f"{place}: {key} has type {x.dtype}; {allowed}")
        return x
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
    """Return x (n, t) as int32. `Dataset` checks that the tokens are below the vocabulary."""
    if x.dtype.kind not in "iu" or x.ndim != 2 or 0 in x.shape:
        raise DataError(
            f"{place}: {key} is {x.dtype} of shape {x.shape}; tokens (n, t), integers, are expected"
        )
    if isinstance(x, np.memmap) and x.dtype != np.int32:
        raise DataError(f"{place}: {key} has type {x.dtype}; int32 is expected of a .npy file")
    limit = np.iinfo(np.int32)
    if x.min() < 0 or x.max() > limit.max:
        raise DataError(f"{place}: {key} holds a token that is negative or above {limit.max}")
    return np.ascontiguousarray(x, dtype=np.int32)


def _labels(place: str, key: str, y: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    if y.dtype.kind not in "iu":
        raise DataError(f"{place}: {key} has type {y.dtype}; integers are expected")
    if y.shape != shape:
        per = "token" if len(shape) > 1 else "sample"
        raise DataError(f"{place}: {key} has shape {y.shape}; {shape}, one label per {per}, is expected")
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
    """Targets (n, k) as float32; float64 stays float64."""
    if y.dtype.kind not in "iufb" or y.ndim not in (1, 2) or 0 in y.shape:
        raise DataError(
            f"{place}: {key} is {y.dtype} of shape {y.shape}; numbers (n,) or (n, k) are expected"
        )
    y = y[:, None] if y.ndim == 1 else y
    return np.ascontiguousarray(y, dtype=np.float64 if y.dtype == np.float64 else np.float32)


def of_classes(data: Dataset, labels: Sequence[int]) -> Dataset:
    """Keep the samples of these labels, in order; the labels become 0, 1, ... in the order given.

    Raises ConfigError if a label has no training or no test sample, or the task is not classification.
    """
    if data.task != "classification":
        raise ConfigError(
            "dataset.classes", list(labels), f"must be null: {data.name} has none ({data.task})"
        )
    place = torch.full((data.classes,), -1)
    for rank, label in enumerate(labels):
        if label >= data.classes or not all((y == label).any() for y in (data.y_train, data.y_test)):
            there = f"{data.name} has {data.classes} classes, from 0 on"
            raise ConfigError("dataset.classes", label, f"has no training or no test samples: {there}")
        place[label] = rank
    train, test = (place[y] >= 0 for y in (data.y_train, data.y_test))
    which = (
        f"labels {labels[0]} to {labels[-1]}"
        if _is_range(labels)
        else f"labels {', '.join(map(str, labels))}"
    )
    note = "only its {}: {:,} of {:,} training and {:,} of {:,} test samples"
    counts = (int(train.sum()), len(train), int(test.sum()), len(test))
    return dataclasses.replace(
        data,
        x_train=data.x_train[train],
        y_train=place[data.y_train[train]],
        x_test=data.x_test[test],
        y_test=place[data.y_test[test]],
        client=None if data.client is None else data.client[train.numpy()],
        test_client=None if data.test_client is None else data.test_client[test.numpy()],
        classes=len(labels),
        note="; ".join(filter(None, [data.note, note.format(which, *counts)])),
    )


def _is_range(labels: Sequence[int]) -> bool:
    return list(labels) == list(range(labels[0], labels[0] + len(labels)))


def subset(data: Dataset, train_samples: int | None, test_samples: int | None) -> Dataset:
    """Keep this number of training and test samples (None: all).

    They are drawn at random without replacement, the same for every seed of a run, and keep their order; a
    smaller subset is part of a larger one. Raises ConfigError if more are requested than there are.
    """
    train = _drawn("train_samples", train_samples, len(data.y_train))
    test = _drawn("test_samples", test_samples, len(data.y_test))
    changes: dict[str, Any] = {}
    notes = [data.note] if data.note else []
    if train is not None:
        client = None if data.client is None else data.client[train.numpy()]
        changes |= {"x_train": data.x_train[train], "y_train": data.y_train[train], "client": client}
        notes.append(f"{len(train):,} of {len(data.y_train):,} training samples were used")
    if test is not None:
        whose = None if data.test_client is None else data.test_client[test.numpy()]
        changes |= {"x_test": data.x_test[test], "y_test": data.y_test[test], "test_client": whose}
        notes.append(f"{len(test):,} of {len(data.y_test):,} test samples were used")
    if not changes:
        return data
    on_disk = tuple(key for key in data.on_disk if key not in changes)
    return dataclasses.replace(data, **changes, on_disk=on_disk, note="; ".join(notes) or None)


def _drawn(key: str, count: int | None, there: int) -> Tensor | None:
    """Sorted indices of the samples that option `key` keeps; None: all samples."""
    if count is None:
        return None
    if count > there:
        raise ConfigError(
            f"dataset.{key}", count, f"must be at most {there}, which is all there are, or null"
        )
    picked = np.random.default_rng(0).permutation(there)[:count]
    return torch.from_numpy(np.sort(picked))


def pooled(data: Dataset) -> Dataset:
    """Append the test samples to the training samples; `divide` makes a new test set."""
    return dataclasses.replace(
        data,
        x_train=torch.cat([data.x_train, data.x_test]),
        y_train=torch.cat([data.y_train, data.y_test]),
        client=_pooled_clients(data),
    )


def _pooled_clients(data: Dataset) -> np.ndarray | None:
    """The own clients of all samples, or None unless both sets have them."""
    if data.client is None or data.test_client is None:
        return None
    return np.concatenate([data.client, data.test_client])
