"""What a data set is to the rest of the program: tensors on the CPU, class count, provenance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedbench.errors import DataError

CHUNK = 1 << 17  # numbers converted at once while statistics are taken: they fit a core's cache


@dataclass(frozen=True)
class Dataset:
    """A training and a test set. Samples keep the stored type; `to_input` turns a batch into model input."""

    name: str
    x_train: Tensor  # (n, *shape): uint8 images (n, C, H, W), or float32/float64 images or features (n, F)
    y_train: Tensor  # (n,) int64 in 0..classes-1
    x_test: Tensor
    y_test: Tensor
    classes: int
    mean: Tensor | None = (
        None  # float64, (C, 1, 1), (C, H, W) or (F,), in units after uint8 / 255; None: not normalised
    )
    std: Tensor | None = None
    augment: str = "none"  # "none" or "crop_flip"
    files: tuple[dict[str, Any], ...] = ()  # {"path", "bytes", "sha256"} of every file read
    client: np.ndarray | None = None  # (n,) the data set's own assignment to clients, where it has one
    note: str | None = None  # what a reader of the results should know about the data's origin

    def __post_init__(self) -> None:
        for part, x, y in (("train", self.x_train, self.y_train), ("test", self.x_test, self.y_test)):
            check_labels(f"dataset={self.name}: y_{part}", y, len(x), self.name, self.classes)

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
