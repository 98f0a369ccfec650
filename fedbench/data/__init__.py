"""Data sets, their partition over clients, and the transforms of a batch."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedbench.data.dataset import Dataset, from_arrays
    from fedbench.data.partitions import class_counts, clients_of, divide, partition, validation_samples
    from fedbench.data.registry import load, register_dataset
    from fedbench.data.transforms import add_noise, augment_batch, to_input

__all__ = [
    "Dataset",
    "add_noise",
    "augment_batch",
    "class_counts",
    "clients_of",
    "divide",
    "from_arrays",
    "load",
    "partition",
    "register_dataset",
    "to_input",
    "validation_samples",
]
_HOME = {
    **dict.fromkeys(("Dataset", "from_arrays"), "dataset"),
    **dict.fromkeys(
        ("class_counts", "clients_of", "divide", "partition", "validation_samples"), "partitions"
    ),
    **dict.fromkeys(("load", "register_dataset"), "registry"),
    **dict.fromkeys(("add_noise", "augment_batch", "to_input"), "transforms"),
}


def __getattr__(name: str) -> Any:
    """Import on first use, so that `fedbench.data.options` can be imported without loading torch."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
