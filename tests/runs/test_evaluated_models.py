"""eval.model: whose numbers a row has, derived in NumPy from models that other runs leave, and that training
knows nothing of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from run_files import inputs, metrics, model, runs, same_model
from scipy.special import log_softmax

from fedbench.runs.run import Run
from fedbench.runs.run_directory import RunDirectory

N, LR = 6, 0.3
go = runs(
    f"clients.total={N} clients.per_round=2 partition=dirichlet dtype=float64 threads=1 progress=none "
    f"engine=vmap local.steps=1 local.batch_size=null algorithm.lr={LR}"
)
TWO = "eval.model=mean_of_two"


def weights(directory: Path) -> np.ndarray:
    """Weights and biases of softmax regression (10, 65)."""
    found = model(directory)
    return np.concatenate([found["1.weight"].numpy(), found["1.bias"].numpy()[:, None]], 1)


def with_ones(run: Run, part: str) -> tuple[np.ndarray, np.ndarray]:
    """Samples with a 1 behind them (n, 65), and labels."""
    x = inputs(run, part)
    return np.column_stack([x, np.ones(len(x))]), getattr(run.problem.dataset, f"y_{part}").numpy()


def loss(theta: np.ndarray, x: np.ndarray, y: np.ndarray) -> float:
    return float(-log_softmax(x @ theta.T, 1)[np.arange(len(y)), y].mean())


def test_a_row_tells_of_the_mean_that_is_asked_for(tmp_path: Path) -> None:
    """Models of all versions are what runs of 0 to 5 rounds leave."""
    run = go(tmp_path / "last", "rounds=5", "eval.train=true")
    thetas = []
    for rounds in range(6):
        go(tmp_path / str(rounds), f"rounds={rounds}")
        thetas.append(weights(tmp_path / str(rounds)))
    test, (x, y) = with_ones(run, "test"), with_ones(run, "train")

    two = [thetas[0], *((a + b) / 2 for a, b in zip(thetas, thetas[1:], strict=False))]
    for word, expected in (("eval.model=last", thetas), (TWO, two)):
        go(tmp_path / word, "rounds=5", "eval.train=true", word)
        rows = RunDirectory(tmp_path / word).metrics
        np.testing.assert_allclose(rows.test_loss, [loss(one, *test) for one in expected], rtol=1e-10)
        np.testing.assert_allclose(rows.train_loss, [loss(one, x, y) for one in expected], rtol=1e-10)
        right = [((test[0] @ one.T).argmax(1) == test[1]).mean() for one in expected]
        np.testing.assert_allclose(rows.test_accuracy, right, rtol=1e-12)
        assert same_model(tmp_path / word, tmp_path / "last")


@pytest.mark.parametrize("method", ["scaffold", "mime"])
def test_no_number_of_the_training_changes(method: str, tmp_path: Path) -> None:
    for word in ("eval.model=last", TWO):
        go(tmp_path / word, f"algorithm={method}", "rounds=3", word)
    last = metrics(tmp_path / "eval.model=last")
    other = metrics(tmp_path / TWO)
    assert same_model(tmp_path / "eval.model=last", tmp_path / TWO)
    assert last[0] == other[0]
    assert last[3]["test_loss"] != other[3]["test_loss"]
    for costs in ("uplink_bytes", "downlink_bytes", "gradient_evaluations"):
        assert last[3][costs] == other[3][costs]
