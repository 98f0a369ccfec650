"""Compiled functions, kept for later runs and other processes. The runs of a sweep mostly differ in numbers
only, and no process compiles what another one has compiled.

On disk, a file's name stands for everything that its program depends on. A damaged file counts as absent, and
so does every file in a directory that others own or can write to. Loading a program executes it, so the
environment chooses the directory, not a configuration.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import shutil
import tempfile
import time
import zipfile
from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedbench.engine.graph import PoolOfProcess
from fedbench.engine.tape import Tapes
from fedbench.errors import RunError, first_line
from fedbench.fields import is_own
from fedbench.files import atomically, locked, user_cache
from fedbench.torch_internals import is_out_of_memory, load, pack, pytree
from fedbench.version import PACKAGE

MOST_BYTES = 512 * 2**20
_SOURCES = (
    "engine", "method", "algorithms", "models", "optimizer.py", "data/transforms.py", "rng.py",
    "torch_internals.py",
)  # fmt: skip
"""All code of fedbench's that a local step runs."""

_INDUCTORS_OWN = "TORCHINDUCTOR_CACHE_DIR"  # set by inductor itself at its first compilation

log = logging.getLogger(__name__)


def place() -> Path:
    """The directory of programs, below FEDBENCH_CACHE if set, else below the user's cache directory (XDG)."""
    given = os.environ.get("FEDBENCH_CACHE")
    return (Path(given) if given else user_cache()) / "programs"


class CompileCache:
    """The programs in a directory. Above MOST_BYTES, the least recently used are deleted."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def name(self, depends: Hashable, shapes: Hashable) -> str:
        """The file name of a program: a digest of what it depends on, then one of its arguments' shapes."""
        return f"{self._stem(depends)}-{_digest(shapes)}.pt2"

    def knows(self, depends: Hashable) -> bool:
        """Whether there is a program with these dependencies, for some shapes."""
        return self._ours() and any(self.directory.glob(f"{self._stem(depends)}-*.pt2"))

    @property
    def is_empty(self) -> bool:
        """Whether the directory has no program at all."""
        return not any(self.directory.glob("*.pt2"))

    def find(self, name: str) -> Path | None:
        """The file `name`, which now counts as used; None if it is missing or damaged."""
        file = self.directory / name
        if not self._ours() or not file.is_file():
            return None
        try:
            with zipfile.ZipFile(file) as content:
                whole = content.testzip() is None
            os.utime(file)
        except (OSError, zipfile.BadZipFile, EOFError, ValueError, RuntimeError):
            whole = False
        if not whole:
            log.warning("%s is damaged; compiling it again", file)
        return file if whole else None

    def put(self, name: str, program: bytes) -> None:
        """Keep a program. A failure to write it is ignored."""
        if not self._ours():
            return
        with contextlib.suppress(Exception):
            atomically(self.directory / name, lambda temporary: temporary.write_bytes(program))
            self._tidy()

    @contextlib.contextmanager
    def alone(self, name: str) -> Iterator[None]:
        """Keep other processes from compiling `name` meanwhile. No effect where files cannot be locked."""
        with contextlib.ExitStack() as stack:
            with contextlib.suppress(OSError, RunError):
                self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
                lock = self.directory / f"{name}.lock"
                stack.enter_context(locked(lock, -1, ""))
                stack.callback(lambda: lock.unlink(missing_ok=True))
            yield

    def _ours(self) -> bool:
        """Whether the directory is this user's, and nobody else can write there."""
        try:
            found = self.directory.stat()
        except OSError:
            return False
        return found.st_uid == os.getuid() and not found.st_mode & 0o022

    def _tidy(self) -> None:
        files = sorted(self.directory.glob("*.pt2"), key=lambda file: file.stat().st_mtime, reverse=True)
        total = 0
        for file in files:
            total += file.stat().st_size
            if total > MOST_BYTES:
                file.unlink(missing_ok=True)

    def _stem(self, depends: Hashable) -> str:
        return _digest((self._surroundings, depends))

    @cached_property
    def _surroundings(self) -> tuple[str, ...]:
        """What a program depends on besides the function: versions, hardware, compiler settings, sources."""
        own = [key for key in sorted(os.environ) if key.startswith("TORCHINDUCTOR_")]
        settings = [f"{key}={os.environ[key]}" for key in own if key != _INDUCTORS_OWN]
        machine = [os.environ.get("CXX", ""), torch.backends.cpu.get_cpu_capability(), _cpu()]
        return (torch.__version__, str(torch.version.git_version), *machine, *settings, _sources())


def _digest(value: Hashable) -> str:
    return hashlib.sha256(repr(value).encode()).hexdigest()[:24]


def _cpu() -> str:
    """Model and instruction sets of the processor, for which programs are compiled."""
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines()
        return "\n".join(line for line in lines if line.startswith(("model name", "flags", "Features")))
    import platform

    return f"{platform.machine()} {platform.processor()}"


def _sources() -> str:
    here = PACKAGE
    sum_ = hashlib.sha256()
    for name in _SOURCES:
        found = here / name
        for file in sorted(found.rglob("*.py")) if found.is_dir() else [found]:
            sum_.update(file.relative_to(here).as_posix().encode() + b"\0" + file.read_bytes())
    return sum_.hexdigest()


Function = Callable[..., Any]
MOST_KEPT = 8


class Uncompiled:
    """A function in place of its program, which torch could not make."""

    def __init__(self, function: Function, note: str) -> None:
        self.function, self.note = function, note

    def __call__(self, *args: Any) -> Any:
        """Call the function."""
        return self.function(*args)


class Programs:
    """Compiled functions by what they depend on. Above MOST_KEPT, the least recently used is dropped."""

    def __init__(
        self,
        cache: CompileCache | None = None,
        objective: Hashable | None = None,
        tensors: Sequence[Tensor] = (),
    ) -> None:
        """`cache`: where programs are kept for other processes. There they also depend on `objective`, a key
        of the objective without its `tensors`, which programs read and do not contain."""
        self.cache, self.objective, self.tensors = cache, objective, tensors
        self._kept: dict[Hashable, Function] = {}
        self.pools, self.tapes = PoolOfProcess(), Tapes()
        self.compiling = False

    def __len__(self) -> int:
        return len(self._kept)

    def knows(self, depends: Hashable) -> bool:
        """Whether a program with these dependencies is in memory or on disk, for some shapes."""
        if any(key[0] == depends for key in self._kept if isinstance(key, tuple)):
            return True
        cache = self._lasting(depends)
        return cache is not None and cache.knows((self.objective, depends))

    @property
    def untried(self) -> bool:
        """Whether nothing has been compiled here, as far as is known."""
        return not self._kept and self.cache is not None and self.cache.is_empty

    def take(self, key: Hashable) -> Function | None:
        """The function kept under `key`, which now counts as used; None if there is none."""
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
        """`function` compiled for arguments like `args`, or Uncompiled, and whether it was compiled just now.

        `depends`: what it depends on besides the objective and the shapes; None: for this process only.
        """
        cache = self._lasting(depends)
        if cache is None:
            return self._compile(function, args, None), True
        name = cache.name((self.objective, depends), (signature(args), signature(list(self.tensors))))
        found = self._load(cache, name)
        if found is not None:
            return found, False
        with cache.alone(name):
            found = self._load(cache, name)  # another process may have compiled it meanwhile
            return found or self._compile(function, args, name), found is None

    def _lasting(self, depends: Hashable | None) -> CompileCache | None:
        """Where programs with these dependencies are kept for other processes. A class of a user's may have
        other code there under the same name, so its programs are not kept."""
        classes = [leaf for leaf in pytree.tree_leaves(depends) if isinstance(leaf, type)]
        return None if depends is None or not all(map(is_own, classes)) else self.cache

    def _load(self, cache: CompileCache, name: str) -> Function | None:
        file = cache.find(name)
        if file is None:
            return None
        try:
            return load(file, self.tensors)
        except Exception as error:  # whatever torch raises for a file that it cannot use
            if is_out_of_memory(error):
                raise
            log.warning("%s cannot be used (%s); compiling it again", file, first_line(error, named=True))
            return None

    def _compile(self, function: Function, args: Sequence[Any], name: str | None) -> Function:
        try:
            with tempfile.TemporaryDirectory(prefix="fedbench") as directory:
                file = Path(directory) / "program.pt2"
                pack(function, args, self.tensors, file)
                if name is not None and self.cache is not None:
                    self.cache.put(name, file.read_bytes())
                return load(file, self.tensors)
        except Exception as error:  # whatever torch or its compiler raises
            if is_out_of_memory(error):
                raise
            note = f"engine=compile: a function cannot be compiled ({first_line(error, named=True)[:200]})"
            log.warning(note)
            return Uncompiled(function, note)


class Compiled:
    """A function that is compiled at its first call, or taken from what was compiled before.

    `depends`: what the function depends on besides the objective of its `programs` and the shapes of its
    arguments; None: it is not shared.
    """

    def __init__(self, function: Function, programs: Programs, depends: Hashable | None) -> None:
        self._function, self._programs, self._depends = function, programs, depends
        self._call: Function | None = None
        self.seconds = 0.0
        """Time taken by the first call, if it had to compile."""

    def __call__(self, *args: Any) -> Any:
        """Call the function."""
        return self._first(args) if self._call is None else self._call(*args)

    @property
    def note(self) -> str | None:
        """Why it is not compiled, or None."""
        return self._call.note if isinstance(self._call, Uncompiled) else None

    def _first(self, args: tuple[Any, ...]) -> Any:
        programs = self._programs
        key = None if self._depends is None else (self._depends, signature(args))
        start = time.perf_counter()
        call, new = (None if key is None else programs.take(key)), False
        programs.compiling = call is None
        try:
            if call is None:
                call, new = programs.make(self._function, args, self._depends)
            result = call(*args)
        finally:
            programs.compiling = False
        if new:
            self.seconds = time.perf_counter() - start
        if key is not None:
            programs.keep(key, call)
        self._call = call
        return result


def signature(args: Any) -> Hashable:
    """Structure of nested arguments, with shape, strides, type and device of every tensor."""
    leaves, structure = pytree.tree_flatten(args)
    facts = tuple(
        (tuple(leaf.shape), leaf.stride(), leaf.dtype, leaf.device) if isinstance(leaf, Tensor) else leaf
        for leaf in leaves
    )
    return str(structure), facts


def compiler_missing(device: torch.device) -> str | None:
    """Why steps cannot be compiled here, or None."""
    if device.type == "cuda":
        return "steps are compiled for CPUs, and launched as graphs on CUDA"
    candidates = [os.environ.get("CXX", ""), "g++", "clang++"]
    return (
        None
        if any(c and shutil.which(c) for c in candidates)
        else "no C++ compiler was found (CXX, g++, clang++)"
    )
