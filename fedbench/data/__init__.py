"""Data sets, their partition over clients, and the transforms of a batch."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedbench.data.dataset import Dataset, from_arrays
    from fedbench.data.registry import register_dataset

__all__ = ["Dataset", "from_arrays", "register_dataset"]


def __getattr__(name: str) -> Any:
    """Import what a user's code needs on first use: `fedbench.data.options` is imported without torch."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = "registry" if name == "register_dataset" else "dataset"
    return getattr(importlib.import_module(f"{__name__}.{home}"), name)
