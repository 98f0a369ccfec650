"""Tables with a row per sample: CSV, TSV, Parquet and LIBSVM; and the rules by which columns become samples,
labels and users, which Hugging Face data sets share.

What a table does not say is refused: empty cells, a column of numbers and texts, labels or categories that
only the test set has.
"""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np

from fedbench.counting import exact
from fedbench.data.dataset import Dataset, from_arrays
from fedbench.data.files import file_record, refuse_too_large
from fedbench.data.options import Table
from fedbench.errors import ConfigError, DataError, needs, refusing

_SEPARATORS = {".csv": ",", ".tsv": "\t"}
_PARQUET = (".parquet", ".pq")
_COMPRESSED = (".gz", ".bz2", ".xz", ".zip", ".zst")
_NUMBER_SIGNS = r"[\s,$€£%']"  # what people write in numbers: "1,250", "3,5", "45 %"
CATEGORIES = 1000
"""A column with more different texts than this is no category."""


@dataclass(frozen=True)
class Part:
    """The rows of one file or split: a pandas DataFrame, and its name in error lines."""

    where: str
    frame: Any

    def numbers(self, name: str) -> Any:
        """The column as float64 (rows,), or None if it holds texts. Raises DataError if it is neither."""
        import pandas as pd

        column = self.frame[name]
        if isinstance(column.dtype, pd.CategoricalDtype):
            return None
        if column.dtype == object and all(isinstance(value, Decimal) for value in column):
            column = column.astype(float)
        if pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_complex_dtype(column):
            return column.to_numpy(dtype=np.float64, copy=True)
        for value in column:
            if not isinstance(value, str):
                raise self.holds(name, f"a {type(value).__name__}; numbers or texts are expected")
        return None

    def mixed(self, name: str) -> tuple[str, str] | None:
        """A number and another text of a column of texts; None if it does not have both. Of another notation
        ("1,5") the number is called as it is written."""
        import pandas as pd

        texts = pd.Series(self.frame[name].astype(str).unique())
        numbers = pd.to_numeric(texts, errors="coerce").notna()
        signed = pd.to_numeric(texts.str.replace(_NUMBER_SIGNS, "", regex=True), errors="coerce").notna()
        if numbers.all() or not signed.any():
            return None
        return texts[signed].iloc[0], next(iter(texts[~signed]), texts[~numbers].iloc[0])

    def refuse_mixed(self, name: str) -> None:
        """Raise DataError if a column of texts holds a number."""
        if (both := self.mixed(name)) is not None:
            number, text = both
            what = f"the number '{number}' and the text '{text}'"
            if number == text or not _is_number(number):
                what = f"'{number}', which is no plain number"
            raise self.holds(name, f"{what}; numbers or texts are expected")

    def holds(self, name: str, what: str) -> DataError:
        """The error for a column that holds something else than it should."""
        return DataError(f"{self.where}: the column {name} holds {what}")


def load_table(options: Table, path: Path, test_path: Path | None) -> Dataset:
    """Load a data set from a table. `test_path`: the table of the test set; None: the test set is
    `options.test_fraction` of the rows, drawn at random, the same for every seed.

    Classes are the target's sorted values. All columns but target and user are features: numbers as they are,
    the rest one-hot. A file that is neither CSV nor Parquet by its name is read as LIBSVM, which has none.
    Raises ConfigError and DataError.
    """
    paths = [path, *([test_path] if test_path else [])]
    kinds = [_kind(file) for file in paths]
    if len({*kinds}) > 1:
        raise ConfigError("dataset.test_path", str(test_path), f"must be {kinds[0]}, as {path} is")
    read = _libsvm if kinds[0] == "LIBSVM" else _columns
    x, parts, target, who = read(paths, options)
    y, fields = targets_of(parts, target, options.task)
    files = tuple(map(file_record, paths))
    return divided("table", x, y, who, options.test_fraction, files=files, where=path, **fields)


Samples = list[np.ndarray]  # an array for each part
Read = tuple[Samples, list[Part], str, Samples | None]


def _columns(paths: Sequence[Path], options: Table) -> Read:
    """Features (rows, f), the parts, the target's name, and users (rows,) of CSV, TSV or Parquet files."""
    target, user = options.target, options.user
    if options.header is not None and _kind(paths[0]) == "Parquet":
        allowed = f"must be null: {paths[0]} has its columns' names (Parquet)"
        raise ConfigError("dataset.header", options.header, allowed)
    parts = [Part(str(path), _frame(path, user, options.header)) for path in paths]
    names = [*parts[0].frame.columns]
    for part in parts:
        known = [*part.frame.columns]
        for key, name in (("target", target), ("user", user)):
            if name is not None and name not in known:
                raise no_column(key, name, part.where, known)
        if odd := sorted({*known} ^ {*names}):
            raise DataError(f"{part.where}: the column {odd[0]} is only here or only in {parts[0].where}")
    if target is None:
        allowed = f"say which column of {paths[0]} is to be predicted: {', '.join(names[:20])}"
        raise ConfigError("dataset.target", None, allowed)
    refuse_empty(parts)
    x = features_of(parts, [target, user])
    return x, parts, target, None if user is None else users_of(parts, user)


def no_column(key: str, name: str, where: str, known: Sequence[str]) -> ConfigError:
    """The error for a key that names a column which does not exist."""
    return ConfigError(f"dataset.{key}", name, f"must be a column of {where}: {', '.join(known[:20])}", known)


def refuse_empty(parts: Sequence[Part]) -> None:
    """Raise DataError if a part has no rows, or a cell is empty: null, or a text without letters."""
    import pandas as pd

    for part in parts:
        if not len(part.frame):
            raise DataError(f"{part.where}: has no rows")
        for name in part.frame.columns:
            column = part.frame[name]
            empty = column.isna().to_numpy()
            if not pd.api.types.is_numeric_dtype(column):
                empty = empty | (column.astype(str).str.strip() == "").to_numpy()
            if empty.any():
                raise DataError(f"{part.where}: the column {name} is empty in row {int(empty.argmax())}")


def users_of(parts: Sequence[Part], name: str) -> Samples:
    """The user of every row, as text: names as they are, whole numbers without a point. Raises DataError."""
    users = []
    for part in parts:
        try:
            numbers = part.numbers(name)
        except DataError:  # dates, for example
            numbers = None
        if numbers is not None and not (numbers == np.floor(numbers)).all():
            raise part.holds(name, f"{numbers[0]}; users are names or integers")
        column = part.frame[name] if numbers is None else numbers.astype(np.int64)
        users.append(np.array([*map(str, column)]))
    return users


def features_of(parts: Sequence[Part], others: Sequence[str | None]) -> Samples:
    """Features (rows, f) of each part, from all columns but `others`: first the numbers as they are, then the
    texts one-hot, sorted. Raises DataError if a column is not clearly one or the other."""
    import pandas as pd

    names = [name for name in parts[0].frame.columns if name not in others]
    if not names:
        only = f"only the column {', '.join(parts[0].frame.columns)}"
        needed = "one for the features is needed (separated by commas?)"
        raise DataError(f"{parts[0].where}: has {only}; {needed}")
    columns: dict[str, Any] = {}
    texts, width = [], 0
    for name in names:
        numbers = _all_numbers(parts, name)
        if numbers is not None:
            columns[name] = np.concatenate(numbers)
            width += 1
            continue
        for part in parts:
            part.refuse_mixed(name)
        own = [part.frame[name].astype(str) for part in parts]
        refuse_new(parts, name, [values.to_numpy() for values in own])
        if (different := own[0].nunique()) > CATEGORIES:
            why = f"has {different:,} different texts; at most {CATEGORIES:,} become features"
            raise DataError(f"{parts[0].where}: the column {name} {why}")
        columns[name] = pd.concat(own, ignore_index=True).to_numpy()
        texts.append(name)
        width += different
    rows = [len(part.frame) for part in parts]
    refuse_too_large(parts[0].where, 8 * sum(rows) * width)
    x = pd.get_dummies(pd.DataFrame(columns), columns=texts, dtype=float).to_numpy(dtype=np.float64)
    return np.split(x, np.cumsum(rows)[:-1])


def _all_numbers(parts: Sequence[Part], name: str) -> list[Any] | None:
    """A column's numbers in each part, or None if it holds texts. Raises DataError if it differs by part."""
    numbers = [part.numbers(name) for part in parts]
    kinds = ["texts" if column is None else "numbers" for column in numbers]
    if len({*kinds}) > 1:
        raise parts[1].holds(name, f"{kinds[1]}, that of {parts[0].where} {kinds[0]}")
    return None if numbers[0] is None else numbers


def _is_number(value: str) -> bool:
    import pandas as pd

    return bool(pd.notna(pd.to_numeric(value, errors="coerce")))


def refuse_new(parts: Sequence[Part], name: str, values: Samples) -> None:
    """Raise DataError if a value of a column is in the test part only: training could not know it."""
    for part, own in zip(parts[1:], values[1:], strict=True):
        new = ~np.isin(own, values[0])
        if new.any():
            raise part.holds(name, f"{own[new][0]}, which {parts[0].where} does not have")


def targets_of(parts: Sequence[Part], name: str, task: str | None) -> tuple[Samples, dict[str, Any]]:
    """Labels (rows,) int64 or targets (rows,) float64 of each part, and the `Dataset`'s fields that follow:
    its task, the number of classes and what the data call them.

    Classes are the sorted values, numbers as numbers. Raises ConfigError and DataError.
    """
    own = numbers = _all_numbers(parts, name)
    if task is None:
        task = _task_of(parts, name, numbers)
    if task == "regression":
        if numbers is None:
            raise parts[0].holds(name, "texts; regression needs numbers")
        return numbers, {"task": task, "classes": None}
    if own is None:
        own = [part.frame[name].astype(str).to_numpy(str) for part in parts]
    refuse_new(parts, name, own)
    labels, y = np.unique(np.concatenate(own), return_inverse=True)
    names = [int(v) if isinstance(v, float) and v.is_integer() else v for v in labels.tolist()]
    fields = {"task": task, "classes": len(names), "labels": tuple(names)}
    return np.split(y, np.cumsum([*map(len, own)])[:-1]), fields


def _task_of(parts: Sequence[Part], name: str, numbers: list[Any] | None) -> str:
    """Classification, where the values can be nothing but classes: texts, two different numbers, or 0 or 1 to
    C without a gap and each more than once on average. Else the user has to say."""
    unclear = None
    if numbers is None:
        for both in filter(None, (part.mixed(name) for part in parts)):
            unclear = f"'{both[0]}' and '{both[1]}'"
    else:
        values = np.unique(numbers[0])
        whole = np.array_equal(values, np.arange(len(values)) + values[0]) and values[0] in (0, 1)
        if len(values) > 2 and not (whole and 2 * len(values) <= len(numbers[0])):
            unclear = f"{len(values):,} different numbers, such as {values[-1]:g}"
    if unclear:
        allowed = f"say classification or regression: the target {name} of {parts[0].where} holds {unclear}"
        raise ConfigError("dataset.task", None, allowed)
    return "classification"


def divided(
    name: str, x: Samples, y: Samples, who: Samples | None, test_fraction: float, **more: Any
) -> Dataset:
    """The data set of all rows. The test set is the second part, or a random share of the only one."""
    if len(x) == 1:
        order = np.random.default_rng(0).permutation(len(y[0]))
        count = max(1, round(exact(test_fraction) * len(order)))
        if count == len(order):
            raise DataError(f"{more['where']}: has {count} rows; at least one more for training is needed")
        parts = np.sort(order[count:]), np.sort(order[:count])
        x, y = ([whole[0][at] for at in parts] for whole in (x, y))
        who = who and [who[0][at] for at in parts]
    client, test_client = who or (None, None)
    return from_arrays(name, x[0], y[0], x[1], y[1], client=client, test_client=test_client, **more)


def _kind(path: Path) -> str:
    """CSV, Parquet or LIBSVM, by the last part of the name but one that says how the file is compressed."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in _COMPRESSED:
        suffixes.pop()
    last = suffixes[-1] if suffixes else ""
    return "CSV" if last in _SEPARATORS else "Parquet" if last in _PARQUET else "LIBSVM"


def _frame(path: Path, user: str | None, header: bool | None) -> Any:
    """The table of a file. Users stay as they are written: 007 is not 7."""
    import pandas as pd

    with refusing(f"{path}: cannot be read as a table"):
        if _kind(path) == "Parquet":
            if importlib.util.find_spec("pyarrow") is None:
                raise DataError(f"{path}: {needs('pyarrow', 'tables')}")
            frame = pd.read_parquet(path)
            frame.columns = frame.columns.astype(str)
            return frame
        lower = [suffix.lower() for suffix in path.suffixes]
        separator = next(_SEPARATORS[suffix] for suffix in lower[::-1] if suffix in _SEPARATORS)
        how: dict[str, Any] = {"sep": separator, "skipinitialspace": True, "encoding": "utf-8-sig"}
        how |= {"index_col": False, "header": None}
        first = pd.read_csv(path, nrows=1, dtype=str, keep_default_na=False, **how)
        names = [str(name).strip() for name in first.iloc[0]]
        if header is False:
            names = [*map(str, range(len(names)))]
        _check_names(path, names, header)
        kinds = {user: str} if user in names else None
        how |= {"names": names, "dtype": kinds, "skiprows": 0 if header is False else 1, "low_memory": False}
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)  # a row with more cells than names
            frame = pd.read_csv(path, **how)
    for name in frame.columns:  # spaces after a cell's text are no part of it
        if not pd.api.types.is_numeric_dtype(frame[name]):
            frame[name] = frame[name].str.strip()
            if header is None and (frame[name] == name).any():
                raise _unclear(path, name, "which its column holds too")
    return frame


def _check_names(path: Path, names: Sequence[str], header: bool | None) -> None:
    """Raise ConfigError if the first row may be data, DataError if it gives two columns one name or none."""
    if header is None and (number := next(filter(_is_number, names), None)) is not None:
        raise _unclear(path, number, "a number")
    for at, name in enumerate(names):
        if not name or name in names[:at]:
            fault = f"calls two columns {name}" if name else f"gives column {at} no name"
            raise DataError(f"{path}: the first row {fault}; each needs a name of its own")


def _unclear(path: Path, name: str, why: str) -> ConfigError:
    allowed = "say true if it has the columns' names, false if it is data and they are called 0, 1, ..."
    return ConfigError("dataset.header", None, f"the first row of {path} holds '{name}', {why}; {allowed}")


def _libsvm(paths: Sequence[Path], options: Table) -> Read:
    """As `_columns`, for LIBSVM files, which have neither column names nor users."""
    import pandas as pd
    from sklearn.datasets import load_svmlight_files

    for key in ("target", "user", "header"):
        if (value := getattr(options, key)) is not None:
            raise ConfigError(f"dataset.{key}", value, f"must be null: {paths[0]} has no names (LIBSVM)")
    with refusing(f"{paths[0]}: cannot be read as LIBSVM, CSV or Parquet"):
        loaded = load_svmlight_files([*map(str, paths)])
    sparse, parts = loaded[::2], []
    for path, x, y in zip(paths, sparse, loaded[1::2], strict=True):
        if not x.shape[0] or not x.nnz:
            raise DataError(f"{path}: has no {'features' if x.shape[0] else 'rows'}")
        if (most := int(x.indices.max())) > (known := int(sparse[0].indices.max())):
            count = f"{most - known} more features than {paths[0]} has"
            raise DataError(f"{path}: has {count}; training could not know them")
        parts.append(Part(str(path), pd.DataFrame({"label": y})))
    refuse_too_large(paths[0], 8 * sum(x.shape[0] * x.shape[1] for x in sparse))
    return [x.toarray() for x in sparse], parts, "label", None
