"""Softmax regression, the multi-layer perceptron, and the convolutional networks of federated papers."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

from torch import Tensor, nn
from torch.nn import functional

from fedbench.fields import choice, custom, decay, integer
from fedbench.models.layers import Convolution, Dropout, MaxPool2x2, norm2d
from fedbench.models.registry import Model, image_shape, register_model


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


def _conv3x3(inputs: int, outputs: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)


class BasicBlock(nn.Module):
    """conv-norm-ReLU-conv-norm beside a shortcut, then ReLU; torchvision's structure and parameter names."""

    def __init__(self, inputs: int, outputs: int, stride: int, norm: str, groups: int) -> None:
        super().__init__()
        self.conv1 = _conv3x3(inputs, outputs, stride)
        self.bn1 = norm2d(norm, outputs, groups)
        self.conv2 = _conv3x3(outputs, outputs)
        self.bn2 = norm2d(norm, outputs, groups)
        self.downsample: nn.Module | None = None
        if stride != 1 or inputs != outputs:
            projection = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
            self.downsample = nn.Sequential(projection, norm2d(norm, outputs, groups))

    def forward(self, x: Tensor) -> Tensor:
        """(B, inputs, H, W) to (B, outputs, ceil(H / stride), ceil(W / stride))."""
        out = functional.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        return functional.relu(out + (x if self.downsample is None else self.downsample(x)))


class ResNet18(nn.Module):
    """torchvision's ResNet-18 with a 3x3 stem of stride 1 and no max pool.

    Weights start as torchvision's do: He-normal convolutions (fan out), norm gains 1, torch's default
    linear layer.
    """

    def __init__(self, channels: int, classes: int, norm: str, groups: int, width: int = 64) -> None:
        super().__init__()
        self.conv1 = _conv3x3(channels, width)
        self.bn1 = norm2d(norm, width, groups)
        self.layer1 = self._stage(width, width, 1, norm, groups)
        self.layer2 = self._stage(width, 2 * width, 2, norm, groups)
        self.layer3 = self._stage(2 * width, 4 * width, 2, norm, groups)
        self.layer4 = self._stage(4 * width, 8 * width, 2, norm, groups)
        self.fc = nn.Linear(8 * width, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    @staticmethod
    def _stage(inputs: int, outputs: int, stride: int, norm: str, groups: int) -> nn.Sequential:
        first = BasicBlock(inputs, outputs, stride, norm, groups)
        return nn.Sequential(first, BasicBlock(outputs, outputs, 1, norm, groups))

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, H, W) to logits (B, classes)."""
        x = functional.relu(self.bn1(self.conv1(x)))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        logits: Tensor = self.fc(x.mean((2, 3)))
        return logits


@register_model("resnet18")
@dataclass(frozen=True)
class ResNet18Options(Model):
    """ResNet-18 for images of 32x32 or smaller: 11,173,962 parameters for 3 channels and 10 classes.

    With width 8: 176,402 parameters.
    """

    norm: str = choice("group", ("group", "batch"))
    groups: int = integer(
        2, low=1, help="norm=group: groups per layer, 2 as in the code of several federated papers"
    )

    width: int = integer(
        64, low=1, help="channels of the first stage; each of the other three has twice as many"
    )

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        channels, _, _ = image_shape("resnet18", shape)
        return ResNet18(channels, classes, self.norm, self.groups, self.width)
