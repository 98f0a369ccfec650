"""Data sets, their partition over clients, and the transforms of a batch."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedbench.data.dataset import Dataset, from_arrays
    from fedbench.data.own_partitions import register_partition
    from fedbench.data.registry import register_dataset

_HOMES = {
    "Dataset": "dataset",
    "from_arrays": "dataset",
    "register_dataset": "registry",
    "register_partition": "own_partitions",
}
__all__ = ["Dataset", "from_arrays", "register_dataset", "register_partition"]


def __getattr__(name: str) -> Any:
    """Import what a user's code needs on first use: `fedbench.data.options` is imported without torch."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
