"""Data sets of Hugging Face's library `datasets`, on the disk or by their name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from fedbench.data.dataset import Dataset
from fedbench.data.files import file_record
from fedbench.data.options import HuggingFace
from fedbench.data.tables import (
    Part,
    Samples,
    divided,
    features_of,
    no_column,
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
    named = {"x": options.x, "target": options.target, "user": options.user}
    for _, split in splits:
        for key, name in named.items():
            if name is not None and name not in split.column_names:
                raise no_column(key, name, options.path, split.column_names)
    y, fields = _targets(options, splits)
    if options.x is not None:
        x = [_column(split, options.x, options.path) for _, split in splits]
        if len(kinds := {str(values.dtype) for values in x}) > 1:
            both = " and ".join(sorted(kinds))
            raise DataError(f"{options.path}: the column {options.x} holds {both}; one type is expected")
        if options.vocabulary is None and x[0].dtype.kind in "iub" and x[0].dtype != np.uint8:
            x = [values.astype(np.float32) for values in x]
    else:
        x = _features(options, splits)
    who = None
    if options.user is not None:
        plain = [_frame(name, split, [options.user]) for name, split in splits]
        refuse_empty(plain)
        who = users_of(plain, options.user)
    files = tuple(map(file_record, files_below(where)))
    fields |= {"vocabulary": options.vocabulary, "files": files}
    return divided("hf", x, y, who, options.test_fraction, where=options.path, **fields)


Splits = list[tuple[str, Any]]  # each with its name in error lines


def _features(options: HuggingFace, splits: Splits) -> Samples:
    others = {options.target, options.user}
    names = [name for name in splits[0][1].column_names if name not in others]
    for where, split in splits:
        if odd := sorted({*split.column_names} - others ^ {*names}):
            raise DataError(f"{where}: the column {odd[0]} is in one of this split and {splits[0][0]} only")
        for name in names:
            if type(split.features[name]).__name__ not in {"Value", "ClassLabel"}:
                allowed = f"must be the column of samples: {name} has more than one number in a row"
                raise ConfigError("dataset.x", None, allowed)
    parts = [_frame(where, split, names) for where, split in splits]
    refuse_empty(parts)
    return features_of(parts, [])


def _frame(where: str, split: Any, names: list[str]) -> Part:
    """Plain columns of a split; a ClassLabel's as names, an unknown label as an empty cell."""
    frame = split.select_columns(names).to_pandas()
    for name in frame.columns:
        if (classes := getattr(split.features[name], "names", None)) is not None:
            frame[name] = frame[name].map(dict(enumerate(classes)))
    return Part(where, frame)


def _targets(options: HuggingFace, splits: Splits) -> tuple[Samples, dict[str, Any]]:
    """As `targets_of`. Targets may also be lists of numbers, one for each token or label."""
    name = options.target
    kinds = [type(split.features[name]).__name__ for _, split in splits]
    if options.task in (None, "classification", "regression") and {*kinds} <= {"Value", "ClassLabel"}:
        parts = [_frame(where, split, [name]) for where, split in splits]
        refuse_empty(parts)
        known = getattr(splits[0][1].features[name], "names", None)
        if known is None or options.task == "regression":
            return targets_of(parts, name, options.task)
        numbers = {label: number for number, label in enumerate(known)}
        for part in parts:
            if new := {*part.frame[name].astype(str)} - {*known}:
                raise part.holds(name, f"{sorted(new)[0]}, no class of {parts[0].where}")
        y = [part.frame[name].map(numbers).to_numpy(dtype=np.int64) for part in parts]
        return y, {"task": "classification", "classes": len(known)}
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
    stored = str(_inner(split.features[name], "dtype"))
    kind = {"dtype": np.dtype(stored)} if stored in np.sctypeDict else {}
    with refusing(f"{where}: the column {name} cannot be read"):  # also a file that holds an image
        values = np.asarray(split.select_columns([name]).with_format("numpy", **kind)[:][name])
    if values.dtype == object:
        values = np.array(values.tolist()) if isinstance(values[0], str) else values
    if values.dtype == object:
        raise DataError(f"{where}: the rows of the column {name} must be of one kind and shape")
    return values
