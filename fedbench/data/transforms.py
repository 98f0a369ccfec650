"""What happens to a gathered batch on the device: to float, normalised, augmented.

Pure tensor operations without branches on values: the same lines run eagerly, under vmap and inside
compiled code, and give every engine the same numbers.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fedbench.rng import Key, threefry2x32

PAD = 4


def to_input(x: Tensor, mean: Tensor | None, std: Tensor | None, dtype: torch.dtype) -> Tensor:
    """Stored samples (..., *shape) as model input of `dtype`: uint8 / 255, then (x - mean) / std. Other
    integers are tokens and become int64.

    `mean` and `std` are on the device of `x` and broadcast to one sample; None leaves out normalisation.
    """
    if not x.is_floating_point() and x.dtype != torch.uint8:
        return x.long()
    value = x.to(dtype) / 255 if x.dtype == torch.uint8 else x.to(dtype)
    if mean is None or std is None:
        return value
    return (value - mean.to(dtype)) / std.to(dtype)


def augment_batch(x: Tensor, key: Key, mode: str, fill: Tensor | float = 0.0) -> Tensor:
    """Random crop after padding by 4, then a horizontal flip with probability 1/2, per image (B, C, H, W).

    `key`: two 0-dim int64 tensors. The draws of image b are the two words of Threefry(key, (b, 0)): the
    window's top row is (9 * word0) >> 32, its left column (9 * word1) >> 32, and bit 0 of word0 flips.
    `x` is already normalised, so the padding takes `fill`: pass `Dataset.black`, on the device of `x`, to
    pad with raw zeros (black), as cropping before normalisation does. The default 0 is right without
    normalisation.
    """
    if mode == "none":
        return x
    batch, channels, height, width = x.shape
    image = torch.arange(batch, device=x.device)
    word0, word1 = threefry2x32(key, (image, torch.zeros_like(image)))
    span = 2 * PAD + 1
    top, left = ((word0 * span) >> 32) - PAD, ((word1 * span) >> 32) - PAD
    column = torch.arange(width, device=x.device)
    rows = top[:, None] + torch.arange(height, device=x.device)  # (B, H) source row of every output row
    flipped = torch.where((word0 & 1)[:, None] == 1, width - 1 - column, column)
    columns = left[:, None] + flipped  # (B, W)
    row_inside, column_inside = (rows >= 0) & (rows < height), (columns >= 0) & (columns < width)
    inside = row_inside[:, None, :, None] & column_inside[:, None, None, :]
    whole = (batch, channels, height, width)
    picked = x.gather(2, rows.clamp(0, height - 1)[:, None, :, None].expand(whole))
    picked = picked.gather(3, columns.clamp(0, width - 1)[:, None, None, :].expand(whole))
    padding = torch.as_tensor(fill, device=x.device).to(x.dtype)
    return torch.where(inside, picked, padding)
