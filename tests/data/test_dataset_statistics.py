"""Mean and standard deviation of the training set, and the normalised input made with them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedbench.data import to_input, transforms
from fedbench.data.transforms import mean_std


@pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.float64])
@pytest.mark.parametrize("shape", [(700, 5), (700, 2, 3, 4)])
def test_chunks_add_up(
    monkeypatch: pytest.MonkeyPatch, dtype: type[np.generic], shape: tuple[int, ...]
) -> None:
    monkeypatch.setattr(transforms, "CHUNK", 64)  # many chunks, the last one smaller
    x = (np.random.default_rng(0).normal(100, 20, shape)).astype(dtype)
    unit = 255 if dtype is np.uint8 else 1
    axes = (0, 2, 3) if x.ndim == 4 else (0,)
    mean, std = mean_std(torch.from_numpy(x))
    np.testing.assert_allclose(mean.flatten(), x.astype(np.float64).mean(axes) / unit, rtol=1e-12)
    np.testing.assert_allclose(std.flatten(), x.astype(np.float64).std(axes) / unit, rtol=1e-12)


def test_features_and_channels_that_never_vary_become_zero() -> None:
    images = torch.arange(24, dtype=torch.uint8).view(3, 2, 2, 2)
    images[:, 1] = 51
    assert (to_input(images, *mean_std(images), torch.float64)[:, 1] == 0).all()
    x = torch.from_numpy(np.random.default_rng(0).normal(size=(1000, 3)))
    x[:, 1] = 0.1  # its mean in floating point is not 0.1, so its computed variance would not be 0
    mean, std = mean_std(x)
    z = to_input(x, mean, std, torch.float64)
    assert (z[:, 1] == 0).all()
    np.testing.assert_allclose(z[:, [0, 2]].std(0, correction=0), 1.0, rtol=1e-12)


def test_to_input_of_uint8_and_without_normalisation() -> None:
    x = torch.tensor([[[[0, 51], [102, 255]]]], dtype=torch.uint8)
    expected = torch.tensor([[[[0.0, 0.2], [0.4, 1.0]]]], dtype=torch.float64)
    torch.testing.assert_close(to_input(x, None, None, torch.float64), expected)
    mean, std = torch.full((1, 1, 1), 0.2), torch.full((1, 1, 1), 0.5)
    torch.testing.assert_close(
        to_input(x, mean, std, torch.float32), ((expected - 0.2) / 0.5).float(), rtol=1e-6, atol=1e-7
    )
