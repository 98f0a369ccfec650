"""The two small convolutional networks of the literature, for images of any size that is large enough."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from fedbench.fields import choice, decay, integer
from fedbench.models.checks import image_shape
from fedbench.models.convolution import Convolution
from fedbench.models.layers import Dropout
from fedbench.models.norms import norm2d
from fedbench.models.pool import MaxPool2x2
from fedbench.models.registry import Model, register_model


@dataclass(frozen=True)
class _Convolutions(Model):
    """The options of both: `norm` follows each convolution, `dropout` precedes each of the linear layers."""

    dropout: float = decay(0.0, help="share of activations that are dropped before each linear layer")
    norm: str = choice("none", ("none", "group", "batch"), help="after each convolution")
    groups: int = integer(2, low=1, help="norm=group: groups per layer")

    def stage(self, inputs: int, outputs: int, padding: int) -> list[nn.Module]:
        """5x5 convolution, norm, 2x2 max pool, ReLU: as ReLU before the pool, in a quarter of its entries."""
        between = [norm2d(self.norm, outputs, self.groups)] if self.norm != "none" else []
        return [Convolution(inputs, outputs, 5, padding=padding), *between, MaxPool2x2(), nn.ReLU()]

    def network(self, stages: list[nn.Module], features: int, hidden: int, classes: int) -> nn.Sequential:
        """Convolutional stages, then two linear layers, each with dropout before it."""
        drop = [Dropout(self.dropout)] if self.dropout > 0 else []
        again = [Dropout(self.dropout)] if self.dropout > 0 else []
        first, last = nn.Linear(features, hidden), nn.Linear(hidden, classes)
        return nn.Sequential(*stages, nn.Flatten(), *drop, first, nn.ReLU(), *again, last)


@register_model("cnn")
@dataclass(frozen=True)
class Cnn(_Convolutions):
    """McMahan's network (AISTATS 2017): two padded 5x5 convolutions (32, 64 channels), 512 hidden units.

    Each convolution has a 2x2 max pool. 1,663,370 parameters for 28x28x1 and 10 classes. Images of at
    least 5x5 pixels.
    """

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        channels, height, width = image_shape("cnn", shape, least=5)
        stages = self.stage(channels, 32, 2) + self.stage(32, 64, 2)
        return self.network(stages, 64 * (height // 4) * (width // 4), 512, classes)


@register_model("cnn_small")
@dataclass(frozen=True)
class SmallCnn(_Convolutions):
    """Two 5x5 convolutions (10, 20 channels) without padding, 50 hidden units.

    Each convolution has a 2x2 max pool. 21,840 parameters for 28x28x1 and 10 classes. Images of at least
    16x16 pixels.
    """

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        channels, height, width = image_shape("cnn_small", shape, least=16)
        stages = self.stage(channels, 10, 0) + self.stage(10, 20, 0)
        return self.network(stages, 20 * _valid(_valid(height)) * _valid(_valid(width)), 50, classes)


def _valid(side: int) -> int:
    """Side of a map after a 5x5 convolution without padding and a 2x2 pool."""
    return (side - 4) // 2
