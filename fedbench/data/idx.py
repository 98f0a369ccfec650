"""IDX files, the form of MNIST and its kin: a magic number, sizes (big endian), then unsigned bytes."""

from __future__ import annotations

import math
import struct
from pathlib import Path

import numpy as np

from fedbench.errors import DataError


def read_idx(path: Path, dimensions: int) -> np.ndarray:
    """The uint8 array of a file with that many sizes: as large as the file, whatever its header says.

    Format: LeCun, Cortes, Burges, "The MNIST database of handwritten digits". Raises DataError with the file.
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
    """The error of a downloaded file that is not what it should be."""
    return DataError(f"{path} is damaged: {why}; delete it to download again")


def _times(shape: tuple[int, ...]) -> str:
    return " x ".join(f"{size:,}" for size in shape)
