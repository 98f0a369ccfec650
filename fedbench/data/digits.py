"""scikit-learn's handwritten digits: 1,797 images of 8 x 8, part of the package, no download.

Source: Alpaydin, Kaynak, "Optical recognition of handwritten digits", UCI Machine Learning Repository, 1998.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import zlib
from pathlib import Path

import numpy as np
import torch

from fedbench.data.dataset import Dataset
from fedbench.errors import DataError


def digits() -> Dataset:
    """The digits as float32 images (n, 1, 8, 8) in [0, 1] (the file's 0..16 over 16), split 1,437 / 360.

    The split is fixed: sort the samples by class, keeping the file's order inside a class; every fifth one,
    from the first on, is a test sample. So each class gives 35 to 37 test samples. Both sets keep the
    file's order.
    """
    file = _file()
    table = _table(file)
    stored, labels = np.ascontiguousarray(table[:, :-1]), table[:, -1].astype(np.int64)
    test = np.zeros(len(labels), dtype=bool)
    test[np.argsort(labels, kind="stable")[::5]] = True
    x = torch.from_numpy((stored / 16).astype(np.float32).reshape(-1, 1, 8, 8))
    y = torch.from_numpy(labels)
    origin = {
        "path": f"scikit-learn {importlib.metadata.version('scikit-learn')}: {file.name}",
        "bytes": stored.nbytes,
        "sha256": hashlib.sha256(stored.tobytes()).hexdigest(),
    }
    return Dataset("digits", x[~test], y[~test], x[test], y[test], classes=10, files=(origin,))


def _table(file: Path) -> np.ndarray:
    """Rows of 64 pixels and a label, (1797, 65) uint8."""
    try:
        table = np.loadtxt(file, delimiter=",", dtype=np.uint8, ndmin=2)
        if table.shape != (1797, 65):
            raise ValueError(f"{table.shape[0]} rows of {table.shape[1]} numbers")
    except (OSError, EOFError, ValueError, zlib.error) as error:
        reason = f"is damaged ({' '.join(str(error).split())}); install scikit-learn again"
        raise DataError(f"dataset=digits: {file} {reason}") from error
    return table


def _file() -> Path:
    """The table inside the installed package, found without importing it (which takes seconds)."""
    spec = importlib.util.find_spec("sklearn")
    places = spec.submodule_search_locations if spec and spec.submodule_search_locations else []
    for place in places:
        file = Path(place) / "datasets" / "data" / "digits.csv.gz"
        if file.is_file():
            return file
    raise DataError("dataset=digits: scikit-learn, which holds the data, is not installed")
