"""model=conv: the presets are the networks of the papers' code."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from option_helpers import build
from torch import nn
from torch.nn import functional

from fedbench.models.feedforward import PRESETS
from fedbench.models.layers import Dropout

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
