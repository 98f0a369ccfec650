"""The `Dataset` class: tensors on the CPU, task and provenance; how to build it from arrays, and subsets."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedbench.counting import exact
from fedbench.data.names import in_order, names_of
from fedbench.data.options import TASKS
from fedbench.errors import ConfigError, DataError, shortened, some_of

Feature = tuple[str, str | None]
"""A feature of a table: the column and, of a column of texts, the category for which it is 1."""
CHUNK = 1 << 17  # numbers processed at once: they fit in a core's cache


@dataclass(frozen=True)
class Dataset:
    """A training and a test set. Samples keep the stored type; `to_input` turns a batch into model input.

    Raises a one-line DataError for what does not fit together."""

    name: str
    # x: uint8 images (n, C, H, W), float images or features (n, F), or tokens (n, T)
    # y: (n,) int64 in 0..classes-1; regression: (n, classes) float; multilabel: the same, of 0 and 1
    x_train: Tensor
    y_train: Tensor
    x_test: Tensor
    y_test: Tensor
    classes: int  # number of model outputs: classes, targets or labels
    # float64, (C, 1, 1), (C, H, W) or (F,), in units after uint8 / 255; None: not normalised
    mean: Tensor | None = None
    std: Tensor | None = None
    augment: str = "none"  # "none" or "crop_flip"
    files: tuple[dict[str, Any], ...] = ()  # {"path", "bytes", "sha256"} of every file read
    client: np.ndarray | None = None  # (n,) each sample's own client, a number or name, if known
    test_client: np.ndarray | None = None  # (test samples,) the same for the test set
    note: str | None = None  # what a reader of the results should know about the data's origin
    task: str = "classification"  # one of fedbench.data.options.TASKS
    vocabulary: int | None = None  # samples are sequences of tokens 0 .. vocabulary - 1; 0 is padding
    on_disk: tuple[str, ...] = ()  # which of x_train and x_test are memory-mapped files
    labels: tuple[float | str, ...] | None = None  # what the data call their classes; None: 0, 1, 2, ...
    names: tuple[str, ...] | None = None  # further ones of the classes, where data have numbers and names
    features: tuple[Feature, ...] = ()  # what the features of a table are; empty: not known
    users: tuple[str, ...] | None = None  # (N,) of pooled data of partition=natural: who client i is
    # how a pooled data set was divided, as partition.npz keeps it; empty: it was not pooled
    pooled: Mapping[str, np.ndarray] = field(default_factory=dict)

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """What pictures call the classes: names, else the data's own labels, cut if long; None: 0, 1, ..."""
        called = self.names or self.labels
        return None if called is None else tuple(shortened(name, 20) for name in called)

    def __post_init__(self) -> None:
        place = f"dataset={self.name}"
        if self.task not in TASKS:
            raise DataError(f"{place}: task {self.task} must be one of {', '.join(TASKS)}")
        if self.classes > MAX_CLASSES:
            raise DataError(f"{place}: has {self.classes:,} classes; at most {MAX_CLASSES:,} are possible")
        if self.x_train.shape[1:] != self.x_test.shape[1:] or self.x_train.dtype != self.x_test.dtype:
            kinds = (f"{x.dtype} {tuple(x.shape[1:])}" for x in (self.x_train, self.x_test))
            both = "x_train ({}) and x_test ({})".format(*kinds).replace("torch.", "")
            raise DataError(f"{place}: samples of {both} must have one shape and type")
        for part, x, y, client in (
            ("train", self.x_train, self.y_train, self.client),
            ("test", self.x_test, self.y_test, self.test_client),
        ):
            _check_labels(self, f"{place}: y_{part}", x, y)
            if self.vocabulary is not None:
                _check_tokens(f"{place}: x_{part}", x, self.vocabulary)
            if client is not None:
                _check_clients(f"{place}: client{'' if part == 'train' else '_test'}", client, len(x))
        if self.classes < 2 and self.task == "classification":
            called = f", {self.labels[0]}" if self.labels else ""
            raise DataError(f"{place}: all samples are of one class{called}; at least two are needed")

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
    columns = (column for part in (train, test) for column in zip(*part, strict=True))
    x, y, x_test, y_test = (torch.from_numpy(np.concatenate(column)) for column in columns)
    client, whose = (np.repeat(np.arange(len(part)), [len(y) for _, y in part]) for part in (train, test))
    return Dataset(name, x, y, x_test, y_test, client=client, test_client=whose, **more)


MAX_CLASSES = 1_000_000  # a larger label is a mistake, not a class


def _wrong(where: str, what: Any, expected: str) -> DataError:
    """The error for an array of the wrong type or shape."""
    kind = f"{what.dtype}".removeprefix("torch.")
    return DataError(f"{where} is {kind} of shape {tuple(what.shape)}; {expected} expected")


def _check_labels(data: Dataset, where: str, x: Tensor, y: Tensor) -> None:
    """Raise DataError unless y holds a label, or finite floats (`multilabel`: 0 or 1), for every sample; for
    task sequence: a label for every token, not all of them padding."""
    if data.task in ("regression", "multilabel"):
        if y.shape != (len(x), data.classes) or not y.is_floating_point():
            raise _wrong(where, y, f"floats ({len(x)}, {data.classes}) are")
        if not bool(torch.isfinite(y).all()):
            raise DataError(f"{where} holds a NaN or an infinity in sample {_first(~torch.isfinite(y))}")
        if data.task == "multilabel" and bool((others := (y != 0) & (y != 1)).any()):
            raise DataError(f"{where} holds a value other than 0 and 1 in sample {_first(others)}")
        return
    sequence = data.task == "sequence"
    if sequence and data.vocabulary is None:
        raise DataError(f"{where}: a label for each token needs a vocabulary, and there is none")
    shape = tuple(x.shape) if sequence else (len(x),)
    if y.shape != shape:
        raise _wrong(where, y, f"{shape}, one label per {'token' if sequence else 'sample'}, is")
    for label in (int(y.min()), int(y.max())):
        if not 0 <= label < data.classes:
            known = f"{data.name} has {data.classes} classes, 0 .. {data.classes - 1}"
            raise DataError(f"{where} holds the label {label}, but {known}")
    if sequence and not bool((labelled := (y > 0).any(1)).all()):
        raise DataError(f"{where} has no label in sample {_first(~labelled)}: all are 0, which is padding")


def _check_tokens(where: str, x: Tensor, vocabulary: int) -> None:
    """Raise DataError unless x is (n, T) integers in 0 .. vocabulary - 1."""
    if x.dim() != 2 or x.dtype not in (torch.int16, torch.int32, torch.int64):
        raise _wrong(where, x, "int16, int32 or int64 tokens (n, T) are")
    for token in (int(x.min()), int(x.max())):
        if not 0 <= token < vocabulary:
            known = f"the vocabulary has {vocabulary}: 0 .. {vocabulary - 1}"
            raise DataError(f"{where} holds the token {token}, but {known}")


def _check_clients(where: str, client: np.ndarray, samples: int) -> None:
    """Raise DataError unless there is an integer, or a text that is not empty, for every sample."""
    if client.dtype.kind not in "iuSU" or client.shape != (samples,):
        raise _wrong(where, client, f"integers ({samples},), one client per sample, or texts are")
    if client.dtype.kind in "SU" and not (named := np.char.str_len(client) > 0).all():
        raise DataError(f"{where} is empty in sample {int(named.argmin())}")


def _first(wrong: Tensor) -> int:
    """Index of the first sample with a wrong entry."""
    return int(wrong.reshape(len(wrong), -1).any(1).nonzero()[0])


def from_arrays(
    name: str,
    x_train: np.ndarray,
    y_train: np.ndarray,
    x_test: np.ndarray,
    y_test: np.ndarray,
    *,
    where: str | Path | None = None,
    **fields: Any,
) -> Dataset:
    """Build a data set from arrays. Raises a one-line DataError if an array cannot be used.

    x: uint8 or float; images (n, h, w) or (n, h, w, c), or features (n, f). uint8 stands
    for value / 255. float32 and float64 are kept, so that a float64 run sees the arrays' own numbers. With a
    `vocabulary`: integer tokens (n, t).
    y: integers (n,) in 0 .. classes - 1. For `task` regression: numbers (n,) or (n, k). For multilabel: 0 and
    1, (n, k). For sequence: integers (n, t), a label for each token.
    `where`: the start of every error message, by default `dataset=NAME`.
    `fields`: further fields of the `Dataset`: `task`, `vocabulary`, `client` and `test_client` (integers or
    texts), `classes` (by default the largest training label + 1), `files`, `note`.
    """
    place = str(where or f"dataset={name}")
    given = {"x_train": x_train, "x_test": x_test}
    fields["on_disk"] = tuple(key for key, x in given.items() if isinstance(x, np.memmap))
    x, x_test = (samples(f"{place}: {key}", x, fields.get("vocabulary")) for key, x in given.items())
    discrete = fields.get("task", "classification") in ("classification", "sequence")
    convert = _labels if discrete else _targets
    y, y_test = convert(f"{place}: y_train", y_train), convert(f"{place}: y_test", y_test)
    if fields.get("classes") is None:
        fields["classes"] = int(y.max()) + 1 if discrete else y.shape[1]
    try:
        return Dataset(name, _tensor(x), _tensor(y), _tensor(x_test), _tensor(y_test), **fields)
    except DataError as error:
        raise DataError(str(error).replace(f"dataset={name}", place, 1)) from error


def _tensor(x: np.ndarray) -> Tensor:
    """A tensor that shares the memory of x. Silences torch's warning about read-only (mapped) arrays."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.from_numpy(x)


def samples(where: str, x: np.ndarray, vocabulary: int | None) -> np.ndarray:
    """x as a `Dataset` has it: images (n, c, h, w), features (n, f), or with a `vocabulary` tokens (n, t).
    Raises DataError, which begins with `where`, if it cannot be used."""
    return _samples(where, x) if vocabulary is None else _tokens(where, x)


def _samples(where: str, x: np.ndarray) -> np.ndarray:
    """Check x and return it, images as contiguous (n, c, h, w). A memory-mapped x is not copied, and not
    searched for NaN and infinity."""
    if x.dtype != np.uint8 and x.dtype.kind != "f":
        raise _wrong(where, x, "uint8 or a float type is")
    if x.ndim not in (2, 3, 4) or 0 in x.shape:
        raise _wrong(where, x, "images (n, h, w) or (n, h, w, c), or features (n, f), at least one, are")
    if x.ndim == 4 and x.shape[1] <= 4 < x.shape[3]:  # channels first
        raise _wrong(where, x, "(n, h, w, c) with 1 to 4 channels, last, or more where h is larger, is")
    if x.ndim == 3:
        x = x[:, None]
    elif x.ndim == 4:
        x = x.transpose(0, 3, 1, 2)
    if isinstance(x, np.memmap):
        if x.dtype.itemsize == 2 or x.dtype.itemsize > 8 or not x.dtype.isnative:
            allowed = "uint8, float32 or float64 of this machine's byte order, in a .npy file, is"
            raise _wrong(where, x, allowed)
        return x
    if x.dtype != np.uint8:
        x = x.astype(np.float32 if x.dtype.itemsize <= 4 else np.float64, copy=False)
    x = np.ascontiguousarray(x)
    step = max(1, CHUNK // x[0].size)
    for start in range(0, len(x) if x.dtype != np.uint8 else 0, step):
        finite = np.isfinite(x[start : start + step])
        if not finite.all():
            row = start + int(np.argwhere(~finite)[0, 0])
            raise DataError(f"{where} has a NaN or an infinity in sample {row}")
    return x


def _tokens(where: str, x: np.ndarray) -> np.ndarray:
    """Return x (n, t) as int32. `Dataset` checks that the tokens are below the vocabulary."""
    if x.dtype.kind not in "iu" or x.ndim != 2 or 0 in x.shape:
        raise _wrong(where, x, "tokens (n, t), integers, are")
    if isinstance(x, np.memmap) and x.dtype != np.int32:
        raise _wrong(where, x, "int32, in a .npy file, is")
    if x.max() > (most := np.iinfo(np.int32).max):
        raise DataError(f"{where} holds a token above {most}")
    return np.ascontiguousarray(x, dtype=np.int32)


def _labels(where: str, y: np.ndarray) -> np.ndarray:
    """Return y as int64. `Dataset` checks that there is a class for each label."""
    if y.dtype.kind not in "iu" or 0 in y.shape:
        raise _wrong(where, y, "integers, one for each sample or token, are")
    if y.max() >= MAX_CLASSES:
        raise DataError(f"{where} holds the label {y.max()}; labels are below {MAX_CLASSES:,}")
    return y.astype(np.int64)


def _targets(where: str, y: np.ndarray) -> np.ndarray:
    """Targets (n, k) as float32; float64 stays float64."""
    if y.dtype.kind not in "iufb" or y.ndim not in (1, 2) or 0 in y.shape:
        raise _wrong(where, y, "numbers (n,) or (n, k) are")
    y = y[:, None] if y.ndim == 1 else y
    return np.ascontiguousarray(y, dtype=np.float64 if y.dtype == np.float64 else np.float32)


def of_classes(data: Dataset, labels: Sequence[int | str]) -> Dataset:
    """Keep the samples of these labels, as the data call them, in order; the labels become 0, 1, ... in the
    order given.

    Raises ConfigError if a label has no training or no test sample, or the task is not classification.
    """
    if data.task != "classification":
        allowed = f"must be null: {data.name} has none ({data.task})"
        raise ConfigError("dataset.classes", list(labels), allowed)
    known = {str(name): at for at, name in enumerate(data.labels or range(data.classes))}
    there = f"{data.name} has {data.classes} classes, from 0 on"
    if data.names is not None:
        there = f"the labels of {data.name} are {some_of(data.names)}"
    elif data.labels is not None:
        there = f"the labels of {data.name} are {some_of([*known])}"
    named = {**known, **{name: at for at, name in enumerate(data.names or ())}}
    place = torch.full((data.classes,), -1)
    chosen: list[int] = []
    for rank, label in enumerate(labels):
        at = (named if isinstance(label, str) else known).get(str(label))
        if at is None or not all((y == at).any() for y in (data.y_train, data.y_test)):
            raise ConfigError("dataset.classes", label, f"has no training or no test samples: {there}")
        if at in chosen:
            first = labels[chosen.index(at)]
            raise ConfigError("dataset.classes", list(labels), f"names one class twice: {first} and {label}")
        chosen.append(at)
        place[at] = rank
    train, test = (place[y] >= 0 for y in (data.y_train, data.y_test))
    which = ", ".join(map(str, labels))
    if isinstance(labels[0], int) and [*labels] == [*range(labels[0], labels[0] + len(labels))]:
        which = f"{labels[0]} to {labels[-1]}"
    counts = (int(train.sum()), len(train), int(test.sum()), len(test))
    note = "only its labels {}: {:,} of {:,} training and {:,} of {:,} test samples".format(which, *counts)
    kept = _kept(data, "train", train) | _kept(data, "test", test)
    kept |= {key: place[kept[key]] for key in ("y_train", "y_test")}
    kept |= {"classes": len(labels), "labels": tuple(labels), "note": joined(data.note, note)}
    if data.names is not None:
        kept["names"] = tuple(data.names[at] for at in chosen)
    return dataclasses.replace(data, **kept)


def _kept(data: Dataset, part: str, which: Tensor) -> dict[str, Any]:
    """Samples, labels and clients of the training or test set at these indices or where a mask is true."""
    client = "client" if part == "train" else "test_client"
    whose = getattr(data, client)
    arrays = {key: getattr(data, key)[which] for key in (f"x_{part}", f"y_{part}")}
    return {**arrays, client: None if whose is None else whose[which.numpy()]}


def joined(*notes: str | None) -> str | None:
    """Notes on the data as one; None if there are none."""
    return "; ".join(filter(None, notes)) or None


def subset(data: Dataset, train_samples: int | None, test_samples: int | None) -> Dataset:
    """Keep this number of training and test samples (None: all).

    They are drawn at random without replacement, the same for every seed of a run, and keep their order; a
    smaller subset is part of a larger one. Raises ConfigError if more are requested than there are.
    """
    for part, name, count in (("train", "training", train_samples), ("test", "test", test_samples)):
        there = len(getattr(data, f"y_{part}"))
        if count is None:
            continue
        if count > there:
            allowed = f"must be at most {there}, which is all there are, or null"
            raise ConfigError(f"dataset.{part}_samples", count, allowed)
        drawn = torch.from_numpy(np.sort(np.random.default_rng(0).permutation(there)[:count]))
        note = joined(data.note, f"{count:,} of {there:,} {name} samples were used")
        on_disk = tuple(key for key in data.on_disk if key != f"x_{part}")
        data = dataclasses.replace(data, **_kept(data, part, drawn), on_disk=on_disk, note=note)
    return data


def users_of(data: Dataset, asked: object) -> list[str]:
    """The users of the training samples, in order. Raises ConfigError if the data do not say who they are.
    `asked`: the value of dataset.hold_out."""
    if data.client is None:
        allowed = f"must be null: {data.name} does not say whose its samples are (dataset.user, client)"
        raise ConfigError("dataset.hold_out", asked, allowed)
    return in_order({*names_of(data.client).tolist()})


def holding_out(data: Dataset, users: Sequence[str]) -> Dataset:
    """All samples of these users as the test set, all of the others for training. A test set that does not
    say whose its samples are is left out. Raises ConfigError unless some users stay, and for unknown ones."""
    there = users_of(data, [*users])
    if unknown := [name for name in users if name not in there]:
        allowed = f"must be users of {data.name}: {some_of(there)}"
        raise ConfigError("dataset.hold_out", unknown[0], allowed, there)
    if not {*there} - {*users}:
        raise ConfigError("dataset.hold_out", list(users), "must leave a user to train on")
    parts = [(data.x_train, data.y_train, data.client), (data.x_test, data.y_test, data.test_client)]
    known = [(x, y, names_of(client)) for x, y, client in parts if client is not None]
    whose = np.concatenate([names for *_, names in known])
    out = torch.from_numpy(np.isin(whose, [*users]))
    x, y = torch.cat([x for x, *_ in known]), torch.cat([y for _, y, _ in known])
    note = f"held out: {', '.join(users)}, whose {int(out.sum()):,} samples are the test set"
    if data.test_client is None:
        note += f"; the {len(data.y_test):,} test samples that are nobody's are left out"
    return dataclasses.replace(
        data,
        x_train=x[~out],
        y_train=y[~out],
        x_test=x[out],
        y_test=y[out],
        client=whose[~out.numpy()],
        test_client=None,
        on_disk=(),
        note=joined(data.note, note),
    )


def pooled(data: Dataset) -> Dataset:
    """Append the test samples to the training samples; `divide` makes a new test set. Own clients of samples
    are kept if both sets have them."""
    clients = [client for client in (data.client, data.test_client) if client is not None]
    return dataclasses.replace(
        data,
        x_train=torch.cat([data.x_train, data.x_test]),
        y_train=torch.cat([data.y_train, data.y_test]),
        client=np.concatenate([*map(names_of, clients)]) if len(clients) == 2 else None,
    )
