"""Softmax regression and the multi-layer perceptron; both flatten samples of any shape."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

from torch import nn

from fedbench.fields import choice, custom, decay
from fedbench.models.layers import Dropout
from fedbench.models.registry import Model, register_model


@register_model("logistic")
@dataclass(frozen=True)
class Logistic(Model):
    """Softmax regression on the flattened sample: one linear layer with bias.

    7,850 parameters for 28x28 and 10 classes.
    """

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(prod(shape), classes))


def _widths(value: Any) -> tuple[int, ...]:
    whole = isinstance(value, list | tuple) and all(type(item) is int and item >= 1 for item in value)
    if not whole:
        raise ValueError
    return tuple(value)


@register_model("mlp")
@dataclass(frozen=True)
class Perceptron(Model):
    """Fully connected layers with ReLU: for each width a linear layer, norm, ReLU, dropout.

    One hidden layer of 200 has 159,010 parameters for 28x28 and 10 classes.
    """

    hidden: tuple[int, ...] = custom(
        [200], _widths, "a list of integers >= 1, such as [200]", help="widths of the hidden layers"
    )
    dropout: float = decay(0.0, help="share of activations that are dropped")
    norm: str = choice("none", ("none", "layer"))

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        layers: list[nn.Module] = [nn.Flatten()]
        features = prod(shape)
        for width in self.hidden:
            layers.append(nn.Linear(features, width))
            if self.norm == "layer":
                layers.append(nn.LayerNorm(width))
            layers.append(nn.ReLU())
            if self.dropout > 0:
                layers.append(Dropout(self.dropout))
            features = width
        layers.append(nn.Linear(features, classes))
        return nn.Sequential(*layers)
