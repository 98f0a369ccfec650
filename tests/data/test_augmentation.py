"""Random crop and flip against a plain NumPy derivation, vmapped against looped, compiled against eager."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from fedbench.data import augment_batch, to_input
from fedbench.data.dataset import Dataset
from fedbench.data.transforms import mean_std
from fedbench.rng import threefry2x32


def keys(count: int) -> tuple[Tensor, Tensor]:
    words = np.random.default_rng(5).integers(0, 2**32, (2, count))
    return torch.from_numpy(words[0]), torch.from_numpy(words[1])


def plain(x: np.ndarray, key: tuple[int, int], fill: float) -> np.ndarray:
    """Pad by 4, cut a window, mirror it: image by image."""
    out = np.empty_like(x)
    for b, image in enumerate(x):
        word0, word1 = threefry2x32(key, (b, 0))
        top, left = word0 * 9 // 2**32, word1 * 9 // 2**32
        padded = np.pad(image, ((0, 0), (4, 4), (4, 4)), constant_values=fill)
        window = padded[:, top : top + image.shape[1], left : left + image.shape[2]]
        out[b] = window[:, :, ::-1] if word0 % 2 else window
    return out


@pytest.mark.parametrize("shape", [(64, 3, 32, 32), (40, 1, 8, 8), (9, 2, 5, 7)])
@pytest.mark.parametrize("fill", [0.0, -0.7])
def test_crop_and_flip_follow_the_plain_derivation(shape: tuple[int, ...], fill: float) -> None:
    x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    k0, k1 = keys(1)
    got = augment_batch(torch.from_numpy(x), (k0[0], k1[0]), "crop_flip", fill)
    assert np.array_equal(got, plain(x, (int(k0[0]), int(k1[0])), np.float32(fill)))


def test_none_leaves_the_batch_alone() -> None:
    x = torch.randn(3, 1, 8, 8)
    assert augment_batch(x, (torch.tensor(1), torch.tensor(2)), "none") is x


def test_all_windows_and_flips_are_equally_likely() -> None:
    n = 162 * 60
    position = torch.arange(16)
    rows, columns = torch.meshgrid(position, position, indexing="ij")
    x = torch.stack([rows, columns]).expand(n, 2, 16, 16).float()
    k0, k1 = keys(1)
    out = augment_batch(x, (k0[0], k1[0]), "crop_flip").long()
    # the pixels (8, 8) and (8, 7) come from inside the image, whatever the window
    flipped = out[:, 1, 8, 7] > out[:, 1, 8, 8]
    top = out[:, 0, 8, 8] - 8
    left = out[:, 1, 8, 8] - torch.where(flipped, 7, 8)
    assert (top.min(), top.max(), left.min(), left.max()) == (-4, 4, -4, 4)
    counts = np.bincount(((top + 4) * 9 + left + 4) * 2 + flipped, minlength=162)
    assert stats.chisquare(counts).pvalue > 1e-4


def test_vmapped_equals_looped() -> None:
    x = torch.randn(6, 10, 3, 12, 12)
    k0, k1 = keys(6)
    fill = torch.tensor([-0.4, -0.5, -0.6])[:, None, None]

    def one(x: Tensor, a: Tensor, b: Tensor) -> Tensor:
        return augment_batch(x, (a, b), "crop_flip", fill)

    looped = torch.stack([one(x[i], k0[i], k1[i]) for i in range(6)])
    assert torch.equal(torch.func.vmap(one)(x, k0, k1), looped)


def test_one_graph_under_compile() -> None:
    """Through dynamo and AOT autograd, on the vmapped function; without a compiler of machine code."""
    x = torch.randint(0, 256, (4, 6, 3, 8, 8), dtype=torch.uint8)
    k0, k1 = keys(4)
    mean, std = mean_std(x[0])
    y = torch.zeros(6, dtype=torch.int64)
    black = Dataset("a", x[0], y, x[0], y, 1, mean, std).black

    def one(x: Tensor, a: Tensor, b: Tensor) -> Tensor:
        return augment_batch(to_input(x, mean, std, torch.float32), (a, b), "crop_flip", black)

    batched = torch.func.vmap(one)
    compiled = torch.compile(batched, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(x, k0, k1), batched(x, k0, k1))


def test_black_padding_is_cropping_before_normalisation() -> None:
    raw = torch.randint(0, 256, (20, 3, 9, 9), dtype=torch.uint8)
    mean, std = mean_std(raw)
    y = torch.zeros(20, dtype=torch.int64)
    data = Dataset("a", raw, y, raw, y, 1, mean, std)
    k0, k1 = keys(1)
    key = (k0[0], k1[0])
    after = augment_batch(to_input(raw, mean, std, torch.float64), key, "crop_flip", data.black)
    before = torch.from_numpy(plain(raw.numpy(), (int(key[0]), int(key[1])), 0))
    torch.testing.assert_close(after, to_input(before, mean, std, torch.float64))
