"""Arrays of .npz files; what a header promises is compared with what is there before memory is taken."""

from __future__ import annotations

import math
import os
import zipfile
import zlib
from pathlib import Path
from typing import IO

import numpy as np
from numpy.lib import format as npy

from fedbench.errors import DataError

_UNREADABLE = (OSError, EOFError, ValueError, zipfile.BadZipFile, zlib.error, RuntimeError)  # encrypted


def read_npz(path: Path, names: tuple[str, ...], optional: tuple[str, ...] = ()) -> dict[str, np.ndarray]:
    """The named arrays of an .npz file, and those of `optional` that are there. Pickled arrays are refused:
    reading data executes nothing.

    Raises DataError, one line: which file, which array, what is wrong with it.
    """
    try:
        with path.open("rb") as stream:
            if stream.read(len(npy.MAGIC_PREFIX)) == npy.MAGIC_PREFIX:
                raise ValueError("not an .npz archive but a single array; np.savez writes one")
            with zipfile.ZipFile(stream) as archive:
                members = {member.removesuffix(".npy"): member for member in archive.namelist()}
                missing = [name for name in names if name not in members]
                if missing:
                    found = ", ".join(members) or "nothing"
                    raise DataError(
                        f"{path}: needs the arrays {', '.join(names)}; {missing[0]} is missing, found {found}"
                    )
                there = [*names, *(name for name in optional if name in members)]
                wanted = {name: archive.getinfo(members[name]) for name in there}
                _fits(path, sum(_checked_size(path, name, archive, wanted[name]) for name in there))
                return {name: _array(path, name, archive, wanted[name]) for name in there}
    except _UNREADABLE as error:
        raise DataError(f"{path}: cannot be read as an .npz file ({_line(error)})") from error


def _checked_size(path: Path, name: str, archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> int:
    """Bytes that the array takes by its header, once they are as many as the archive holds of it."""
    try:
        with archive.open(member) as stream:
            shape, dtype = _header(stream)
            start = stream.tell()
    except _UNREADABLE as error:
        why = _line(error)
        raise DataError(
            f"{path}: {name} is {'not an array' if 'magic' in why else f'damaged ({why})'}"
        ) from error
    if dtype.hasobject:
        raise DataError(f"{path}: {name}: holds Python objects, which are not loaded")
    needed, there = math.prod(shape) * dtype.itemsize, member.file_size - start
    if needed != there:
        raise DataError(
            f"{path}: {name} is damaged: its header says shape {shape} of {dtype}, {needed:,} bytes; "
            f"the file holds {there:,}"
        )
    return needed


def _header(stream: IO[bytes]) -> tuple[tuple[int, ...], np.dtype]:
    version = npy.read_magic(stream)
    read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    shape, _, dtype = read(stream)
    return shape, dtype


def _fits(path: Path, needed: int) -> None:
    """A small archive may unpack to anything: zeros pack a thousandfold."""
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
        raise DataError(f"{path}: {name} is damaged ({_line(error)})") from error


def _line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
