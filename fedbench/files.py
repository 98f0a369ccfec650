"""Writing files so that a reader, or the next process, never sees half of one."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from fedbench.errors import RunError, UserError, chain, first_line

if TYPE_CHECKING:
    import numpy as np

REMEMBERED = 64_000_000  # bytes; hashes of files at least this large are kept between processes


def as_given(path: str | Path) -> Path:
    """A path relative to where the command was started, even if `hydra.job.chdir` has made the directory of a
    run the current one."""
    from hydra.core.hydra_config import HydraConfig
    from omegaconf import OmegaConf

    path = Path(path).expanduser()
    if HydraConfig.initialized() and HydraConfig.get().job.chdir:
        runtime = HydraConfig.get().runtime
        begun = not OmegaConf.is_missing(runtime, "output_dir")
        if begun and Path(runtime.output_dir).resolve() == Path.cwd():
            return Path(runtime.cwd) / path
    return path


def seen_from_here(path: str | Path) -> str:
    """A place relative to the current directory if it is below it, else whole."""
    resolved, here = Path(path).resolve(), Path.cwd().resolve()
    return str(resolved.relative_to(here)) if resolved.is_relative_to(here) else str(resolved)


def files_below(directory: Path, pattern: str = "*") -> list[Path]:
    """All files below a directory whose names match `pattern`, sorted; none if there is no directory."""
    return sorted(path for path in directory.rglob(pattern) if path.is_file())


class InUse(RunError):
    """Another process holds what this one needs exclusively."""


@contextlib.contextmanager
def locked(file: Path, wait: float, refusal: str) -> Iterator[None]:
    """Hold the lock `file` against other processes. It is released however the block or the process ends.

    Raises InUse with the line `refusal` if another process holds it for more than `wait` seconds (negative:
    wait forever), RunError if the file cannot be written or its file system has no locks.
    """
    from filelock import FileLock, Timeout  # slow to import, and not needed by `--help`

    try:  # a file whose existence is the lock would outlive its process, and others would wait for ever
        lock = FileLock(file, fallback_to_soft=False)
    except TypeError:  # filelock before version 4 does not have the argument
        lock = FileLock(file)
    try:
        lock.acquire(timeout=wait, poll_interval=0.05)
    except Timeout as error:
        raise InUse(refusal) from error
    except (OSError, NotImplementedError) as error:  # the latter: older versions, without flock
        written = getattr(error, "errno", None) not in (errno.EACCES, errno.EPERM, errno.EROFS)
        what = f"lock {file}" if written else f"use {file.parent}"
        raise RunError(f"cannot {what}: {_reason(error)}") from error
    try:
        yield
    finally:
        lock.release()


def atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` fill a temporary file, then put it in place of `path`; the old file stays on failure."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        write(temporary)
        with open(temporary, "rb") as stream:
            os.fsync(stream.fileno())
        os.replace(temporary, path)
    except (OSError, RuntimeError) as error:
        cause = next((e for e in chain(error) if isinstance(e, OSError)), error)  # torch raises its own
        raise RunError(f"cannot write {path}: {_reason(cause)}") from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a text file. Bytes of paths that are no UTF-8 are written as they are."""
    atomically(path, lambda temporary: temporary.write_text(text, "utf-8", "surrogateescape"))


class _Plain(yaml.SafeDumper):  # type: ignore[misc]
    """Writes the bytes of OmegaConf.to_yaml."""

    def ignore_aliases(self, data: object) -> bool:
        return True


class _Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
    """The same in a tenth of the time, where PyYAML has libyaml."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    quoted = text.lower() in ("y", "yes", "n", "no", "on", "off", "true", "false")
    with contextlib.suppress(ValueError):
        float(text)
        quoted = True  # a text that looks like a number
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="'" if quoted else None)


for _dumper in (_Plain, _Dumper):
    _dumper.add_representer(str, _text)


def as_yaml(value: Any) -> str:
    """Plain values as YAML. Keys keep their order. A byte of a path that is no UTF-8 is escaped."""
    how: dict[str, Any] = {"default_flow_style": False, "allow_unicode": True, "sort_keys": False}
    try:
        return str(yaml.dump(value, Dumper=_Dumper, **how))
    except UnicodeEncodeError:  # which libyaml cannot write
        return str(yaml.dump(value, Dumper=_Plain, **how))


def write_json(path: Path, value: dict[str, Any]) -> None:
    """Write a JSON object. Keys keep their order, and floats read back exactly."""
    write_text(path, json.dumps(value, indent=2, allow_nan=False) + "\n")


def read_json(path: Path) -> dict[str, Any] | None:
    """The JSON object in a file; None if there is none or it cannot be read."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None


def free_bytes(place: Path) -> int:
    """Free bytes of the disk that `place` lies on, or will lie on."""
    there = next(path for path in (place, *place.absolute().parents) if path.exists())
    return shutil.disk_usage(there).free


def user_cache() -> Path:
    """The user's cache directory (XDG) of fedbench."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fedbench"


def content_hash(file: Path) -> str:
    """SHA-256 of a file's content. The file is read again only if its size or time has changed."""
    file = file.resolve()
    status = file.stat()
    return hash_of(file, status.st_size, status.st_mtime_ns)


@cache
def hash_of(file: Path, size: int, modified: int) -> str:
    """SHA-256 of a file with that size and time of change (ns), remembered; between processes if it is
    large."""
    if size < REMEMBERED:
        return sha256(file)
    store = user_cache() / "hashes.json"
    known = read_json(store) or {}
    if known.get(str(file), [])[:2] == [size, modified]:
        return str(known[str(file)][2])
    digest = sha256(file)
    with contextlib.suppress(OSError, UserError):  # the cache may not be writable
        store.parent.mkdir(parents=True, exist_ok=True)
        write_json(store, {**known, str(file): [size, modified, digest]})
    return digest


@cache
def small_table(file: Path) -> np.ndarray:
    """The rows of a small CSV file that no user changes, of whole numbers below 256. Not to be written to."""
    import numpy as np

    return np.loadtxt(file, delimiter=",", dtype=np.uint8, ndmin=2)


def sha256(file: Path) -> str:
    """SHA-256 of a file's content, read now."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def drop_unknown_backend() -> None:
    """Forget MPLBACKEND if it names no backend of matplotlib, which could not be imported then. No picture
    here needs one. A module (`module://...`) is only looked for by pyplot, which nothing here uses."""
    name = os.environ.get("MPLBACKEND", "")
    if not name or name.startswith("module://") or "matplotlib" in sys.modules:
        return
    del os.environ["MPLBACKEND"]
    import matplotlib

    with contextlib.suppress(ValueError):
        matplotlib.rcParams["backend"] = name  # as matplotlib itself would have taken it
        os.environ["MPLBACKEND"] = name


@contextlib.contextmanager
def one_line_os_errors(what: str) -> Iterator[None]:
    """Turn an OSError into a RunError, `cannot WHAT: REASON`."""
    try:
        yield
    except OSError as error:
        raise RunError(f"cannot {what}: {_reason(error)}") from error


def _reason(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return first_line(error)
