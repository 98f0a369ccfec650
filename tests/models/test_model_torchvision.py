"""Networks of torchvision, and ResNet-18 with the stem for small images: torchvision's values for the same
parameters, and the layers that replace torch's."""

from __future__ import annotations

import pytest
import torch
from option_helpers import build
from torch import nn
from torch.nn.functional import adaptive_avg_pool2d
from torchvision.models import get_model, resnet18

from fedbench.models.layers import AdaptiveAvgPool2d, StochasticDepth


def test_values_are_torchs() -> None:
    """With torchvision's own modules and the same parameters, in training mode."""
    ours = build({"name": "torchvision", "arch": "resnet18"}, (3, 32, 32), 5, 0).double()
    theirs = get_model("resnet18", num_classes=5).double()
    missing, unexpected = theirs.load_state_dict(ours.state_dict(), strict=False)
    assert not unexpected
    assert all("num_batches_tracked" in name for name in missing)
    x = torch.randn(4, 3, 32, 32, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(ours(x), theirs(x), rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("size", [(7, 7), (6, 3), 2])
@pytest.mark.parametrize("shape", [(2, 3, 1, 1), (2, 3, 9, 8), (3, 14, 5)])
def test_the_adaptive_pool_is_torchs(size: int | tuple[int, int], shape: tuple[int, ...]) -> None:
    x = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    ours, theirs = AdaptiveAvgPool2d(size)(x), adaptive_avg_pool2d(x, size)
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)
    weight = torch.randn_like(theirs)
    a, b = (torch.autograd.grad((out * weight).sum(), x)[0] for out in (ours, theirs))
    torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


def test_stochastic_depth_keeps_or_drops_whole_samples() -> None:
    layer = StochasticDepth(0.25).train()
    layer.key.copy_(torch.tensor([3, 5]))
    x = torch.randn(4000, 2, 3)
    scale = layer(x) / x
    assert torch.allclose(scale, scale[:, :1, :1].expand_as(scale))
    kept = scale[:, 0, 0] > 0.5
    assert torch.allclose(scale[kept], torch.tensor(4 / 3))
    assert float(kept.float().mean()) == pytest.approx(0.75, abs=5 * (0.75 * 0.25 / 4000) ** 0.5)
    assert torch.equal(layer.eval()(x), x)


# ---- ResNet-18 for small images ------------------------------------------------------------------------


def torchvisions(channels: int, norm: str) -> nn.Module:
    kinds = {"batch": nn.BatchNorm2d, "group": lambda channels: nn.GroupNorm(2, channels)}
    model = resnet18(num_classes=10, norm_layer=kinds[norm])
    model.conv1 = nn.Conv2d(channels, 64, 3, padding=1, bias=False)
    model.maxpool = nn.Identity()
    return model


@pytest.mark.parametrize(("norm", "size"), [("batch", 8), ("group", 20)])
def test_equals_torchvision_with_the_same_weights(norm: str, size: int) -> None:
    ours = build({"name": "resnet18", "norm": norm}, (3, size, size), 10, 0).double()
    theirs = torchvisions(3, norm).double()
    missing = theirs.load_state_dict(ours.state_dict(), strict=False)
    assert all(name.endswith("num_batches_tracked") for name in missing.missing_keys)
    assert not missing.unexpected_keys
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(4, 3, size, size, generator=generator, dtype=torch.float64)
    with torch.no_grad():
        torch.testing.assert_close(ours(x), theirs(x), rtol=1e-8, atol=1e-8)
        torch.testing.assert_close(ours.eval()(x), theirs.eval()(x), rtol=1e-8, atol=1e-8)
    for name, value in ours.named_buffers():
        if "running" in name:
            torch.testing.assert_close(value, theirs.get_buffer(name), rtol=1e-8, atol=1e-8)


def test_initial_weights_are_he_normal() -> None:
    weight = build({"name": "resnet18"}, (3, 32, 32), 10, 0).get_parameter("layer3.1.conv2.weight")
    assert weight.std().item() == pytest.approx((2 / (256 * 9)) ** 0.5, rel=0.01)
    assert weight.mean().item() == pytest.approx(0, abs=5 * (2 / (256 * 9)) ** 0.5 / weight.numel() ** 0.5)
