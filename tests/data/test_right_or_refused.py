"""What a table does not say is refused; what it says is computed: accuracies, users and sizes of models
through whole runs, against numbers known beforehand."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from option_helpers import load, refusal
from sklearn.datasets import dump_svmlight_file

from fedbench.api import compose_config
from fedbench.config.identity import run_hash
from fedbench.data import Dataset
from fedbench.errors import DataError
from fedbench.runs.run import Run

RNG = np.random.default_rng(0)
N = 60
SIDE = np.arange(N) % 2
FRAME = pd.DataFrame(
    {
        "a": np.round(RNG.normal(0, 1, N) + 8 * SIDE, 2),  # two clouds: every linear model tells them apart
        "b": np.round(RNG.normal(0, 1, N), 2),
        "job": RNG.choice(["cook", "smith"], N),
        "who": [f"user{n % 3}" for n in range(N)],
        "y": np.where(SIDE, "yes", "no"),
    }
)
TRAIN, TEST = FRAME[:40], FRAME[40:]


def written(place: Path, frame: pd.DataFrame, kind: str = "csv", **how: Any) -> Path:
    if kind == "parquet":
        frame.to_parquet(place)
    else:
        frame.to_csv(place, **{"index": False, "sep": "\t" if kind == "tsv" else ",", **how})
    return place


def given(train: Path, test: Path | None, **keys: Any) -> dict[str, Any]:
    """The options of a table; a key may be given another value."""
    more = {"test_path": str(test)} if test else {}
    return {"path": str(train), "target": "y", "user": "who", **more, **keys}


def table(train: Path, test: Path | None = None, **keys: Any) -> list[str]:
    """They as words of the command line."""
    chosen = given(train, test, **keys).items()
    words = (f"dataset.{key}={v if key.endswith('path') else json.dumps(v)}" for key, v in chosen)
    return ["dataset=table", *words]


def read(train: Path, test: Path | None = None, **keys: Any) -> Dataset:
    return load({"name": "table", **given(train, test, **keys)}, "unused", seed=0, clients=1)


def refused(train: Path, test: Path | None = None, **keys: Any) -> str:
    """The line that refuses a table."""
    return refusal({"name": "table", **given(train, test, **keys)})


def column(name: str, values: Any) -> pd.DataFrame:
    return FRAME.assign(**{name: values})


def at(name: str, row: int, value: Any) -> pd.DataFrame:
    """The frame with another value in one cell."""
    changed = FRAME[name].astype(object)
    changed.iloc[row] = value
    return FRAME.assign(**{name: changed})


@pytest.mark.parametrize("kind", ["csv", "tsv", "csv.gz", "parquet"])
def test_columns_become_features_labels_and_users(kind: str, tmp_path: Path) -> None:
    """Of the one file a fifth is the test set; rows keep its order, classes and texts are sorted."""
    file = written(tmp_path / f"t.{kind}", FRAME, kind.removesuffix(".gz"))
    data = read(file, normalize=False)
    assert (len(data.y_train), len(data.y_test), data.classes) == (48, 12, 2)
    x, y = np.concatenate([data.x_train, data.x_test]), np.concatenate([data.y_train, data.y_test])
    features = np.column_stack([FRAME.a, FRAME.b, FRAME.job == "cook", FRAME.job == "smith"])
    rows = [int(np.flatnonzero((row == features).all(1))[0]) for row in x]
    assert sorted(rows) == list(range(N))
    assert rows[:48] == sorted(rows[:48])
    np.testing.assert_array_equal(y, (FRAME.y == "yes")[rows])
    assert data.client is not None
    assert data.test_client is not None
    np.testing.assert_array_equal([*data.client, *data.test_client], FRAME.who[rows])


@pytest.mark.parametrize("kind", ["CSV", "tsv", "Parquet"])
def test_a_test_file_and_numbers_as_target(kind: str, tmp_path: Path) -> None:
    """By the words of a run, with names in capitals too."""
    files = [tmp_path / f"{name}.{kind}" for name in ("t", "u")]
    for file, frame in zip(files, (TRAIN, TEST), strict=True):
        written(file, frame, kind.lower())
    config = compose_config([*table(*files, target="b", task="regression")])
    data = Run(config).problem.dataset
    np.testing.assert_allclose(data.y_train[:, 0], TRAIN.b)
    np.testing.assert_allclose(data.y_test[:, 0], TEST.b)
    assert data.shape == (1 + 2 + 2,)
    for users, frame in ((data.client, TRAIN), (data.test_client, TEST)):
        np.testing.assert_array_equal(users, frame.who)  # type: ignore[arg-type]
    before = run_hash(config)
    written(files[1], TEST[1:], kind.lower())
    assert run_hash(config) != before  # what the test file holds counts


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_users_stay_as_they_are_written(kind: str, tmp_path: Path) -> None:
    """07 is not 7; users by number, of which only Parquet knows, become the same texts."""
    users = [("07", "7", "12")[n % 3] for n in range(N)]
    data = read(written(tmp_path / f"t.{kind}", column("who", users), kind), test_fraction=0.1)
    assert {*data.client, *data.test_client} == {*users}  # type: ignore[misc]
    numbers = written(tmp_path / f"n.{kind}", column("who", [10**12 + n % 3 for n in range(N)]), kind)
    assert {*read(numbers).client} == {f"{10**12 + n}" for n in range(3)}  # type: ignore[misc]


REFUSED: dict[str, tuple[Any, dict[str, Any], str]] = {
    "a user is missing": (at("who", 7, None), {}, "the column who is empty in line 9"),
    "a label is missing": (at("y", 7, None), {}, "the column y is empty in line 9"),
    "a category is missing": (at("job", 7, None), {}, "the column job is empty in line 9"),
    "a number is missing": (at("a", 7, None), {}, "the column a is empty in line 9"),
    "a number is ?": (at("a", 7, "?"), {}, "the column a holds the number '0.13' and the text '?'"),
    "a number is 1,5": (column("a", [f"{n},5" for n in range(N)]), {}, "the column a holds '0,5', which is"),
    "a number is infinite": (
        at("a", 7, "inf"),
        {},
        "the column a holds an infinity or a number beyond float64 in line 9",
    ),
    "one column": (FRAME[["y"]], {"user": None}, "has only the column y"),
    "no rows": (FRAME[:0], {}, "has no rows"),
    "a price as target": (column("y", np.arange(N) * 1.25), {}, "dataset.task=null: say classification"),
    "ages as target": (column("y", 20 + np.arange(N) % 30), {}, "holds 30 different numbers, such as 49"),
    "a number for each row": (column("y", np.arange(N)), {}, "dataset.task=null: say classification"),
    "-1 among the labels": (column("y", np.arange(N) % 4 - 1), {}, "dataset.task=null: say classification"),
    "? among the labels": (column("y", ["?", *map(str, np.arange(N - 1) % 3)]), {}, "holds '0' and '?'"),
    "many texts": (
        pd.concat([column("job", [f"job {n} {m}" for n in range(N)]) for m in range(20)]),
        {},
        "the column job has 1,200 different texts; at most 1,000",
    ),
    "no target": (FRAME, {"target": None}, "dataset.target=null: say which column of"),
    "another target": (FRAME, {"target": "x"}, "dataset.target=x: must be a column of"),
    "another user": (FRAME, {"user": "whom"}, "dataset.user=whom: must be a column of"),
    "texts as numbers": (FRAME, {"target": "job", "task": "regression"}, "the column job holds texts; regre"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_one_file_is_refused_in_one_line(case: str, tmp_path: Path) -> None:
    frame, keys, said = REFUSED[case]
    assert said in refused(written(tmp_path / "t.csv", frame), **keys)


def test_an_empty_cell_of_parquet(tmp_path: Path) -> None:
    for name, value in (("who", None), ("job", None), ("y", None), ("who", ""), ("job", "  "), ("y", "")):
        file = written(tmp_path / "t.parquet", at(name, 7, value), "parquet")
        assert f"the column {name} is empty in row 7" in refused(file)


def test_all_columns_with_missing_values_are_named_and_the_pages_lines_mend_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eight columns with an empty cell, and two of numbers with a question mark; the mean of 1, 1, 3 is no
    median."""
    monkeypatch.chdir(tmp_path)
    names = [f"c{at}" for at in range(8)]
    rows = [[1.0] * 8, [1.0] * 8, [3.0] * 8, [None] * 8]
    frame = pd.DataFrame(rows, columns=names).assign(y=["no", "yes", "no", "yes"])
    said = refused(written(tmp_path / "raw.csv", frame), user=None)
    assert all(f"the column {name} is empty in line 5" in said for name in names)
    frame = frame.fillna(2.0).astype({"c1": object, "c5": object})
    frame.loc[3, ["c1", "c5"]] = "?"
    said = refused(written(tmp_path / "raw.csv", frame), user=None)
    assert all(f"the column {name} holds the number '1.0' and the text '?'" in said for name in ("c1", "c5"))
    page = (Path(__file__).parents[2] / "fedbench" / "README.md").read_text()
    (lines,) = re.findall(r"<!-- empty cells -->\n```python\n(.*?)```", page, flags=re.DOTALL)
    exec(lines, {"pd": pd})
    found = pd.read_csv("hospitals.csv")
    assert found.c1.tolist() == [1, 1, 3, 1]
    assert read(tmp_path / "hospitals.csv", user=None).x_train.shape[1] == 8


NEW: dict[str, tuple[pd.DataFrame, str]] = {
    "label in other letters": (TEST.assign(y=TEST.y.str.title()), "holds No, which"),
    "label": (TEST.assign(y=["maybe", *TEST.y[1:]]), "the column y holds maybe, which"),
    "label as number": (TEST.assign(y=SIDE[40:]), "the column y holds numbers, that of"),
    "category": (TEST.assign(job="pilot"), "the column job holds pilot, which"),
    "text for a number": (TEST.assign(a="high"), "the column a holds texts, that of"),
    "column": (TEST.assign(more=1), "the column more is only here or only in"),
    "column left out": (TEST.drop(columns="b"), "the column b is only here or only in"),
    "no target": (TEST.drop(columns="y"), "dataset.target=y: must be a column of"),
    "empty label": (TEST.assign(y=[None, *TEST.y[1:]]), "the column y is empty in "),
}


@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize("case", NEW)
def test_what_only_the_test_file_has_is_refused(case: str, kind: str, tmp_path: Path) -> None:
    frame, said = NEW[case]
    files = written(tmp_path / f"t.{kind}", TRAIN, kind), written(tmp_path / f"new.{kind}", frame, kind)
    line = refused(*files)
    assert said in line
    assert f"new.{kind}: " in line


def test_labels_by_their_value_in_both_files(tmp_path: Path) -> None:
    """10 is after 9, 1.0 is 1, and a test file with a part of the labels does not move them."""
    for train, test in (
        (np.where(SIDE, "9", "10"), np.where(SIDE, "9", "10")),
        (np.where(SIDE, "1", "0"), np.where(SIDE, "1.0", "0.0")),
    ):
        files = [written(tmp_path / "t.csv", TRAIN.assign(y=train[:40]))]
        files += [written(tmp_path / "u.csv", TEST.assign(y=test[40:])[SIDE[40:] == 1])]
        labels = train.astype(float) == train.astype(float).max()
        data = read(*files)
        assert np.array_equal(data.y_train, labels[:40])
        assert np.array_equal(data.y_test, labels[40:][SIDE[40:] == 1])


@pytest.mark.parametrize("kind", ["csv", "tsv", "csv.gz"])
def test_a_file_without_a_header(kind: str, tmp_path: Path) -> None:
    file = written(tmp_path / f"t.{kind}", FRAME, "tsv" if kind == "tsv" else "csv", header=False)
    assert re.search(r"dataset\.header=null: the first row of .* holds '0\.13', a number", refused(file))
    data, named = read(file, target="4", user="3", header=False), read(written(tmp_path / "n.csv", FRAME))
    for one, other in ((data.x_train, named.x_train), (data.y_test, named.y_test)):
        assert np.array_equal(one, other)  # the first row too
    texts = written(tmp_path / "u.csv", FRAME[["job", "who", "y"]], header=False)
    assert "which its column holds too" in refused(texts)
    years = written(tmp_path / "v.csv", FRAME.rename(columns={"a": "2010"}))
    assert np.array_equal(read(years, header=True).x_train, named.x_train)
    parquet = written(tmp_path / "t.parquet", FRAME, "parquet")  # which always has names
    assert re.match(r"dataset\.header=false: must be null: .*t\.parquet has", refused(parquet, header=False))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a,a,y\n1,2,no\n3,4,yes\n", "the first row calls two columns a"),
        ("a,,y\n1,2,no\n3,4,yes\n", "the first row gives column 1 no name"),
        ("a,b,y\n1,2,no\n3,4,yes,5\n", "cannot be read as a table ("),
        ("a,b,y\n1,no\n3,4,yes\n", "the column y is empty in line 2"),
        ("a;b;y\n1;2;no\n3;4;yes\n", "must be a column of"),
        ("", "cannot be read as a table (No columns"),
        ("a,b,y\n", "has no rows"),
    ],
)
def test_a_file_that_is_no_table(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(text)
    assert said in refused(tmp_path / "t.csv", user=None)


def test_spaces_and_a_byte_order_mark_are_no_part_of_a_cell(tmp_path: Path) -> None:
    rows = "\n".join(f"{a}, {b} , {job} , {who}, {y} " for a, b, job, who, y in FRAME.to_numpy())
    (tmp_path / "t.csv").write_text("\ufeffa, b, job , who, y\n" + rows, encoding="utf-8")
    plain = read(written(tmp_path / "n.csv", FRAME))
    assert np.array_equal(read(tmp_path / "t.csv").x_train, plain.x_train)


def test_decimals_of_parquet_are_numbers_and_lists_are_refused(tmp_path: Path) -> None:
    frame = FRAME.assign(a=[Decimal(str(a)) for a in FRAME.a])
    plain = read(written(tmp_path / "n.csv", FRAME))
    assert np.array_equal(read(written(tmp_path / "t.parquet", frame, "parquet")).x_train, plain.x_train)
    for values in ([[1.0, 2.0]] * N, pd.date_range("2020", periods=N)):
        file = written(tmp_path / "t.parquet", FRAME.assign(a=values), "parquet")
        assert re.search("the column a holds a (list|Timestamp)", refused(file))


def test_libsvm(tmp_path: Path) -> None:
    x = FRAME[["a", "b"]].to_numpy() + 20  # no zeros
    names = ("a9a", "a9a.t", "a.csv.bak")
    files = [tmp_path / name for name in names]
    for file, rows in zip(files, (slice(40), slice(40, N), slice(40)), strict=True):
        dump_svmlight_file(x[rows], 2 * SIDE[rows] - 1, str(file), zero_based=False)
    keys = {"target": None, "user": None}
    data = read(files[0], files[1], **keys, normalize=False)
    np.testing.assert_allclose(np.concatenate([data.x_train, data.x_test]), x)
    assert np.array_equal(np.concatenate([data.y_train, data.y_test]), SIDE)
    np.testing.assert_allclose(read(files[2], files[1], **keys, normalize=False).x_train, x[:40])
    for rows, y, said in (
        (x[40:], SIDE[40:], "a9a.t: the column label holds 0, which"),
        (np.c_[x, x][40:], 2 * SIDE[40:] - 1, "a9a.t: has 2 more features than"),
    ):
        dump_svmlight_file(rows, y, str(files[1]), zero_based=False)
        assert said in refused(files[0], files[1], **keys)
    files[1].write_text("")
    assert "a9a.t: has no rows" in refused(files[0], files[1], **keys)
    dump_svmlight_file(x, np.arange(N) / 7, str(files[0]), zero_based=False)
    assert "dataset.task=null: say classification or regression" in refused(files[0], **keys)
    files[1].write_text("one two three\n")
    assert "a9a.t: cannot be read as LIBSVM, CSV, Parquet or HDF5 (" in refused(files[1], **keys)
    for key in keys:
        line = refused(files[0], **{**keys, key: "y"})
        assert re.match(rf"dataset\.{key}=y: must be null: .*a9a has no names", line)
    for key in ("path", "test_path"):
        line = refused(files[0], **{**keys, key: "none"})
        assert line.startswith(f"dataset.{key}=none: no such file; a table is expected")
    line = refused(files[0], written(tmp_path / "t.csv", FRAME), **keys)
    assert re.match(r"dataset\.test_path=.*t\.csv: must be LIBSVM, as .*a9a is", line)
    line = refused(files[0], files[1], test_fraction=0.3)
    assert re.match(
        r"dataset\.test_fraction=0\.3: must be left at its default, 0\.2: dataset\.test_path=", line
    )


@pytest.mark.parametrize("kind", ["csv", "svm", "hf"])
@pytest.mark.parametrize(
    ("names", "kept", "places"),
    [
        ((1, 2, 3), [3, 1], (2, 0)),
        ((-1, 0, 1), [-1, 1], (0, 2)),
        ((2.5, 5, 7), [7, "2.5"], (2, 0)),
        (("a", "b", "c d"), ["c d", "a"], (2, 0)),
    ],
)
def test_classes_are_chosen_by_the_labels_of_the_data(
    names: tuple[Any, ...], kept: list[Any], places: tuple[int, int], kind: str, tmp_path: Path
) -> None:
    """The only feature tells which rows are kept. Another label is refused with those there are."""
    if kind == "svm" and isinstance(names[0], str):
        pytest.skip("a LIBSVM file's targets are numbers")
    rank, place = np.arange(N) % 3, tmp_path / f"t.{kind}"
    frame = pd.DataFrame({"a": rank + 0.5, "y": [names[at] for at in rank]})
    keys = {"name": "table", "path": str(place), "task": "classification", "normalize": False}
    if kind == "svm":
        dump_svmlight_file(frame[["a"]], frame.y, str(place), zero_based=False)
    elif kind == "csv":
        keys["target"] = "y"
        written(place, frame)
    else:
        keys |= {"name": "hf", "target": "y", "test": None}
        hf = pytest.importorskip("datasets", reason="needs the library `datasets` (extra hf)")
        hf.Dataset.from_dict(frame.to_dict("list")).save_to_disk(str(place))
    data = load({**keys, "classes": kept}, "unused", seed=0, clients=1)
    assert data.classes == 2
    for x, y in ((data.x_train, data.y_train), (data.x_test, data.y_test)):
        found = {*zip(x[:, 0].tolist(), y.tolist(), strict=True)}
        assert found == {(at + 0.5, new) for new, at in enumerate(places)}
    said = f"the labels of {keys['name']} are {', '.join(map(str, names))}"
    line = f"dataset.classes=4: has no training or no test samples: {said}"
    assert refusal({**keys, "classes": [*kept, 4]}) == line


def test_rows_are_shuffled_before_a_share_becomes_the_test_set(tmp_path: Path) -> None:
    """The file is sorted by class: without a shuffle the test set would have one class only."""
    data = read(written(tmp_path / "t.csv", FRAME.sort_values("y")), test_fraction=0.3)
    counts = np.bincount(data.y_test, minlength=2)
    assert counts.sum() == 18
    assert counts.min() >= 3


@pytest.mark.parametrize("names", [("yes", "no"), ("yes", "no", "never")])
def test_classes_of_hugging_face_are_told_by_name(names: tuple[str, ...], tmp_path: Path) -> None:
    """The test split numbers its classes in another order, or is of plain texts."""
    hf = pytest.importorskip("datasets", reason="needs the library `datasets` (extra hf)")

    def split(frame: pd.DataFrame, classes: Any) -> Any:
        kinds = {"a": hf.Value("float64"), "b": hf.Value("float64"), "y": hf.Value("string")}
        if classes:
            kinds["y"] = hf.ClassLabel(names=list(classes))
        columns = {name: frame[name].tolist() for name in ("a", "b", "y")}
        return hf.Dataset.from_dict(columns, features=hf.Features(kinds))

    def saved(train: Any, test: Any, place: str) -> Dataset:
        hf.DatasetDict({"train": train, "test": test}).save_to_disk(str(tmp_path / place))
        values = {"name": "hf", "path": str(tmp_path / place), "target": "y"}
        return load(values, "unused", seed=0, clients=1)

    for place, first, second in (("same", ("no", "yes"), names), ("texts", names, None)):
        data = saved(split(TRAIN, first), split(TEST, second), place)
        for y, frame in ((data.y_train, TRAIN), (data.y_test, TEST)):
            assert [first[label] for label in y] == frame.y.tolist()
    with pytest.raises(DataError, match="y holds maybe, no class of"):
        saved(split(TRAIN, names), split(TEST.assign(y="maybe"), ("maybe", *names)), "new")
    with pytest.raises(DataError, match="the column y is empty in row 0"):  # -1: a test split without labels
        saved(split(TRAIN, names), split(TEST.assign(y=-1), names), "none")


def test_users_of_hugging_face(tmp_path: Path) -> None:
    hf = pytest.importorskip("datasets", reason="needs the library `datasets` (extra hf)")
    for number, users in enumerate((["u", None], ["u", ""], [1, None], [1.5, 2.5])):
        frame = {"a": [0.5, 1.0] * 4, "who": users * 4, "label": [0, 1] * 4}
        place = tmp_path / str(number)
        hf.DatasetDict({"train": hf.Dataset.from_dict(frame)}).save_to_disk(str(place))
        values = {"name": "hf", "path": str(place), "test": None, "user": "who"}
        with pytest.raises(DataError, match=r"the column who (is empty in row 1|holds 1.5; users are names)"):
            load(values, "unused", seed=0, clients=1)
