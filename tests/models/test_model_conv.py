"""model=conv: the presets are the networks of the papers' code, and the arithmetic is NumPy's."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from option_helpers import build
from torch.nn import functional

from fedbench.errors import ConfigError
from fedbench.models.feedforward import PRESETS

GREY, COLOUR = (1, 28, 28), (3, 32, 32)


def convolved(x: np.ndarray, weight: np.ndarray, bias: np.ndarray, padding: int) -> np.ndarray:
    x = np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    windows = np.lib.stride_tricks.sliding_window_view(x, weight.shape[2:], axis=(2, 3))
    return np.einsum("bchwij,ocij->bohw", windows, weight) + bias[:, None, None]


@pytest.mark.parametrize("pooling", ["max", "average"])
@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_it_is_what_its_keys_say(pooling: str, activation: str) -> None:
    """Two convolutions of sides 3 and 2, padded by 1 and 0, a pool behind the second; one hidden layer."""
    keys = {"channels": [3, 4], "kernels": [3, 2], "padding": [1, 0], "pools": [2], "hidden": [5]}
    chosen = {"name": "conv", **keys, "pooling": pooling, "activation": activation, "dropout": [0.5, 0.0]}
    model = build(chosen, (2, 7, 5), 3, 0).double().eval()
    values = iter([p.detach().numpy() for p in model.parameters()])
    x = np.random.default_rng(0).normal(size=(2, 2, 7, 5))
    after = np.tanh if activation == "tanh" else lambda v: np.maximum(v, 0)
    out = after(convolved(x, next(values), next(values), 1))
    out = after(convolved(out, next(values), next(values), 0))  # (2, 4, 6, 4)
    windows = out.reshape(2, 4, 3, 2, 2, 2)
    out = windows.max((3, 5)) if pooling == "max" else windows.mean((3, 5))
    out = after(out.reshape(2, -1) @ next(values).T + next(values))
    out = out @ next(values).T + next(values)
    np.testing.assert_allclose(model(torch.from_numpy(x)).detach(), out, rtol=1e-11)


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
    kinds = {"Dropout": "d", "Linear": "f"}
    there = [
        f"{kinds[layer._get_name()]}{getattr(layer, 'p', '')}"
        for layer in model
        if layer._get_name() in kinds
    ]
    assert there == [word for word in words if word[0] in "df"]


def test_where_dropout_and_norm_stand() -> None:
    model = build({"name": "conv", "preset": "pfl", "norm": "group"}, COLOUR, 10, 0)
    kinds = "Convolution GroupNorm ReLU Convolution GroupNorm MaxPool2x2 ReLU Flatten Dropout Linear ReLU"
    assert [type(layer).__name__ for layer in model] == [*kinds.split(), "Dropout", "Linear"]
    assert [layer.p for layer in model if hasattr(layer, "p")] == [0.25, 0.5]


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


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        ({"kernels": [3, 3, 3]}, r"model\.kernels=\[3,3,3\]: must have 1 entry, or 2: one for each layer"),
        ({"dropout": [0.1, 0.2]}, r"model\.dropout=\[0\.1,0\.2\]: must have 1 entry, or 3"),
        ({"pools": [3]}, r"model\.pools=\[3\]: there are 2 convolutions"),
        ({"channels": [0]}, r"model\.channels=\[0\]: must be a list of integers >= 1"),
        ({"dropout": [1.0]}, r"model\.dropout=\[1\.0\]: must be a list of shares in \[0, 1\)"),
        ({"preset": "vgg11"}, r"nothing is left of images of 28x28 after convolution 8"),
        ({"norm": "group", "groups": 5}, r"model\.groups=5: must divide the 6 channels"),
        ({"preset": "alexnet"}, r"model\.preset=alexnet: must be one of lenet5"),
    ],
)
def test_what_does_not_fit_is_one_line(keys: dict[str, object], line: str) -> None:
    with pytest.raises(ConfigError, match=line):
        build({"name": "conv", **keys}, GREY, 10, 0)
