"""Softmax regression, the perceptron, the convolutional networks of federated papers, and torchvision's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedbench.errors import ConfigError
from fedbench.fields import choice, custom, decay, integer, list_of, text
from fedbench.models.layers import (
    AdaptiveAvgPool2d,
    Convolution,
    Dropout,
    MaxPool2x2,
    StochasticDepth,
    norm2d,
)
from fedbench.models.registry import Model, image_shape, register_model, start_as

BATCH = "batch: full local gradients (FedProxVR, MIME) are means over blocks, each with its own norm"


@register_model("logistic")
@dataclass(frozen=True)
class Logistic(Model):
    """Softmax regression on the flattened sample: one linear layer with bias.

    7,850 parameters for 28x28 and 10 classes.
    """

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(prod(shape), classes))


@register_model("mlp")
@dataclass(frozen=True)
class Perceptron(Model):
    """Fully connected layers with ReLU: for each width a linear layer, norm, ReLU, dropout.

    One hidden layer of 200 has 159,010 parameters for 28x28 and 10 classes.
    """

    hidden: tuple[int, ...] = custom(
        [200],
        list_of(integer(1, low=1), 0),
        "a list of integers >= 1, such as [200]",
        help="widths of the hidden layers",
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
class _TwoConvolutions(Model):
    """Options of cnn and cnn_small: `norm` follows each convolution, `dropout` precedes each linear layer."""

    network: ClassVar[str]  # the preset
    least: ClassVar[int]  # the smallest side of an image
    dropout: float = decay(0.0, help="share of activations that are dropped before each linear layer")
    norm: str = choice("none", ("none", "group", "batch"), help=f"after each convolution; {BATCH}")
    groups: int = integer(2, low=1, help="norm=group: groups per layer")

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        image_shape(self.network, shape, self.least)
        own = Convolutional(preset=self.network, norm=self.norm, groups=self.groups, dropout=(self.dropout,))
        return own.build(shape, classes)


@register_model("cnn")
@dataclass(frozen=True)
class Cnn(_TwoConvolutions):
    """McMahan's network (AISTATS 2017): two padded 5x5 convolutions (32, 64 channels), 512 hidden units.

    Each convolution has a 2x2 max pool. 1,663,370 parameters for 28x28x1 and 10 classes. Images of at
    least 5x5 pixels.
    """

    network, least = "cnn", 5


@register_model("cnn_small")
@dataclass(frozen=True)
class SmallCnn(_TwoConvolutions):
    """Two 5x5 convolutions (10, 20 channels) without padding, 50 hidden units.

    Each convolution has a 2x2 max pool. 21,840 parameters for 28x28x1 and 10 classes. Images of at least
    16x16 pixels.
    """

    network, least = "cnn_small", 16


class Preset(NamedTuple):
    """A network of convolutions. Lists have an entry for each layer, or one entry for all."""

    channels: tuple[int, ...]
    kernels: tuple[int, ...]
    padding: tuple[int, ...]
    pools: tuple[int, ...]
    hidden: tuple[int, ...]
    dropout: tuple[float, ...] = (0.0,)
    pooling: str = "max"
    activation: str = "relu"
    start: str = "default"


PRESETS = {
    "lenet5": Preset((6, 16), (5,), (2, 0), (1, 2), (120, 84), pooling="average", activation="tanh"),
    "niid": Preset((6, 16), (5,), (0,), (1, 2), (120, 84)),
    "pfl": Preset((32, 64), (3,), (0,), (2,), (128,), (0.25, 0.5), start="glorot"),
    "feddyn": Preset((64, 64), (5,), (0,), (1, 2), (384, 192)),
    "fedexp": Preset((32, 64), (5,), (0,), (1, 2), (384, 192)),
    "vgg11": Preset(
        (64, 128, 256, 256, 512, 512, 512, 512), (3,), (1,), (1, 2, 4, 6, 8), (512, 512), (0.5, 0.5, 0.0),
        start="he",
    ),
    "cnn": Preset((32, 64), (5,), (2,), (1, 2), (512,)),
    "cnn_small": Preset((10, 20), (5,), (0,), (1, 2), (50,)),
}  # fmt: skip
_PRESETS = "the preset's"


def _shares(value: Any) -> tuple[float, ...]:
    if not isinstance(value, list | tuple) or not all(type(x) in (int, float) and 0 <= x < 1 for x in value):
        raise ValueError
    return tuple(map(float, value))


def _list(low: int, help: str) -> Any:
    words = f"a list of integers >= {low}"
    return custom(None, list_of(integer(low, low=low), 0), words, null=_PRESETS, help=help)


@register_model("conv")
@dataclass(frozen=True)
class Convolutional(Model):
    """Convolutions and linear layers: networks of papers as presets, each key of which may be changed.

    Parameters for 28x28x1 or 32x32x3 and 10 classes; all with ReLU and 2x2 max pools unless noted otherwise:
    lenet5: LeCun et al. 1998, fully connected maps, tanh, average pools; 61,706
    niid: of NIID-Bench (Li et al., ICDE 2022); 44,426 or 62,006
    pfl: of pfl-research (Granqvist et al., NeurIPS 2024), Glorot; 1,626,442 in colour. With 62 classes
    of EMNIST it is the network of Adaptive Federated Optimization (ICLR 2021); 1,206,590
    feddyn: FedDyn (Acar et al., ICLR 2021); 797,962 in colour
    fedexp: FedExP (Jhunjhunwala et al., ICLR 2023); 744,330 in colour
    vgg11: FedNova's (NeurIPS 2020), no norm, He's start of convolutions; 9,750,922 in colour
    cnn, cnn_small: the models of these names
    """

    preset: str = choice("lenet5", tuple(PRESETS), help="supplies the values of keys that are null")
    channels: tuple[int, ...] | None = _list(1, "channels of each convolution, such as [6,16]")
    kernels: tuple[int, ...] | None = _list(1, "side of each kernel; [5]: for all")
    padding: tuple[int, ...] | None = _list(0, "zeros around the input of each convolution; [0]: for all")
    pools: tuple[int, ...] | None = _list(1, "convolutions with a 2x2 pool behind them, from 1 on")
    pooling: str | None = choice(None, ("max", "average"), null=_PRESETS)
    activation: str | None = choice(None, ("relu", "tanh"), null=_PRESETS)
    norm: str = choice("none", ("none", "group", "batch"), help=f"after each convolution; {BATCH}")
    groups: int = integer(2, low=1, help="norm=group: groups per layer")
    hidden: tuple[int, ...] | None = _list(1, "widths of the hidden linear layers; []: none")
    dropout: tuple[float, ...] | None = custom(
        None, _shares, "a list of shares in [0, 1)", null=_PRESETS,
        help="share of activations that are dropped before each linear layer; [0.5]: before each",
    )  # fmt: skip

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Sequential:
        inputs, *sides = image_shape("conv", shape)
        given = {name: getattr(self, name, None) for name in Preset._fields}
        net = PRESETS[self.preset]._replace(**{name: x for name, x in given.items() if x is not None})
        if any(pool > len(net.channels) for pool in net.pools):
            raise ConfigError("model.pools", list(net.pools), f"there are {len(net.channels)} convolutions")
        after = nn.ReLU if net.activation == "relu" else nn.Tanh
        layers: list[nn.Module] = []
        kernels, paddings = (self._each(net, key, net.channels) for key in ("kernels", "padding"))
        stages = zip(net.channels, kernels, paddings, strict=True)
        for number, (outputs, kernel, padding) in enumerate(stages, 1):
            layers.append(Convolution(inputs, outputs, kernel, padding=padding))
            layers += [] if self.norm == "none" else [norm2d(self.norm, outputs, self.groups)]
            if number not in net.pools:
                layers.append(after())
            elif net.pooling == "max":  # before the nonlinearity: the same, for a quarter of the work
                layers += [MaxPool2x2(), after()]
            else:
                layers += [after(), nn.AvgPool2d(2)]
            halved = 2 if number in net.pools else 1
            sides = [(side + 2 * padding - kernel + 1) // halved for side in sides]
            if min(sides) < 1:
                allowed = f"nothing is left of images of {shape[1]}x{shape[2]} after convolution {number}"
                raise ConfigError("model", f"conv ({self.preset})", allowed)
            inputs = outputs
        layers.append(nn.Flatten())
        widths = (inputs * prod(sides), *net.hidden, classes)
        for number, share in enumerate(self._each(net, "dropout", widths[1:])):
            layers += [Dropout(share)] if share > 0 else []
            layers.append(nn.Linear(widths[number], widths[number + 1]))
            layers += [after()] if number < len(net.hidden) else []
        network = nn.Sequential(*layers)
        start_as(network, net.start)
        return network

    @staticmethod
    def _each(net: Preset, key: str, layers: Sequence[int]) -> Sequence[Any]:
        """The list `key` with one entry per layer. Raises ConfigError if its length does not fit."""
        entries: tuple[Any, ...] = getattr(net, key)
        if len(entries) not in (1, len(layers)):
            allowed = f"must have 1 entry, or {len(layers)}: one for each layer"
            raise ConfigError(f"model.{key}", list(entries), allowed)
        return entries if len(entries) == len(layers) else entries * len(layers)


def _conv3x3(inputs: int, outputs: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)


class BasicBlock(nn.Module):
    """conv-norm-ReLU-conv-norm plus a shortcut, then ReLU; torchvision's structure and parameter names."""

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

    def __init__(self, channels: int, classes: int, norm: str, groups: int, width: int) -> None:
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

    norm: str = choice("group", ("group", "batch"), help=BATCH)
    groups: int = integer(
        2, low=1, help="norm=group: groups per layer, 2 as in the code of several federated papers"
    )

    width: int = integer(
        64, low=1, help="channels of the first stage; each of the other three has twice as many"
    )

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        channels, _, _ = image_shape("resnet18", shape)
        return ResNet18(channels, classes, self.norm, self.groups, self.width)


@register_model("torchvision")
@dataclass(frozen=True)
class Torchvision(Model):
    """Any torchvision classification network, without trained weights, for images of any number of channels.

    Batch norm, dropout and stochastic depth come from fedbench.models.layers. The first convolution is
    replaced if images do not have three channels. Most networks expect 224x224; some refuse small images.
    """

    arch: str = text("resnet18", help="such as resnet18, vgg11, mobilenet_v2, vit_b_16")
    norm: str = choice("batch", ("batch", "group"), help=f"group: in place of batch norm; {BATCH}")
    groups: int = integer(2, low=1, help="norm=group: groups per layer")

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        from torchvision import models  # takes a second

        channels, height, width = image_shape("torchvision", shape)
        names = models.list_models(module=models)
        if self.arch not in names:
            allowed = "must be a classification network of torchvision"
            raise ConfigError("model.arch", self.arch, allowed, names)
        further: dict[str, Any] = {"image_size": height} if self.arch.startswith("vit_") else {}
        if self.arch in ("googlenet", "inception_v3"):
            further = {"aux_logits": False, "init_weights": True}
        elif self.arch == "maxvit_t":
            further = {"input_size": (height, width)}
        try:
            network: nn.Module = models.get_model(self.arch, num_classes=classes, **further)
            self._adapt(network)
            where, stem = next(x for x in network.named_modules() if isinstance(x[1], nn.Conv2d))
            if channels != stem.in_channels:
                shaped = stem.kernel_size, stem.stride, stem.padding
                first = nn.Conv2d(channels, stem.out_channels, *shaped, bias=stem.bias is not None)
                parent, _, name = where.rpartition(".")
                setattr(network.get_submodule(parent), name, first)
            with torch.no_grad():
                network.eval()(torch.zeros(2, *shape))
        except NotImplementedError:  # under `registry.size`: a RegNet reads numbers of tensors as it is built
            raise
        except (RuntimeError, ValueError, AssertionError) as error:
            why = f"{error}".partition("\n")[0]
            raise ConfigError("model.arch", self.arch, f"does not take samples {shape}: {why}") from error
        return network.train()

    def _adapt(self, network: nn.Module) -> None:
        """Replace torch's layers by those that every engine can run reproducibly."""
        from torchvision.ops import StochasticDepth as Depth

        for name, layer in network.named_children():
            self._adapt(layer)
            ours: nn.Module | None = None
            if isinstance(layer, nn.BatchNorm2d):
                ours = norm2d(self.norm, layer.num_features, self.groups, layer.eps, layer.momentum or 0.1)
            elif isinstance(layer, nn.Dropout | Depth):
                kind = StochasticDepth if isinstance(layer, Depth) else Dropout
                ours = kind(layer.p) if layer.p > 0 else nn.Identity()
            elif type(layer) is nn.AdaptiveAvgPool2d and layer.output_size not in (1, (1, 1)):
                ours = AdaptiveAvgPool2d(layer.output_size)
            if ours is not None:
                setattr(network, name, ours)
