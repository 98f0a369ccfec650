"""Outputs of the feed-forward models against NumPy, with the same parameters."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from option_helpers import build
from torch import nn

from fedbench.models import register_model


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
