"""Tables with a row per sample: the rules by which columns become samples, labels and users, which Hugging
Face data sets share.

What a table does not say is refused: empty cells, a column of numbers and texts, labels or categories that
only the test set has, a text that says nothing about another row.
"""

from __future__ import annotations

import re
from collections.abc import Container, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedbench.counting import exact
from fedbench.data import table_files as files
from fedbench.data.columns import NUMBERS, TEXTS, Name, Part
from fedbench.data.dataset import Dataset, Feature, from_arrays
from fedbench.data.files import file_record, refuse_too_large
from fedbench.data.options import Table
from fedbench.data.table_files import is_number
from fedbench.errors import ConfigError, DataError, some_of

_NUMBER_SIGNS = r"[\s,$€£%']"  # what people write in numbers: "1,250", "3,5", "45 %"
_DATE = re.compile(r"(\d{4}[-/.]\d\d?[-/.]\d\d?|\d\d?[-/.]\d\d?[-/.]\d{4})([T ]\d\d?:\d\d.*)?")
_SORTED_DATE = re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d.*)?$")  # texts of these are in order
_DAYS = ("a Timestamp", "a date")  # kinds of columns that may name a user, but are no features
CATEGORIES = 1000
"""A column with more different texts than this is no category."""
FEW = 20
"""A column with up to as many different texts is a category, however few rows there are; with more, each has
to stand in two rows on average."""

_WITHOUT = {
    files.PARQUET: (("header",), "has its columns' names"),
    files.LIBSVM: (("target", "user", "header", "drop", "split_column"), "has no names"),
    files.HDF5: (("user", "header", "split_column"), "has a group for each user"),
}
"""Keys that a kind of file does not have, and why."""

Samples = list[np.ndarray]  # an array for each part


def load_table(options: Table, path: Path, test_path: Path | None) -> Dataset:
    """Load a data set from a table. `test_path`: the table of the test set; None: the test set is
    `options.test_fraction` of the rows, drawn at random, the same for every seed.

    Classes are the target's sorted values. All columns but target and user are features: numbers as they are,
    the rest one-hot. A file that is neither CSV, Parquet nor HDF5 by its name is read as LIBSVM, which has no
    names. Raises ConfigError and DataError.
    """
    paths = [path, *([test_path] if test_path else [])]
    kinds = [files.kind_of(file) for file in paths]
    if len({*kinds}) > 1:
        raise ConfigError("dataset.test_path", str(test_path), f"must be {kinds[0]}, as {path} is")
    if test_path and options.split_column is not None:
        allowed = f"must be null: dataset.test_path={test_path} is the test set"
        raise ConfigError("dataset.split_column", options.split_column, allowed)
    if test_path:
        no_fraction(options.test_fraction, f"dataset.test_path={test_path} is the test set")
    kind, more = kinds[0], dict[str, Any]()
    keys, why = _WITHOUT.get(kind, ((), ""))
    for key in keys:
        if (value := getattr(options, key)) is not None:
            raise ConfigError(f"dataset.{key}", value, f"must be null: {path} {why} ({kind})")
    if kind in (files.CSV, files.PARQUET):
        x, parts, target, who, more["features"] = _columns(paths, options, kind)
        if (split := options.split_column) is not None:
            more["tests"] = tests_by(parts[0], split, who[0] if who else None, options.test_fraction)
    else:
        x, parts, target, who = (
            files.read_libsvm(paths)
            if kind == files.LIBSVM
            else files.read_hdf5(paths, options.target, options.drop or ())
        )
        refuse_empty(parts)
    y, fields = targets_of(parts, target, options.task)
    fields["files"] = tuple(file_record(file) for path in paths for file in files.files_of(path))
    return divided("table", x, y, who, options.test_fraction, where=path, **fields, **more)


def _columns(
    paths: Sequence[Path], options: Table, kind: str
) -> tuple[Samples, list[Part], str, Samples | None, tuple[Feature, ...]]:
    """Features (rows, f), the parts, the target's name, users (rows,), and what the features are, of CSV, TSV
    or Parquet files."""
    target, user, split = options.target, options.user, options.split_column
    if kind == files.PARQUET:
        parts = [files.read_parquet(path, (target, user, split)) for path in paths]
    else:
        parts = [files.read_csv(path, user, options.header) for path in paths]
    refuse_unknown(parts, {"target": target, "user": user, "split_column": split, "drop": options.drop})
    parts = [without(part, options.drop) for part in parts]
    names = [*parts[0].columns]
    for part in parts:
        if odd := sorted({*part.columns} ^ {*names}):
            raise DataError(f"{part.where}: the column {odd[0]} is only here or only in {parts[0].where}")
    if target is None:
        allowed = f"say which column of {paths[0]} is to be predicted: {some_of(names)}"
        raise ConfigError("dataset.target", None, allowed)
    refuse_empty(parts)
    x, features = features_of(parts, [target, user, split])
    return x, parts, target, None if user is None else users_of(parts, user), features


def refuse_unknown(parts: Sequence[Part], named: dict[str, Any]) -> None:
    """Raise ConfigError if a key of `dataset` names a column, or a list of them, that a part does not have,
    or drops one that another key names."""
    for part in parts:
        known = [*part.columns]
        for key, value in named.items():
            for name in value if isinstance(value, list | tuple) else [value]:
                if name is not None and name not in known:
                    raise no_column(key, value, part.where, known)
    for key, value in named.items():
        if key != "drop" and value is not None and value in (named.get("drop") or ()):
            raise ConfigError("dataset.drop", named["drop"], f"must not have dataset.{key}={value}")


def no_column(key: str, name: Any, where: str, known: Sequence[str]) -> ConfigError:
    """The error for a key that names a column which does not exist."""
    some = "columns" if isinstance(name, list | tuple) else "a column"
    return ConfigError(f"dataset.{key}", name, f"must be {some} of {where}: {some_of(known)}", known)


def without(part: Part, names: Sequence[str] | None) -> Part:
    """A part without some columns."""
    kept = {name: column for name, column in part.columns.items() if name not in (names or ())}
    return Part(part.where, kept, part.rows, part.place)


def refuse_empty(parts: Sequence[Part]) -> None:
    """Raise DataError if a part has no rows, or cells are empty: null, or a text without letters. It names
    every column that has some, and the first place of each."""
    for part in parts:
        if not part.rows:
            raise DataError(f"{part.where}: has no rows")
        said = []
        for name, column in part.columns.items():
            if count := int(column.empty.sum()):
                more = f" and {count - 1:,} more" if count > 1 else ""
                said.append(f"the column {name} is empty in {part.place(int(column.empty.argmax()))}{more}")
        if said:
            raise DataError(f"{part.where}: {'; '.join(said)} (fedbench/README.md: Empty cells)")


def users_of(parts: Sequence[Part], name: str) -> Samples:
    """The user of every row, as text: names as they are, whole numbers without a point. Raises DataError."""
    users = []
    for part in parts:
        if (kind := part.columns[name].kind) not in (NUMBERS, TEXTS, *_DAYS):
            raise part.holds(name, f"{kind}; users are names or integers")
        found, index = part.distinct(name)
        if odd := [user for user in found if isinstance(user, float)]:
            raise part.holds(name, f"{odd[0]}; users are names or integers")
        users.append(np.array([*map(str, found)])[index])
    return users


def features_of(parts: Sequence[Part], others: Sequence[str | None]) -> tuple[Samples, tuple[Feature, ...]]:
    """Features (rows, f) of each part, from all columns but `others`: first the numbers as they are, then the
    texts one-hot, sorted; and what they are. Raises DataError if a column is not clearly one or the other."""
    train = parts[0]
    names = [name for name in train.columns if name not in others]
    if not names:
        only = f"only the column {', '.join(train.columns)}"
        needed = "one for the features is needed (separated by commas?)"
        raise DataError(f"{train.where}: has {only}; {needed}")
    texts = [name for name in names if not train.has_numbers(name)]
    features: list[Feature] = [(name, None) for name in names if name not in texts]
    for part in parts:
        refuse_mixed(part, texts)
    for name in texts:
        features += [(name, category) for category in _categories(train, name)]
    refuse_too_large(train.where, 8 * sum(part.rows for part in parts) * len(features))
    return [encoded(part, features, train.where) for part in parts], (*features,)


def _categories(part: Part, name: str) -> list[str]:
    """The categories of a column, in order. Raises DataError for a column of dates, or of so many different
    texts that they say nothing about another row."""
    categories = [str(value) for value in part.distinct(name)[0]]
    leave = f"dataset.drop=[{name}] leaves it out"
    if part.columns[name].kind == TEXTS and all(map(_DATE.fullmatch, categories)):
        raise part.holds(
            name, f"dates, such as '{categories[0]}'; numbers or texts are expected, and {leave}"
        )
    if (count := len(categories)) > CATEGORIES:
        why = f"has {count:,} different texts; at most {CATEGORIES:,} become features, and {leave}"
        raise DataError(f"{part.where}: the column {name} {why}")
    if count > max(FEW, part.rows / 2):
        why = f"has {count:,} different texts in {part.rows:,} rows, such as '{categories[0]}'; {leave}"
        raise DataError(f"{part.where}: the column {name} {why}")
    return categories


def encoded(part: Part, features: Sequence[Feature], like: str) -> np.ndarray:
    """The features (rows, f) float64 of a part: a column's numbers, or 1 where it holds the feature's
    category. `like`: what the training data are called. Raises DataError if a column holds something else
    than there."""
    x = np.zeros((part.rows, len(features)))
    places: dict[str, dict[str, int]] = {}
    for at, (name, category) in enumerate(features):
        if part.has_numbers(name) != (category is None):
            kinds = ("texts", "numbers") if category is None else ("numbers", "texts")
            raise part.holds(name, f"{kinds[0]}, that of {like} {kinds[1]}")
        if category is None:
            x[:, at] = part.floats(name)
        else:
            places.setdefault(name, {})[category] = at
    for name, place in places.items():
        found, index = part.distinct(name)
        refuse_new(part, name, [str(value) for value in found], index, place, like)
        x[np.arange(part.rows), np.array([place[str(value)] for value in found])[index]] = 1
    return x


def refuse_new(
    part: Part, name: str, found: Sequence[Name], index: np.ndarray, known: Container[Name], like: str
) -> None:
    """Raise DataError if a column has a value that the training data do not have: nothing is known of it.
    `found`, `index`: as `Part.distinct` returns them."""
    new = np.array([value not in known for value in found])
    if new.any():
        row = int(new[index].argmax())
        raise part.holds(name, f"{found[index[row]]}, which {like} does not have ({part.place(row)})")


def refuse_mixed(part: Part, names: Sequence[str]) -> None:
    """Raise DataError if columns of texts hold numbers, as where missing ones are written `?` or `NA`. It
    names all of them."""
    said = []
    for name, (number, text) in ((name, both) for name in names if (both := _mixed(part, name))):
        what = f"the number '{number}' and the text '{text}'"
        if number == text or not is_number(number):
            what = f"'{number}', which is no plain number"
        said.append(f"the column {name} holds {what}")
    if said:
        raise DataError(f"{part.where}: {'; '.join(said)}; numbers or texts are expected")


def _mixed(part: Part, name: str) -> tuple[str, str] | None:
    """A number and another text of a column of texts, the first of each; None if it does not have both. Of
    another notation ("1,5") the number is called as it is written."""
    import pandas as pd

    if part.columns[name].kind != TEXTS:
        return None
    texts = pd.Series(pd.unique(part.columns[name].values))
    numbers = pd.to_numeric(texts, errors="coerce").notna()
    signed = pd.to_numeric(texts.str.replace(_NUMBER_SIGNS, "", regex=True), errors="coerce").notna()
    if numbers.all() or not signed.any():
        return None
    return texts[signed].iloc[0], next(iter(texts[~signed]), texts[~numbers].iloc[0])


def targets_of(parts: Sequence[Part], name: str, task: str | None) -> tuple[Samples, dict[str, Any]]:
    """Labels (rows,) int64 or targets (rows,) float64 of each part, and the `Dataset`'s fields that follow:
    its task, the number of classes and what the data call them.

    Classes are the sorted values, numbers as numbers. Raises ConfigError and DataError.
    """
    train = parts[0]
    numbers = [part.has_numbers(name) or part.columns[name].kind == NUMBERS for part in parts]
    if len({*numbers}) > 1:
        kinds = ["numbers" if number else "texts" for number in numbers]
        raise parts[1].holds(name, f"{kinds[1]}, that of {train.where} {kinds[0]}")
    if task is None:
        task = _task_of(parts, name)
    if task == "regression":
        if not numbers[0]:
            raise train.holds(name, "texts; regression needs numbers")
        return [part.floats(name) for part in parts], {"task": task, "classes": None}
    own = [part.distinct(name) for part in parts]
    labels = own[0][0]
    place: dict[Name, int] = {label: at for at, label in enumerate(labels)}
    for part, (found, index) in zip(parts, own, strict=True):
        refuse_new(part, name, found, index, place, train.where)
    y = [np.array([place[label] for label in found])[index] for found, index in own]
    return y, {"task": task, "classes": len(labels), "labels": (*labels,)}


def _task_of(parts: Sequence[Part], name: str) -> str:
    """Classification, where the values can be nothing but classes: texts, two different numbers, or 0 or 1 to
    C without a gap and each more than once on average. Else the user has to say."""
    unclear, column = None, parts[0].columns[name]
    if column.kind == TEXTS:
        for both in filter(None, (_mixed(part, name) for part in parts)):
            unclear = f"'{both[0]}' and '{both[1]}'"
    else:
        values = np.unique(column.floats)
        whole = np.array_equal(values, np.arange(len(values)) + values[0]) and values[0] in (0, 1)
        if len(values) > 2 and not (whole and 2 * len(values) <= len(column.values)):
            unclear = f"{len(values):,} different numbers, such as {values[-1]:g}"
    if unclear:
        allowed = f"say classification or regression: the target {name} of {parts[0].where} holds {unclear}"
        raise ConfigError("dataset.task", None, allowed)
    return "classification"


def tests_by(part: Part, name: str, who: np.ndarray | None, fraction: float) -> np.ndarray:
    """Which rows (rows,) of a part are for the test, by a column: those with `test` where it has `train` and
    `test`; else the last share of each user's, by number or date. A user's only row is trained on. Raises
    ConfigError and DataError."""
    column, kinds = part.columns[name], ("train", "test")
    said = [*map(str, part.distinct(name)[0])] if column.kind == TEXTS else []
    if said and {*said} <= {*kinds}:
        if len(said) < 2:
            raise part.holds(name, f"{said[0]} alone; rows to train on and rows to test on are needed")
        no_fraction(fraction, f"the column {name} says which rows are for the test")
        return np.asarray(column.values == "test")
    if column.kind not in (NUMBERS, *_DAYS) and not (said and all(map(_SORTED_DATE.match, said))):
        such = f", such as '{said[0]}'" if said else ""
        raise part.holds(
            name, f"{column.kind}{such}; train and test, numbers or dates (2024-12-31) are expected"
        )
    order, tests = np.argsort(column.values, kind="stable"), np.zeros(part.rows, dtype=bool)
    users = np.zeros(part.rows, dtype=int) if who is None else np.unique(who, return_inverse=True)[1]
    for user in range(int(users.max()) + 1):
        own = order[users[order] == user]
        count = min(max(1, round(exact(fraction) * len(own))), len(own) - 1)
        tests[own[len(own) - count :]] = True
    return tests


def no_fraction(fraction: float, why: str) -> None:
    """Refuse a share of the rows where something else is the test set. Raises ConfigError."""
    if fraction != (usual := Table.test_fraction):
        allowed = f"must be left at its default, {usual}: {why}"
        raise ConfigError("dataset.test_fraction", fraction, allowed)


def divided(
    name: str,
    x: Samples,
    y: Samples,
    who: Samples | None,
    test_fraction: float,
    tests: np.ndarray | None = None,
    **more: Any,
) -> Dataset:
    """The data set of all rows. The test set is the second part, or of the only one the rows `tests` (rows,),
    else a random share."""
    if len(x) == 1 and tests is None:
        order = np.random.default_rng(0).permutation(len(y[0]))
        count = max(1, round(exact(test_fraction) * len(order)))
        if count == len(order):
            raise DataError(f"{more['where']}: has {count} rows; at least one more for training is needed")
        tests = np.isin(np.arange(len(order)), order[:count])
    if tests is not None:
        parts = np.flatnonzero(~tests), np.flatnonzero(tests)
        x, y = ([whole[0][at] for at in parts] for whole in (x, y))
        who = who and [who[0][at] for at in parts]
    client, test_client = who or (None, None)
    return from_arrays(name, x[0], y[0], x[1], y[1], client=client, test_client=test_client, **more)
