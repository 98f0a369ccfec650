"""The convolutional networks against their layers in the order of the literature."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from fedbench.models.layers import Convolution


@pytest.mark.parametrize("padding", [0, 2])
@pytest.mark.parametrize("channels", [1, 3])
def test_a_convolution_lies_by_channel_where_it_is_compiled(
    monkeypatch: pytest.MonkeyPatch, channels: int, padding: int
) -> None:
    """The same numbers as torch's; of one input channel the output's strides are those of channels_last."""
    torch.manual_seed(0)
    layer = Convolution(channels, 6, (5, 3), padding=padding).double()
    plain = nn.Conv2d(channels, 6, (5, 3), padding=padding).double()
    plain.load_state_dict(layer.state_dict())
    x = torch.randn(4, channels, 12, 12, dtype=torch.float64)
    assert torch.equal(layer(x), plain(x))
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    assert layer(x).is_contiguous(memory_format=torch.channels_last) == (channels == 1)
    weight = torch.arange(layer(x).numel()).view_as(layer(x)).sin()
    nets = layer, plain
    ours, theirs = (torch.autograd.grad((net(x) * weight).sum(), [*net.parameters()]) for net in nets)
    torch.testing.assert_close(layer(x), plain(x), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)
