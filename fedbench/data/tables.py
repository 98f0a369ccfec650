"""Tables with a row per sample: CSV, Parquet, LIBSVM, and Hugging Face data sets."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedbench.data.dataset import Dataset, from_arrays
from fedbench.data.files import file_record, line_of
from fedbench.data.options import HuggingFace
from fedbench.errors import ConfigError, DataError
from fedbench.fields import exact
from fedbench.files import as_given, files_below

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
    """Load a data set from a table. `test_path`: the table of the test set; None: the test set is
    `test_fraction` of the rows, drawn at random, the same for every seed.

    `target`: the column to predict (None: the last one); classes are its sorted values. `user`: the column
    that names each row's user. All other columns are features: numbers as they are, the rest one-hot. A file
    that is neither CSV nor Parquet by its name is read as LIBSVM. Raises ConfigError and DataError.
    """
    paths = [path, *([test_path] if test_path else [])]
    tabular = all({*one.suffixes} & (_CSV | _PARQUET) for one in paths)
    x, y, who, rows = _columns(paths, target, user) if tabular else _libsvm(paths, target, user)
    if task == "classification":
        y = np.unique(y, return_inverse=True)[1]
    classes = int(y.max()) + 1 if task == "classification" else None
    files = tuple(file_record(one) for one in paths)
    return _divided(
        "table", (x, y, who, rows), test_fraction, task=task, classes=classes, files=files, where=path
    )


def load_hf(options: HuggingFace) -> Dataset:
    """Load a Hugging Face data set, from a directory that save_to_disk wrote or by its name.

    Classes are those of a ClassLabel, else the target's sorted values. If no column holds the samples, all
    columns but target and user are features, as in a table. Raises ConfigError and DataError.
    """
    import pandas as pd

    where = as_given(options.path)
    splits = _splits(options, where)
    named = {"x": options.x, "target": options.target, "user": options.user}
    for one in splits:
        _check(one.column_names, options.path, named)
    y = np.concatenate([_column(one, options.target, options.path) for one in splits])
    feature, classes = splits[0].features[options.target], None
    if options.task == "classification":
        classes = getattr(feature, "num_classes", None)  # a ClassLabel's
        if classes is None:
            y = np.unique(y, return_inverse=True)[1]
            classes = int(y.max()) + 1
    who = None
    if options.user is not None:
        who = np.concatenate([np.array(one[:][options.user]).astype(str) for one in splits])
    if options.x is None:
        plain = {"Value", "ClassLabel"}
        for name, kind in splits[0].features.items():
            if name not in named.values() and type(kind).__name__ not in plain:
                allowed = f"must be the column of samples: {name} has more than one number in a row"
                raise ConfigError("dataset.x", None, allowed)
        x = _features(pd.concat([one.to_pandas() for one in splits]), [options.target, options.user])
    else:
        x = np.concatenate([_column(one, options.x, options.path) for one in splits])
        if options.vocabulary is None and x.dtype.kind in "iub" and x.dtype != np.uint8:
            x = x.astype(np.float32)
    return _divided(
        "hf",
        (x, y, who, [len(one) for one in splits]),
        options.test_fraction,
        task=options.task,
        classes=classes,
        vocabulary=options.vocabulary,
        files=tuple(file_record(file) for file in files_below(where)),
        where=options.path,
    )


def _splits(options: HuggingFace, where: Path) -> list[Any]:
    """The training split and, if the test set has its own, the test split."""
    try:
        import datasets
    except ImportError as error:
        raise DataError("dataset=hf: needs datasets: pip install -e '.[hf]'") from error
    datasets.disable_progress_bars()
    try:
        if any((where / file).is_file() for file in ("dataset_dict.json", "state.json")):
            found: Any = datasets.load_from_disk(str(where))
        else:
            found = datasets.load_dataset(str(where) if where.is_dir() else options.path, options.subset)
    except Exception as error:  # the library raises many kinds, and uses the network
        raise DataError(
            f"dataset.path={options.path}: cannot be loaded by `datasets` ({line_of(error)})"
        ) from error
    known = dict(found) if isinstance(found, dict) else {"train": found}
    chosen = {"train": options.train, "test": options.test}
    for key, name in chosen.items():
        if name is not None and (name not in known or not len(known[name])):
            there = ", ".join(known) + (", or null" if key == "test" else "")
            raise ConfigError(f"dataset.{key}", name, f"must be a split of {options.path}: {there}", [*known])
    return [known[name] for name in chosen.values() if name is not None]


def _column(split: Any, name: str, where: str) -> np.ndarray:
    """The values (n, ...) of a column; numbers keep the type in which they are stored."""
    inner = split.features[name]
    while isinstance(inner, list) or hasattr(inner, "feature"):
        inner = inner[0] if isinstance(inner, list) else inner.feature
    stored = str(getattr(inner, "dtype", None))
    kind = {"dtype": np.dtype(stored)} if stored in np.sctypeDict else {}
    try:
        values = np.asarray(split.select_columns([name]).with_format("numpy", **kind)[:][name])
    except Exception as error:  # also of a file that holds an image
        raise DataError(f"{where}: the column {name} cannot be read ({line_of(error)})") from error
    if values.dtype == object:
        values = np.array(values.tolist()) if isinstance(values[0], str) else values
    if values.dtype == object:
        raise DataError(f"{where}: the rows of the column {name} must be of one kind and shape")
    return values


def _divided(name: str, columns: Columns, test_fraction: float, **more: Any) -> Dataset:
    """The data set of all rows. The test set is the second file, or a random share of the only one."""
    x, y, who, rows = columns
    if len(rows) == 1:
        order = np.random.default_rng(0).permutation(len(y))
        count = max(1, round(exact(test_fraction) * len(y)))
        train, test = np.sort(order[count:]), np.sort(order[:count])
    else:
        train, test = np.arange(rows[0]), np.arange(rows[0], len(y))
    return from_arrays(
        name,
        *(part for at in (train, test) for part in (x[at], y[at])),
        client=None if who is None else who[train],
        test_client=None if who is None else who[test],
        **more,
    )


Columns = tuple[np.ndarray, np.ndarray, np.ndarray | None, list[int]]


def _columns(paths: Sequence[Path], target: str | None, user: str | None) -> Columns:
    """Features (n, f), targets (n,) and users (n,) of all files, concatenated, and the rows of each file."""
    import pandas as pd

    frames = [_frame(one) for one in paths]
    for one in frames:
        one.columns = one.columns.astype(str)
    target = frames[0].columns[-1] if target is None else target
    for path, one in zip(paths, frames, strict=True):
        _check([*one.columns], path, {"target": target, "user": user})
        if one[target].isna().any():
            row = int(np.flatnonzero(one[target].isna())[0])
            raise DataError(f"{path}: the target {target} is empty in row {row}")
    frame = pd.concat(frames, ignore_index=True)
    x = _features(frame, [target, user])
    who = None if user is None else frame[user].astype(str).to_numpy(dtype=str)
    return x, frame[target].to_numpy(), who, [len(one) for one in frames]


def _check(known: Sequence[str], where: Path | str, named: Mapping[str, str | None]) -> None:
    """Raise ConfigError if a key names a column that does not exist."""
    for key, name in named.items():
        if name is not None and name not in known:
            there = ", ".join(known[:20])
            raise ConfigError(f"dataset.{key}", name, f"must be a column of {where}: {there}", known)


def _features(frame: Any, others: Sequence[str | None]) -> np.ndarray:
    """Features (n, f) from all columns but `others`: numbers as they are, the rest one-hot."""
    import pandas as pd

    kept = frame.drop(columns=[name for name in others if name is not None])
    x: Any = pd.get_dummies(kept, dtype=float).to_numpy(dtype=np.float64)
    return np.asarray(x)


def _frame(path: Path) -> Any:
    import pandas as pd

    try:
        if {*path.suffixes} & _PARQUET:
            return pd.read_parquet(path)
        return pd.read_csv(path, sep="\t" if ".tsv" in path.suffixes else ",")
    except ImportError as error:
        raise DataError(f"{path}: needs pyarrow: pip install -e '.[tables]'") from error
    except Exception as error:  # pandas raises many kinds
        raise DataError(f"{path}: cannot be read as a table ({line_of(error)})") from error


def _libsvm(paths: Sequence[Path], target: str | None, user: str | None) -> Columns:
    """As `_columns`, for LIBSVM files, which have neither column names nor users."""
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
