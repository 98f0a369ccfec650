"""The two small convolutional networks of the literature, for images of any size that is large enough."""

from __future__ import annotations

from torch import nn

from fedbench.models.checks import choice, dropout_rate, image_shape
from fedbench.models.layers import Dropout
from fedbench.models.norms import norm2d
from fedbench.models.registry import register_model

NORMS = ("none", "group", "batch")


def _network(
    stages: list[nn.Module], features: int, hidden: int, classes: int, dropout: float
) -> nn.Sequential:
    """Convolutional stages, then two linear layers, each with dropout before it."""
    drop = [Dropout(dropout)] if dropout > 0 else []
    again = [Dropout(dropout)] if dropout > 0 else []
    head = [nn.Flatten(), *drop, nn.Linear(features, hidden), nn.ReLU(), *again, nn.Linear(hidden, classes)]
    return nn.Sequential(*stages, *head)


def _stage(inputs: int, outputs: int, padding: int, norm: str, groups: int) -> list[nn.Module]:
    """5x5 convolution, norm, ReLU, 2x2 max pool."""
    between = [norm2d(norm, outputs, groups)] if norm != "none" else []
    return [nn.Conv2d(inputs, outputs, 5, padding=padding), *between, nn.ReLU(), nn.MaxPool2d(2)]


@register_model("cnn")
def cnn(
    shape: tuple[int, ...], classes: int, dropout: float = 0.0, norm: str = "none", groups: int = 2
) -> nn.Module:
    """The MNIST network of McMahan et al. (AISTATS 2017): 5x5 convolutions of 32 and 64 channels with
    padding, each with a 2x2 max pool, then 512 hidden units.

    1,663,370 parameters for 28x28x1 and 10 classes. `norm` (none|group|batch) follows each convolution,
    `dropout` precedes each of the two linear layers. Images of at least 5x5 pixels.
    """
    channels, height, width = image_shape("cnn", shape, least=5)
    choice("model.norm", norm, NORMS)
    stages = _stage(channels, 32, 2, norm, groups) + _stage(32, 64, 2, norm, groups)
    features = 64 * (height // 4) * (width // 4)
    return _network(stages, features, 512, classes, dropout_rate("model.dropout", dropout))


@register_model("cnn_small")
def cnn_small(
    shape: tuple[int, ...], classes: int, dropout: float = 0.0, norm: str = "none", groups: int = 2
) -> nn.Module:
    """5x5 convolutions of 10 and 20 channels without padding, each with a 2x2 max pool, then 50 hidden units.

    21,840 parameters for 28x28x1 and 10 classes. Options as those of `cnn`. Images of at least 16x16 pixels.
    """
    channels, height, width = image_shape("cnn_small", shape, least=16)
    choice("model.norm", norm, NORMS)
    stages = _stage(channels, 10, 0, norm, groups) + _stage(10, 20, 0, norm, groups)
    features = 20 * _valid(_valid(height)) * _valid(_valid(width))
    return _network(stages, features, 50, classes, dropout_rate("model.dropout", dropout))


def _valid(side: int) -> int:
    """Side of a map after a 5x5 convolution without padding and a 2x2 pool."""
    return (side - 4) // 2
