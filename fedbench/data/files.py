"""Data files: .npz archives, .npy and IDX files, checked before use; and downloads, by torchvision under a
lock."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import logging
import math
import os
import socket
import warnings
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy

from fedbench.data.dataset import Dataset, from_arrays
from fedbench.errors import DataError, printable, refusing
from fedbench.files import content_hash, locked
from fedbench.machine import memory


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

    Format: LeCun, Cortes, Burges, "The MNIST database of handwritten digits". torchvision, whose import takes
    as long as torch's, need not be loaded for it. DataError names the file.
    """
    with refusing(f"{path}: cannot be read"):
        content = np.fromfile(path, dtype=np.uint8)
    start = 4 * (1 + dimensions)
    header = content[:start].view(">u4").tolist() if len(content) > start else [0]
    if header[0] != 0x800 + dimensions or math.prod(header[1:]) != len(content) - start:
        raise damaged(path, f"its {len(content):,} bytes are no whole IDX file of {dimensions} sizes")
    return content[start:].reshape(header[1:])


def damaged(path: Path, why: str) -> DataError:
    """The DataError for a damaged download."""
    return DataError(f"{path} is damaged: {why}; delete it to download again")


def names_in(path: Path) -> list[str]:
    """The names of the arrays of an .npz file. Raises DataError."""
    with refusing(f"{path}: cannot be read as an .npz file"), zipfile.ZipFile(path) as archive:
        return [member.filename.removesuffix(".npy") for member in archive.infolist()]


def read_npz(path: Path, names: tuple[str, ...], optional: tuple[str, ...] = ()) -> dict[str, np.ndarray]:
    """The named arrays of an .npz file, and the `optional` ones that it has. Pickled arrays are refused, so
    that reading data executes no code.

    Raises a one-line DataError with the file, the array and what is wrong with it.
    """
    with refusing(f"{path}: cannot be read as an .npz file"), zipfile.ZipFile(path) as archive:
        members = {member.filename.removesuffix(".npy"): member for member in archive.infolist()}
        if absent := [name for name in names if name not in members]:
            there = printable(", ".join(members)) or "nothing"
            needed = f"needs the arrays {', '.join(names)}; {absent[0]} is missing, found {there}"
            raise DataError(f"{path}: {needed}")
        wanted = {name: members[name] for name in (*names, *optional) if name in members}
        refuse_too_large(path, sum(member.file_size for member in wanted.values()))
        arrays = {}
        for name, member in wanted.items():
            with refusing(f"{path}: {name} cannot be read"), archive.open(member) as stream:
                arrays[name] = npy.read_array(stream, allow_pickle=False)
                if stream.read(1):  # at the end of an array its checksum has been compared
                    raise ValueError("it has more bytes than its header says")
        return arrays


def refuse_too_large(where: object, needed: int) -> None:
    """Raise DataError if arrays exceed this machine's memory: zeros compress a thousandfold."""
    if needed > (there := memory().total):
        raise DataError(f"{where}: needs {needed:,} bytes of memory, this machine has {there:,}")


def read_mapped(directory: Path, names: tuple[str, ...], optional: tuple[str, ...]) -> dict[str, np.ndarray]:
    """As `read_npz`, for the files NAME.npy of a directory. Samples (x_...) stay on disk, memory-mapped
    read-only, and are read on access. Raises DataError."""
    files = {name: directory / f"{name}.npy" for name in (*names, *optional)}
    arrays: dict[str, np.ndarray] = {}
    for name, file in files.items():
        if not file.is_file():
            if name in optional:
                continue
            needed = ", ".join(f"{name}.npy" for name in names)
            raise DataError(f"{directory}: needs the files {needed}; {file.name} is missing")
        with refusing(f"{file}: cannot be read as an array"):
            array = np.load(file, mmap_mode="r" if name.startswith("x_") else None, allow_pickle=False)
        if not isinstance(array, np.ndarray):
            raise DataError(f"{file}: is an archive, and a single array is expected")
        arrays[name] = array
    return arrays


NAMES = ("x_train", "y_train", "x_test", "y_test")
CLIENTS, USERS = ("client", "client_test"), ("user", "user_test")


def load_npz(path: Path, name: str, **fields: Any) -> Dataset:
    """Load a data set from an .npz file or a directory of .npy files, with arrays as in `from_arrays`, which
    also takes `fields`. `client` and `client_test` (or `user`, `user_test`), if present, are the data set's
    own clients."""
    arrays = (read_mapped if path.is_dir() else read_npz)(path, NAMES, (*CLIENTS, *USERS))
    files = [path / f"{key}.npy" for key in arrays] if path.is_dir() else [path]
    for client, user in zip(CLIENTS, USERS, strict=True):
        if client in arrays and user in arrays:
            raise DataError(f"{path}: has both {client} and {user}; one of them is expected")
    fields["client"] = arrays.get("client", arrays.get("user"))
    fields["test_client"] = arrays.get("client_test", arrays.get("user_test"))
    fields["files"] = tuple(map(file_record, files))
    data = from_arrays(name, *(arrays[key] for key in NAMES), where=path, **fields)
    return data if "classes" in fields or data.task != "classification" else without_samples(data)


def without_samples(data: Dataset) -> Dataset:
    """Add a note on the labels below the largest that no training sample has."""
    absent = np.flatnonzero(np.bincount(data.y_train.numpy(), minlength=data.classes) == 0).tolist()
    if not absent:
        return data
    which = printable(", ".join(map(str, absent)), 60)
    note = f"no training sample has the label {which} of 0 .. {data.classes - 1}"
    return dataclasses.replace(data, note=note + ("; labels start at 0" if absent[0] == 0 else ""))


logger = logging.getLogger(__name__)
TIMEOUT = 30.0  # seconds without an answer before a server counts as unreachable
OFFLINE = "FEDBENCH_OFFLINE"
"""The variable of the environment that forbids downloads."""


def fetch(name: str, root: Path, files: Sequence[str], download: Callable[[Path], object]) -> None:
    """Make `files` (relative to `root`) exist by `download(root)`, or raise DataError naming them. Several
    processes may call this at the same time: one of them downloads, the others wait and find the files."""
    lock = root / f".{name}.lock"  # is there while a process downloads
    absent = [str(root / file) for file in files if not (root / file).is_file()]
    if not absent and not lock.exists():
        return
    line = f"dataset={name}: not found: {root / name}.npz, nor {', '.join(absent)}"
    if os.environ.get(OFFLINE):
        raise DataError(f"{line}; and {OFFLINE} is set (--dry-run sets it): nothing is downloaded")
    new = {parent for file in files for parent in (root / file).parents if not parent.exists()}
    with refusing(f"{line}; and downloading failed"), _removed_if_empty(new):
        root.mkdir(parents=True, exist_ok=True)
        with locked(lock, -1, ""):
            try:
                if not all((root / file).is_file() for file in files):  # else another process has
                    logger.info("%s is not below %s: downloading it", name, root)
                    with _quiet():
                        download(root)
            finally:
                lock.unlink(missing_ok=True)


@contextlib.contextmanager
def _removed_if_empty(directories: Iterable[Path]) -> Iterator[None]:
    """Remove those of the directories that are empty after the block."""
    try:
        yield
    finally:
        for place in sorted(directories, key=lambda place: len(place.parts), reverse=True):
            with contextlib.suppress(OSError):
                place.rmdir()


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
