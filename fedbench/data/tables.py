"""Tables, a row per sample: CSV, Parquet, LIBSVM; Hugging Face's data sets, which are tables too."""

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
    classes = int(y.max()) + 1 if task == "classification" else None
    files = tuple(file_record(one) for one in paths)
    return _divided(
        "table", (x, y, who, rows), test_fraction, task=task, classes=classes, files=files, where=path
    )


def load_hf(options: HuggingFace) -> Dataset:
    """A data set of Hugging Face's: a directory that its save_to_disk wrote, else by its name.

    Classes are those of a ClassLabel, else the target's values, sorted. Without a column of samples all but
    target and user are features, as in a table. Raises ConfigError and DataError.
    """
    import pandas as pd

    where = as_given(options.path)
    splits = _splits(options, where)
    named = {"x": options.x, "target": options.target, "user": options.user}
    _check(splits[0].column_names, options.path, named)
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
    """The splits to train and, where it is one of its own, to test on."""
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
    except Exception as error:  # the library has many, and a network
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
    """The values (n, ...) of a column, numbers in the type that they are stored in."""
    inner = split.features[name]
    while isinstance(inner, list) or hasattr(inner, "feature"):
        inner = inner[0] if isinstance(inner, list) else inner.feature
    stored = str(getattr(inner, "dtype", None))
    kind = {"dtype": np.dtype(stored)} if stored in np.sctypeDict else {}
    try:
        values = np.asarray(split.select_columns([name]).with_format("numpy", **kind)[:][name])
    except Exception as error:  # of a file that an image is in, too
        raise DataError(f"{where}: the column {name} cannot be read ({line_of(error)})") from error
    if values.dtype == object:
        values = np.array(values.tolist()) if isinstance(values[0], str) else values
    if values.dtype == object:
        raise DataError(f"{where}: the rows of the column {name} must be of one kind and shape")
    return values


def _divided(name: str, columns: Columns, test_fraction: float, **more: Any) -> Dataset:
    """The data set of all rows: the second file's are for the test, or a share, drawn at random."""
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
    """Features (n, f), targets (n,), users (n,) of all files, one behind the other, and their rows."""
    import pandas as pd

    frames = [_frame(one) for one in paths]
    frame = pd.concat(frames, ignore_index=True)
    known = [str(name) for name in frame.columns]
    frame.columns = pd.Index(known)
    target = known[-1] if target is None else target
    _check(known, paths[0], {"target": target, "user": user})
    if frame[target].isna().any():
        row = int(np.flatnonzero(frame[target].isna())[0])
        raise DataError(f"{paths[0]}: the target {target} is empty in row {row}")
    x = _features(frame, [target, user])
    who = None if user is None else frame[user].astype(str).to_numpy(dtype=str)
    return x, frame[target].to_numpy(), who, [len(one) for one in frames]


def _check(known: Sequence[str], where: Path | str, named: Mapping[str, str | None]) -> None:
    """Raise ConfigError for a key that names no column."""
    for key, name in named.items():
        if name is not None and name not in known:
            there = ", ".join(known[:20])
            raise ConfigError(f"dataset.{key}", name, f"must be a column of {where}: {there}", known)


def _features(frame: Any, others: Sequence[str | None]) -> np.ndarray:
    """(n, f) of all columns but `others`: numbers as they are, others one-hot."""
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
