"""scikit-learn's handwritten digits: 1,797 images of 8 x 8, part of the package, no download.

Source: Alpaydin, Kaynak, "Optical recognition of handwritten digits", UCI Machine Learning Repository, 1998.
"""

from __future__ import annotations

import hashlib

import numpy as np
import torch

from fedbench.data.dataset import Dataset


def digits() -> Dataset:
    """The digits as float32 images (n, 1, 8, 8) in [0, 1] (the file's 0..16 over 16), split 1,437 / 360.

    The split is fixed: sort the samples by class, keeping the file's order inside a class; every fifth one,
    from the first on, is a test sample. So each class gives 35 to 37 test samples. Both sets keep the
    file's order.
    """
    import sklearn
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    stored = np.ascontiguousarray(pixels, dtype=np.uint8)
    test = np.zeros(len(labels), dtype=bool)
    test[np.argsort(labels, kind="stable")[::5]] = True
    x = torch.from_numpy((stored / 16).astype(np.float32).reshape(-1, 1, 8, 8))
    y = torch.from_numpy(labels.astype(np.int64))
    origin = {
        "path": f"scikit-learn {sklearn.__version__}: load_digits",
        "bytes": stored.nbytes,
        "sha256": hashlib.sha256(stored.tobytes()).hexdigest(),
    }
    return Dataset("digits", x[~test], y[~test], x[test], y[test], classes=10, files=(origin,))
