"""ResNet-18 for small images (He, Zhang, Ren, Sun, "Deep residual learning", CVPR 2016)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn
from torch.nn import functional

from fedbench.fields import choice, integer
from fedbench.models.checks import image_shape
from fedbench.models.norms import norm2d
from fedbench.models.registry import Model, register_model


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
