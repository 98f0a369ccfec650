"""Clients are the users that a person would number: by value, the same in every reader; what tells who they
are, and what is said where users and clients do not fit."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from option_helpers import partition, refusal

from fedbench.api import compose_config
from fedbench.data.names import in_order
from fedbench.errors import ConfigError
from fedbench.runs.problem import Problem
from fedbench.runs.run import Run

RNG = np.random.default_rng(0)
USERS = RNG.permutation(np.repeat(np.arange(12), 5))  # more than ten: 10 is not behind 1
TESTS = RNG.permutation(np.arange(24) % 12)
X, Y = RNG.random((60, 3)).astype(np.float32), np.arange(60) % 2
X_TEST, Y_TEST = RNG.random((24, 3)).astype(np.float32), np.arange(24) % 2
TINY = "clients.per_round=2 local.batch_size=2 local.steps=1 rounds=1 model=logistic progress=none threads=1"


def frames() -> list[pd.DataFrame]:
    both = ((X, Y, USERS), (X_TEST, Y_TEST, TESTS))
    return [pd.DataFrame(x, columns=["a", "b", "c"]).assign(y=y, u=u) for x, y, u in both]


def tables(place: Path, kind: str) -> str:
    for frame, name in zip(frames(), ("train", "test"), strict=True):
        if kind == "texts":
            frame["u"] = frame.u.astype(str)
        file = place / f"{name}.{'csv' if kind == 'csv' else 'parquet'}"
        frame.to_csv(file, index=False) if kind == "csv" else frame.to_parquet(file)
    return f"dataset=table dataset.path={place}/train{file.suffix} dataset.test_path={file} dataset.target=y"


def npz(place: Path, client: np.ndarray = USERS, client_test: np.ndarray | None = TESTS) -> str:
    more = {} if client_test is None else {"client_test": client_test}
    named = {"x_train": X, "y_train": Y, "x_test": X_TEST, "y_test": Y_TEST, "client": client, **more}
    np.savez(place / "f.npz", **named)
    return f"dataset=npz dataset.path={place}/f.npz"


def leaf(place: Path) -> str:
    for part, x, y, users in (("train", X, Y, USERS), ("test", X_TEST, Y_TEST, TESTS)):
        own = {str(u): {"x": x[users == u].tolist(), "y": y[users == u].tolist()} for u in range(12)}
        (place / part).mkdir()
        content = {"users": sorted(own), "user_data": own}
        (place / part / "a.json").write_text("\ufeff" + json.dumps(content), encoding="utf-8")
    return f"dataset=leaf dataset.path={place}"


def hf(place: Path) -> str:
    library = pytest.importorskip("datasets", reason="needs the library `datasets` (extra hf)")
    parts = zip(("train", "test"), frames(), strict=True)
    library.DatasetDict({name: library.Dataset.from_pandas(frame) for name, frame in parts}).save_to_disk(
        place
    )
    return f"dataset=hf dataset.path={place} dataset.target=y"


def hdf5(place: Path) -> str:
    library = pytest.importorskip("h5py", reason="needs h5py (extra hdf5)")
    for name, x, y, users in (("train", X, Y, USERS), ("test", X_TEST, Y_TEST, TESTS)):
        with library.File(place / f"{name}.h5", "w") as file:
            for u in range(12):
                file[f"examples/{u}/pixels"], file[f"examples/{u}/label"] = x[users == u], y[users == u]
    return (
        f"dataset=table dataset.path={place}/train.h5 dataset.test_path={place}/test.h5 dataset.target=label"
    )


READERS: dict[str, Callable[[Path], str]] = {
    "csv": lambda place: tables(place, "csv") + " dataset.user=u",
    "parquet": lambda place: tables(place, "integers") + " dataset.user=u",
    "parquet of texts": lambda place: tables(place, "texts") + " dataset.user=u",
    "npz": npz,
    "npz of texts": lambda place: npz(place, USERS.astype(str), TESTS.astype(str)),
    "npz of bytes": lambda place: npz(place, USERS.astype("S"), TESTS.astype(str)),
    "npz of both": lambda place: npz(place, USERS.astype(np.uint64), TESTS.astype("S")),
    "leaf": leaf,
    "hf": lambda place: hf(place) + " dataset.user=u",
    "hdf5": hdf5,
}


def problem(words: str, clients: int = 12) -> Problem:
    return Run(compose_config(f"{words} clients.total={clients} {TINY}".split())).problem


@pytest.mark.parametrize("reader", READERS)
def test_client_k_is_user_k(reader: str, tmp_path: Path) -> None:
    """Every sample is told by its features."""
    found = problem(f"{READERS[reader](tmp_path)} partition=natural dataset.normalize=false")
    assert found.division.users == (*map(str, range(12)),)
    for x, client, rows, users in (
        (found.dataset.x_train, found.division.partition, X, USERS),
        (found.dataset.x_test, found.division.test_client, X_TEST, TESTS),
    ):
        assert client is not None
        at = [int(np.flatnonzero((row == rows).all(1))[0]) for row in x.numpy().astype(np.float32)]
        assert sorted(at) == [*range(len(rows))]
        np.testing.assert_array_equal(client, users[at])


def test_pooled_users_keep_their_names_and_both_arrays_are_needed(tmp_path: Path) -> None:
    words = npz(tmp_path, USERS, TESTS.astype(str)) + " partition=natural dataset.pool=0.5"
    found = problem(words)
    assert found.division.users == (*map(str, range(12)),)
    pooled = found.dataset.pooled["pooled_client"]
    np.testing.assert_array_equal(pooled, [*USERS, *TESTS])
    npz(tmp_path, USERS, None)
    line = "^partition=natural: dataset.pool needs the own clients of training and test samples"
    with pytest.raises(ConfigError, match=line):
        problem(words)


def test_users_csv_and_clients_csv_say_who_a_client_is(tmp_path: Path) -> None:
    """Names with commas and quotes too; drawn users keep their names; a resumed run keeps its rows."""
    names = np.array(['Ann "A", MD', "b", "c;d", "e f"])
    client, tested = names[np.arange(60) % 4], names[np.arange(24) % 3]
    words = npz(tmp_path, client, tested) + " partition=natural eval.clients=true dataset.validation=0.2"
    config = f"{words} clients.total=3 {TINY} seed=1 hydra.run.dir={tmp_path}".split()
    Run(compose_config([*config, "checkpoint.until=0"])).go(tmp_path / "run")
    run = Run(compose_config(config))
    run.go(tmp_path / "run")
    with open(tmp_path / "run" / "users.csv", newline="") as stream:
        rows = list(csv.DictReader(stream))
    division = run.problem.division
    drawn = [str(name) for name in sorted(names) if str(name) in (division.users or ())]
    assert len(drawn) == 3
    assert [row["name"] for row in rows] == drawn
    for number, row in enumerate(rows):
        has = [int(row[key]) for key in ("client", "train_samples", "validation_samples", "test_samples")]
        assert has == [number, 12, 3, int((tested == row["name"]).sum())]
    with open(tmp_path / "run" / "clients.csv", newline="") as stream:
        scores = list(csv.DictReader(stream))
    assert [(row["round"], row["name"]) for row in scores] == [(t, name) for t in "01" for name in drawn]


@pytest.mark.parametrize(
    ("tested", "said"),
    [
        (
            np.where(TESTS > 9, 90 + TESTS, TESTS),
            "4 of 24 test samples are of users without training samples (100, 101)",
        ),
        (
            np.char.add("user ", TESTS.astype(str)),
            "24 of 24 test samples are of users without training samples (user 0, user 1, user 10, ...); no "
            "client has test samples of its own, so its label mixture weighs all of them",
        ),
    ],
)
def test_test_samples_of_nobody_are_said(tested: np.ndarray, said: str, tmp_path: Path) -> None:
    found = problem(npz(tmp_path, USERS, tested) + " partition=natural algorithm=local")
    assert said in found.notes


def test_users_that_are_no_clients_are_said(tmp_path: Path) -> None:
    said = "the data's own users are not the clients: partition=iid divides the samples whoever has them"
    for words in (npz(tmp_path), tables(tmp_path, "csv") + " dataset.user=u"):
        assert any(note.startswith(said) for note in problem(words).notes)
        assert not any("own users" in note for note in problem(words + " partition=natural").notes)


def test_names_are_in_the_order_of_their_values() -> None:
    """Integers first, of any size, also as a float is written; 007 is another name than 7."""
    ordered = ["-3", "2.0", "007", "7", "10.0", "11", str(10**25), "1.5", "Ann", "user10", "user2"]
    assert in_order(reversed(ordered)) == ordered


# ---- a partition's file says which rows it means ----------------------------------------------------------


@pytest.mark.parametrize(
    ("label", "said"),
    [
        (Y, None),
        (np.array(["no", "yes"])[Y], None),
        (np.array([b"no", b"yes"])[Y], None),
        (np.sort(Y), "sample 1 has the label 0 there and 1 in the data: the rows are in another order"),
        (
            np.array(["no", "yes"])[::-1][Y],
            "sample 0 has the label yes there and no in the data: the rows are in",
        ),
        (Y[:50], r"label is int64 of shape \(50,\); one label per sample, \(60,\), is expected"),
    ],
)
def test_a_partition_with_labels_fits_the_same_rows_alone(
    label: np.ndarray, said: str | None, tmp_path: Path
) -> None:
    """Class numbers, or what the data call them."""
    frame = frames()[0].assign(y=np.array(["no", "yes"])[Y])
    frame.to_csv(tmp_path / "t.csv", index=False)
    frame.to_csv(tmp_path / "u.csv", index=False)
    np.savez(tmp_path / "p.npz", client=USERS, label=label)
    words = f"dataset=table dataset.path={tmp_path}/t.csv dataset.test_path={tmp_path}/u.csv dataset.target=y"
    words += f" dataset.user=u partition=file partition.path={tmp_path}/p.npz"
    if said is None:
        np.testing.assert_array_equal(problem(words).division.partition, USERS)
        return
    with pytest.raises(ConfigError, match=f"^partition.path=.*p.npz: does not fit: {said}"):
        problem(words)


def test_the_documents_lines_carry_rows_through_another_tool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tool that sorts by label and cuts: every client has one label, as it meant."""
    page = (Path(__file__).parents[2] / "fedbench" / "README.md").read_text()
    (lines,) = re.findall(r"<!-- partition -->\n```python\n(.*?)```", page, flags=re.DOTALL)
    monkeypatch.chdir(tmp_path)
    data = pd.DataFrame({"x": X[:, 0], "label": RNG.permutation(Y)})

    def divide_elsewhere(rows: pd.DataFrame) -> list[pd.DataFrame]:
        ordered = rows.sort_values("label").reset_index(drop=True)
        return [ordered[:30], ordered[30:]]

    exec(lines, {"data": data, "divide_elsewhere": divide_elsewhere})  # the documents are ours
    values: dict[str, Any] = {"name": "file", "path": "partition.npz"}
    assert partition(values, data.label.to_numpy(), 2, 2, 0).tolist() == data.label.tolist()


def test_a_partition_of_targets_that_are_numbers(tmp_path: Path) -> None:
    y = RNG.random((6, 1))
    values: dict[str, Any] = {"name": "file", "path": str(tmp_path / "p.npz")}
    np.savez(tmp_path / "p.npz", client=np.arange(6) % 2, label=y[:, 0])
    assert partition(values, y, 1, 2, 0).tolist() == [0, 1] * 3
    np.savez(tmp_path / "p.npz", client=np.array([0, 1, 0, 1, -5, 1]), label=y[:, 0])
    with pytest.raises(ConfigError, match=r"sample 4 has the client -5; 0 .. 1, or -1 for none, is expected"):
        partition(values, y, 1, 2, 0)
    np.savez(tmp_path / "p.npz", client=np.arange(6) % 2, label=y[::-1, 0])
    with pytest.raises(ConfigError, match="the rows are in another order"):
        partition(values, y, 1, 2, 0)


# ---- HDF5 of users ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "keys", "said"),
    [
        (
            lambda users: None,
            {"target": None},
            "dataset.target=null: must be the labels' array of each user in ",
        ),
        (lambda users: None, {"target": "y"}, "dataset.target=y: must be the labels' array of each user in "),
        (lambda users: None, {"user": "who"}, "dataset.user=who: must be null: "),
        (
            lambda users: users["a"].update(more=Y[:5]),
            {},
            "dataset.drop=null: must leave one array of samples: more, pixels in ",
        ),
        (
            lambda users: users["b"].update(label=Y[:4]),
            {},
            "u.h5: the user b has label (4,), pixels (5, 3); label, ",
        ),
        (
            lambda users: users["b"].pop("pixels"),
            {},
            "u.h5: the user b has label (5,); label, pixels of one length",
        ),
        (
            lambda users: users.clear(),
            {},
            "u.h5: is empty; a group for each user, with its samples and labels, is",
        ),
        (lambda users: users["b"].update(label=[b"x"] * 5), {}, "u.h5: the label of b is "),
    ],
)
def test_other_hdf5_is_refused(change: Any, keys: dict[str, Any], said: str, tmp_path: Path) -> None:
    library = pytest.importorskip("h5py", reason="needs h5py (extra hdf5)")
    users: dict[str, dict[str, Any]] = {u: {"pixels": X[:5], "label": Y[:5]} for u in "ab"}
    change(users)
    with library.File(tmp_path / "u.h5", "w") as file:
        for user, arrays in users.items():
            for name, values in arrays.items():
                file[f"{user}/{name}"] = values
    line = refusal({"name": "table", "path": str(tmp_path / "u.h5"), "target": "label", **keys})
    assert said in line


def test_hdf5_without_its_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "u.h5").write_bytes(b"\x89HDF")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    line = refusal({"name": "table", "path": str(tmp_path / "u.h5"), "target": "label"})
    assert line == f"{tmp_path}/u.h5: needs h5py: pip install -e '.[hdf5]'"
