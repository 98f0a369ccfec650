"""Checks of the samples that a model is given and of what it is made of; each failure is one line."""

from __future__ import annotations

from torch import nn

from fedbench.errors import ConfigError

# torch's layers that draw from global randomness, count batches in an integer buffer, or lack a vmap rule
_UNSUITABLE: dict[type[nn.Module], str] = {
    nn.modules.dropout._DropoutNd: "use fedbench.models.layers.Dropout",
    nn.modules.batchnorm._BatchNorm: "use fedbench.models.layers.BatchNorm2d or a group or layer norm",
    nn.RNNBase: "use fedbench.models.rnn.Recurrent",
}


def image_shape(model: str, shape: tuple[int, ...], least: int = 1) -> tuple[int, int, int]:
    """Return (C, H, W); ConfigError if samples are not images of at least `least` x `least` pixels."""
    if len(shape) != 3:
        raise ConfigError("model", model, f"needs images (channels, height, width); samples are {shape}")
    channels, height, width = shape
    if min(height, width) < least:
        raise ConfigError(
            "model", model, f"needs images of at least {least}x{least} pixels; these are {height}x{width}"
        )
    return channels, height, width


def refuse_unsuitable(name: str, model: nn.Module) -> None:
    """ConfigError if a (user's) model holds a layer of torch that no engine here can run reproducibly."""
    for where, module in model.named_modules():
        for kind, instead in _UNSUITABLE.items():
            if isinstance(module, kind):
                layer = type(module).__name__
                raise ConfigError(
                    "model", name, f"torch.nn.{layer} (at '{where}') does not work here; {instead}"
                )
