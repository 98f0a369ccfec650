"""data.json of a run: what it keeps of its data, so that the model can be used without them. Imports torch
only to read it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fedbench.files import read_json
from fedbench.runs.run_directory import DATA, RunDirectory

if TYPE_CHECKING:
    from torch import Tensor

    from fedbench.data import Dataset
    from fedbench.data.dataset import Feature


def described(data: Dataset) -> dict[str, Any]:
    """What data.json keeps of a data set. `labels`: what the data call the classes 0, 1, ...; `names`:
    further names of them. `features`: [column, null] of numbers, [column, category] where a text is one.
    Samples of type uint8 are divided by 255; then `mean` is subtracted, and divided by `std` (both broadcast
    to one sample)."""
    return {
        "task": data.task,
        "classes": data.classes,
        "labels": data.labels and [*data.labels],
        "names": data.names and [*data.names],
        "features": [[*feature] for feature in data.features],
        "shape": [*data.shape],
        "type": str(data.x_train.dtype).removeprefix("torch."),
        "vocabulary": data.vocabulary,
        "mean": None if data.mean is None else data.mean.tolist(),
        "std": None if data.std is None else data.std.tolist(),
    }


def said_of(features: Sequence[Feature]) -> str:
    """The columns that the features come from, with the number of features of each that is no number."""
    counts: dict[str, int] = {}
    for name, category in features:
        counts[name] = counts.get(name, 0) + (category is not None)
    columns = [f"{name} ({count} texts)" if count else name for name, count in counts.items()]
    more = f", and {len(columns) - 20} more columns" if columns[20:] else ""
    return f"{len(features):,} features of {len(columns):,} columns: {', '.join(columns[:20])}{more}"


@dataclass(frozen=True)
class Described:
    """A data set as data.json has it. `shape`, `classes`, `vocabulary` and `task` are those of a
    `Dataset`."""

    task: str
    classes: int
    labels: list[float | str] | None
    names: list[str] | None
    features: list[Feature]
    shape: tuple[int, ...]
    type: str
    vocabulary: int | None
    mean: Tensor | None
    std: Tensor | None

    @classmethod
    def of(cls, here: RunDirectory) -> Described | None:
        """What the run's data.json says; None if it says nothing of the data, as runs of version 0.1.0."""
        import torch

        found = read_json(here.path / DATA) or {}
        if "shape" not in found:
            return None
        values = {key: found[key] for key in cls.__dataclass_fields__}
        for key in ("mean", "std"):
            if values[key] is not None:
                values[key] = torch.tensor(values[key], dtype=torch.float64)
        features = [(name, category) for name, category in values["features"]]
        return cls(**{**values, "shape": tuple(values["shape"]), "features": features})
