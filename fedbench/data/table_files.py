"""Files of tables as columns: CSV, TSV, Parquet; and those without columns' names: LIBSVM, HDF5 of users."""

from __future__ import annotations

import csv
import importlib.util
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np

from fedbench.data.columns import TEXTS, Part, column, of_arrow, of_cells
from fedbench.data.files import refuse_too_large
from fedbench.errors import ConfigError, DataError, needs, refusing
from fedbench.files import files_below

CSV, PARQUET, HDF5, LIBSVM = "CSV", "Parquet", "HDF5", "LIBSVM"
_SEPARATORS = {".csv": ",", ".tsv": "\t"}
_ENDINGS = {".parquet": PARQUET, ".pq": PARQUET, ".h5": HDF5, ".hdf5": HDF5, ".hdf": HDF5}
_ENDINGS |= dict.fromkeys(_SEPARATORS, CSV)
_COMPRESSED = (".gz", ".bz2", ".xz", ".zip", ".zst")


def kind_of(path: Path) -> str:
    """CSV, Parquet, HDF5 or LIBSVM, by the last part of the name but one that says how the file is
    compressed. A directory is one of Parquet."""
    if path.is_dir():
        return PARQUET
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in _COMPRESSED:
        suffixes.pop()
    return _ENDINGS.get(suffixes[-1] if suffixes else "", LIBSVM)


def files_of(path: Path) -> list[Path]:
    """The files of a table: itself, or those of Parquet below a directory, by name. Raises DataError."""
    if not path.is_dir():
        return [path]
    for log in ("_delta_log/*", "_spark_metadata/*", ".hoodie/*", "metadata/*.metadata.json"):
        if said := next(path.glob(log), None):
            why = f"{said.relative_to(path)} says which of its files count, and only plain Parquet is read"
            raise DataError(f"{path}: {why}")
    inside = [file for file in files_below(path) if kind_of(file) == PARQUET]
    found = [file for file in inside if not any(part[0] in "._" for part in file.relative_to(path).parts)]
    if not found:
        raise DataError(f"{path}: is a directory without files *.parquet")
    return found


# ---- CSV --------------------------------------------------------------------------------------------------


def read_csv(path: Path, users: str | None, header: bool | None) -> Part:
    """The columns of a CSV or TSV file. Users stay as they are written: 007 is not 7. Raises ConfigError and
    DataError."""
    import pandas as pd

    lower = [suffix.lower() for suffix in path.suffixes]
    separator = next(_SEPARATORS[suffix] for suffix in lower[::-1] if suffix in _SEPARATORS)
    how: dict[str, Any] = {"sep": separator, "skipinitialspace": True, "encoding": "utf-8-sig"}
    how |= {"index_col": False, "na_filter": False}
    with refusing(f"{path}: cannot be read as a table"):
        first = pd.read_csv(path, nrows=1, dtype=str, header=None, **how)
        names = [str(name).strip() for name in first.iloc[0]]
        if header is False:
            names = [*map(str, range(len(names)))]
        _check_names(path, names, header)
        kinds = {users: str} if users in names else None
        how |= {"names": names, "dtype": kinds, "header": None if header is False else 0}
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)  # a row with more cells than names
            frame = pd.read_csv(path, low_memory=False, **how)
    columns = {name: of_cells(frame[name], as_text=name == users) for name in names}
    for name, cells in columns.items():
        if header is None and cells.kind == TEXTS and (cells.values == name).any():
            raise _unclear(path, name, "which its column holds too")
    skipped = int(header is not False)
    return Part(str(path), columns, len(frame), lambda row: _line(path, separator, row + skipped))


def _line(path: Path, separator: str, row: int) -> str:
    """Where a row of a CSV begins, counted as editors do: quoted cells may hold line breaks, and empty lines
    are no rows."""
    import pandas as pd

    plain: dict[str, Any] = {
        "sep": "\x1f",
        "quoting": csv.QUOTE_NONE,
        "skip_blank_lines": False,
        "na_filter": False,
    }
    lines = pd.read_csv(path, header=None, names=["line"], dtype=str, encoding="utf-8-sig", **plain).line
    reader, at, begun = csv.reader((f"{line}\n" for line in lines), delimiter=separator), -1, 1
    for cells in reader:
        at += cells not in ([], [""]) and bool("".join(cells).strip() or len(cells) > 1)
        if at == row:
            return f"line {begun}"
        begun = reader.line_num + 1
    return f"row {row}"


def _check_names(path: Path, names: Sequence[str], header: bool | None) -> None:
    """Raise ConfigError if the first row may be data, DataError if it gives two columns one name or none."""
    if header is None and (number := next(filter(is_number, names), None)) is not None:
        raise _unclear(path, number, "a number")
    for at, name in enumerate(names):
        if not name or name in names[:at]:
            fault = f"calls two columns {name}" if name else f"gives column {at} no name"
            raise DataError(f"{path}: the first row {fault}; each needs a name of its own")


def is_number(value: str) -> bool:
    """Whether a text is a plain number."""
    import pandas as pd

    return bool(pd.notna(pd.to_numeric(value, errors="coerce")))


def _unclear(path: Path, name: str, why: str) -> ConfigError:
    allowed = "say true if it has the columns' names, false if it is data and they are called 0, 1, ..."
    return ConfigError("dataset.header", None, f"the first row of {path} holds '{name}', {why}; {allowed}")


# ---- Parquet ----------------------------------------------------------------------------------------------


def read_parquet(path: Path, named: Sequence[str | None]) -> Part:
    """The columns of a Parquet file, or of all files of a directory one after the other, whose folders
    KEY=VALUE are further columns. `named`: columns that are kept even if pandas has written them as an index.

    The types are those of the file. What pandas has noted about them may be out of date. Raises DataError.
    """
    if importlib.util.find_spec("pyarrow") is None:
        raise DataError(f"{path}: {needs('pyarrow', 'tables')}")
    read = [_of_one_file(file, path, named) for file in files_of(path)]
    first = read[0]
    for part in read[1:]:
        if odd := sorted({*part.columns} ^ {*first.columns}):
            raise DataError(f"{part.where}: the column {odd[0]} is only here or only in {first.where}")
    return first if len(read) == 1 else joined(str(path), read)


def _of_one_file(file: Path, top: Path, named: Sequence[str | None]) -> Part:
    import pyarrow.parquet as pq

    with refusing(f"{file}: cannot be read as a table"):
        table = pq.ParquetFile(file).read()
        index = (table.schema.pandas_metadata or {}).get("index_columns", [])
        kept = [at for at, name in enumerate(table.column_names) if name not in index or name in named]
        names = [table.column_names[at] for at in kept]
        if twice := [name for at, name in enumerate(names) if name in names[:at]]:
            raise DataError(f"{file}: calls two columns {twice[0]}; each needs a name of its own")
        columns = {name: of_arrow(table.column(at)) for at, name in zip(kept, names, strict=True)}
    inside = file.relative_to(top).parts[:-1] if file != top else ()
    for key, _, value in (folder.partition("=") for folder in inside if "=" in folder):
        known = value != "__HIVE_DEFAULT_PARTITION__"
        cells = np.full(table.num_rows, unquote(value) if known else "", dtype=object)
        columns[key] = column(cells)
    return Part(str(file), columns, table.num_rows)


def joined(where: str, parts: Sequence[Part]) -> Part:
    """Parts with the same columns as one."""
    ends = np.cumsum([part.rows for part in parts])

    def place(row: int) -> str:
        at = int(np.searchsorted(ends, row, side="right"))
        return f"{parts[at].place(row - (int(ends[at - 1]) if at else 0))} of {Path(parts[at].where).name}"

    columns = {}
    for name in parts[0].columns:
        cells = [part.columns[name] for part in parts]
        same = len({column.values.dtype for column in cells}) == 1
        values = [column.values if same else np.array(column.values.tolist(), object) for column in cells]
        whole = column(np.concatenate(values), np.concatenate([column.empty for column in cells]))
        columns[name] = replace(whole, category=any(column.category for column in cells))
    return Part(where, columns, int(ends[-1]), place)


# ---- without names ----------------------------------------------------------------------------------------

Unnamed = tuple[list[np.ndarray], list[Part], str, list[np.ndarray] | None]
"""Samples of each part, the parts with the labels' column, its name, and the users of each part, if known."""


def read_libsvm(paths: Sequence[Path]) -> Unnamed:
    """Features (rows, f) and labels of LIBSVM files. Raises DataError."""
    from sklearn.datasets import load_svmlight_files

    with refusing(f"{paths[0]}: cannot be read as LIBSVM, CSV, Parquet or HDF5"):
        loaded = load_svmlight_files([*map(str, paths)])
    sparse, parts = loaded[::2], []
    for path, x, y in zip(paths, sparse, loaded[1::2], strict=True):
        if not x.shape[0] or not x.nnz:
            raise DataError(f"{path}: has no {'features' if x.shape[0] else 'rows'}")
        if (most := int(x.indices.max())) > (known := int(sparse[0].indices.max())):
            count = f"{most - known} more features than {paths[0]} has"
            raise DataError(f"{path}: has {count}; training could not know them")
        parts.append(Part(str(path), {"label": column(y)}, len(y)))
    refuse_too_large(paths[0], 8 * sum(x.shape[0] * x.shape[1] for x in sparse))
    return [x.toarray() for x in sparse], parts, "label", None


def read_hdf5(paths: Sequence[Path], target: str | None, drop: Sequence[str]) -> Unnamed:
    """Samples, labels and users of HDF5 files as TensorFlow Federated writes them: a group for each user,
    with an array of samples and one of labels; all of them at the top or in one group, `examples`. Raises
    ConfigError and DataError."""
    read = [_users_of(path, target, drop) for path in paths]
    for path, (name, *_) in zip(paths, read, strict=True):
        if name != read[0][0]:
            raise DataError(f"{path}: its samples are called {name}, those of {paths[0]} {read[0][0]}")
    label = str(target)
    parts = [
        Part(str(path), {label: column(y)}, len(y)) for path, (_, _, y, _) in zip(paths, read, strict=True)
    ]
    return [x for _, x, _, _ in read], parts, label, [who for *_, who in read]


def _users_of(
    path: Path, target: str | None, drop: Sequence[str]
) -> tuple[str, np.ndarray, np.ndarray, np.ndarray]:
    """The samples' name, samples, labels and users of one HDF5 file."""
    if importlib.util.find_spec("h5py") is None:
        raise DataError(f"{path}: {needs('h5py', 'hdf5')}")
    import h5py

    expected = "a group for each user, with its samples and labels, is expected"
    with refusing(f"{path}: cannot be read as HDF5"), h5py.File(path, "r") as file:
        users = file["examples"] if [*file] == ["examples"] else file
        if odd := next((name for name in users if not isinstance(users[name], h5py.Group)), None):
            raise DataError(f"{path}: {odd} is an array; {expected}")
        if not len(users):
            raise DataError(f"{path}: is empty; {expected}")
        names = sorted(users[next(iter(users))])
        if target is None or target not in names:
            allowed = f"must be the labels' array of each user in {path}: {', '.join(names)}"
            raise ConfigError("dataset.target", target, allowed, names)
        others = [name for name in names if name not in (target, *drop)]
        if len(others) != 1:
            allowed = f"must leave one array of samples: {', '.join(others) or 'none'} in {path}"
            raise ConfigError("dataset.drop", [*drop] or None, allowed)
        x, y, who = [], [], []
        for user in users:
            arrays = users[user]
            if sorted(arrays) != names or len(arrays[others[0]]) != len(arrays[target]):
                shapes = ", ".join(f"{name} {arrays[name].shape}" for name in arrays)
                raise DataError(
                    f"{path}: the user {user} has {shapes}; {', '.join(names)} of one length expected"
                )
            x.append(arrays[others[0]][()])
            y.append(arrays[target][()])
            if y[-1].dtype.kind not in "biuf" or y[-1].ndim != 1:
                kind = f"{y[-1].dtype} of shape {y[-1].shape}"
                raise DataError(f"{path}: the {target} of {user} is {kind}; a number per sample is expected")
            who += [user] * len(y[-1])
        return others[0], np.concatenate(x), np.concatenate(y), np.array(who)
