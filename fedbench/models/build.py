"""Making a model from its options: the right shape, with initial parameters that a seed addresses."""

from __future__ import annotations

import math

import torch
from torch import nn

from fedbench.errors import ConfigError
from fedbench.fields import Choice
from fedbench.models.checks import refuse_unsuitable
from fedbench.models.layers import NORM_TYPES
from fedbench.models.registry import read_model
from fedbench.rng import Stream, make_key


def build(chosen: Choice, shape: tuple[int, ...], classes: int, seed: int) -> nn.Module:
    """Return the chosen model on the CPU in float32: (B, *shape) to logits (B, classes).

    The initial parameters are torch's (or the model's own) initialisers under a generator seeded by
    (seed, Stream.MODEL); torch's global generators are left as they were. `init=zeros`: all are 0 but the
    gains of normalisation layers.
    ConfigError: an unknown model or option, a value out of range, samples that do not fit the model.
    """
    options = read_model(chosen)
    low, high = make_key(seed, Stream.MODEL)
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        torch.default_generator.manual_seed(high << 32 | low)  # torch.manual_seed would reseed CUDA too
        model = options.build(tuple(shape), classes)
    refuse_unsuitable(chosen.name, model)
    if options.init == "zeros":
        _zero(model)
    return model


def size(chosen: Choice, shape: tuple[int, ...], classes: int) -> float | None:
    """Number of parameters of the chosen model, which is not made; None where that cannot be told.

    ConfigError as `build`.
    """
    options = read_model(chosen)
    try:
        with torch.random.fork_rng(devices=[]), torch.device("meta"):
            return float(count_parameters(options.build(tuple(shape), classes)))
    except ConfigError:
        raise
    except RuntimeError as error:
        return math.inf if "overflow" in str(error) else None
    except Exception:  # a user's own model need not know of the meta device
        return None


def count_parameters(model: nn.Module) -> int:
    """Number of trainable numbers; tied parameters count once."""
    return sum(p.numel() for p in model.parameters() if p.requires_grad)


@torch.no_grad()
def _zero(model: nn.Module) -> None:
    for module in model.modules():
        for key, parameter in module.named_parameters(recurse=False):
            if not (isinstance(module, NORM_TYPES) and key == "weight"):
                parameter.zero_()
