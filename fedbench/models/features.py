"""Where a model's features are: what its last linear layer is given, or the layer that it names itself."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from torch import Tensor, nn

HEAD = "head_layer"
"""The attribute in which a model names the layer whose input is its features, such as "classifier.1"."""


def head_of(model: nn.Module) -> str | None:
    """The name of the layer whose input is the features, or None."""
    if isinstance(named := getattr(model, HEAD, None), str):
        return named
    linear = [name for name, layer in model.named_modules() if isinstance(layer, nn.Linear)]
    return linear[-1] if linear else None


@contextlib.contextmanager
def features_of(model: nn.Module) -> Iterator[list[Tensor]]:
    """A list that gets the features in every pass of the model; it stays empty if there are none."""
    found, name = list[Tensor](), head_of(model)
    if name is None:
        yield found
        return

    def see(layer: nn.Module, given: Any) -> None:
        found.append(given[0])

    hook = model.get_submodule(name).register_forward_pre_hook(see)
    try:
        yield found
    finally:
        hook.remove()
