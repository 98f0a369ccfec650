"""The convolutional networks against their layers in the order of the literature."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fedbench.models.feedforward import Cnn, SmallCnn
from fedbench.models.layers import Convolution


def by_the_book(model: nn.Sequential, x: Tensor) -> Tensor:
    """Convolution, norm, ReLU, pool, twice, then the linear layers, with the same parameters."""
    after: list[nn.Module] = []
    for layer in model:
        if isinstance(layer, nn.ReLU) and isinstance(after[-1], nn.MaxPool2d):
            after.insert(len(after) - 1, layer)
        else:
            after.append(nn.MaxPool2d(2) if type(layer).__name__ == "MaxPool2x2" else layer)
    kinds = [type(layer) for layer in after if isinstance(layer, nn.ReLU | nn.MaxPool2d)]
    assert kinds == [nn.ReLU, nn.MaxPool2d, nn.ReLU, nn.MaxPool2d, nn.ReLU]
    out: Tensor = nn.Sequential(*after)(x)
    return out


@pytest.mark.parametrize("norm", ["none", "group"])
@pytest.mark.parametrize("kind", [Cnn, SmallCnn])
def test_relu_after_the_pool_is_relu_before_it(kind: type[Cnn | SmallCnn], norm: str) -> None:
    """Values and gradients are the same to the bit; half of the first layer's inputs are equal, so are
    entries of a window."""
    torch.manual_seed(0)
    model = kind(norm=norm).build((1, 16, 16), 10)
    assert isinstance(model, nn.Sequential)
    x, y = torch.randn(4, 1, 16, 16), torch.arange(4)
    x[:2, :, :, 8:] = -1.0
    found = []
    for out in (model(x), by_the_book(model, x)):
        found.append((out, *torch.autograd.grad(cross_entropy(out, y), list(model.parameters()))))
    for ours, books in zip(*found, strict=True):
        assert torch.equal(ours, books)


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
    ours, books = (
        torch.autograd.grad((net(x) * weight).sum(), list(net.parameters())) for net in (layer, plain)
    )
    torch.testing.assert_close(layer(x), plain(x), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(ours, books, rtol=1e-12, atol=1e-12)
