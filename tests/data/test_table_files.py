"""Tables from CSV, TSV, Parquet and LIBSVM, against the numbers that were written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from option_helpers import load
from sklearn.datasets import dump_svmlight_file

from fedbench.api import compose_config
from fedbench.config.identity import run_hash
from fedbench.data import Dataset
from fedbench.errors import ConfigError, DataError
from fedbench.runs.run import Run

RNG = np.random.default_rng(0)
FRAME = pd.DataFrame(
    {
        "age": RNG.integers(18, 80, 50),
        "job": RNG.choice(["cook", "smith", "clerk"], 50),
        "hours": RNG.normal(40, 5, 50),
        "who": RNG.choice(["anna", "ben", "cleo"], 50),
        "income": RNG.choice(["high", "low"], 50),
    }
)
FEATURES = np.column_stack(
    [FRAME.age, FRAME.hours, *(FRAME.job == job for job in ("clerk", "cook", "smith"))]
).astype(float)


def read(path: Path, **keys: Any) -> Dataset:
    values = {"name": "table", "path": str(path), "normalize": False, "target": "income", **keys}
    return load(values, "unused", seed=0, clients=1)


def write(directory: Path, kind: str, frame: pd.DataFrame = FRAME, name: str = "t") -> Path:
    path = directory / f"{name}.{kind}"
    if kind == "parquet":
        pytest.importorskip("pyarrow", reason="Parquet needs pyarrow")
        frame.to_parquet(path)
    else:
        frame.to_csv(path, index=False, sep="\t" if kind == "tsv" else ",")
    return path


@pytest.mark.parametrize("kind", ["csv", "tsv", "csv.gz", "parquet"])
def test_columns_become_features_labels_and_users(kind: str, tmp_path: Path) -> None:
    data = read(write(tmp_path, kind), user="who")
    assert (len(data.y_train), len(data.y_test), data.classes, data.shape) == (40, 10, 2, (5,))
    parts = [data.x_train, data.x_test, data.y_train, data.y_test]
    x, x_test, y, y_test = (part.numpy() for part in parts)
    rows = [int(np.flatnonzero((row == FEATURES).all(1))[0]) for row in (*x, *x_test)]
    assert sorted(rows) == list(range(50))
    assert rows[:40] == sorted(rows[:40])  # the file's order
    np.testing.assert_array_equal([*y, *y_test], (FRAME.income == "low")[rows])  # classes are sorted
    np.testing.assert_array_equal([*data.client, *data.test_client], FRAME.who[rows])  # type: ignore[misc]


def test_a_test_file_and_another_target(tmp_path: Path) -> None:
    train, test = write(tmp_path, "csv", FRAME[:35]), write(tmp_path, "csv", FRAME[35:], "test")
    data = read(train, test_path=str(test), target="hours", task="regression")
    np.testing.assert_allclose(data.y_train[:, 0], FRAME.hours[:35])
    np.testing.assert_allclose(data.y_test[:, 0], FRAME.hours[35:])
    assert data.shape == (1 + 3 + 3 + 2,)
    base = ["dataset=table", f"dataset.path={train}", f"dataset.test_path={test}", "dataset.target=hours"]
    before = run_hash(compose_config(base))
    write(tmp_path, "csv", FRAME[36:], "test")
    assert run_hash(compose_config(base)) != before  # what the test file holds counts


def test_libsvm(tmp_path: Path) -> None:
    x, y = RNG.random((30, 6)) * (RNG.random((30, 6)) < 0.5), RNG.choice([-1, 1], 30)
    x[0, 5] = 0.5
    dump_svmlight_file(x[:20], y[:20], str(tmp_path / "a9a"), zero_based=False)
    dump_svmlight_file(x[20:, :4], y[20:], str(tmp_path / "a9a.t"), zero_based=False)
    data = read(tmp_path / "a9a", test_path=str(tmp_path / "a9a.t"), target=None)
    np.testing.assert_allclose(data.x_train, x[:20])
    np.testing.assert_allclose(data.x_test, np.where(np.arange(6) < 4, x[20:], 0))
    np.testing.assert_array_equal([*data.y_train, *data.y_test], y > 0)


def test_a_run_on_a_table_with_a_column_of_users(tmp_path: Path) -> None:
    path = write(tmp_path, "csv")
    words = [
        "dataset=table",
        f"dataset.path={path}",
        "dataset.user=who",
        "partition=natural",
        "clients.total=3",
    ]
    words += ["clients.per_round=3", "rounds=30", "local.batch_size=4", "progress=none", "eval.clients=true"]
    outcome = Run(compose_config([*words, "dataset.target=hours", "dataset.task=regression"])).go(
        tmp_path / "run"
    )
    assert outcome.status == "completed"


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"target": "incom"}, "dataset.target=incom: must be a column of"),
        ({"user": "whom"}, "dataset.user=whom: must be a column of"),
        ({"path": "none.csv"}, "dataset.path=none.csv: no such file; a table is expected"),
        ({"test_path": "none.csv"}, "dataset.test_path=none.csv: no such file; a table is expected"),
        ({"target": None}, "dataset.target=null: say which column of t.csv is to be predicted: age, job, "),
        ({"target": "job", "task": "regression"}, "t.csv: the column job holds texts; regression needs num"),
        ({"path": "empty.csv"}, "empty.csv: the column income is empty in row 3"),
        ({"test_path": "empty.csv"}, "empty.csv: the column income is empty in row 3"),
        ({"test_path": "short.csv"}, "dataset.target=income: must be a column of short.csv: "),
        ({"path": "hole.csv"}, "hole.csv: the column hours is empty in row 0"),
        ({"path": "text", "target": None}, "text: cannot be read as LIBSVM, CSV or Parquet ("),
        ({"path": "libsvm", "user": "who", "target": None}, "dataset.user=who: must be null:"),
        ({"path": "libsvm"}, "dataset.target=income: must be null:"),
    ],
)
def test_what_is_wrong_is_one_line(
    keys: dict[str, Any], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path, "csv")
    write(tmp_path, "csv", FRAME.assign(income=FRAME.income.where(FRAME.index != 3)), "empty")
    write(tmp_path, "csv", FRAME.assign(hours=FRAME.hours.where(FRAME.index > 20)), "hole")
    write(tmp_path, "csv", FRAME.drop(columns="income"), "short")
    (tmp_path / "text").write_text("one two three\n")
    (tmp_path / "libsvm").write_text("1 1:0.5\n-1 2:1\n")
    with pytest.raises((ConfigError, DataError)) as error:
        read(**{"path": Path("t.csv"), **keys})
    assert says in str(error.value)
    assert "\n" not in str(error.value)
