"""Functions that torch.compile must put into its graph as one call, not read: autograd Functions of ours.

Under vmap dynamo cannot read an `autograd.Function`. Telling it so imports it (1.5 s of CPU), so that is
left to whoever compiles.
"""

from __future__ import annotations

import torch

from fedbench.models.pool import by_quarters
from fedbench.models.recurrence import recur


def tell_compiler() -> None:
    """To be called before torch.compile traces a model of this package."""
    for function in (recur, by_quarters):
        torch.compiler.allow_in_graph(function)
