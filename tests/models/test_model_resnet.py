"""ResNet-18 against torchvision's with the stem for small images."""

from __future__ import annotations

import pytest
import torch
from option_helpers import build
from torch import nn
from torchvision.models import resnet18


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
