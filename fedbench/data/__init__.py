"""Data sets, their partition over clients, and the transforms of a batch."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedbench.data.dataset import Dataset, from_arrays
    from fedbench.data.partitions import clients_of, divide, partition, validation_samples
    from fedbench.data.registry import load, register_dataset
    from fedbench.data.transforms import add_noise, augment_batch, to_input

__all__ = [
    "Dataset",
    "add_noise",
    "augment_batch",
    "clients_of",
    "divide",
    "from_arrays",
    "load",
    "partition",
    "register_dataset",
    "to_input",
    "validation_samples",
]


def __getattr__(name: str) -> Any:
    """Import on first use, so that `fedbench.data.options` can be imported without loading torch."""
    for home in ("dataset", "transforms", "partitions", "registry") if name in __all__ else ():
        module = importlib.import_module(f"{__name__}.{home}")
        if hasattr(module, name):
            return getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
