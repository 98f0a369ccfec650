"""Which parts of a model an engine or an algorithm has to treat apart, found by module type, not by name."""

from __future__ import annotations

from torch import nn
from torch.nn.modules.batchnorm import _NormBase

from fedbench.errors import ConfigError
from fedbench.models.layers import BatchNorm2d, Dropout

NORM_TYPES = (BatchNorm2d, _NormBase, nn.GroupNorm, nn.LayerNorm, nn.RMSNorm)

# torch's layers that draw from global randomness, count batches in an integer buffer, or lack a vmap rule
_UNSUITABLE: dict[type[nn.Module], str] = {
    nn.modules.dropout._DropoutNd: "use fedbench.models.layers.Dropout",
    nn.modules.batchnorm._BatchNorm: "use fedbench.models.layers.BatchNorm2d or a group or layer norm",
    nn.RNNBase: "use fedbench.models.rnn.Recurrent",
}


def norm_parameters(model: nn.Module) -> list[str]:
    """Names of all parameters of batch, group, layer and instance norm layers, in the model's order."""
    return [
        f"{prefix}.{name}" if prefix else name
        for prefix, module in model.named_modules()
        if isinstance(module, NORM_TYPES)
        for name, _ in module.named_parameters(recurse=False)
    ]


def batch_norm_modules(model: nn.Module) -> list[str]:
    """Names of the `BatchNorm2d` layers; buffers: `<name>.` weights, running_mean, running_var."""
    return [name for name, module in model.named_modules() if isinstance(module, BatchNorm2d)]


def dropout_modules(model: nn.Module) -> list[str]:
    """Names of the `Dropout` layers; their buffer is `<name>.key`."""
    return [name for name, module in model.named_modules() if isinstance(module, Dropout)]


def refuse_unsuitable(name: str, model: nn.Module) -> None:
    """ConfigError if a (user's) model holds a layer of torch that no engine here can run reproducibly."""
    for where, module in model.named_modules():
        for kind, instead in _UNSUITABLE.items():
            if isinstance(module, kind):
                layer = type(module).__name__
                raise ConfigError(
                    "model", name, f"torch.nn.{layer} (at '{where}') does not work here; {instead}"
                )
