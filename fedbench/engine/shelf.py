"""Compiled programs on disk, so that no process compiles what another one has compiled.

A file's name holds all that its program depends on; a file that is damaged, or not this user's alone, counts
as absent. Loading a program executes it, so the place is the environment's choice, not a configuration's.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import logging
import os
import zipfile
from collections.abc import Hashable, Iterator
from functools import cached_property
from pathlib import Path

import torch

import fedbench
from fedbench.files import atomically, user_cache

MOST_BYTES = 512 * 2**20
_SOURCES = ("engine", "method", "algorithms", "models", "data/transforms.py", "rng.py")
"""All code that a local step runs."""

_INDUCTORS_OWN = "TORCHINDUCTOR_CACHE_DIR"  # which it sets itself when it first compiles

log = logging.getLogger(__name__)


def place() -> Path:
    """Where programs lie: below FEDBENCH_CACHE, or the user's cache directory (XDG)."""
    given = os.environ.get("FEDBENCH_CACHE")
    return (Path(given) if given else user_cache()) / "programs"


class Shelf:
    """The programs in a directory, for one device; at most MOST_BYTES, those not used for longest go."""

    def __init__(self, directory: Path, device: torch.device) -> None:
        self.directory, self.device = directory, device

    def name(self, depends: Hashable, shapes: Hashable) -> str:
        """The file of a program: what it depends on without the shapes of its arguments, then these."""
        return f"{self._stem(depends)}-{_digest(shapes)}.pt2"

    def knows(self, depends: Hashable) -> bool:
        """Whether there is a program that depends on this, for some shapes."""
        return self._ours() and any(self.directory.glob(f"{self._stem(depends)}-*.pt2"))

    def find(self, name: str) -> Path | None:
        """The file `name`, whole, which counts as used; None where there is none."""
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
            log.warning("%s is damaged; it is compiled again", file)
        return file if whole else None

    def put(self, name: str, program: bytes) -> None:
        """Keep a program; nothing happens where it cannot be written."""
        if not self._ours():
            return
        with contextlib.suppress(Exception):
            atomically(self.directory / name, lambda temporary: temporary.write_bytes(program))
            self._tidy()

    @contextlib.contextmanager
    def alone(self, name: str) -> Iterator[None]:
        """Hold `name` against other processes that would compile it; not where files cannot be locked."""
        with contextlib.ExitStack() as stack:
            with contextlib.suppress(OSError):
                self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
                lock = self.directory / f"{name}.lock"
                stream = stack.enter_context(open(lock, "w"))
                fcntl.flock(stream, fcntl.LOCK_EX)
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
        return _surroundings(self.device)


def _digest(value: Hashable) -> str:
    return hashlib.sha256(repr(value).encode()).hexdigest()[:24]


def _surroundings(device: torch.device) -> tuple[str, ...]:
    """What a program depends on beside the function: versions, hardware, compiler settings, sources."""
    keys = [key for key in sorted(os.environ) if key.startswith("TORCHINDUCTOR_") and key != _INDUCTORS_OWN]
    settings = [f"{key}={os.environ[key]}" for key in keys]
    machine = [os.environ.get("CXX", ""), torch.backends.cpu.get_cpu_capability(), _cpu()]
    if device.type == "cuda":
        machine += [torch.cuda.get_device_name(device), str(torch.cuda.get_device_capability(device))]
    return (torch.__version__, str(torch.version.git_version), *machine, *settings, _sources())


def _cpu() -> str:
    """Model and instruction sets of the processor: programs are compiled for this one."""
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines()
        return "\n".join(line for line in lines if line.startswith(("model name", "flags", "Features")))
    import platform

    return f"{platform.machine()} {platform.processor()}"


def _sources() -> str:
    here = Path(fedbench.__file__).parent
    sum_ = hashlib.sha256()
    for name in _SOURCES:
        found = here / name
        for file in sorted(found.rglob("*.py")) if found.is_dir() else [found]:
            sum_.update(file.relative_to(here).as_posix().encode() + b"\0" + file.read_bytes())
    return sum_.hexdigest()
