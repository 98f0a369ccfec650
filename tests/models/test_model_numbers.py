"""Outputs of the feed-forward models against NumPy or torch's functions with the same parameters, and how
these start; the presets of model=conv are the networks of the papers' code."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from option_helpers import build
from torch import nn
from torch.nn import functional

from fedbench.models import register_model
from fedbench.models.feedforward import PRESETS
from fedbench.models.layers import Dropout


def weights(model: nn.Module) -> list[np.ndarray]:
    """Parameters in order, moved away from what they start as (gains of 1, biases of 0)."""
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype))
    return [parameter.detach().numpy() for parameter in model.parameters()]


def samples(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(4), dtype=torch.float64)


def layer_norm(x: np.ndarray, gain: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """Ba, Kiros, Hinton, 2016: biased variance, 1e-5 added to it."""
    centred = x - x.mean(axis=1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(axis=1, keepdims=True) + 1e-5) * gain + bias


def test_softmax_regression() -> None:
    model = build({"name": "logistic"}, (2, 3, 3), 4, 0).double()
    w, b = weights(model)
    x = samples(5, 2, 3, 3)
    np.testing.assert_allclose(model(x).detach(), x.numpy().reshape(5, 18) @ w.T + b, rtol=1e-12)


@pytest.mark.parametrize("norm", ["none", "layer"])
def test_perceptron(norm: str) -> None:
    """For each width a linear layer, the norm, ReLU; a linear layer at the end. Tiny inputs show epsilon."""
    model = build({"name": "mlp", "hidden": [7, 5], "norm": norm}, (6,), 3, 0).double()
    values = iter(weights(model))
    x = samples(4, 6) * 1e-2
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if norm == "layer" and name == "0.bias":
                parameter.zero_()
    out = x.numpy()
    for _ in range(2):
        out = out @ next(values).T + next(values)
        if norm == "layer":
            out = layer_norm(out, next(values), next(values))
        out = np.maximum(out, 0)
    out = out @ next(values).T + next(values)
    np.testing.assert_allclose(model(x).detach(), out, rtol=1e-9, atol=1e-12)


def test_recurrent_layers_start_within_one_over_root_of_their_units() -> None:
    model = build({"name": "rnn", "hidden": 100, "layers": 2}, (1, 4, 400), 3, 0)
    for name, parameter in model.recurrent.named_parameters():
        assert parameter.abs().max() <= 0.1, name
        if parameter.dim() == 2:
            assert parameter.std().item() == pytest.approx(0.1 / 3**0.5, rel=0.03), name


def test_zeros_leave_the_gains_alone_and_no_shift() -> None:
    @register_model("shifted")
    def shifted(shape: tuple[int, ...], classes: int) -> nn.Module:
        model = nn.Sequential(nn.LayerNorm(shape[0]), nn.Linear(shape[0], classes))
        nn.init.constant_(model[0].bias, 3.0)
        nn.init.constant_(model[0].weight, 2.0)
        return model

    model = build({"name": "shifted", "init": "zeros"}, (3,), 4, 0)
    assert [p.abs().max().item() for p in model.parameters()] == [2.0, 0.0, 0.0, 0.0]


# ---- model=conv ----------------------------------------------------------------------------------------


GREY, COLOUR = (1, 28, 28), (3, 32, 32)


# Layers of the papers' code. c5,2: convolution of side 5 padded by 2; t, r: tanh, ReLU; a, m: pool of
# averages, of maxima; d0.5: dropout; f: linear
NETWORKS = {
    "lenet5": "c5,2 t a c5,0 t a f t f t f",
    "niid": "c5,0 r m c5,0 r m f r f r f",
    "pfl": "c3,0 r c3,0 r m d0.25 f r d0.5 f",
    "feddyn": "c5,0 r m c5,0 r m f r f r f",
    "fedexp": "c5,0 r m c5,0 r m f r f r f",
    "vgg11": "c3,1 r m c3,1 r m c3,1 r c3,1 r m c3,1 r c3,1 r m c3,1 r c3,1 r m d0.5 f r d0.5 f r f",
    "cnn": "c5,2 r m c5,2 r m f r f",
    "cnn_small": "c5,0 r m c5,0 r m f r f",
}


@pytest.mark.parametrize("preset", PRESETS)
def test_presets_compute_what_the_papers_networks_do(preset: str) -> None:
    """Outputs of the same weights by torch's functions, layer by layer, and where dropout stands."""
    words, shape = NETWORKS[preset].split(), COLOUR if preset == "vgg11" else GREY
    model = build({"name": "conv", "preset": preset}, shape, 10, 0).double().eval()
    weights = iter([p.detach() for p in model.parameters()])
    x = torch.from_numpy(np.random.default_rng(0).normal(size=(3, *shape)))
    out = x
    for word in words:
        if word[0] == "c":
            out = functional.conv2d(out, next(weights), next(weights), padding=int(word.split(",")[1]))
        elif word[0] in "tr":
            out = torch.tanh(out) if word == "t" else out.clamp(min=0)
        elif word[0] in "am":
            out = (functional.avg_pool2d if word == "a" else functional.max_pool2d)(out, 2)
        elif word[0] == "f":
            out = out.flatten(1) @ next(weights).T + next(weights)
    torch.testing.assert_close(model(x).detach(), out, rtol=1e-10, atol=1e-12)
    kinds = {Dropout: "d", nn.Linear: "f"}
    there = [f"{kinds[type(layer)]}{getattr(layer, 'p', '')}" for layer in model if type(layer) in kinds]
    assert there == [word for word in words if word[0] in "df"]


def test_every_key_of_a_preset_may_be_another() -> None:
    keys = ("channels", "kernels", "padding", "pools", "hidden", "dropout", "pooling", "activation")
    given = {key: getattr(PRESETS["vgg11"], key) for key in keys}
    made = [build({"name": "conv", **own}, COLOUR, 10, 0) for own in ({"preset": "vgg11"}, given)]
    assert str(made[0]) == str(made[1])


def test_where_dropout_and_norm_stand() -> None:
    model = build({"name": "conv", "preset": "pfl", "norm": "group"}, COLOUR, 10, 0)
    kinds = "Convolution GroupNorm ReLU Convolution GroupNorm MaxPool2x2 ReLU Flatten Dropout Linear ReLU"
    assert [type(layer).__name__ for layer in model] == [*kinds.split(), "Dropout", "Linear"]


@pytest.mark.parametrize(("name", "init"), [("conv", "default"), ("mlp", "glorot")])
def test_glorots_start(name: str, init: str) -> None:
    """pfl's network starts so by itself: uniform within sqrt(6 / (fan in + fan out)), of which a standard
    deviation is sqrt(3) times smaller."""
    chosen = {"name": name, "init": init, **({"preset": "pfl"} if name == "conv" else {})}
    model = build(chosen, GREY, 10, 0)
    for layer in (layer for layer in model if getattr(layer, "weight", None) is not None):
        outputs, inputs, *kernel = layer.weight.shape
        bound = (6 / ((inputs + outputs) * np.prod(kernel))) ** 0.5
        assert layer.weight.abs().max() <= bound
        assert layer.weight.std().item() == pytest.approx(bound / 3**0.5, rel=0.15)


def test_hes_start_of_convolutions() -> None:
    model = build({"name": "conv", "preset": "vgg11"}, COLOUR, 10, 0)
    second = [layer.weight for layer in model if layer._get_name() == "Convolution"][1]  # 64 to 128 channels
    assert second.std().item() == pytest.approx((2 / (9 * 128)) ** 0.5, rel=0.02)
