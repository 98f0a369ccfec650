"""Columns of a table as they are: integers and decimals exactly, whatever library has read them.

Users, labels and categories are told apart by these values. Only features become float64.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np

from fedbench.data.names import in_order
from fedbench.errors import DataError

Name = int | float | str
NUMBERS, TEXTS = "numbers", "texts"
_WHOLE = re.compile(r"[+-]?[0-9]{1,4000}")


@dataclass(frozen=True)
class Column:
    """The cells (rows,) of a column.

    `values`: booleans, integers or floats of a NumPy type; or objects: Python's integers, Decimals, texts, or
    whatever else there is. `kind`: numbers, texts, or the name of the first other type. `empty` (rows,):
    cells without a value, whose `values` mean nothing. `category`: the table says that the column is one.
    """

    values: np.ndarray
    kind: str
    empty: np.ndarray
    category: bool = False

    @property
    def floats(self) -> np.ndarray:
        """Numbers as float64 (rows,); those beyond its range are infinite."""
        if self.values.dtype != object:
            return self.values.astype(np.float64)
        return np.array([_float(value) for value in self.values], dtype=np.float64)

    def distinct(self, holds: str) -> tuple[list[Name], np.ndarray]:
        """The different values in order, and the place of each cell's (rows,). Whole numbers are integers;
        what is no number is a text, and texts of integers are ordered by their value.

        Raises DataError, `holds` and the fault, for floats that are too large to tell integers apart, and for
        decimals that no float64 tells apart.
        """
        if self.kind != NUMBERS:
            import pandas as pd

            index, found = pd.factorize(np.array([*map(str, self.values)], dtype=object))
            names = in_order(found)
            place = {name: at for at, name in enumerate(names)}
            return [*names], np.array([place[name] for name in found], dtype=np.int64)[index]
        values, index = np.unique(self.values, return_inverse=True)
        kept = np.finfo(values.dtype if values.dtype.kind == "f" else float).nmant + 1
        for value in values.tolist() if values.dtype.kind in "fO" else ():
            if isinstance(value, float) and abs(value) >= 2.0**kept:
                raise DataError(f"{holds}the float {value:.17g}, too large to tell integers apart")
        numbers = [_plain(value) for value in values.tolist()]
        if len({*numbers}) < len(numbers):
            raise DataError(f"{holds}decimals with more digits than a float64 has")
        return numbers, index


def _float(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:  # only of an integer
        return math.inf if value > 0 else -math.inf


def _plain(value: Any) -> Name:
    """A number as an integer if it is one, else as a float."""
    return int(value) if value == int(value) else float(value)


@dataclass(frozen=True)
class Part:
    """The rows of one file or split. `where`: its name in error lines; `place`: where a row stands in it."""

    where: str
    columns: Mapping[str, Column]
    rows: int
    place: Callable[[int], str] = "row {}".format

    def holds(self, name: str, what: str) -> DataError:
        """The error for a column that holds something else than it should."""
        return DataError(f"{self._holds(name)}{what}")

    def distinct(self, name: str) -> tuple[list[Name], np.ndarray]:
        """`Column.distinct` of a column. Raises DataError."""
        return self.columns[name].distinct(self._holds(name))

    def floats(self, name: str) -> np.ndarray:
        """The numbers of a column as float64 (rows,). Raises DataError if one is infinite there."""
        found = self.columns[name].floats
        if len(odd := np.flatnonzero(~np.isfinite(found))):
            raise self.holds(name, f"an infinity or a number beyond float64 in {self.place(int(odd[0]))}")
        return found

    def has_numbers(self, name: str) -> bool:
        """Whether a column holds numbers that are no categories. Raises DataError if it holds no texts
        either."""
        column = self.columns[name]
        if column.kind not in (NUMBERS, TEXTS):
            raise self.holds(name, f"{column.kind}; numbers or texts are expected")
        return column.kind == NUMBERS and not column.category

    def _holds(self, name: str) -> str:
        return f"{self.where}: the column {name} holds "


def column(values: np.ndarray, empty: np.ndarray | None = None, category: bool = False) -> Column:
    """The column of an array, by the type of its cells. `empty`: as in `Column`."""
    empty = np.zeros(len(values), dtype=bool) if empty is None else empty.astype(bool)
    if values.dtype.kind in "biuf":
        if values.dtype.kind == "f":
            empty = empty | np.isnan(values)
        return Column(values, NUMBERS, empty, category)
    cells = values.astype(object)
    kinds = {type(value) for value in cells[~empty]}
    if bytes in kinds:  # texts, in files of writers that do not say so
        cells = np.array([_decoded(value) for value in cells], dtype=object)
        kinds = {type(value) for value in cells[~empty]}
    if kinds <= {str}:
        cells = np.where(empty, "", cells)
        blank = np.array([not value.strip() for value in cells], dtype=bool)
        return Column(cells, TEXTS, empty | blank, category)
    if kinds == {bool}:
        return Column(np.where(empty, False, cells).astype(bool), NUMBERS, empty, category)
    if kinds <= {int, float, Decimal}:
        odd = np.array(
            [not isinstance(value, int) and not math.isfinite(value or 0) for value in cells], bool
        )
        return Column(np.where(empty | odd, 0, cells), NUMBERS, empty | odd, category)
    first, *more = sorted(kind.__name__ for kind in kinds)
    return Column(cells, f"a {first}" + (f" and a {more[0]}" if more else ""), empty, category)


def _decoded(value: Any) -> Any:
    try:
        return value.decode() if isinstance(value, bytes) else value
    except UnicodeDecodeError:
        return value


def of_series(series: Any) -> Column:
    """The column of a pandas Series."""
    import pandas as pd

    category = isinstance(series.dtype, pd.CategoricalDtype)
    if category:
        series = series.astype(series.cat.categories.dtype if not series.isna().any() else object)
    empty = series.isna().to_numpy()
    dtype = series.dtype
    if isinstance(dtype, np.dtype):
        values = series.to_numpy() if dtype.kind in "biuf" else series.to_numpy(dtype=object)
    elif pd.api.types.is_bool_dtype(dtype):
        values = series.fillna(False).to_numpy(dtype=bool)
    elif pd.api.types.is_integer_dtype(dtype):
        kind = np.uint64 if pd.api.types.is_unsigned_integer_dtype(dtype) else np.int64
        values = series.fillna(0).to_numpy(dtype=kind)
    elif pd.api.types.is_float_dtype(dtype):
        values = series.to_numpy(dtype=np.float64, na_value=np.nan)
    else:
        values = series.to_numpy(dtype=object)
    return column(values, empty, category)


def of_cells(series: Any, as_text: bool) -> Column:
    """The column of a file of text, as pandas has read it without looking for empty cells. Cells that are all
    numbers are numbers, unless `as_text`."""
    import pandas as pd

    if not (series.dtype == object or pd.api.types.is_string_dtype(series.dtype)):
        return of_series(series)
    cells = series.to_numpy(dtype=object)
    if not all(isinstance(value, str) for value in cells):  # integers beyond 64 bits
        return column(cells)
    cells = np.array([value.strip() for value in cells], dtype=object)
    if not as_text and len(cells) and all(map(_WHOLE.fullmatch, cells)):
        return column(np.array([*map(int, cells)], dtype=object))
    numbers = pd.to_numeric(pd.Series(cells), errors="coerce")  # Python's float() takes 1_000 and nan too
    if not as_text and len(cells) and numbers.notna().all():
        return column(numbers.to_numpy(dtype=np.float64))
    return column(cells)


def of_arrow(array: Any) -> Column:
    """The column of a pyarrow ChunkedArray."""
    import pyarrow as pa

    kind = array.type
    category = pa.types.is_dictionary(kind)
    if category:
        kind = kind.value_type
        chunks = [chunk.dictionary_decode() for chunk in array.chunks]
        array = pa.chunked_array(chunks, kind)
    empty = np.asarray(array.is_null())
    if isinstance(kind, pa.BaseExtensionType):
        name = kind.extension_name
        if name == "arrow.uuid":
            return column(np.array([*map(str, array.to_pylist())], dtype=object), empty, category)
        if name != "arrow.bool8":
            return Column(np.full(len(array), None), f"{name} values", empty, category)
        array = pa.chunked_array([chunk.storage for chunk in array.chunks], pa.int8())
        return column(array.fill_null(0).to_numpy() != 0, empty, category)
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return column(array.fill_null(False if pa.types.is_boolean(kind) else 0).to_numpy(), empty, category)
    cells = np.empty(len(array), dtype=object)
    cells[:] = [*array.to_pandas()] if pa.types.is_temporal(kind) else array.to_pylist()
    return column(cells, empty, category)
