"""What a data set is to the rest of the program: tensors on the CPU, what is to be learnt, provenance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedbench.data.options import TASKS
from fedbench.errors import DataError
from fedbench.fields import exact

CHUNK = 1 << 17  # numbers converted at once while statistics are taken: they fit a core's cache


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
    classes: int  # outputs of a model: classes, targets or labels
    mean: Tensor | None = (
        None  # float64, (C, 1, 1), (C, H, W) or (F,), in units after uint8 / 255; None: not normalised
    )
    std: Tensor | None = None
    augment: str = "none"  # "none" or "crop_flip"
    files: tuple[dict[str, Any], ...] = ()  # {"path", "bytes", "sha256"} of every file read
    client: np.ndarray | None = None  # (n,) the data set's own assignment to clients, where it has one
    test_client: np.ndarray | None = None  # (test samples,) the same of the test set
    note: str | None = None  # what a reader of the results should know about the data's origin
    task: str = "classification"  # one of fedbench.data.options.TASKS
    vocabulary: int | None = None  # samples are sequences of tokens 0 .. vocabulary - 1; 0 is padding

    def __post_init__(self) -> None:
        if self.task not in TASKS:
            raise DataError(f"dataset={self.name}: task {self.task} must be one of {', '.join(TASKS)}")
        for part, x, y in (("train", self.x_train, self.y_train), ("test", self.x_test, self.y_test)):
            where = f"dataset={self.name}: y_{part}"
            if self.task == "classification":
                check_labels(where, y, len(x), self.name, self.classes)
            else:
                check_targets(where, y, len(x), self.classes, self.task)
            if self.vocabulary is not None:
                check_tokens(f"dataset={self.name}: x_{part}", x, self.vocabulary)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one sample: (C, H, W) or (F,)."""
        return tuple(self.x_train.shape[1:])

    @property
    def black(self) -> Tensor:
        """Model input of a raw 0, broadcastable to one sample: -mean/std, or 0 where not normalised."""
        if self.mean is None or self.std is None:
            return torch.zeros((), dtype=torch.float64)
        return -self.mean / self.std


def of_users(
    name: str, drawn: Sequence[tuple[np.ndarray, np.ndarray]], test_fraction: float, **more: Any
) -> Dataset:
    """Samples (n, *shape) and labels (n,) that users have; the last max(1, round(test_fraction * n)) of each
    user are for the test. `more`: of the Dataset."""
    held_out = [max(1, round(exact(test_fraction) * len(y))) for _, y in drawn]
    train = [(x[:-n], y[:-n]) for (x, y), n in zip(drawn, held_out, strict=True)]
    test = [(x[-n:], y[-n:]) for (x, y), n in zip(drawn, held_out, strict=True)]
    x, y, x_test, y_test = (
        torch.from_numpy(np.concatenate(one)) for part in (train, test) for one in zip(*part, strict=True)
    )
    client, whose = (np.repeat(np.arange(len(part)), [len(y) for _, y in part]) for part in (train, test))
    return Dataset(name, x, y, x_test, y_test, client=client, test_client=whose, **more)


def check_labels(where: str, y: Tensor, samples: int, name: str, classes: int, lowest: int = 0) -> None:
    """Raise DataError unless y (n,) holds a label of `lowest` .. lowest + classes - 1 for every sample."""
    if y.shape != (samples,):
        raise DataError(
            f"{where} has shape {tuple(y.shape)}; ({samples},), one label per sample, is expected"
        )
    for wrong in (int(y.min()), int(y.max())):
        if not lowest <= wrong < lowest + classes:
            labels = f"{lowest} .. {lowest + classes - 1}"
            raise DataError(f"{where} holds the label {wrong}, but {name} has {classes} classes, {labels}")


def check_targets(where: str, y: Tensor, samples: int, outputs: int, task: str) -> None:
    """Raise DataError unless y (n, outputs) holds finite floats for every sample; of `multilabel` 0 and 1."""
    if y.shape != (samples, outputs) or not y.is_floating_point():
        raise DataError(
            f"{where} is {y.dtype} of shape {tuple(y.shape)}; floats ({samples}, {outputs}) are expected"
        )
    if not bool(torch.isfinite(y).all()):
        raise DataError(f"{where} holds a NaN or an infinity in sample {_first(~torch.isfinite(y))}")
    if task == "multilabel" and not bool(((y == 0) | (y == 1)).all()):
        raise DataError(f"{where} holds something else than 0 and 1 in sample {_first((y != 0) & (y != 1))}")


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
    """The first sample in which anything is wrong."""
    return int(wrong.flatten(1).any(1).nonzero()[0])


def mean_std(x: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation (dividing by n) per channel of images or per feature, in float64.

    uint8 counts as value / 255. A channel or feature that never varies gets std 1, so it becomes 0.
    Works through chunks of samples: no float copy of the whole set is made.
    """
    step = max(1, CHUNK // x[0].numel())
    planes = x.numpy().reshape(len(x), x.shape[1], -1)  # (n, channels or features, values of one)
    chunks = [planes[i : i + step] for i in range(0, len(x), step)]
    unit = 255.0 if x.dtype == torch.uint8 else 1.0
    levels = x.dtype == torch.uint8 and x.dim() == 4
    mean, std = _of_levels(chunks, unit) if levels else _of_numbers(chunks, unit)
    shape = (-1, 1, 1) if x.dim() == 4 else (-1,)
    return torch.from_numpy(mean).reshape(shape), torch.from_numpy(std).reshape(shape)


def pixel_mean_std(x: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation + 0.001 of every pixel (C, H, W) over the images (n, C, H, W), in float64.

    The 0.001 is that of FedProxVR's scripts: a pixel that hardly ever varies stays small. uint8 counts as
    value / 255.
    """
    step = max(1, CHUNK // x[0].numel())
    unit = 255.0 if x.dtype == torch.uint8 else 1.0
    chunks = [x[i : i + step].double() / unit for i in range(0, len(x), step)]
    mean = torch.stack([chunk.sum(0) for chunk in chunks]).sum(0) / len(x)
    square = torch.stack([((chunk - mean) ** 2).sum(0) for chunk in chunks]).sum(0) / len(x)
    return mean, square.sqrt() + 0.001


def _of_levels(chunks: Sequence[np.ndarray], unit: float) -> tuple[np.ndarray, np.ndarray]:
    """From a histogram of the 256 levels of each channel: exact, and several times faster."""
    histogram = np.zeros((chunks[0].shape[1], 256), dtype=np.int64)
    for chunk in chunks:
        for channel, plane in enumerate(chunk.transpose(1, 0, 2)):
            histogram[channel] += np.bincount(plane.ravel(), minlength=256)
    share = histogram / histogram.sum(axis=1, keepdims=True)
    level = np.arange(256) / unit
    mean = share @ level
    std = np.sqrt((share * (level - mean[:, None]) ** 2).sum(axis=1))
    return mean, np.where(share.max(axis=1) == 1, 1.0, std)


def _of_numbers(chunks: Sequence[np.ndarray], unit: float) -> tuple[np.ndarray, np.ndarray]:
    """In two passes over the values / unit: the mean, then the squares around it."""
    count = sum(len(c) for c in chunks) * chunks[0].shape[2]
    low = np.min([c.min(axis=(0, 2)) for c in chunks], axis=0) / unit
    high = np.max([c.max(axis=(0, 2)) for c in chunks], axis=0) / unit
    constant = low == high
    mean = sum((c / unit).sum(axis=(0, 2), dtype=np.float64) for c in chunks) / count
    mean = np.where(constant, low, mean)
    square = sum(((c / unit - mean[:, None]) ** 2).sum(axis=(0, 2)) for c in chunks)
    return mean, np.where(constant, 1.0, np.sqrt(square / count))
