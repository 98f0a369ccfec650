"""Compiled functions, and those kept for later runs: the runs of a sweep mostly differ in numbers only."""

from __future__ import annotations

import inspect
import logging
import os
import shutil
import time
from collections.abc import Callable, Hashable
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from fedbench.models.whole import tell_compiler

Function = Callable[..., Any]
MOST_KEPT = 8
_MANY = 2**20


class Programs:
    """Compiled functions by what they depend on; at most MOST_KEPT, the one not used for longest goes."""

    def __init__(self) -> None:
        self._kept: dict[Hashable, Function] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def take(self, key: Hashable) -> Function | None:
        """The function kept under `key`, which counts as used."""
        found = self._kept.pop(key, None)
        if found is not None:
            self._kept[key] = found
        return found

    def keep(self, key: Hashable, function: Function) -> None:
        """Keep `function` for later runs."""
        self._kept[key] = function
        while len(self._kept) > MOST_KEPT:
            del self._kept[next(iter(self._kept))]


class Compiled:
    """A function that is compiled at its first call, or taken from what an earlier run compiled.

    `key`: what the function depends on beside the shapes of its arguments; None: it is not shared.
    """

    def __init__(self, function: Function, programs: Programs, key: Hashable | None) -> None:
        self._function, self._programs, self._key = function, programs, key
        self._call: Function | None = None
        self.seconds = 0.0
        """Time taken by the first call, if it had to compile."""

    def __call__(self, *args: Any) -> Any:
        """As the function itself."""
        return self._first(args) if self._call is None else self._call(*args)

    def _first(self, args: tuple[Any, ...]) -> Any:
        key = None if self._key is None else (self._key, signature(args))
        earlier = None if key is None else self._programs.take(key)
        call = earlier or _compile(self._function)
        start = time.perf_counter()
        result = call(*args)
        if earlier is None:
            self.seconds = time.perf_counter() - start
            if key is not None:
                self._programs.keep(key, call)
        self._call = call
        return result


def _compile(function: Function) -> Function:
    """torch.compile for one of many programs: torch counts all that vmap makes as one function's, and would
    give up after a few (8, and 256 with `isolate_recompiles`, which newer versions have)."""
    import torch._dynamo.config as dynamo

    logging.getLogger("torch.utils.cpp_extension").setLevel(logging.ERROR)  # "No CUDA runtime" on a CPU
    options: dict[str, Any] = {"fullgraph": True, "dynamic": False}
    dynamo.accumulated_recompile_limit = _MANY
    if "isolate_recompiles" in inspect.signature(torch.compile).parameters:
        options["isolate_recompiles"] = True
    else:
        dynamo.recompile_limit = _MANY
    tell_compiler()
    return torch.compile(function, **options)


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
