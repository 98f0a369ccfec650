"""Normalisation of feature maps, chosen by name."""

from __future__ import annotations

from torch import nn

from fedbench.errors import ConfigError
from fedbench.models.layers import BatchNorm2d


def norm2d(kind: str, channels: int, groups: int) -> nn.Module:
    """A norm layer over (B, channels, H, W): `kind` group|batch; ConfigError if `groups` do not fit."""
    if kind == "batch":
        return BatchNorm2d(channels)
    if channels % groups:
        raise ConfigError("model.groups", groups, f"must divide the {channels} channels of every norm layer")
    return nn.GroupNorm(groups, channels)
