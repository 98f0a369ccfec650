"""Transforms of a batch on the device (to float, normalise, augment, add noise), and the statistics for them.

The transforms are pure tensor operations without branches on values. The same lines run eagerly, under vmap
and inside compiled code, and give every engine the same numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor

from fedbench.data.dataset import CHUNK
from fedbench.rng import Key, threefry2x32

PAD = 4


def to_input(x: Tensor, mean: Tensor | None, std: Tensor | None, dtype: torch.dtype) -> Tensor:
    """Stored samples (..., *shape) as model input of `dtype`: uint8 / 255, then (x - mean) / std. Other
    integers are tokens and become int64.

    `mean` and `std` are on the device of `x` and broadcast to one sample; None means no normalisation.
    """
    if not x.is_floating_point() and x.dtype != torch.uint8:
        return x.long()
    value = x.to(dtype) / 255 if x.dtype == torch.uint8 else x.to(dtype)
    if mean is None or std is None:
        return value
    return (value - mean.to(dtype)) / std.to(dtype)


def in_slices(to_input: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """to_input(x) of many samples (n, *shape), some at a time: what is computed on the way takes no memory
    worth counting. On a GPU as a whole."""
    step = max(1, CHUNK // max(1, x[:1].numel()))
    if x.device.type != "cpu" or len(x) <= step:
        return to_input(x)
    first = to_input(x[:step])
    if first.data_ptr() == x.data_ptr():  # nothing is computed
        return to_input(x)
    whole = first.new_empty(len(x), *first.shape[1:])
    whole[:step] = first
    for start in range(step, len(x), step):
        whole[start : start + step] = to_input(x[start : start + step])
    return whole


def augment_batch(
    x: Tensor,
    key: Key,
    mode: str,
    fill: Tensor | float,
    reflect: bool = False,
    probability: float = 1.0,
) -> Tensor:
    """Random crop after padding by 4, then a horizontal flip with probability 1/2, per image (B, C, H, W).

    `key`: two 0-dim int64 tensors. The draws of image b are the two words of Threefry(key, (b, 0)): the
    window's top row is (9 * word0) >> 32, its left column (9 * word1) >> 32, and bit 0 of word0 flips.
    `reflect`: the padding is the image mirrored at its first and last rows and columns, which are not
    repeated. `probability` of a crop: below 1, image b is cropped if the first word of
    Threefry(key, (b, 1)) is less than `probability` times 2^32.
    `x` is already normalised, so the padding has the value `fill`: pass `Dataset.black`, on the device of
    `x`, to pad with raw zeros (black), as cropping before normalisation does. The default 0 is right without
    normalisation.
    """
    if mode == "none":
        return x
    batch, channels, height, width = x.shape
    image = torch.arange(batch, device=x.device)
    word0, word1 = threefry2x32(key, (image, torch.zeros_like(image)))
    span = 2 * PAD + 1
    top, left = ((word0 * span) >> 32) - PAD, ((word1 * span) >> 32) - PAD
    if probability < 1:
        crops = threefry2x32(key, (image, torch.ones_like(image)))[0] < probability * 2**32
        top, left = top * crops, left * crops
    column = torch.arange(width, device=x.device)
    rows = top[:, None] + torch.arange(height, device=x.device)  # (B, H) source row of every output row
    flipped = torch.where((word0 & 1)[:, None] == 1, width - 1 - column, column)
    columns = left[:, None] + flipped  # (B, W)
    if reflect:
        last = height - 1, width - 1
        rows, columns = (end - (end - at.abs()).abs() for at, end in zip((rows, columns), last, strict=True))
    row_inside, column_inside = (rows >= 0) & (rows < height), (columns >= 0) & (columns < width)
    inside = row_inside[:, None, :, None] & column_inside[:, None, None, :]
    whole = (batch, channels, height, width)
    picked = x.gather(2, rows.clamp(0, height - 1)[:, None, :, None].expand(whole))
    picked = picked.gather(3, columns.clamp(0, width - 1)[:, None, None, :].expand(whole))
    if reflect:
        return picked
    padding = torch.as_tensor(fill, device=x.device).to(x.dtype)
    return torch.where(inside, picked, padding)


def normals(key: Key, shape: tuple[int, ...], like: Tensor) -> Tensor:
    """Normals (..., B, p) for a batch of `shape` (B, *shape), of the type and on the device of `like`. `key`:
    words (..., 1, 1); on a CPU NumPy's are faster.

    Box-Muller turns the two words of Threefry(key, (p, b)) into the normals 2 p and 2 p + 1 of sample b.
    """
    numbers = math.prod(shape[1:])
    pair, sample = (torch.arange(n, device=like.device) for n in (-(-numbers // 2), shape[0]))
    word0, word1 = map(torch.as_tensor, threefry2x32(key, (pair, sample[:, None])))
    radius = torch.sqrt(-2 * torch.log((word0.to(like.dtype) + 0.5) / 2**32))
    angle = word1.to(like.dtype) * (2 * math.pi / 2**32)
    drawn = torch.stack([radius * torch.cos(angle), radius * torch.sin(angle)], dim=-1).flatten(-2)
    return drawn[..., :numbers]


def add_noise(x: Tensor, drawn: Tensor, deviation: Tensor) -> Tensor:
    """Samples (B, *shape) with noise: `drawn` normals (B, p) times a standard deviation (B,)."""
    return x + (deviation.to(x.dtype)[:, None] * drawn).view(x.shape)


def mean_std(x: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation (dividing by n) per channel of images or per feature, in float64.

    uint8 counts as value / 255. A constant channel or feature gets std 1, so it becomes 0.
    Samples are processed in chunks, so there is no float copy of the whole set.
    """
    unit = 255.0 if x.dtype == torch.uint8 else 1.0
    levels = x.dtype == torch.uint8 and x.dim() == 4
    mean, std = (_of_levels if levels else _of_numbers)(x, unit)
    shape = (-1, 1, 1) if x.dim() == 4 else (-1,)
    return torch.from_numpy(mean).reshape(shape), torch.from_numpy(std).reshape(shape)


def pixel_mean_std(x: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation + 0.001 of every pixel (C, H, W) over the images (n, C, H, W), in float64.

    The 0.001 comes from FedProxVR's scripts and keeps a pixel small that hardly ever varies. uint8 counts as
    value / 255.
    """
    step = max(1, CHUNK // x[0].numel())
    unit = 255.0 if x.dtype == torch.uint8 else 1.0
    starts = range(0, len(x), step)
    mean = torch.stack([(x[i : i + step].double() / unit).sum(0) for i in starts]).sum(0) / len(x)
    around = ((x[i : i + step].double() / unit - mean) ** 2 for i in starts)
    square = torch.stack([squares.sum(0) for squares in around]).sum(0) / len(x)
    return mean, square.sqrt() + 0.001


def _planes(x: Tensor) -> Iterator[np.ndarray]:
    """Samples in chunks (n, channels or features, values of one), so that memory-mapped data are never loaded
    as a whole."""
    step, samples = max(1, CHUNK // x[0].numel()), x.numpy()
    for start in range(0, len(samples), step):
        part = samples[start : start + step]
        yield part.reshape(len(part), part.shape[1], -1)


def _of_levels(x: Tensor, unit: float) -> tuple[np.ndarray, np.ndarray]:
    """Mean and std from a histogram of the 256 levels of each channel: exact, and several times faster."""
    histogram = np.zeros((x.shape[1], 256), dtype=np.int64)
    for chunk in _planes(x):
        for channel, plane in enumerate(chunk.transpose(1, 0, 2)):
            histogram[channel] += np.bincount(plane.ravel(), minlength=256)
    share = histogram / histogram.sum(axis=1, keepdims=True)
    level = np.arange(256) / unit
    mean = share @ level
    std = np.sqrt((share * (level - mean[:, None]) ** 2).sum(axis=1))
    return mean, np.where(share.max(axis=1) == 1, 1.0, std)


def _of_numbers(x: Tensor, unit: float) -> tuple[np.ndarray, np.ndarray]:
    """Mean and std in two passes over the values / unit: the mean, then the squared deviations from it."""
    count = x.numel() // x.shape[1]
    low = np.min([c.min(axis=(0, 2)) for c in _planes(x)], axis=0) / unit
    high = np.max([c.max(axis=(0, 2)) for c in _planes(x)], axis=0) / unit
    constant = low == high
    mean = sum((c / unit).sum(axis=(0, 2), dtype=np.float64) for c in _planes(x)) / count
    mean = np.where(constant, low, mean)
    square = sum(((c / unit - mean[:, None]) ** 2).sum(axis=(0, 2)) for c in _planes(x))
    return mean, np.where(constant, 1.0, np.sqrt(square / count))
