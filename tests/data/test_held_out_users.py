"""dataset.hold_out: who is trained on, who is tested on; one after the other as a sweep."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from run_files import Call

from fedbench.api import compose_config
from fedbench.runs.run import Run

WARDS = ["b", "a", "7", "c d"]
RNG = np.random.default_rng(0)
FRAME = pd.DataFrame({
    "x": np.arange(40.0), "y": RNG.choice(["no", "yes"], 40), "ward": [WARDS[at % 4] for at in range(40)],
})  # fmt: skip


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.chdir(tmp_path)
    FRAME.to_csv("t.csv", index=False)
    words = "dataset=table dataset.path=t.csv dataset.target=y dataset.user=ward dataset.normalize=false"
    return f"{words} partition=natural rounds=1 progress=none clients.per_round=2 local.batch_size=4".split()


def values(plan: Run, part: str) -> list[float]:
    return sorted(getattr(plan.problem.dataset, f"x_{part}").flatten().tolist())


def test_all_samples_of_the_user_are_tested_on_and_all_others_trained_on(file: list[str]) -> None:
    """Also those that would be the table's random test set."""
    plan = Run(compose_config([*file, "clients.total=3", "dataset.hold_out=[c d]"]))
    held = FRAME.ward == "c d"
    assert values(plan, "test") == FRAME.x[held].tolist()
    assert values(plan, "train") == FRAME.x[~held].tolist()
    assert plan.problem.division.users == ("7", "a", "b")
    assert plan.problem.data_note == "held out: c d, whose 10 samples are the test set"
    two = Run(compose_config([*file, "clients.total=2", "dataset.hold_out=[7,a]"]))
    assert values(two, "test") == FRAME.x[FRAME.ward.isin(["7", "a"])].tolist()


def test_a_test_set_that_says_nothing_of_users_is_left_out(file: list[str]) -> None:
    x, y = FRAME[["x"]].to_numpy(), (FRAME.y == "yes").to_numpy(int)
    np.savez("t.npz", x_train=x, y_train=y, client=FRAME.ward.to_numpy(str), x_test=-x, y_test=y)
    words = ["dataset=npz", "dataset.path=t.npz", "dataset.normalize=false", "partition=natural"]
    words += ["local.batch_size=4"]
    plan = Run(compose_config([*words, "clients.total=3", "clients.per_round=2", "dataset.hold_out=[b]"]))
    assert values(plan, "test") == FRAME.x[FRAME.ward == "b"].tolist()
    assert "the 40 test samples that are nobody's are left out" in str(plan.problem.data_note)


def test_each_user_in_turn_is_a_sweep_with_a_table(
    file: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    fedbench = Call(capsys)
    words = ["dataset.hold_out=each", "clients.total=3", "hydra/launcher=basic", "hydra.sweep.dir=s"]
    code, out, _ = fedbench("-m", *file, *words)
    assert code == 0
    runs = pd.read_csv("s/runs.csv")
    assert runs["dataset.hold_out"].tolist() == [f"['{ward}']" for ward in ("7", "a", "b", "c d")]
    for name in runs["dataset.hold_out"]:
        assert f"\n{name} " in out
    names = "['7'],[a],[b],['c d']"
    for given, more, said in (
        ("each", [], f"dataset.hold_out={names}: several values need --multirun"),
        ("[d]", ["clients.total=3"], "dataset.hold_out=d: must be users of table: 7, a, b, c d"),
        ("[7,a,b,c d]", [], "must leave a user to train on"),
        ("[7]", ["clients.total=4"], "clients.total=4: must be at most 3, the data's own clients"),
        (
            "[7]",
            ["clients.total=3", "dataset.pool=0.2"],
            "dataset.pool=0.2: must be null with dataset.hold_out",
        ),
        *(
            (
                value,
                ["dataset=digits"],
                f"dataset.hold_out={value}: must be null: digits does not say whose its",
            )
            for value in ("each", "[x]")
        ),
    ):
        plain = file if "dataset=digits" not in more else []
        assert said in fedbench.refused(*plain, f"dataset.hold_out={given}", *more)


def test_steps_of_ones_own_are_measured_by_the_label_mixture(file: list[str], tmp_path: Path) -> None:
    """No test sample of a held-out user is a client's."""
    words = [*file, "clients.total=3", "dataset.hold_out=[b]", "eval.finetune_steps=1", "model=logistic"]
    Run(compose_config(words)).go(tmp_path / "run")
    row = pd.read_csv(tmp_path / "run/metrics.csv").iloc[-1]
    assert 0 <= row.finetuned_accuracy_worst <= row.finetuned_accuracy_mean <= 1
