"""Making a model from its config: the right shape, checked, with initial parameters that a seed addresses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from omegaconf import OmegaConf
from torch import nn

from fedbench.models.checks import choice, refuse_unsuitable
from fedbench.models.layers import NORM_TYPES
from fedbench.models.registry import check_options, get
from fedbench.rng import Stream, make_key


def build(model_cfg: Mapping[str, Any], shape: tuple[int, ...], classes: int, seed: int) -> nn.Module:
    """Return the model on the CPU in float32: (B, *shape) to logits (B, classes).

    `model_cfg`: `name`, `init` (default|zeros) and the model's own options. The initial parameters are
    torch's (or the model's own) initialisers under a generator seeded by (seed, Stream.MODEL); torch's global
    generators are left as they were. `init=zeros`: all are 0 but the gains of normalisation layers.
    ConfigError: an unknown model or option, a value out of range, samples that do not fit the model.
    """
    config = OmegaConf.to_container(model_cfg, resolve=True) if OmegaConf.is_config(model_cfg) else model_cfg
    options = dict(config)  # type: ignore[arg-type]
    name = options.pop("name")
    init = choice("model.init", options.pop("init", "default"), ("default", "zeros"))
    factory = get(name)
    check_options(name, options)
    low, high = make_key(seed, Stream.MODEL)
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        torch.default_generator.manual_seed(high << 32 | low)  # torch.manual_seed would reseed CUDA too
        model = factory(tuple(shape), classes, **options)
    refuse_unsuitable(name, model)
    if init == "zeros":
        _zero(model)
    return model


def count_parameters(model: nn.Module) -> int:
    """Number of trainable numbers; tied parameters count once."""
    return sum(p.numel() for p in model.parameters() if p.requires_grad)


@torch.no_grad()
def _zero(model: nn.Module) -> None:
    for module in model.modules():
        for key, parameter in module.named_parameters(recurse=False):
            if not (isinstance(module, NORM_TYPES) and key == "weight"):
                parameter.zero_()
