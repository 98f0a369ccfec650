"""Addressed dropout, masked batch norm, finding them by type; group norm, convolutions and max pools against
torch's."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from option_helpers import build
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import max_pool2d

from fedbench.models import layers
from fedbench.models.layers import (
    BatchNorm2d,
    Convolution,
    Dropout,
    GroupNorm,
    MaxPool2x2,
    by_halves,
    by_quarters,
    norm_parameters,
)
from fedbench.rng import threefry2x32

KEY = torch.tensor([123, 456])


def drop(x: Tensor, p: float, key: Tensor) -> Tensor:
    return functional_call(Dropout(p).train(), {"key": key}, (x,))


def test_dropout_mask_is_threefry_of_key_and_position() -> None:
    p, shape = 0.3, (3, 5)
    words = [threefry2x32((123, 456), (j, 0)) for j in range(8)]  # plain Python integers
    bits = np.array(words).reshape(-1)[:15].reshape(shape)
    expected = np.where(bits / 2**32 < 1 - p, 1 / (1 - p), 0.0)
    np.testing.assert_allclose(drop(torch.ones(shape, dtype=torch.float64), p, KEY).numpy(), expected)


def test_dropout_is_the_identity_in_eval_mode_and_without_p() -> None:
    x = torch.rand(3, 4)
    assert torch.equal(Dropout(0.5).eval()(x), x)
    assert torch.equal(Dropout(0.0).train()(x), x)
    assert not Dropout(0.5).state_dict()
    with pytest.raises(ValueError, match="p=1"):
        Dropout(1)


def norm_pair(channels: int) -> tuple[BatchNorm2d, nn.BatchNorm2d]:
    ours, theirs = BatchNorm2d(channels).double(), nn.BatchNorm2d(channels).double()
    with torch.no_grad():
        for name, value in ours.named_parameters():
            value.copy_(torch.rand(channels, dtype=torch.float64) + 0.5)
            theirs.get_parameter(name).copy_(value)
    return ours, theirs


def test_batch_norm_equals_torchs_in_training_and_eval() -> None:
    torch.manual_seed(0)
    ours, theirs = norm_pair(3)
    for _ in range(3):
        x = torch.randn(5, 3, 4, 6, dtype=torch.float64) * 2 + 1
        a, b = x.clone().requires_grad_(), x.clone().requires_grad_()
        out, expected = ours(a), theirs(b)
        torch.testing.assert_close(out, expected, rtol=1e-12, atol=1e-12)
        weight = torch.randn_like(x)
        (out * weight).sum().backward()
        (expected * weight).sum().backward()
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(ours.weight.grad, theirs.weight.grad)
    for name in ("running_mean", "running_var"):
        torch.testing.assert_close(getattr(ours, name), getattr(theirs, name), rtol=1e-12, atol=1e-12)
    x = torch.randn(2, 3, 4, 4, dtype=torch.float64)
    before = ours.running_mean.clone()
    torch.testing.assert_close(ours.eval()(x), theirs.eval()(x), rtol=1e-12, atol=1e-12)
    assert torch.equal(ours.running_mean, before)
    assert set(ours.state_dict()) == {"weight", "bias", "running_mean", "running_var"}


@settings(max_examples=25)
@given(st.lists(st.booleans(), min_size=2, max_size=7).filter(any), st.integers(0, 2**31))
def test_masked_batch_equals_the_unpadded_one(real: list[bool], seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(len(real), 2, 3, 3, generator=generator, dtype=torch.float64)
    keep = torch.tensor(real)
    x[~keep] = 1e3  # what pads a batch must not matter
    plain, masked = BatchNorm2d(2).double(), BatchNorm2d(2).double()
    expected = plain(x[keep])
    buffers = {"weights": keep.double()}
    buffers |= {name: value.clone() for name, value in masked.named_buffers() if "running" in name}
    out = functional_call(masked, buffers, (x,))
    torch.testing.assert_close(out[keep], expected, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(buffers["running_mean"], plain.running_mean, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(buffers["running_var"], plain.running_var, rtol=1e-10, atol=1e-12)


def test_batch_without_samples_changes_nothing_and_stays_finite() -> None:
    layer = BatchNorm2d(2)
    buffers = {"weights": torch.zeros(3), "running_mean": torch.ones(2), "running_var": torch.full((2,), 3.0)}
    out = functional_call(layer, buffers, (torch.rand(3, 2, 4, 4),))
    assert bool(out.isfinite().all())
    assert torch.equal(buffers["running_mean"], torch.ones(2))
    assert torch.equal(buffers["running_var"], torch.full((2,), 3.0))


def named(model: nn.Module, kind: type[nn.Module]) -> list[str]:
    return [name for name, module in model.named_modules() if isinstance(module, kind)]


def test_layers_are_found_by_type() -> None:
    resnet = build({"name": "resnet18", "norm": "batch"}, (1, 8, 8), 3, 0)
    found = norm_parameters(resnet)
    assert len(found) == 2 * 20  # one per convolution: 1 + 16 + 3
    assert {"bn1.weight", "layer2.0.downsample.1.bias"} <= set(found)
    assert not {"conv1.weight", "layer2.0.downsample.0.weight", "fc.bias"} & set(found)
    assert len(named(resnet, BatchNorm2d)) == 20
    grouped = build({"name": "resnet18"}, (1, 8, 8), 3, 0)
    assert norm_parameters(grouped) == found
    assert named(grouped, BatchNorm2d) == []
    mlp = build({"name": "mlp", "hidden": [4, 4], "norm": "layer", "dropout": 0.5}, (6,), 3, 0)
    assert norm_parameters(mlp) == ["2.weight", "2.bias", "6.weight", "6.bias"]
    assert named(mlp, Dropout) == ["4", "8"]
    assert named(build({"name": "cnn", "dropout": 0.1}, (1, 8, 8), 3, 0), Dropout) == ["7", "10"]
    assert norm_parameters(nn.LayerNorm(3)) == ["weight", "bias"]


@pytest.mark.parametrize("shape", [(4, 6, 5, 3), (1, 6, 1, 2), (3, 6)])
def test_group_norm_by_layer_norm_is_torchs(shape: tuple[int, ...]) -> None:
    """The form for CUDA, which is tried here: values and gradients of the input, the gains and the shifts."""
    ours, theirs = GroupNorm(3, 6).double(), nn.GroupNorm(3, 6).double()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    ours.load_state_dict(theirs.state_dict())
    x = torch.randn(shape, generator=generator, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(shape, generator=generator, dtype=torch.float64)
    found = []
    for layer, out in ((ours, ours.by_layer_norm(x)), (theirs, theirs(x))):
        found.append([out, *torch.autograd.grad((out * weight).sum(), [x, layer.weight, layer.bias])])
    torch.testing.assert_close(*found, rtol=1e-10, atol=1e-12)


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


# ---- max pools ------------------------------------------------------------------------------------------


def all_forms(x: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Values and gradients: torch's, then by quarters and by halves."""
    results = []
    for function in (lambda x: max_pool2d(x, 2), by_quarters, by_halves):
        at = x.clone().requires_grad_()
        out = function(at)
        weight = torch.arange(1.0, out.numel() + 1).view_as(out)
        results.append((out, torch.autograd.grad((out * weight).sum(), at)[0]))
    return results


@pytest.mark.parametrize("size", [(4, 4), (5, 7), (2, 2), (3, 2)])
@pytest.mark.parametrize("levels", [2, 3, 1000])  # with few levels most windows have equal entries
def test_values_and_gradients_are_torchs(size: tuple[int, int], levels: int) -> None:
    generator = torch.Generator().manual_seed(levels)
    x = torch.randint(-levels, levels, (2, 3, *size), generator=generator).float()
    (expected, wanted), *ours = all_forms(x)
    for values, gradient in ours:
        assert torch.equal(values, expected)
        assert torch.equal(gradient, wanted)
    with torch.no_grad():
        assert torch.equal(MaxPool2x2()(x), expected)


def test_what_is_not_a_number_stays_so() -> None:
    for place in range(4):
        x = torch.zeros(1, 1, 2, 2)
        x.view(-1)[place] = torch.nan
        assert by_quarters(x).isnan().all()
        assert by_halves(x).isnan().all()


def test_a_compiler_sees_quarters_and_vmap_torchs_own(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(2, 3, 6, 6, requires_grad=True)
    layer = MaxPool2x2()
    assert "_Halves" in str(layer(x).grad_fn)
    with monkeypatch.context() as only:
        only.delattr(layers, "by_halves")
        together = torch.func.vmap(layer)(x)
    assert torch.equal(together, layer(x))
    with torch.no_grad(), monkeypatch.context() as only:
        only.delattr(layers.functional, "max_pool2d")
        assert torch.equal(torch.func.vmap(layer)(x), together)
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    assert "_Quarters" in str(layer(x).grad_fn)
    torch.testing.assert_close(layer(x), nn.MaxPool2d(2)(x), rtol=0, atol=0)


def test_under_vmap_it_is_a_loop_of_itself() -> None:
    x = torch.randn(3, 2, 1, 5, 4)
    together = torch.func.vmap(torch.func.grad(lambda x: by_quarters(x).square().sum()))(x)
    for i in range(len(x)):
        at = x[i].clone().requires_grad_()
        assert torch.equal(together[i], torch.autograd.grad(max_pool2d(at, 2).square().sum(), at)[0])
