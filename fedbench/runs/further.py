"""`continuation`, under the name that it had before."""

from fedbench.runs.checkpoint import continuation as further

__all__ = ["further"]
