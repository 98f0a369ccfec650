"""Compiled functions, and those kept for later runs: the runs of a sweep mostly differ in numbers only."""

from __future__ import annotations

import inspect
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Hashable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from fedbench.engine.graph import PoolOfProcess
from fedbench.engine.memory import is_out_of_memory
from fedbench.engine.package import load, pack
from fedbench.engine.shelf import Shelf
from fedbench.models.recurrence import tell_compiler

Function = Callable[..., Any]
MOST_KEPT = 8
_MANY = 2**20
NO_TOOLKIT = (
    "no CUDA toolkit was found (set CUDA_HOME to one with headers, such as /usr/local/cuda): steps are "
    "compiled for this process alone, and cost the host about three times as much a round"
)

log = logging.getLogger(__name__)


class Programs:
    """Compiled functions by what they depend on; at most MOST_KEPT, the one not used for longest goes."""

    def __init__(
        self, shelf: Shelf | None = None, objective: Hashable | None = None, held: Sequence[Tensor] = ()
    ) -> None:
        """`shelf`: where programs are kept for other processes. There they also depend on `objective`, all
        that it is beside the tensors `held`, which programs read and do not contain."""
        self.shelf, self.objective, self.held = shelf, objective, held
        self._kept: dict[Hashable, Function] = {}
        self._said: set[str] = set()
        self.pools = PoolOfProcess()

    def __len__(self) -> int:
        return len(self._kept)

    def knows(self, depends: Hashable) -> bool:
        """Whether a program that depends on this is at hand, for some shapes."""
        if any(key[0] == depends for key in self._kept if isinstance(key, tuple)):
            return True
        return self.shelf is not None and self.shelf.knows((self.objective, depends))

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

    def make(
        self, function: Function, args: Sequence[Any], depends: Hashable | None
    ) -> tuple[Function, bool]:
        """`function` compiled for arguments like `args`, and whether that had to be done now.

        `depends`: what it depends on beside the objective and the shapes; None: it is for this process alone.
        """
        device = next(leaf.device for leaf in pytree.tree_leaves(args) if isinstance(leaf, Tensor))
        shelf = None if depends is None else self.shelf
        if shelf is None:
            return self._compile(function, args, device, None), True
        name = shelf.name((self.objective, depends), (signature(args), signature(list(self.held))))
        found = self._load(shelf, name, device)
        if found is not None:
            return found, False
        with shelf.alone(name):
            found = self._load(shelf, name, device)  # another process may have made it meanwhile
            return found or self._compile(function, args, device, name), found is None

    def _load(self, shelf: Shelf, name: str, device: torch.device) -> Function | None:
        file = shelf.find(name)
        if file is None:
            return None
        try:
            return load(file, self.held, device)
        except Exception as error:  # whatever torch makes of a file that it cannot use
            if is_out_of_memory(error):
                raise
            log.warning("%s cannot be used (%s); it is compiled again", file, _line(error))
            return None

    def _compile(
        self, function: Function, args: Sequence[Any], device: torch.device, name: str | None
    ) -> Function:
        try:
            with tempfile.TemporaryDirectory(prefix="fedbench") as directory:
                file = Path(directory) / "program.pt2"
                pack(function, args, self.held, file)
                if name is not None and self.shelf is not None:
                    self.shelf.put(name, file.read_bytes())
                return load(file, self.held, device)
        except Exception as error:  # whatever a program does that cannot be traced without dynamo
            if is_out_of_memory(error):
                raise
            log.info("compiled for this process alone: %s", _line(error))
            if device.type == "cuda" and toolkit_missing():
                self._say_once(NO_TOOLKIT)
            return _compile(function)

    def _say_once(self, line: str) -> None:
        if line not in self._said:
            log.warning(line)
        self._said.add(line)


class Compiled:
    """A function that is compiled at its first call, or taken from what was compiled before.

    `depends`: what the function depends on beside the objective of its `programs` and the shapes of its
    arguments; None: it is not shared.
    """

    def __init__(self, function: Function, programs: Programs, depends: Hashable | None) -> None:
        self._function, self._programs, self._depends = function, programs, depends
        self._call: Function | None = None
        self.seconds = 0.0
        """Time taken by the first call, if it had to compile."""

    def __call__(self, *args: Any) -> Any:
        """As the function itself."""
        return self._first(args) if self._call is None else self._call(*args)

    def _first(self, args: tuple[Any, ...]) -> Any:
        programs = self._programs
        key = None if self._depends is None else (self._depends, signature(args))
        start = time.perf_counter()
        call, new = (None if key is None else programs.take(key)), False
        if call is None:
            call, new = programs.make(self._function, args, self._depends)
        result = call(*args)
        if new:
            self.seconds = time.perf_counter() - start
        if key is not None:
            programs.keep(key, call)
        self._call = call
        return result


def _line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]


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


def toolkit_missing() -> bool:
    """Whether torch finds no CUDA toolkit, without which it compiles no packages for CUDA."""
    from torch.utils import cpp_extension

    return cpp_extension.CUDA_HOME is None


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
