"""Tables, a row per sample: CSV and Parquet through pandas, LIBSVM through scikit-learn."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedbench.data.dataset import Dataset, from_arrays
from fedbench.data.files import file_record, line_of
from fedbench.errors import ConfigError, DataError
from fedbench.fields import exact

_CSV, _PARQUET = {".csv", ".tsv"}, {".parquet", ".pq"}


def load_table(
    path: Path,
    test_path: Path | None,
    *,
    target: str | None,
    user: str | None,
    test_fraction: float,
    task: str,
) -> Dataset:
    """The data set in a table. `test_path`: where the test set is; None: it is `test_fraction` of the rows,
    drawn at random, the same for every seed.

    `target`: the column of what is learnt (None: the last one); classes are its values, sorted. `user`: the
    column that says whose a row is. All others are features: numbers as they are, others one-hot. A file that
    is neither CSV nor Parquet by its name is LIBSVM's. Raises ConfigError and DataError.
    """
    paths = [path, *([test_path] if test_path else [])]
    tabular = all({*one.suffixes} & (_CSV | _PARQUET) for one in paths)
    x, y, who, rows = _columns(paths, target, user) if tabular else _libsvm(paths, target, user)
    if task == "classification":
        y = np.unique(y, return_inverse=True)[1]
    if test_path is None:
        order = np.random.default_rng(0).permutation(len(y))
        count = max(1, round(exact(test_fraction) * len(y)))
        train, test = np.sort(order[count:]), np.sort(order[:count])
    else:
        train, test = np.arange(rows[0]), np.arange(rows[0], len(y))
    return from_arrays(
        "table",
        *(part for at in (train, test) for part in (x[at], y[at])),
        task=task,
        classes=int(y.max()) + 1 if task == "classification" else None,
        client=None if who is None else who[train],
        test_client=None if who is None else who[test],
        files=tuple(file_record(one) for one in paths),
        where=path,
    )


Columns = tuple[np.ndarray, np.ndarray, np.ndarray | None, list[int]]


def _columns(paths: Sequence[Path], target: str | None, user: str | None) -> Columns:
    """Features (n, f), targets (n,), users (n,) of all files, one behind the other, and their rows."""
    import pandas as pd

    frames = [_frame(one) for one in paths]
    frame = pd.concat(frames, ignore_index=True)
    known = [str(name) for name in frame.columns]
    frame.columns = pd.Index(known)
    target = known[-1] if target is None else target
    for key, name in (("target", target), ("user", user)):
        if name is not None and name not in known:
            there = ", ".join(known[:20])
            raise ConfigError(f"dataset.{key}", name, f"must be a column of {paths[0]}: {there}", known)
    if frame[target].isna().any():
        row = int(np.flatnonzero(frame[target].isna())[0])
        raise DataError(f"{paths[0]}: the target {target} is empty in row {row}")
    features = frame.drop(columns=[name for name in (target, user) if name is not None])
    x: Any = pd.get_dummies(features, dtype=float).to_numpy(dtype=np.float64)
    who = None if user is None else frame[user].astype(str).to_numpy(dtype=str)
    return x, frame[target].to_numpy(), who, [len(one) for one in frames]


def _frame(path: Path) -> Any:
    import pandas as pd

    try:
        if {*path.suffixes} & _PARQUET:
            return pd.read_parquet(path)
        return pd.read_csv(path, sep="\t" if ".tsv" in path.suffixes else ",")
    except ImportError as error:
        raise DataError(f"{path}: needs pyarrow: pip install -e '.[tables]'") from error
    except Exception as error:  # pandas has many
        raise DataError(f"{path}: cannot be read as a table ({line_of(error)})") from error


def _libsvm(paths: Sequence[Path], target: str | None, user: str | None) -> Columns:
    """The same of LIBSVM files, which have neither names nor users."""
    from sklearn.datasets import load_svmlight_files

    for key, value in (("target", target), ("user", user)):
        if value is not None:
            raise ConfigError(f"dataset.{key}", value, f"must be null: {paths[0]} has no names (LIBSVM)")
    try:
        found = load_svmlight_files([str(one) for one in paths])
    except Exception as error:
        raise DataError(f"{paths[0]}: cannot be read as LIBSVM, CSV or Parquet ({line_of(error)})") from error
    sparse, targets = found[::2], found[1::2]
    needed = 8 * sum(one.shape[0] * one.shape[1] for one in sparse)
    if needed > (memory := os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")):
        raise DataError(f"{paths[0]}: needs {needed:,} bytes as numbers, this machine has {memory:,}")
    return (
        np.concatenate([one.toarray() for one in sparse]),
        np.concatenate(targets),
        None,
        [one.shape[0] for one in sparse],
    )
