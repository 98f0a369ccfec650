"""Making a model from its options: the right shape, with initial parameters that a seed addresses."""

from __future__ import annotations

import dataclasses
import math

import torch
from torch import nn

from fedbench.errors import ConfigError
from fedbench.fields import Choice
from fedbench.models.checks import refuse_unsuitable
from fedbench.models.layers import NORM_TYPES
from fedbench.models.registry import Model, read_model
from fedbench.rng import Stream, make_key


def build(
    chosen: Choice, shape: tuple[int, ...], classes: int, seed: int, vocabulary: int | None = None
) -> nn.Module:
    """Return the chosen model on the CPU in float32: (B, *shape) to outputs (B, classes).

    The initial parameters are torch's (or the model's own) initialisers under a generator seeded by
    (seed, Stream.MODEL); torch's global generators are left as they were. `init=zeros`: all are 0 but the
    gains of normalisation layers. `vocabulary`: of samples that are token sequences.
    ConfigError: an unknown model or option, a value out of range, samples that do not fit the model.
    """
    options = _for_data(chosen, vocabulary)
    low, high = make_key(seed, Stream.MODEL)
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        torch.default_generator.manual_seed(high << 32 | low)  # torch.manual_seed would reseed CUDA too
        model = options.build(tuple(shape), classes)
    refuse_unsuitable(chosen.name, model)
    if options.init == "zeros":
        _zero(model)
    return model


def size(chosen: Choice, shape: tuple[int, ...], classes: int, vocabulary: int | None = None) -> float | None:
    """Number of parameters of the chosen model, which is not made; None where that cannot be told.

    ConfigError as `build`.
    """
    options = _for_data(chosen, vocabulary)
    try:
        with torch.random.fork_rng(devices=[]), torch.device("meta"):
            return float(count_parameters(options.build(tuple(shape), classes)))
    except ConfigError:
        raise
    except RuntimeError as error:
        return math.inf if "overflow" in str(error) else None
    except Exception:  # a user's own model need not know of the meta device
        return None


def _for_data(chosen: Choice, vocabulary: int | None) -> Model:
    """The options of the chosen model, once it can read samples that are token sequences, or are none."""
    options = read_model(chosen)
    if options.reads_tokens != (vocabulary is not None):
        reads = "token sequences" if options.reads_tokens else "images or features"
        others = (
            "images or features" if options.reads_tokens else "token sequences (embedding_rnn reads them)"
        )
        raise ConfigError("model", chosen.name, f"needs {reads}; samples are {others}")
    return dataclasses.replace(options, vocabulary=vocabulary) if options.reads_tokens else options


def count_parameters(model: nn.Module) -> int:
    """Number of trainable numbers; tied parameters count once."""
    return sum(p.numel() for p in model.parameters() if p.requires_grad)


@torch.no_grad()
def _zero(model: nn.Module) -> None:
    for module in model.modules():
        for key, parameter in module.named_parameters(recurse=False):
            if not (isinstance(module, NORM_TYPES) and key == "weight"):
                parameter.zero_()
