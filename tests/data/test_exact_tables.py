"""Users, labels and categories of every kind of column and reader are told apart exactly, and numbered by
value; what would merge them is refused."""

from __future__ import annotations

import datetime
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from option_helpers import load, refusal

from fedbench.api import compose_config
from fedbench.data import Dataset
from fedbench.runs.run import Run

pa = pytest.importorskip("pyarrow", reason="needs pyarrow (extra tables)")
pq = pytest.importorskip("pyarrow.parquet")
N = 40
X, Y = np.arange(N) / 7, np.arange(N) % 2
BIG = 2**60
TIMES = [datetime.datetime(2024, 3, 1, hour, tzinfo=datetime.UTC) for hour in (8, 9)]


def parquet(path: Path, **columns: Any) -> Path:
    table = {"x": X, "y": Y} | columns
    pq.write_table(pa.table({name: pa.array(cells) for name, cells in table.items()}), path)
    return path


def read(path: Path, **keys: Any) -> Dataset:
    values = {"name": "table", "path": str(path), "target": "y", "normalize": False, **keys}
    return load(values, "unused", seed=0, clients=2)


def refused(path: Path, **keys: Any) -> str:
    return refusal({"name": "table", "path": str(path), "target": "y", **keys})


def turns(values: list[Any], kind: Any = None) -> Any:
    """A column in which the values take turns."""
    return pa.array([values[n % len(values)] for n in range(N)], type=kind)


COLUMNS: dict[str, tuple[Any, list[str]]] = {
    "19 digits": (turns([BIG + 1, BIG]), [f"{BIG}", f"{BIG + 1}"]),
    "unsigned": (turns([2**63 + 1, 2**63], pa.uint64()), [f"{2**63}", f"{2**63 + 1}"]),
    "small": (turns([11, 2, -3], pa.int8()), ["-3", "2", "11"]),
    "dictionary of integers": (turns([BIG + 1, BIG]).dictionary_encode(), [f"{BIG}", f"{BIG + 1}"]),
    "dictionary of texts": (turns(["10", "9"]).dictionary_encode(), ["9", "10"]),
    "decimals": (
        turns([Decimal(10**25 + 1), Decimal(10**25)], pa.decimal128(30, 2)),
        [f"{10**25}", f"{10**25 + 1}"],
    ),
    "texts": (turns(["10", "9", "ann"]), ["9", "10", "ann"]),
    "007 is not 7": (turns(["7", "007"]), ["007", "7"]),
    "large texts": (turns(["b", "a"], pa.large_string()), ["a", "b"]),
    "bytes": (turns([b"b", b"a"]), ["a", "b"]),
    "whole floats": (turns([10.0, 9.0]), ["9", "10"]),
    "booleans": (turns([True, False]), ["0", "1"]),
}


@pytest.mark.parametrize("kind", COLUMNS)
def test_users_and_labels_of_any_column(kind: str, tmp_path: Path) -> None:
    """Their names in order, and the one of every row."""
    cells, names = COLUMNS[kind]
    file = parquet(tmp_path / "t.parquet", u=cells, n=np.arange(N))
    data = read(file, user="u")
    rows = np.concatenate([data.x_train, data.x_test])[:, -1].astype(int)
    users = [*data.client, *data.test_client]  # type: ignore[misc]
    by_row = dict(zip(rows.tolist(), users, strict=True))
    plain = [value.decode() if isinstance(value, bytes) else value for value in cells.to_pylist()]
    expected = [str(int(v)) if isinstance(v, bool | float | Decimal) else str(v) for v in plain]
    assert [by_row[n] for n in range(N)] == expected
    words = f"dataset=table dataset.path='{file}' dataset.target=y dataset.user=u partition=natural"
    words += f" local.batch_size=4 clients.total={len(names)} clients.per_round=1"
    division = Run(compose_config(words.split())).problem.division
    assert division.users == (*names,)
    assert [names[client] for client in division.partition] == [*data.client]  # type: ignore[misc]
    labelled = read(file, target="u", task="classification")
    assert [str(label) for label in labelled.labels or ()] == names
    order = np.concatenate([labelled.x_train, labelled.x_test])[:, -1].astype(int)
    y = np.concatenate([labelled.y_train, labelled.y_test])
    assert [names[label] for label in y] == [expected[n] for n in order]


@pytest.mark.parametrize(
    ("cells", "said"),
    [
        (turns([2.0**53, 1.0]), "the column u holds the float 9007199254740992, too large"),
        (turns([2.0**24, 1.0], pa.float32()), "the column u holds the float 16777216, too large"),
        (turns([1.5, 2.0]), "the column u holds 1.5; users are names or integers"),
        (turns([b"\xff", b"\xfe"]), "the column u holds a bytes; users are names or integers"),
        (turns([[1], [2]]), "the column u holds a list; users are names or integers"),
        (turns([BIG, None]), "the column u is empty in row 1 and 19 more"),
        (turns([1.0, float("nan")]), "the column u is empty in row 1 and 19 more"),
        (turns(["a", " "]).dictionary_encode(), "the column u is empty in row 1"),
        (pa.nulls(N), "the column u is empty in row 0"),
    ],
)
def test_users_that_a_column_cannot_tell_apart_are_refused(cells: Any, said: str, tmp_path: Path) -> None:
    assert said in refused(parquet(tmp_path / "t.parquet", u=cells), user="u")


def test_days_and_moments_name_users_and_are_no_features(tmp_path: Path) -> None:
    day = datetime.date(2024, 3, 1)
    for cells, name in (
        (turns([day, day + datetime.timedelta(1)]), "2024-03-01"),
        (turns(TIMES, pa.timestamp("us", "Europe/Oslo")), "2024-03-01 09:00:00+01:00"),
    ):
        file = parquet(tmp_path / "t.parquet", u=cells)
        assert name in {*read(file, user="u").client}  # type: ignore[misc]
        assert "the column u holds a " in refused(file)
        assert read(file, drop=["u"]).shape == (1,)


def test_labels_of_large_decimals_and_floats_that_would_merge(tmp_path: Path) -> None:
    near = [Decimal("0.10000000000000000001"), Decimal("0.1")]
    file = parquet(tmp_path / "t.parquet", c=turns(near, pa.decimal128(30, 22)))
    assert "the column c holds decimals with more digits than" in refused(
        file, target="c", task="classification"
    )
    file = parquet(tmp_path / "t.parquet", c=turns([2.0**60, 1.0]))
    assert "too large to tell integers apart" in refused(file, target="c", task="classification")
    assert read(file, target="c", task="regression").y_train.max() == 2.0**60


def test_one_part_unsigned_the_other_signed(tmp_path: Path) -> None:
    """NumPy would make both float64."""
    labels = [2**63 - 1, 2**63 - 2]
    train = parquet(tmp_path / "a.parquet", c=turns(labels, pa.uint64()))
    test = parquet(tmp_path / "b.parquet", c=turns(labels[::-1], pa.int64()))
    data = read(train, test_path=str(test), target="c", task="classification")
    assert data.labels == (2**63 - 2, 2**63 - 1)
    assert data.y_train.tolist() == [1, 0] * (N // 2)
    assert data.y_test.tolist() == [0, 1] * (N // 2)


def test_categories_are_in_the_order_of_their_values(tmp_path: Path) -> None:
    """9 comes before 10 among texts too."""
    data = read(parquet(tmp_path / "t.parquet", c=turns(["10", "9"])), drop=["x"])
    assert data.features == (("c", "9"), ("c", "10"))
    assert np.concatenate([data.x_train, data.x_test]).sum(0).tolist() == [N / 2, N / 2]


def test_pandas_columns_of_every_kind_are_what_they_say(tmp_path: Path) -> None:
    """Nullable integers, booleans and texts, and categories, as pandas writes them; its index is no
    column."""
    frame = pd.DataFrame({"x": X, "y": Y, "i": pd.array([BIG + n % 3 for n in range(N)], dtype="Int64")})
    frame["b"] = pd.array(Y == 1, dtype="boolean")
    frame["s"] = pd.array(np.where(Y, "p", "q"), dtype="string")
    frame["c"] = pd.Categorical(np.where(Y, "r", "t"))
    frame.index = pd.Index(np.arange(N) + 100, name="patient")
    frame.to_parquet(tmp_path / "t.parquet")
    data = read(tmp_path / "t.parquet", user="i")
    assert {*data.client} == {f"{BIG + n}" for n in range(3)}  # type: ignore[misc]
    assert data.features == (("x", None), ("b", None), ("s", "p"), ("s", "q"), ("c", "r"), ("c", "t"))
    assert len({*read(tmp_path / "t.parquet", user="patient", drop=["i"]).client}) == 32  # type: ignore[misc]


def test_a_parquet_file_is_read_by_its_own_types(tmp_path: Path) -> None:
    """A column that was text when pandas noted the types, and is int64 since."""
    frame = pd.DataFrame({"n": [f"{n % 30}" for n in range(N)], "y": Y})
    table = pa.Table.from_pandas(frame)
    table = table.set_column(0, "n", pa.array(np.arange(N) % 30))
    assert b"unicode" in table.schema.metadata[b"pandas"]
    pq.write_table(table, tmp_path / "t.parquet")
    assert read(tmp_path / "t.parquet").features == (("n", None),)


# ---- directories of Parquet -------------------------------------------------------------------------------


def test_a_directory_of_parquet_is_one_table(tmp_path: Path) -> None:
    """Its files in the order of their names, an int32 beside an int64; folders KEY=VALUE are columns."""
    place = tmp_path / "d"
    for at, (user, kind) in enumerate((("007", pa.int32()), ("7", pa.int64()), ("b%20c", pa.int64()))):
        (place / f"u={user}").mkdir(parents=True)
        parquet(place / f"u={user}" / f"part-{at}.parquet", n=pa.array([at] * N, kind))
    (place / "_SUCCESS").touch()
    (place / ".part.parquet").touch()
    data = read(place, user="u", drop=["x"])
    users = np.concatenate([data.client, data.test_client])
    rows = np.concatenate([data.x_train, data.x_test])[:, 0].astype(int)
    assert [*users] == [("007", "7", "b c")[n] for n in rows]
    assert len(rows) == 3 * N
    assert len(data.files) == 3
    parquet(place / "u=7" / "more.parquet", n=Y, odd=X)
    assert "the column odd is only here or only in" in refused(place)


def test_a_directory_that_is_no_plain_parquet(tmp_path: Path) -> None:
    assert "is a directory without files *.parquet" in refused(tmp_path)
    parquet(tmp_path / "t.parquet", y=[None, *Y[1:].tolist()])
    parquet(tmp_path / "u.parquet")
    assert "the column y is empty in row 0 of t.parquet" in refused(tmp_path)
    (tmp_path / "_delta_log").mkdir()
    (tmp_path / "_delta_log" / "00000.json").touch()
    assert "_delta_log/00000.json says which of its files count" in refused(tmp_path)


# ---- CSV --------------------------------------------------------------------------------------------------


def csv(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("first", ["\n", "\n\n", "\r\n", "   \n", "\ufeff\n"])
@pytest.mark.parametrize("header", [None, True])
def test_empty_lines_before_the_names(first: str, header: bool | None, tmp_path: Path) -> None:
    rows = "".join(f"{('red', 'blue')[n % 2]},{('p', 'q')[n % 3 // 2]}\n" for n in range(N))
    data = read(csv(tmp_path / "t.csv", f"{first}colour,y\n{rows}"), header=header)
    assert data.features == (("colour", "blue"), ("colour", "red"))
    assert (len(data.y_train) + len(data.y_test), data.classes) == (N, 2)


LINES = 'a,b,y\n1,"two\nlines",no\n\n3,x,yes\n , ,no\n'


def test_an_empty_cell_is_said_with_its_line_in_the_file_and_all_columns(tmp_path: Path) -> None:
    """The names are line 1; a quoted cell has two lines, and an empty line is no row."""
    line = refused(csv(tmp_path / "t.csv", LINES))
    said = "t.csv: the column a is empty in line 6; the column b is empty in line 6"
    assert line.endswith(f"{said} (fedbench/README.md: Empty cells)")
    line = refused(csv(tmp_path / "t.csv", LINES.partition("\n")[2]), header=False, target="2")
    assert "the column 0 is empty in line 5; the column 1 is empty in line 5" in line


@pytest.mark.parametrize(
    ("cells", "said"),
    [
        (["True", "", "False"], "the column c is empty in line 3"),
        (["True", "1", "False"], "the column c holds the number '1' and the text 'True'"),
        (["0x10", "1_000", "7"], "the column c holds the number '7' and the text '0x10'"),
        (["1" + "0" * 400, "1", "2"], "the column c holds an infinity or a number beyond float64 in line 2"),
        (["NA", "0.5", "1.5"], "the column c holds the number '0.5' and the text 'NA'"),
    ],
)
def test_cells_that_are_no_column_of_one_kind(cells: list[str], said: str, tmp_path: Path) -> None:
    rows = "".join(f"{n}.5,{cells[n % 3]},{n % 2}\n" for n in range(N))
    assert said in refused(csv(tmp_path / "t.csv", f"a,c,y\n{rows}"))


def test_numbers_of_any_size_booleans_and_names_that_look_empty(tmp_path: Path) -> None:
    """Integers from 2**64 on are numbers; NA, None and null are names of users and categories."""
    big, names = [10**25, 10**25 + 1, -1], ["NA", "None", "null", "nan"]
    rows = "".join(
        f"{big[n % 3]},{n % 2 == 0},{names[n % 4]},{names[n % 4]},{big[n % 2]}\n" for n in range(N)
    )
    data = read(csv(tmp_path / "t.csv", f"a,b,c,u,y\n{rows}"), user="u")
    assert data.features[:2] == (("a", None), ("b", None))
    assert [name for _, name in data.features[2:]] == sorted(names)
    assert {*data.client} == {*names}  # type: ignore[misc]
    assert data.labels == (10**25, 10**25 + 1)
    assert set(np.concatenate([data.x_train, data.x_test])[:, 0]) == {float(value) for value in big}


# ---- columns that are no features -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cells", "said"),
    [
        (
            [f"2024-01-{1 + n % 5:02d}" for n in range(N)],
            "holds dates, such as '2024-01-01'; numbers or texts are",
        ),
        (
            [f"{1 + n % 28}.2.2024 10:00" for n in range(N)],
            "holds dates, such as '1.2.2024 10:00'; numbers or",
        ),
        ([f"patient-{n}" for n in range(N)], "has 40 different texts in 40 rows, such as 'patient-0'"),
        ([f"patient-{n % 30}" for n in range(N)], "has 30 different texts in 40 rows, such as 'patient-0'"),
    ],
)
def test_dates_and_identifiers_are_refused_with_the_key_that_leaves_them_out(
    cells: list[str], said: str, tmp_path: Path
) -> None:
    for kind in ("csv", "parquet"):
        file = tmp_path / f"t.{kind}"
        frame = pd.DataFrame({"x": X, "c": cells, "y": Y})
        frame.to_csv(file, index=False) if kind == "csv" else frame.to_parquet(file)
        line = refused(file)
        assert f"the column c {said}" in line
        assert line.endswith("dataset.drop=[c] leaves it out")
        assert read(file, drop=["c"]).features == (("x", None),)
        assert "dataset.drop=[d]: must be columns of" in refused(file, drop=["d"])
        assert "dataset.drop=[y]: must not have dataset.target=y" in refused(file, drop=["y"])


def test_the_columns_and_features_are_said_and_kept(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = parquet(tmp_path / "t.parquet", c=turns(["10", "9"]))
    words = (
        f"dataset=table dataset.path='{file}' dataset.target=y clients.total=2 clients.per_round=2 rounds=1"
    )
    words += " local.batch_size=4 model=logistic progress=none threads=1"
    with caplog.at_level("INFO"):
        Run(compose_config(words.split())).go(tmp_path / "run")
    assert "3 features of 2 columns: x, c (2 texts)" in caplog.text
    kept = json.loads((tmp_path / "run" / "data.json").read_text())
    assert kept["features"] == [["x", None], ["c", "9"], ["c", "10"]]
    assert kept["labels"] == [0, 1]
