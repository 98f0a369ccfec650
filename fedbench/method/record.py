"""Named vectors: a dict where they are made and passed on, attributes where a method reads them."""

from __future__ import annotations

from torch import Tensor

Vectors = dict[str, Tensor]


class Record:
    """Tensors read as attributes: `server.theta`, `h.lr`. Built from what a method or the config gave."""

    def __init__(self, vectors: Vectors) -> None:
        for name, vector in vectors.items():
            setattr(self, name, vector)  # `__dict__.update` is unknown to the dynamo of torch 2.11

    def __getattr__(self, name: str) -> Tensor:
        raise AttributeError(f"there is no {name} here, only {', '.join(self.__dict__) or 'an empty record'}")
