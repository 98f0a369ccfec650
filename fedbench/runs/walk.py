"""`ServerLoop`, under the name that it had before."""

from fedbench.runs.server_loop import ServerLoop as Walk

__all__ = ["Walk"]
