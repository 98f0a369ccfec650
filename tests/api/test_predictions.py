"""A stored model on new rows gives what the run measured, from data.json alone; the documents' lines work."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_digits

import fedbench
from fedbench.errors import DataError

RNG = np.random.default_rng(0)
N = 60
SIDE = np.arange(N) % 3
FRAME = pd.DataFrame(
    {
        "age": np.round(RNG.normal(40, 5, N) + 30 * (SIDE == 1), 2),
        "ward": np.array(["west", "east", "north"])[(SIDE + (RNG.random(N) < 0.2)) % 3],
        "hospital": [f"h{n % 4}" for n in range(N)],
        "outcome": np.array(["well", "ill", "unknown"])[SIDE],
    }
)
FEW = "clients.total=4 clients.per_round=4 model=logistic local.batch_size=4 rounds=3 progress=none threads=1"


def accuracy(run: Any) -> float:
    return float(run.metrics.test_accuracy.iloc[-1])


def test_rows_of_a_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A frame with its columns in another order, one more and no target; a file; without the training
    data."""
    monkeypatch.chdir(tmp_path)
    for name, rows in (("train.csv", FRAME[:40]), ("test.csv", FRAME[40:])):
        rows.to_csv(name, index=False)
    words = "dataset=table dataset.path=train.csv dataset.test_path=test.csv dataset.target=outcome"
    run = fedbench.run(f"{words} dataset.user=hospital partition=natural {FEW}".split())
    new = FRAME[40:].drop(columns="outcome").assign(more=1)[["more", "ward", "hospital", "age"]]
    Path("train.csv").unlink()
    for rows in (new, "test.csv"):
        assert float(np.mean(run.predict(rows) == FRAME.outcome[40:])) == pytest.approx(accuracy(run))
    weight, bias = (value.double().numpy() for value in run.model.state_dict().values())
    columns = [FRAME.age, FRAME.ward == "east", FRAME.ward == "north", FRAME.ward == "west"]
    x = np.column_stack(columns).astype(float)
    scores = (x[40:] - x[:40].mean(0)) / x[:40].std(0) @ weight.T + bias
    assert run.predict(new).tolist() == np.array(["ill", "unknown", "well"])[scores.argmax(1)].tolist()
    for wrong, said in (
        (new.drop(columns="age"), "rows: needs the column age; it has more, ward, hospital"),
        (new.assign(ward="south"), "rows: the column ward holds south, which the training set does not have"),
        (new.assign(age="old"), "rows: the column age holds texts, that of the training set numbers"),
        (new.assign(ward=[None, *new.ward[1:]]), "rows: the column ward is empty in row 0"),
    ):
        with pytest.raises(DataError, match=f"^{re.escape(said)}"):
            run.predict(wrong)


def test_a_file_without_names_is_no_new_row(tmp_path: Path) -> None:
    """The target is column 0 there: in a file without it the features would have other numbers."""
    frame = FRAME[["outcome", "age", "ward"]]
    frame.to_csv(tmp_path / "t.csv", index=False, header=False)
    words = f"dataset=table dataset.path={tmp_path}/t.csv dataset.target='0' dataset.header=false {FEW}"
    run = fedbench.run(words.split(), directory=tmp_path / "run")
    frame[["age", "ward"]].to_csv(tmp_path / "new.csv", index=False, header=False)
    with pytest.raises(DataError, match=r"new\.csv: has no columns' names; give a DataFrame"):
        run.predict(tmp_path / "new.csv")
    assert len(run.predict(pd.DataFrame({"1": FRAME.age, "2": FRAME.ward}))) == N


@pytest.mark.parametrize("task", ["classification", "regression", "multilabel"])
def test_rows_of_arrays(task: str, tmp_path: Path) -> None:
    """uint8 images with a normalisation per pixel: labels, targets, and which labels hold."""
    data = load_digits()
    x = (data.images * 15.9).astype(np.uint8)
    y: np.ndarray = {"classification": data.target, "regression": data.target / 7}.get(task, np.zeros(0))
    if task == "multilabel":
        y = (data.target[:, None] >= [3, 6]).astype(int)
    np.savez(tmp_path / "f.npz", x_train=x[:300], y_train=y[:300], x_test=x[300:400], y_test=y[300:400])
    words = f"dataset=npz dataset.path={tmp_path}/f.npz dataset.task={task} dataset.normalize_per=pixel"
    run = fedbench.run(f"{words} {FEW}".split(), directory=tmp_path / "run")
    found, true = run.predict(x[300:400]), y[300:400]
    if task == "regression":
        share = 1 - ((found[:, 0] - true) ** 2).sum() / ((true - true.mean()) ** 2).sum()
        assert share == pytest.approx(accuracy(run), rel=1e-4)
    else:
        right = (found == true).reshape(len(true), -1).all(1)
        assert float(right.mean()) == pytest.approx(accuracy(run))
    for wrong, said in (
        (x / 255, "are float64; uint8 is expected"),
        (x[:, :4], r"samples of shape \(1, 4, 8\)"),
    ):
        with pytest.raises(DataError, match=f"^rows: {said}"):
            run.predict(wrong)


def test_chosen_classes_are_called_as_they_were(tmp_path: Path) -> None:
    run = fedbench.run(f"dataset.classes=[7,1] {FEW} dtype=float64".split(), directory=tmp_path / "run")
    data = load_digits()
    assert {*run.predict((data.images / 16)[np.isin(data.target, [1, 7])]).tolist()} == {1, 7}
    assert str(run.inputs(data.images / 16).dtype) == "torch.float64"


def test_the_lines_of_the_documents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (Path(__file__).parents[2] / "fedbench" / "README.md").read_text()
    (lines,) = re.findall(r"<!-- prediction -->\n```python\n(.*?)```", page, flags=re.DOTALL)
    monkeypatch.chdir(tmp_path)
    FRAME.to_csv("patients.csv", index=False)
    FRAME.drop(columns=["outcome", "hospital"]).to_csv("new.csv", index=False)
    known = {"OVERRIDES": FEW.split()}
    exec(lines, known)  # the documents are ours
    assert {*known["labels"]} <= {"well", "ill", "unknown"}  # type: ignore[misc]
    assert tuple(known["scores"].shape) == (N, 3)  # type: ignore[attr-defined]
    assert os.path.isfile("outputs/runs/" + os.listdir("outputs/runs")[0] + "/data.json")
