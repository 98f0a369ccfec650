"""Data files: .npz archives, .npy and IDX files, checked before use; and downloads.

An array's header is compared with the size of the file before memory is allocated. A download runs under a
lock into a staging directory, and the files are moved into place when all are complete.
"""

from __future__ import annotations

import contextlib
import dataclasses
import http.client
import io
import logging
import math
import os
import shutil
import socket
import struct
import tarfile
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy

from fedbench.data.dataset import Dataset, from_arrays
from fedbench.errors import DataError
from fedbench.files import content_hash, locked


def file_record(path: Path) -> dict[str, Any]:
    """{"path", "bytes", "sha256"} of a file. A large file is read again only if it has changed."""
    return {"path": str(path), "bytes": path.stat().st_size, "sha256": content_hash(path)}


def unchanged(files: Iterable[Mapping[str, Any]]) -> bool:
    """Whether files are what their records (`file_record`) say. One is hashed only if its size or time has
    changed since; what is no file is let pass."""
    return all(
        content_hash(path) == file["sha256"] for file in files if (path := Path(str(file["path"]))).is_file()
    )


def read_idx(path: Path, dimensions: int) -> np.ndarray:
    """The uint8 array of an IDX file with `dimensions` axes. Its header must match the size of the file.

    Format: LeCun, Cortes, Burges, "The MNIST database of handwritten digits". DataError names the file.
    """
    try:
        content = np.fromfile(path, dtype=np.uint8)
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error})") from error
    start = 4 * (1 + dimensions)
    if content[:4].tolist() != [0, 0, 8, dimensions] or len(content) < start:
        raise damaged(path, f"it does not begin as an IDX file of bytes with {dimensions} sizes does")
    shape = struct.unpack(f">{dimensions}I", content[4:start].tobytes())
    if 0 in shape:
        raise damaged(path, f"its header says {_times(shape)}: it is empty")
    if math.prod(shape) != len(content) - start:
        says = f"its header says {_times(shape)} = {math.prod(shape):,} bytes"
        raise damaged(path, f"{says}, {len(content) - start:,} follow")
    return content[start:].reshape(shape)


def damaged(path: Path, why: str) -> DataError:
    """The DataError for a damaged download."""
    return DataError(f"{path} is damaged: {why}; delete it to download again")


def _times(shape: tuple[int, ...]) -> str:
    return " x ".join(f"{size:,}" for size in shape)


_UNREADABLE = (OSError, EOFError, ValueError, zipfile.BadZipFile, zlib.error, RuntimeError)  # encrypted


def read_npz(path: Path, names: tuple[str, ...], optional: tuple[str, ...] = ()) -> dict[str, np.ndarray]:
    """The named arrays of an .npz file, and the `optional` ones that it has. Pickled arrays are refused, so
    that reading data executes no code.

    Raises a one-line DataError with the file, the array and what is wrong with it.
    """
    try:
        with path.open("rb") as stream:
            if stream.read(len(npy.MAGIC_PREFIX)) == npy.MAGIC_PREFIX:
                raise ValueError("not an .npz archive but a single array; np.savez writes one")
            with zipfile.ZipFile(stream) as archive:
                members = {member.removesuffix(".npy"): member for member in archive.namelist()}
                missing = [name for name in names if name not in members]
                if missing:
                    found = _short(", ".join(members)) or "nothing"
                    raise DataError(
                        f"{path}: needs the arrays {', '.join(names)}; {missing[0]} is missing, found {found}"
                    )
                there = [*names, *(name for name in optional if name in members)]
                wanted = {name: archive.getinfo(members[name]) for name in there}
                _fits(path, sum(_checked_size(path, name, archive, wanted[name]) for name in there))
                return {name: _array(path, name, archive, wanted[name]) for name in there}
    except _UNREADABLE as error:
        raise DataError(f"{path}: cannot be read as an .npz file ({line_of(error)})") from error


def _checked_size(path: Path, name: str, archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> int:
    """Bytes of the array by its header. Raises DataError if the archive does not hold exactly as many."""
    try:
        with archive.open(member) as stream:
            shape, dtype = _header(stream)
            start = stream.tell()
    except _UNREADABLE as error:
        why = line_of(error)
        raise DataError(
            f"{path}: {name} is {'not an array' if 'magic' in why else f'damaged ({why})'}"
        ) from error
    if dtype.hasobject:
        raise DataError(f"{path}: {name}: holds Python objects, which are not loaded")
    needed, there = math.prod(shape) * dtype.itemsize, member.file_size - start
    if needed != there:
        raise DataError(
            f"{path}: {name} is damaged: its header says "
            f"{_short(f'shape {shape} of {dtype}')}, {needed:,} bytes; "
            f"the file holds {there:,}"
        )
    return needed


def _header(stream: IO[bytes]) -> tuple[tuple[int, ...], np.dtype]:
    version = npy.read_magic(stream)
    read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    shape, _, dtype = read(stream)
    return shape, dtype


def _fits(path: Path, needed: int) -> None:
    """Raise DataError if the arrays exceed this machine's memory: zeros compress a thousandfold."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed > memory:
        raise DataError(f"{path}: its arrays need {needed:,} bytes of memory, this machine has {memory:,}")


def _array(path: Path, name: str, archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> np.ndarray:
    try:
        with archive.open(member) as stream:
            return npy.read_array(stream, allow_pickle=False)
    except MemoryError as error:
        needed = f"{member.file_size:,} bytes of memory"
        raise DataError(f"{path}: {name} needs {needed}, which are not free") from error
    except _UNREADABLE as error:
        raise DataError(f"{path}: {name} is damaged ({line_of(error)})") from error


def line_of(error: BaseException) -> str:
    """An error's message in one short line, or its type if it has none."""
    return _short(" ".join(str(error).split())) or type(error).__name__


def _short(text: str, most: int = 120) -> str:
    """Text made fit to show: a damaged file's may be long and unprintable."""
    text = "".join(letter if letter.isprintable() else "?" for letter in text)
    return text if len(text) <= most else text[: most - 3] + "..."


def read_mapped(directory: Path, names: tuple[str, ...], optional: tuple[str, ...]) -> dict[str, np.ndarray]:
    """As `read_npz`, for the files NAME.npy of a directory. Samples (x_...) stay on disk, memory-mapped
    read-only, and are read on access. Raises DataError."""
    files = {name: directory / f"{name}.npy" for name in (*names, *optional)}
    arrays: dict[str, np.ndarray] = {}
    for name, file in files.items():
        if name in optional and not file.is_file():
            continue
        try:
            found = np.load(file, mmap_mode="r" if name.startswith("x_") else None, allow_pickle=False)
        except FileNotFoundError as error:
            needed = ", ".join(f"{one}.npy" for one in names)
            raise DataError(f"{directory}: needs the files {needed}; {file.name} is missing") from error
        except _UNREADABLE as error:
            raise DataError(f"{file}: cannot be read as an array ({line_of(error)})") from error
        if not isinstance(found, np.ndarray):
            raise DataError(f"{file}: is an archive, and a single array is expected")
        arrays[name] = found
    return arrays


NAMES = ("x_train", "y_train", "x_test", "y_test")
CLIENTS, USERS = ("client", "client_test"), ("user", "user_test")


def load_npz(
    path: Path,
    name: str,
    *,
    classes: int | None = None,
    task: str = "classification",
    vocabulary: int | None = None,
) -> Dataset:
    """Load a data set from an .npz file or a directory of .npy files, with arrays as in `from_arrays`.
    `client` and `client_test` (or `user`, `user_test`), if present, are the data set's own clients."""
    arrays = (read_mapped if path.is_dir() else read_npz)(path, NAMES, (*CLIENTS, *USERS))
    files = [path / f"{key}.npy" for key in arrays] if path.is_dir() else [path]
    for client, user in zip(CLIENTS, USERS, strict=True):
        if client in arrays and user in arrays:
            raise DataError(f"{path}: has both {client} and {user}; one of them is expected")
    data = from_arrays(
        name,
        *(arrays[key] for key in NAMES),
        classes=classes,
        task=task,
        vocabulary=vocabulary,
        client=arrays.get("client", arrays.get("user")),
        test_client=arrays.get("client_test", arrays.get("user_test")),
        files=tuple(map(file_record, files)),
        where=path,
    )
    return data if classes is not None or task != "classification" else _without_samples(data)


def _without_samples(data: Dataset) -> Dataset:
    """Add a note on the labels below the largest that no training sample has."""
    absent = np.flatnonzero(np.bincount(data.y_train.numpy(), minlength=data.classes) == 0).tolist()
    if not absent:
        return data
    which = _short(", ".join(map(str, absent)), 60)
    note = f"no training sample has the label {which} of 0 .. {data.classes - 1}"
    return dataclasses.replace(data, note=note + ("; labels start at 0" if absent[0] == 0 else ""))


logger = logging.getLogger(__name__)
TIMEOUT = 30.0  # seconds without an answer before a server counts as unreachable
_FAILURES = (
    RuntimeError,  # torchvision: no mirror answered, or a checksum is wrong
    OSError,  # no network (URLError), time-outs, full or unwritable disks
    ValueError,
    EOFError,
    zlib.error,
    tarfile.TarError,
    zipfile.BadZipFile,
    http.client.HTTPException,
)


OFFLINE = "FEDBENCH_OFFLINE"
"""The variable of the environment that forbids downloads."""


def fetch(
    name: str, root: Path, files: Sequence[str], archives: Sequence[str], download: Callable[[Path], None]
) -> None:
    """Make `files` (relative to `root`) exist, or raise DataError naming them.

    `download` fills a directory with `files`. `archives` (glob patterns relative to `root`) are copied there
    first, so an archive that is not yet unpacked needs no network. Several processes may call this at the
    same time: one of them downloads, the others wait and find the files.
    """
    if os.environ.get(OFFLINE):
        there = ", ".join(str(root / file) for file in missing(root, files))
        why = f"and {OFFLINE} is set (--dry-run sets it): nothing is downloaded"
        raise DataError(f"dataset={name}: not found: {root / name}.npz, nor {there}; {why}")
    staging = root / f".download-{name}"
    lock = root / f".{name}.lock"
    try:
        with _made(root), locked(lock, -1, ""), _removed_on_failure(lock):
            if not missing(root, files):
                return  # another process fetched them meanwhile
            logger.info("%s is not below %s: downloading it", name, root)
            shutil.rmtree(staging, ignore_errors=True)  # left behind by a killed process
            try:
                _copy(root, archives, staging)
                with _quiet():
                    download(staging)
                for file in files:
                    (root / file).parent.mkdir(parents=True, exist_ok=True)
                    os.replace(staging / file, root / file)
            finally:
                shutil.rmtree(staging, ignore_errors=True)
    except _FAILURES as error:
        absent = missing(root, files)
        where = ", ".join(str(root / file) for file in absent)
        reason = " ".join(str(error).split()) or type(error).__name__
        raise DataError(
            f"dataset={name}: not found: {root / name}.npz, nor {where}; and downloading failed: {reason}"
        ) from error


@contextlib.contextmanager
def _made(root: Path) -> Iterator[None]:
    """Make `root` and the folders above it; remove those made here if the block fails."""
    new = [folder for folder in (root, *root.parents) if not folder.exists()]
    root.mkdir(parents=True, exist_ok=True)
    try:
        yield
    except BaseException:
        with contextlib.suppress(OSError):  # not empty: another process works there
            for folder in new:
                folder.rmdir()
        raise


@contextlib.contextmanager
def _removed_on_failure(lock: Path) -> Iterator[None]:
    """Remove the lock file after a failure, under the lock: the next process finds nothing half-made."""
    try:
        yield
    except BaseException:
        lock.unlink(missing_ok=True)
        raise


def missing(root: Path, files: Sequence[str]) -> list[str]:
    """Those of `files` that do not exist below `root`."""
    return [file for file in files if not (root / file).is_file()]


def _copy(root: Path, patterns: Sequence[str], staging: Path) -> None:
    staging.mkdir(parents=True)
    for pattern in patterns:
        for archive in root.glob(pattern):
            target = staging / archive.relative_to(root)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(archive, target)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Suppress progress bars and warnings, and do not wait forever for a silent server."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(TIMEOUT)
    sink = io.StringIO()
    try:
        with contextlib.redirect_stdout(sink), contextlib.redirect_stderr(sink), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        socket.setdefaulttimeout(before)
