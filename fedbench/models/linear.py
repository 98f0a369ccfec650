"""Softmax regression and the multi-layer perceptron; both flatten samples of any shape."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from torch import nn

from fedbench.models.checks import choice, dropout_rate, widths
from fedbench.models.layers import Dropout
from fedbench.models.registry import register_model


@register_model("logistic")
def logistic(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Softmax regression: one linear layer with bias (7,850 parameters for 28x28 and 10 classes)."""
    return nn.Sequential(nn.Flatten(), nn.Linear(prod(shape), classes))


@register_model("mlp")
def mlp(
    shape: tuple[int, ...],
    classes: int,
    hidden: Sequence[int] = (200,),
    dropout: float = 0.0,
    norm: str = "none",
) -> nn.Module:
    """Perceptron: for each width of `hidden` a linear layer, `norm` (none|layer), ReLU, dropout.

    One hidden layer of 200 has 159,010 parameters for 28x28 and 10 classes.
    """
    rate = dropout_rate("model.dropout", dropout)
    choice("model.norm", norm, ("none", "layer"))
    layers: list[nn.Module] = [nn.Flatten()]
    features = prod(shape)
    for width in widths("model.hidden", hidden):
        layers.append(nn.Linear(features, width))
        if norm == "layer":
            layers.append(nn.LayerNorm(width))
        layers.append(nn.ReLU())
        if rate > 0:
            layers.append(Dropout(rate))
        features = width
    layers.append(nn.Linear(features, classes))
    return nn.Sequential(*layers)
