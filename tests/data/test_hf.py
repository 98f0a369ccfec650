"""Hugging Face `datasets` on the disk, against the numbers that were written; skipped without the library."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from option_helpers import load, refusal
from PIL import Image

from fedbench.api import compose_config
from fedbench.config.identity import run_hash
from fedbench.data import Dataset
from fedbench.errors import ConfigError, DataError
from fedbench.runs.run import Run

hf = pytest.importorskip("datasets", reason="needs the library `datasets` (extra hf)")
RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 256, (40, 8, 8, 3), dtype=np.uint8)
LABELS = RNG.integers(0, 3, 40)
USERS = [f"user {n}" for n in RNG.permutation(np.arange(40) % 4)]
AGES, CITIES = RNG.normal(40, 5, 40), RNG.choice(["Bonn", "Oslo"], 40)


def rows(at: slice) -> Any:
    """Every kind of column that there is: images, vectors, tokens, numbers, texts, classes by name."""
    columns = {
        "picture": list(IMAGES[at]),
        "vector": IMAGES[at].reshape(-1, 192)[:, :5].astype(float) / 7,
        "levels": IMAGES[at].reshape(-1, 192)[:, :5],
        "tokens": IMAGES[at].reshape(-1, 192)[:, :6].astype(int),
        "next": IMAGES[at].reshape(-1, 192)[:, 1:7].astype(int),
        "age": AGES[at],
        "city": list(CITIES[at]),
        "ragged": [[1.0] * (1 + n % 2) for n in range(len(LABELS[at]))],
        "client": USERS[at],
        "label": LABELS[at],
    }
    kinds = {
        "picture": hf.Image(),
        "vector": hf.Sequence(hf.Value("float64")),
        "levels": hf.Sequence(hf.Value("uint8")),
        "tokens": hf.Sequence(hf.Value("int32")),
        "next": hf.Sequence(hf.Value("int64")),
        "age": hf.Value("float64"),
        "city": hf.Value("string"),
        "ragged": hf.Sequence(hf.Value("float32")),
        "client": hf.Value("string"),
        "label": hf.ClassLabel(names=["cat", "dog", "eel", "never"]),
    }
    return hf.Dataset.from_dict(columns, features=hf.Features(kinds))


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("hf") / "saved"
    hf.DatasetDict({"train": rows(slice(30)), "test": rows(slice(30, 40))}).save_to_disk(str(path))
    return path


def read(path: Path, **keys: Any) -> Dataset:
    return load({"name": "hf", "path": str(path), "normalize": False, **keys}, "unused", seed=0, clients=1)


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        ("picture", IMAGES.transpose(0, 3, 1, 2)),
        ("vector", IMAGES.reshape(40, -1)[:, :5] / 7),
        ("levels", IMAGES.reshape(40, -1)[:, :5]),
        ("tokens", IMAGES.reshape(40, -1)[:, :6].astype(np.float32)),
    ],
)
def test_samples_labels_and_users(column: str, expected: np.ndarray, saved: Path) -> None:
    data = read(saved, x=column, user="client")
    for got, want in ((data.x_train, expected[:30]), (data.x_test, expected[30:])):
        assert got.numpy().dtype == want.dtype
        np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal([*data.y_train, *data.y_test], LABELS)
    assert data.classes == 4  # a ClassLabel knows of one that no sample has
    assert [*data.client, *data.test_client] == USERS  # type: ignore[misc]


def test_tokens_with_a_label_each(saved: Path) -> None:
    data = read(saved, x="tokens", target="next", task="sequence", vocabulary=256)
    np.testing.assert_array_equal(data.x_test, IMAGES.reshape(40, -1)[30:, :6])
    np.testing.assert_array_equal(data.y_test, IMAGES.reshape(40, -1)[30:, 1:7])


def test_all_other_columns_are_features_as_in_a_table(saved: Path, tmp_path: Path) -> None:
    kept = rows(slice(40)).select_columns(["age", "city", "client", "label"])
    kept.save_to_disk(str(tmp_path / "one"))  # a Dataset without splits
    data = read(tmp_path / "one", test=None, test_fraction=0.25, user="client")
    assert (len(data.y_train), len(data.y_test), data.shape) == (30, 10, (3,))
    features = np.column_stack([AGES, CITIES == "Bonn", CITIES == "Oslo"])
    for x, y, who in (
        (data.x_train, data.y_train, data.client),
        (data.x_test, data.y_test, data.test_client),
    ):
        at = [int(np.flatnonzero(row[0] == AGES)[0]) for row in x.numpy()]
        np.testing.assert_array_equal(x, features[at])
        np.testing.assert_array_equal(y, LABELS[at])
        assert list(who) == [USERS[n] for n in at]  # type: ignore[arg-type]
    named = read(tmp_path / "one", test=None, target="city")  # texts: classes by name
    assert (named.classes, set(named.y_train.tolist())) == (2, {0, 1})


def test_files_that_load_dataset_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hf.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "train.csv").write_text("a,label\n1.5,0\n2.5,1\n")
    (tmp_path / "data" / "test.csv").write_text("a,label\n3.5,1\n")
    data = read(tmp_path / "data")
    assert (data.x_train.tolist(), data.y_train.tolist()) == ([[1.5], [2.5]], [0, 1])
    assert (data.x_test.tolist(), data.y_test.tolist()) == ([[3.5]], [1])


def test_a_run_with_users_as_clients(saved: Path, tmp_path: Path) -> None:
    words = ["dataset=hf", f"dataset.path={saved}", "dataset.x=picture", "dataset.user=client"]
    words += ["partition=natural", "clients.total=4", "clients.per_round=2", "rounds=2", "model=cnn"]
    run = Run(compose_config([*words, "local.batch_size=4", "local.steps=1", "progress=none"]))
    assert sorted(run.problem.division.sizes) == sorted(USERS[:30].count(user) for user in set(USERS))
    assert run.go(tmp_path / "run")["status"] == "completed"
    before = run_hash(compose_config(words))
    more = saved / "train" / "more"
    more.write_text("1")
    assert run_hash(compose_config(words)) != before  # what lies there counts
    more.unlink()


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({}, "dataset.x=null: must be the column of samples: picture has more than one number in a row"),
        ({"x": "image"}, "dataset.x=image: must be a column of"),
        ({"x": "vector", "target": "y"}, "dataset.target=y: must be a column of"),
        ({"x": "vector", "user": "who"}, "dataset.user=who: must be a column of"),
        ({"train": "training"}, "dataset.train=training: must be a split of"),
        ({"subset": "plain"}, "dataset.subset=plain: must be null: save_to_disk wrote"),
        ({"test": "validation"}, "dataset.test=validation: must be a split of"),
        (
            {"test_fraction": 0.3},
            "dataset.test_fraction=0.3: must be left at its default, 0.2: dataset.test=",
        ),
        ({"x": "ragged"}, "the rows of the column ragged must be of one kind and shape"),
        ({"x": "city"}, "x_train is <U4 of shape (30,); uint8 or a float type is expected"),
        ({"x": "vector", "target": "city", "task": "regression"}, "the column city holds texts; regression "),
        (
            {"x": "vector", "target": "vector", "task": "classification"},
            "y_train is float64 of shape (30, 5); integers",
        ),
        ({"x": "vector", "target": "vector"}, "dataset.task=null: say which: the target vector of"),
        ({"path": Path("/nowhere/at/all")}, "dataset.path=/nowhere/at/all: cannot be loaded by `datasets` ("),
    ],
)
def test_what_is_wrong_is_one_line(keys: dict[str, Any], says: str, saved: Path) -> None:
    given = {"path": saved, **keys}
    assert says in refusal({"name": "hf", **given, "path": str(given["path"])})


@pytest.mark.parametrize("key", ["x", "target", "user"])
def test_a_column_that_the_test_split_lacks(key: str, tmp_path: Path) -> None:
    keys = {"x": "vector", "target": "label", "user": "client"}
    test = rows(slice(30, 40)).remove_columns(keys[key])
    hf.DatasetDict({"train": rows(slice(30)), "test": test}).save_to_disk(str(tmp_path))
    with pytest.raises(ConfigError, match=f"dataset.{key}={keys[key]}: must be a column of"):
        read(tmp_path, **keys)


# ---- columns that would change on the way -----------------------------------------------------------------


def jsonl(place: Path, users: list[Any]) -> dict[str, Any]:
    """JSON lines in which these users take turns, a lot of lines each."""
    place.mkdir()
    lines = [{"a": n / 2, "label": n % 2, "user": users[n * len(users) // 40]} for n in range(40)]
    (place / "train.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return {"name": "hf", "path": str(place), "user": "user", "test": None}


@pytest.mark.parametrize(
    ("users", "said"),
    [
        (["007", 7, "7", "u1"], "user holds arrow.json values; users are names or integers|cannot be loaded"),
        ([2**63, 2**63 + 1], "user holds the float 9.223372036854775\\d*e\\+18, too large|cannot be loaded"),
        ([2**62, 0.5], "user holds the float 4.6116860184273879e\\+18, too large"),
        ([2**62, None], "the column user is empty in row 20"),
    ],
)
def test_users_in_json_that_would_merge(
    users: list[Any], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Older releases of `datasets` load no column of two types."""
    monkeypatch.setattr(hf.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    assert re.search(said, refusal(jsonl(tmp_path / "d", users)))


def test_integers_in_json_are_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hf.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    data = load(jsonl(tmp_path / "d", [2**62 + 1, 2**62]), "unused", seed=0, clients=1)
    assert {*data.client} == {f"{2**62}", f"{2**62 + 1}"}  # type: ignore[misc]


def of_columns(place: Path, **columns: tuple[Any, Any]) -> Path:
    values = {name: cells for name, (cells, _) in columns.items()}
    kinds = hf.Features({name: kind for name, (_, kind) in columns.items()})
    hf.Dataset.from_dict(values, features=kinds).save_to_disk(str(place))
    return place


TEN = [n % 2 for n in range(10)]


def test_palette_images_are_the_pixels_that_they_show(tmp_path: Path) -> None:
    levels = RNG.integers(0, 256, (10, 4, 4), dtype=np.uint8)
    images = []
    for image in levels:
        numbers = np.random.default_rng(0).permutation(256).astype(np.uint8)  # of each level
        shown = Image.fromarray(numbers[image], mode="P")
        shown.putpalette(np.repeat(np.argsort(numbers), 3).astype(np.uint8).tolist())
        images.append(shown)
    file = of_columns(tmp_path, x=(images, hf.Image()), label=(TEN, hf.Value("int64")))
    data = read(file, x="x", test=None)
    found = np.concatenate([data.x_train, data.x_test])[:, 0]
    assert sorted(map(bytes, found)) == sorted(map(bytes, levels))


def test_what_is_missing_in_a_list_is_no_number(tmp_path: Path) -> None:
    """NumPy shows a missing int64 as the lowest one."""
    lists = [[1, 2], [3, None], *[[5, 6]] * 8]
    columns = {"x": (lists, hf.Sequence(hf.Value("int64"))), "label": (TEN, hf.Value("int64"))}
    line = refusal({"name": "hf", "path": str(of_columns(tmp_path / "a", **columns)), "x": "x", "test": None})
    assert line == f"{tmp_path}/a: the column x is empty"
    columns["x"] = ([None, *[[5, 6]] * 9], hf.Sequence(hf.Value("int64")))
    line = refusal({"name": "hf", "path": str(of_columns(tmp_path / "b", **columns)), "x": "x", "test": None})
    assert line == f"{tmp_path}/b: the column x is empty in row 0"


def test_integers_that_float32_does_not_hold_become_float64(tmp_path: Path) -> None:
    lists = [[2**24 + 1 + n, n] for n in range(10)]
    columns = {"x": (lists, hf.Sequence(hf.Value("int64"))), "label": (TEN, hf.Value("int64"))}
    data = read(of_columns(tmp_path, **columns), x="x", test=None)
    assert sorted(np.concatenate([data.x_train, data.x_test]).tolist()) == lists


@pytest.mark.parametrize(
    ("classes", "kept"), [(["eel", "cat"], [2, 0]), ([2, 0], [2, 0]), (["2", "cat"], [2, 0])]
)
def test_classes_of_a_class_label_are_chosen_by_name_or_number(
    classes: list[Any], kept: list[int], saved: Path
) -> None:
    data = read(saved, x="vector", classes=classes)
    expected = LABELS[:30][np.isin(LABELS[:30], kept)]
    assert data.y_train.tolist() == [kept.index(label) for label in expected]
    assert data.names == ("eel", "cat")


@pytest.mark.parametrize(
    ("classes", "said"),
    [
        (
            ["eel", "owl"],
            "dataset.classes=owl: has no training or no test samples: the labels of hf are cat, dog, eel, ",
        ),
        (["eel", 2], "dataset.classes=[eel,2]: names one class twice: eel and 2"),
        ([0, 9], "dataset.classes=9: has no training or no test samples"),
    ],
)
def test_classes_that_a_class_label_does_not_have(classes: list[Any], said: str, saved: Path) -> None:
    line = refusal({"name": "hf", "path": str(saved), "x": "vector", "classes": classes})
    assert line.startswith(said)


def test_a_column_is_left_out(saved: Path) -> None:
    many = ["picture", "vector", "levels", "tokens", "next", "ragged", "client"]
    assert read(saved, drop=many).features == (("age", None), ("city", "Bonn"), ("city", "Oslo"))
    line = refusal({"name": "hf", "path": str(saved), "x": "vector", "drop": ["city"]})
    assert line == "dataset.drop=[city]: must be null: dataset.x=vector is the only column of samples"


def test_without_the_library_a_line_says_how_to_get_it(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(DataError, match=r"dataset=hf: needs datasets: pip install -e '\.\[hf\]'"):
        read(saved)
