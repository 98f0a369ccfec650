"""Predictions of a stored model for new rows, from what data.json keeps of the data: the classes, the
features, their mean and deviation. The data themselves are not read again."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fedbench.data import table_files as files
from fedbench.data.columns import Part, of_series
from fedbench.data.dataset import samples
from fedbench.data.tables import encoded, refuse_empty, without
from fedbench.data.transforms import to_input
from fedbench.errors import DataError, some_of
from fedbench.files import as_given
from fedbench.runs.data_file import Described
from fedbench.runs.model_files import stored_model
from fedbench.runs.run_directory import DATA, MODEL, RunDirectory

BATCH = 1024


def model_of(here: RunDirectory) -> nn.Module:
    """The run's global model, on the CPU, in evaluation mode. Raises UserError."""
    return stored_model(here.config_here(), here.path / MODEL, Described.of(here))


def inputs_of(here: RunDirectory, rows: Any) -> Tensor:
    """New samples as the run's model takes them, (B, *shape): normalised, and of its dtype.

    `rows`: of a table with columns, a DataFrame or the path of a CSV or Parquet file that has the columns of
    the features (others are ignored); else an array as `fedbench.data.from_arrays` takes it. Raises
    DataError.
    """
    known, config = Described.of(here), here.config()
    if known is None:
        raise DataError(f"{here.path}: its {DATA} does not say how samples are prepared: compute it again")
    where = "rows"
    if known.features:
        x: np.ndarray = _table(rows, known, config.dataset)
    else:
        x = np.asarray(rows)
        if known.type == "uint8" and x.dtype != np.uint8:
            raise DataError(f"{where}: are {x.dtype}; uint8 is expected, as in the run's data")
        if known.type.startswith("float"):
            x = x.astype(known.type)
        x = samples(where, x, known.vocabulary)
    if x.shape[1:] != known.shape:
        raise DataError(
            f"{where}: samples of shape {x.shape[1:]}; {known.shape} is expected, as in the run's data"
        )
    dtype = torch.float64 if config.dtype == "float64" else torch.float32
    return to_input(torch.from_numpy(x), known.mean, known.std, dtype)


def _table(rows: Any, known: Described, options: Any) -> np.ndarray:
    """Features (rows, f) of a DataFrame or a file."""
    if isinstance(rows, str | os.PathLike):
        path = as_given(Path(rows))
        if getattr(options, "header", None) is False:  # without the target others would have its numbers
            raise DataError(f"{path}: has no columns' names; give a DataFrame, with columns called 0, 1, ...")
        if files.kind_of(path) == files.PARQUET:
            part = files.read_parquet(path, ())
        else:
            part = files.read_csv(path, None, getattr(options, "header", None))
    else:
        part = Part("rows", {str(name): of_series(rows[name]) for name in rows.columns}, len(rows))
    needed = dict.fromkeys(name for name, _ in known.features)
    if absent := [name for name in needed if name not in part.columns]:
        raise DataError(f"{part.where}: needs the column {absent[0]}; it has {some_of([*part.columns])}")
    part = without(part, [name for name in part.columns if name not in needed])
    refuse_empty([part])
    return encoded(part, known.features, "the training set")


def predicted(here: RunDirectory, rows: Any) -> np.ndarray:
    """The model's predictions for new samples, `rows` as in `inputs_of`: (B,) labels as the data call them;
    of regression targets (B, k); of multilabel 0 and 1 (B, k); of sequence a label for each token (B, T)."""
    x, model, known = inputs_of(here, rows), model_of(here), Described.of(here)
    assert known is not None
    with torch.no_grad():
        scores = torch.cat([model(part) for part in x.split(BATCH)])
    if known.task == "regression":
        return scores.numpy()
    if known.task == "multilabel":
        return (scores > 0).numpy().astype(np.int64)
    chosen = scores.argmax(-1).numpy()
    called = known.names or known.labels
    return chosen if called is None else np.array(called)[chosen]
