"""Partitions made elsewhere: row numbers of each client, as other suites write them down."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedbench
from fedbench.cli import main
from fedbench.errors import DataError

OWNERS = np.array([2, 0, 1, 0, -1, 1])
ROWS: list[Any] = [[1, 3], [2, 5], [0]]
FORMS = {
    "lists": ROWS,
    "arrays": [np.array(rows) for rows in ROWS],
    "dict": {2: [0], 0: [1, 3], 1: [5, 2]},
    "texts": {"0": [3, 1], "1": [2, 5], "2": [0]},
    "rows": OWNERS,
}
LABELS = ["b", "a", "a", "b", "c", "c"]


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_each_row_its_client(form: str, tmp_path: Path) -> None:
    path = fedbench.partition_file(FORMS[form], LABELS, tmp_path / "given.npz")
    with np.load(path) as file:
        assert file["client"].tolist() == OWNERS.tolist()
        assert file["label"].tolist() == LABELS


@pytest.mark.parametrize(
    ("indices", "said"),
    [
        ([[0, 1], [1]], "client 1 has the row 1, which is there twice"),
        ([[0, 0]], "client 0 has the row 0, which is there twice"),
        ([[6]], "client 0 has the row 6; the data have the rows 0 .. 5"),
        ([[-1]], "client 0 has the row -1"),
        ({"a": [0]}, "client a: the clients are expected to be 0 .. 0"),
        ({0: [0], 2: [1]}, "client 2: the clients are expected to be 0 .. 1"),
        ([[0.5]], "client 0's row numbers must be a list of whole numbers"),
        ([[True]], "client 0's row numbers must be a list of whole numbers"),
        ([[[0]], [[1]]], "client 0's row numbers must be a list of whole numbers"),
        ([0.0, 1.0], "the clients of the rows must be a list of whole numbers"),
    ],
)
def test_what_is_no_partition_is_refused(indices: Any, said: str, tmp_path: Path) -> None:
    with pytest.raises(DataError) as error:
        fedbench.partition_file(indices, LABELS, tmp_path / "given.npz")
    assert said in str(error.value)
    assert not list(tmp_path.iterdir())


def test_a_run_takes_files_of_rows_and_notices_another_order(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["rounds=0", "clients.total=3", "clients.per_round=1", "local.batch_size=4"]
    assert main([*words, "hydra.run.dir=drawn"]) == 0
    client = np.load("drawn/partition.npz")["client"]
    rows = [np.flatnonzero(client == k) for k in range(3)]
    labels = [int(label) for label in fedbench_labels()]
    Path("lists.json").write_text(json.dumps([own.tolist() for own in rows]))
    Path("both.json").write_text(json.dumps({"client": client.tolist(), "label": labels}))
    np.savez("dict.npz", **{str(k): own for k, own in enumerate(rows)})
    fedbench.partition_file(rows, labels, "ours.npz")
    for file in ("lists.json", "both.json", "dict.npz", "ours.npz"):
        place = file.replace(".", "_")
        assert main([*words, "partition=file", f"partition.path={file}", f"hydra.run.dir={place}"]) == 0
        assert np.load(f"{place}/partition.npz")["client"].tolist() == client.tolist(), file
    Path("sorted.json").write_text(json.dumps({"client": client.tolist(), "label": sorted(labels)}))
    capsys.readouterr()
    for text, said in {
        "sorted.json": "the rows are in another order",
        "no.json": "is not JSON",
        "word.json": "row numbers of each client are expected",
        "twice.json": "which is there twice",
    }.items():
        contents = {"no.json": "{", "word.json": '"a"', "twice.json": "[[0, 0], [1], [2]]"}
        if text in contents:
            Path(text).write_text(contents[text])
        assert main([*words, "partition=file", f"partition.path={text}", "hydra.run.dir=bad"]) == 2
        assert said in capsys.readouterr().err
        assert not Path("bad").exists()


def fedbench_labels() -> np.ndarray:
    """The labels of digits' training set, in the order of partition.npz."""
    from option_helpers import load

    return load({"name": "digits"}, "unused", seed=0, clients=3).y_train.numpy()


def test_a_partition_is_made_of_a_data_sets_labels(tmp_path: Path) -> None:
    """In the order that a run's own partition.npz has."""
    labels = fedbench.labels(["dataset=digits", "dataset.train_samples=300"])
    path = fedbench.partition_file(labels // 2, labels, tmp_path / "pairs.npz")
    words = ["partition=file", f"partition.path={path}", "dataset.train_samples=300", "clients.total=5"]
    run = fedbench.run([*words, "rounds=0", "progress=none", "threads=1"], tmp_path / "run")
    with np.load(tmp_path / "run/partition.npz") as file:
        assert file["client"].tolist() == (labels // 2).tolist()
    assert run.final_accuracy is not None
