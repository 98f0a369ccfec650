"""Data sets of Hugging Face's library `datasets`, on the disk or by their name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from fedbench.data.columns import Name, Part, column, of_arrow
from fedbench.data.dataset import Dataset, Feature
from fedbench.data.files import file_record
from fedbench.data.images import of_images
from fedbench.data.options import HuggingFace
from fedbench.data.tables import (
    Samples,
    divided,
    features_of,
    no_column,
    no_fraction,
    refuse_empty,
    targets_of,
    users_of,
)
from fedbench.errors import ConfigError, DataError, needs, refusing
from fedbench.files import as_given, files_below


def load_hf(options: HuggingFace) -> Dataset:
    """Load a Hugging Face data set, from a directory that save_to_disk wrote or by its name.

    Classes are those of the training split's ClassLabel, by name, else the target's sorted values. If no
    column holds the samples, all columns but target and user are features, as in a table. Raises ConfigError
    and DataError.
    """
    where = as_given(options.path)
    splits = _splits(options, where)
    if options.test is not None:
        no_fraction(options.test_fraction, f"dataset.test={options.test} is the test set")
    drop = options.drop or ()
    if drop and options.x is not None:
        allowed = f"must be null: dataset.x={options.x} is the only column of samples"
        raise ConfigError("dataset.drop", [*drop], allowed)
    named = [("x", options.x), ("target", options.target), ("user", options.user)]
    for _, split in splits:
        for key, name in [*named, *(("drop", name) for name in drop)]:
            if name is not None and name not in split.column_names:
                raise no_column(key, name, options.path, split.column_names)
    y, fields = _targets(options, splits)
    if options.x is not None:
        x = _samples(options, splits)
    else:
        x, fields["features"] = _features(options, splits)
    who = None
    if options.user is not None:
        plain = [_part(name, split, [options.user]) for name, split in splits]
        refuse_empty(plain)
        who = users_of(plain, options.user)
    files = tuple(map(file_record, files_below(where)))
    fields |= {"vocabulary": options.vocabulary, "files": files}
    return divided("hf", x, y, who, options.test_fraction, where=options.path, **fields)


Splits = list[tuple[str, Any]]  # each with its name in error lines


def _samples(options: HuggingFace, splits: Splits) -> Samples:
    """The column of samples of each split: images, numbers (as floats that hold them exactly) or tokens."""
    name = str(options.x)
    if all(type(split.features[name]).__name__ == "Image" for _, split in splits):
        return of_images([(f"{where}: the column {name}", _images(split, name)) for where, split in splits])
    x = [_column(split, name, options.path) for _, split in splits]
    if len(kinds := {str(values.dtype) for values in x}) > 1:
        both = " and ".join(sorted(kinds))
        raise DataError(f"{options.path}: the column {name} holds {both}; one type is expected")
    if options.vocabulary is None and x[0].dtype.kind in "iub" and x[0].dtype != np.uint8:
        exact = all(
            abs(int(end)) <= 1 << 24 for values in x if values.size for end in (values.min(), values.max())
        )
        x = [values.astype(np.float32 if exact else np.float64) for values in x]
    return x


def _images(split: Any, name: str) -> Iterator[Any]:
    return (row[name] for row in split.select_columns([name]).with_format(None))


def _features(options: HuggingFace, splits: Splits) -> tuple[Samples, tuple[Feature, ...]]:
    others = {options.target, options.user, *(options.drop or ())}
    names = [name for name in splits[0][1].column_names if name not in others]
    for where, split in splits:
        if odd := sorted({*split.column_names} - others ^ {*names}):
            raise DataError(f"{where}: the column {odd[0]} is in one of this split and {splits[0][0]} only")
        for name in names:
            if type(split.features[name]).__name__ not in {"Value", "ClassLabel"}:
                allowed = f"must be the column of samples: {name} has more than one number in a row"
                raise ConfigError("dataset.x", None, allowed)
    parts = [_part(where, split, names) for where, split in splits]
    refuse_empty(parts)
    return features_of(parts, [])


def _part(where: str, split: Any, names: list[str]) -> Part:
    """Plain columns of a split; a ClassLabel's as names, an unknown label as an empty cell."""
    table, columns = split.select_columns(names).with_format("arrow")[:], {}
    for name in table.column_names:
        columns[name] = of_arrow(table.column(name))
        if (classes := getattr(split.features[name], "names", None)) is not None:
            numbers = np.where(columns[name].empty, -1, columns[name].values).astype(np.int64)
            known = (numbers >= 0) & (numbers < len(classes))
            columns[name] = column(np.array([*classes, ""], dtype=object)[np.where(known, numbers, -1)])
    return Part(where, columns, table.num_rows)


def _targets(options: HuggingFace, splits: Splits) -> tuple[Samples, dict[str, Any]]:
    """As `targets_of`. Targets may also be lists of numbers, one for each token or label."""
    name = options.target
    kinds = [type(split.features[name]).__name__ for _, split in splits]
    if options.task in (None, "classification", "regression") and {*kinds} <= {"Value", "ClassLabel"}:
        parts = [_part(where, split, [name]) for where, split in splits]
        refuse_empty(parts)
        known = getattr(splits[0][1].features[name], "names", None)
        if known is None or options.task == "regression":
            return targets_of(parts, name, options.task)
        place: dict[Name, int] = {label: at for at, label in enumerate(known)}
        y = []
        for part in parts:
            found, index = part.distinct(name)
            if new := [label for label in found if label not in place]:
                raise part.holds(name, f"{new[0]}, no class of {parts[0].where}")
            y.append(np.array([place[label] for label in found])[index])
        return y, {"task": "classification", "classes": len(known), "names": (*known,)}
    if options.task is None:
        allowed = f"say which: the target {name} of {options.path} holds more than one value in a row"
        raise ConfigError("dataset.task", None, allowed)
    y = [_column(split, name, options.path) for _, split in splits]
    names = [_inner(split.features[name], "names") for _, split in splits]
    if any(classes != names[0] for classes in names):
        raise DataError(f"{splits[1][0]}: the classes of {name} are not those of {splits[0][0]}, in order")
    classes = names[0] and len(names[0]) if options.task == "sequence" else None
    return y, {"task": options.task, "classes": classes}


def _splits(options: HuggingFace, where: Path) -> Splits:
    """The training split and, if the test set has its own, the test split."""
    try:
        import datasets
    except ImportError as error:
        raise DataError(f"dataset=hf: {needs('datasets', 'hf')}") from error
    datasets.disable_progress_bars()
    with refusing(f"dataset.path={options.path}: cannot be loaded by `datasets`"):
        if any((where / file).is_file() for file in ("dataset_dict.json", "state.json")):
            if options.subset is not None:
                allowed = f"must be null: save_to_disk wrote {options.path}, which has only one"
                raise ConfigError("dataset.subset", options.subset, allowed)
            loaded: Any = datasets.load_from_disk(str(where))
        else:
            loaded = datasets.load_dataset(str(where) if where.is_dir() else options.path, options.subset)
    known = dict(loaded) if isinstance(loaded, dict) else {"train": loaded}
    chosen = {"train": options.train, "test": options.test}
    for key, name in chosen.items():
        if name is not None and (name not in known or not len(known[name])):
            there = ", ".join(known) + (", or null" if key == "test" else "")
            raise ConfigError(f"dataset.{key}", name, f"must be a split of {options.path}: {there}", [*known])
    return [(f"{options.path} ({name})", known[name]) for name in chosen.values() if name is not None]


def _inner(feature: Any, name: str) -> Any:
    """An attribute of a column's feature, or of what its lists hold."""
    while isinstance(feature, list) or hasattr(feature, "feature"):
        feature = feature[0] if isinstance(feature, list) else feature.feature
    return getattr(feature, name, None)


def _column(split: Any, name: str, where: str) -> np.ndarray:
    """The values (n, ...) of a column; numbers keep the type in which they are stored."""
    import pyarrow as pa

    stored = str(_inner(split.features[name], "dtype"))
    kind = {"dtype": np.dtype(stored)} if stored in np.sctypeDict else {}
    with refusing(f"{where}: the column {name} cannot be read"):
        cells = split.select_columns([name]).with_format("arrow")[:].column(name).combine_chunks()
        while True:  # NumPy would show an integer that is missing as another one
            if cells.null_count:
                row = f" in row {int(np.asarray(cells.is_null()).argmax())}"
                raise DataError(
                    f"{where}: the column {name} is empty{row if len(cells) == len(split) else ''}"
                )
            if isinstance(cells, pa.ExtensionArray):
                cells = cells.storage
            elif not (pa.types.is_nested(cells.type) and hasattr(cells, "flatten")):
                break
            else:
                cells = cells.flatten()
        values = np.asarray(split.select_columns([name]).with_format("numpy", **kind)[:][name])
    if values.dtype == object:
        values = np.array(values.tolist()) if isinstance(values[0], str) else values
    if values.dtype == object:
        raise DataError(f"{where}: the rows of the column {name} must be of one kind and shape")
    return values
