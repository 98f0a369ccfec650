"""Compiled functions, kept for the process's later runs: those of a sweep mostly differ in numbers only."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Hashable
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

MOST_KEPT = 8
"""Programs kept for one objective; the one that was not used for longest goes first."""

Kept = dict[Hashable, Callable]


class Compiled:
    """A function that is compiled at its first call, or taken from what an earlier run compiled.

    `key`: what the function depends on beside the shapes of its arguments; None: it is not shared.
    """

    def __init__(self, function: Callable, kept: Kept, key: Hashable | None) -> None:
        self._function, self._kept, self._key = function, kept, key
        self._call: Callable | None = None
        self.seconds = 0.0
        """Time taken by the first call, if it had to compile."""

    def __call__(self, *args: Any) -> Any:
        """As the function itself."""
        return self._first(args) if self._call is None else self._call(*args)

    def _first(self, args: tuple) -> Any:
        key = None if self._key is None else (self._key, signature(args))
        earlier = self._kept.pop(key, None)
        call = earlier or _compile(self._function)
        start = time.perf_counter()
        result = call(*args)
        if earlier is None:
            self.seconds = time.perf_counter() - start
        if key is not None:
            self._kept[key] = call
            while len(self._kept) > MOST_KEPT:
                self._kept.pop(next(iter(self._kept)))
        self._call = call
        return result


def _compile(function: Callable) -> Callable:
    """torch.compile with a code object of the function's own: dynamo's cache is kept per code object, so it
    never mixes programs."""

    def program(*args: Any) -> Any:
        return function(*args)

    program.__code__ = program.__code__.replace(co_name=f"program_{id(program)}")
    return torch.compile(program, fullgraph=True, dynamic=False)


def signature(args: Any) -> Hashable:
    """Structure of nested arguments, with shape, strides, type and device of every tensor."""
    leaves, structure = pytree.tree_flatten(args)
    facts = tuple(
        (tuple(leaf.shape), leaf.stride(), leaf.dtype, leaf.device) if isinstance(leaf, Tensor) else leaf
        for leaf in leaves
    )
    return str(structure), facts


def compiler_missing(device: torch.device) -> str | None:
    """Why torch.compile cannot work here (no C++ compiler on the CPU, no Triton on CUDA), or None."""
    if device.type == "cuda":
        try:
            import triton  # noqa: F401
        except ImportError:
            return "Triton is not installed"
        return None
    candidates = [os.environ.get("CXX", ""), "g++", "clang++"]
    return (
        None
        if any(c and shutil.which(c) for c in candidates)
        else "no C++ compiler was found (CXX, g++, clang++)"
    )
