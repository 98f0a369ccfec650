"""loss.class_weight: the run recomputed in NumPy, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from run_files import Call, model, read
from scipy.special import softmax
from sklearn.utils.class_weight import compute_class_weight

from fedbench.api import compose_config
from fedbench.runs.run import Run

RNG = np.random.default_rng(0)
CLIENTS, LR, STEPS, ROUNDS = 3, 0.5, 2, 2
CLASSES = 4
X = RNG.normal(size=(90, 3))
Y = RNG.choice(CLASSES, 90, p=(0.6, 0.25, 0.1, 0.05))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    np.savez(tmp_path / "x.npz", x_train=X, y_train=Y, x_test=X[:20], y_test=Y[:20])
    return tmp_path / "x.npz"


def by_hand(client: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, float, float]:
    """FedAvg with full local batches from zeros: the model (classes, 4), the objective and the mean loss."""
    x = np.hstack([X, np.ones((len(X), 1))])

    def parts(theta: np.ndarray, mine: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        p = softmax(x[mine] @ theta.T, 1)
        own = weights[Y[mine]]
        gradient = ((p - np.eye(CLASSES)[Y[mine]]) * own[:, None]).T @ x[mine] / mine.sum()
        return gradient, -np.log(p[np.arange(mine.sum()), Y[mine]])

    theta, each = np.zeros((CLASSES, 4)), [client == i for i in range(CLIENTS)]
    for _ in range(ROUNDS):
        models = []
        for mine in each:
            y = theta.copy()
            for _ in range(STEPS):
                y -= LR * parts(y, mine)[0]
            models.append(y)
        theta = np.mean(models, axis=0)
    objective = np.mean([(weights[Y[mine]] * parts(theta, mine)[1]).mean() for mine in each])
    return theta, objective, parts(theta, client >= 0)[1].mean()


@pytest.mark.parametrize("engine", ["loop", "vmap"])
@pytest.mark.parametrize("asked", ["[1,2,0.5,3]", "balanced"])
def test_a_run_is_what_numpy_computes(file: Path, tmp_path: Path, asked: str, engine: str) -> None:
    """balanced is scikit-learn's, of the samples that are trained on. The training loss is without."""
    words = f"""dataset=npz dataset.path={file} dataset.normalize=false model=logistic model.init=zeros
        clients.total={CLIENTS} clients.per_round={CLIENTS} rounds={ROUNDS} local.steps={STEPS}
        local.batch_size=null algorithm=fedavg algorithm.lr={LR} algorithm.weighting=uniform dtype=float64
        eval.train=true eval.objective=true partition=iid progress=none threads=1 engine={engine}
        dataset.validation=0.1 loss.class_weight={asked}"""
    plan = Run(compose_config(words.split()))
    plan.go(tmp_path / "run")
    client = plan.problem.division.assignment
    used = Y[client >= 0]
    assert len(used) < len(Y)
    weights = np.array([1, 2, 0.5, 3.0])
    if asked == "balanced":
        weights = compute_class_weight("balanced", classes=np.arange(CLASSES), y=used)
    theta, objective, loss = by_hand(client, weights)
    kept = [value.double().numpy() for value in model(tmp_path / "run").values()]
    np.testing.assert_allclose(np.hstack([kept[0], kept[1][:, None]]), theta, rtol=1e-10, atol=1e-12)
    last = read(tmp_path / "run" / "metrics.csv")[-1]
    assert float(last["objective"]) == pytest.approx(objective, rel=1e-10)
    assert float(last["train_loss"]) == pytest.approx(loss, rel=1e-10)


def test_weights_that_do_not_fit_are_refused(
    file: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    fedbench = Call(capsys)
    words = ["dataset=npz", f"dataset.path={file}", "rounds=1"]
    said = fedbench.refused(*words, "loss.class_weight=[1,2]")
    assert "loss.class_weight=[1.0,2.0]: must have 4 weights, one for each class of dataset=npz" in said
    for value in ("[1,2,0,3]", "balance", "2"):
        said = fedbench.refused(*words, f"loss.class_weight={value}")
        assert "must be balanced, or a list of positive numbers, one for each class" in said
    np.savez(tmp_path / "y.npz", x_train=X, y_train=X[:, 0], x_test=X, y_test=X[:, 0])
    words = ["dataset=npz", f"dataset.path={tmp_path / 'y.npz'}", "dataset.task=regression"]
    assert "must be null: dataset=npz is regression" in fedbench.refused(*words, "loss.class_weight=balanced")
