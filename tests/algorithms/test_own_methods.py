"""What a method can ask for beyond a mean of uploads and one loss, against NumPy, in every engine."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from run_files import metrics, model, same_model
from scipy.special import log_softmax, softmax

from fedbench.api import run
from fedbench.engine.executors import LoopExecutor
from fedbench.engine.vectorised import VmapExecutor
from fedbench.errors import RunError
from fedbench.rng import Stream, fold, make_key, threefry2x32

OWN = Path(__file__).with_name("own_methods.py")
N, CLASSES, FEATURES, STEPS, LR, ROUNDS = 5, 3, 4, 2, 0.5, 4
ASYNC = ["schedule=async", "schedule.concurrency=4", "delay=exponential"]
Data = dict[str, np.ndarray]


@pytest.fixture(scope="module")
def data() -> Data:
    """Clients of 4 to 12 samples, and what they are tested on."""
    rng = np.random.default_rng(5)
    client, owner = np.repeat(np.arange(N), [4, 6, 8, 10, 12]), np.arange(60) % N
    y, y_test = rng.integers(0, CLASSES, 40), rng.integers(0, CLASSES, 60)
    means = 2 * rng.normal(size=(N, CLASSES, FEATURES))
    x, x_test = means[client, y] + rng.normal(size=(40, FEATURES)), means[owner, y_test]
    each = {"x_train": x, "y_train": y, "x_test": x_test, "y_test": y_test}
    return {**each, "client": client, "client_test": owner}


def words_of(data: Data, place: Path, *more: str) -> list[str]:
    np.savez(place / "own.npz", **data)
    return [
        f"imports=[{OWN}]", "dataset=npz", f"dataset.path={place / 'own.npz'}", "dataset.normalize=false",
        "partition=natural", f"clients.total={N}", "clients.per_round=3", "model=logistic",
        f"local.steps={STEPS}", "local.batch_size=null", f"rounds={ROUNDS}", "eval.every=1", "dtype=float64",
        "trace=true", "progress=none", "threads=1", *more,
    ]  # fmt: skip


def gradient(w: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Of the mean cross-entropy of a softmax regression, whose parameters are one vector: weights, biases."""
    logits = x @ w[: CLASSES * FEATURES].reshape(CLASSES, FEATURES).T + w[CLASSES * FEATURES :]
    error = (softmax(logits, 1) - np.eye(CLASSES)[y]) / len(y)
    return np.concatenate([(error.T @ x).ravel(), error.sum(0)])


def flat(directory: Path) -> np.ndarray:
    return np.concatenate([value.numpy().ravel() for value in model(directory).values()])


def descended(w: np.ndarray, data: Data, i: int) -> np.ndarray:
    """After a job of client `i`."""
    own = data["client"] == i
    for _ in range(STEPS):
        w = w - LR * gradient(w, data["x_train"][own], data["y_train"][own])
    return w


@pytest.mark.parametrize("engine", ["loop", "vmap"])
@pytest.mark.parametrize("schedule", [[], ASYNC], ids=["sync", "async"])
def test_uploads_one_by_one_and_a_message_for_each(
    tmp_path: Path, data: Data, engine: str, schedule: list[str]
) -> None:
    """Replayed from jobs.csv: who starts from which version, and which update applies it."""
    more = [*schedule] or ["eval.clients=true"]
    more += [f"algorithm=mixing{'' if schedule else '_own'}", "model.init=zeros", f"engine={engine}"]
    words = words_of(data, tmp_path, *more, f"algorithm.lr={LR}", "chunk=2", "checkpoint.seconds=0")
    made = run(words, tmp_path / "run")
    jobs = pd.read_csv(tmp_path / "run/jobs.csv", comment="#")
    models = np.zeros((N, CLASSES * FEATURES + CLASSES)) + 0.1 * np.arange(N)[:, None]
    sent, seen = [], 0
    for t in range(ROUNDS):
        sent.append((0.75 * models + 0.25 * models.mean(0), seen + 1))
        arrived = jobs[jobs.applied_update == t].sort_values("position")
        assert len(arrived) == 3
        down = [sent[v][0][i] for v, i in zip(arrived.start_version, arrived.client, strict=True)]
        up = [descended(w, data, i) for w, i in zip(down, arrived.client, strict=True)]
        for i, w in zip(arrived.client, up, strict=True):
            models[i] = w
        theta = np.median(up, 0) + np.mean(np.array(up) - down, 0)
        seen += STEPS + max(sent[v][1] for v in arrived.start_version)
    assert schedule == [] or arrived.start_version.nunique() > 1
    np.testing.assert_allclose(flat(tmp_path / "run"), theta, rtol=1e-10)
    last, scores = made.metrics.iloc[-1], []
    assert last.uplink_bytes == (jobs.status == "applied").sum() * (models.shape[1] + 3)
    assert last.downlink_bytes / 8 == (jobs.start_version < ROUNDS).sum() * models.shape[1]
    for i, w in enumerate(models):
        x, y = (data[name][data["client_test"] == i] for name in ("x_test", "y_test"))
        logits = x @ w[: CLASSES * FEATURES].reshape(CLASSES, FEATURES).T + w[CLASSES * FEATURES :]
        scores.append((logits.argmax(1) == y).mean())
    if not schedule:
        clients = pd.read_csv(tmp_path / "run/clients.csv")
        assert clients[clients["round"] == ROUNDS].accuracy.tolist() == pytest.approx(scores, rel=1e-12)

    run([*words, "checkpoint.until=2"], tmp_path / "parts")
    run(words, tmp_path / "parts")
    assert metrics(tmp_path / "parts") == metrics(tmp_path / "run")
    assert same_model(tmp_path / "parts", tmp_path / "run")


SEED, D = 7, CLASSES * FEATURES + CLASSES


def uniform(key: tuple[int, int], call: int, size: int = D) -> np.ndarray:
    """53 bits of two words, at the counters (0, call), (1, call), ..."""
    first, second = threefry2x32(key, (np.arange(size), call))
    return ((first >> 5) * 2**26 + (second >> 6)) / 2**53


def normal(key: tuple[int, int], call: int, size: int = D) -> np.ndarray:
    first, second = threefry2x32(key, (np.arange(size), call))
    return np.sqrt(-2 * np.log((first + 0.5) / 2**32)) * np.cos(2 * math.pi * second / 2**32)


ENGINES = ["loop", "vmap", pytest.param("compile", marks=pytest.mark.slow)]


@pytest.mark.parametrize("engine", ENGINES)
def test_what_is_drawn_has_an_address(tmp_path: Path, data: Data, engine: str) -> None:
    """A client's by its number, its job and the part of the job; the server's by the round and the hook."""
    more = ["algorithm=drawn", f"algorithm.lr={LR}", "model.init=zeros", f"seed={SEED}", f"engine={engine}"]
    words = words_of(data, tmp_path, *more, "checkpoint.seconds=0", "chunk=2")
    run(words, tmp_path / "run")
    jobs = pd.read_csv(tmp_path / "run/jobs.csv", comment="#").sort_values("job")
    jobs["n"] = jobs.groupby("client").cumcount()
    theta = np.zeros(D)
    for t in range(ROUNDS):
        uploads, sent = [], uniform(make_key(SEED, Stream.SERVER, t, 0), 0)
        for job in jobs[jobs.applied_update == t].itertuples():
            key, own = make_key(SEED, Stream.CLIENT, job.client, job.n), data["client"] == job.client
            y = theta + sent + normal(fold(key, 0), 0)
            for k in range(STEPS):
                step = gradient(y, data["x_train"][own], data["y_train"][own])
                y = y - LR * (step + uniform(fold(key, 2 + k), 0) - normal(fold(key, 2 + k), 1))
            uploads.append(y - theta + uniform(fold(key, 1), 0, 1))
        theta = theta + np.mean(uploads, 0) + normal(make_key(SEED, Stream.SERVER, t, 1), 0)
    np.testing.assert_allclose(flat(tmp_path / "run"), theta, rtol=1e-9)
    run([*words, "checkpoint.until=2"], tmp_path / "parts")
    run(words, tmp_path / "parts")
    assert same_model(tmp_path / "parts", tmp_path / "run")


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("decay", [0.0, 0.3])
def test_a_loss_of_its_own(tmp_path: Path, data: Data, engine: str, decay: float) -> None:
    """Clients of 4 to 12 samples: at once, the smaller ones' mini-batches are padded."""
    more = ["algorithm=own_loss", f"algorithm.lr={LR / 5}", "model.init=zeros", f"engine={engine}"]
    more += ["clients.per_round=5", f"loss.weight_decay={decay}", "chunk=5", "local.steps=12"]
    run(words_of(data, tmp_path, *more), tmp_path / "run")
    theta = np.zeros(D)
    for _ in range(ROUNDS):
        deltas, said = [], []
        for i in range(N):
            x, labels = (data[name][data["client"] == i] for name in ("x_train", "y_train"))
            share, y = np.bincount(labels, minlength=CLASSES) / len(labels), theta
            for _ in range(12):
                logits = x @ y[: CLASSES * FEATURES].reshape(CLASSES, FEATURES).T + y[CLASSES * FEATURES :]
                lost = -log_softmax(logits, 1)[np.arange(len(x)), labels]
                said.append(lost.mean() + (x[:, 0] * logits[:, 1]).mean())
                error = share[labels, None] * (softmax(logits, 1) - np.eye(CLASSES)[labels])
                error = (error + (1 + i) * 2 / CLASSES * logits) / len(x)
                y = y - LR / 5 * (np.concatenate([(error.T @ x).ravel(), error.sum(0)]) + decay * y)
            deltas.append(y - theta)
        theta = theta + np.mean(deltas, 0) * (1 + np.mean(said))
    np.testing.assert_allclose(flat(tmp_path / "run"), theta, rtol=1e-9)


@pytest.mark.parametrize("engine", ["loop", "vmap"])
@pytest.mark.parametrize("schedule", [[], ASYNC], ids=["sync", "async"])
def test_full_gradients_of_a_surveyed_cohort_are_computed_once(
    tmp_path: Path, data: Data, engine: str, schedule: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """FedDANE, replayed from jobs.csv, and its gradients counted: K and one full pass for each job."""
    passes: list[int] = []
    cls = {"loop": LoopExecutor, "vmap": VmapExecutor}[engine]
    inner = cls.gradients
    monkeypatch.setattr(
        cls, "gradients", lambda self, *given: passes.append(len(given[3][0])) or inner(self, *given)
    )
    words = words_of(data, tmp_path, "model.init=zeros", f"engine={engine}", f"algorithm.lr={LR}", "chunk=2")
    words, found = [*words, *schedule], {}
    for name, times in (("dane", 1), ("dane_elsewhere", 2)):
        passes.clear()
        made = run([*words, f"algorithm={name}"], tmp_path / name)
        jobs = pd.read_csv(tmp_path / f"{name}/jobs.csv", comment="#")
        came = jobs[jobs.status.isin(["applied", "discarded"])]
        assert made.metrics.iloc[-1].gradient_evaluations == len(came) * (STEPS + times)
        assert sum(passes) == times * (jobs.status == "applied").sum()
        found[name] = flat(tmp_path / name)
    np.testing.assert_array_equal(found["dane"], found["dane_elsewhere"])

    def own(w: np.ndarray, i: int) -> np.ndarray:
        return gradient(w, data["x_train"][data["client"] == i], data["y_train"][data["client"] == i])

    models = [np.zeros(CLASSES * FEATURES + CLASSES)]
    weights, uploads = {}, {}
    for t in range(ROUNDS):
        theta = models[t]
        started = jobs[jobs.start_version == t]
        for at in started.index:
            applied = jobs[jobs.applied_update == started.applied_update[at]]
            weights[at] = 0.0 if np.isnan(started.applied_update[at]) else 1 / len(applied)
        g = sum(weights[at] * own(theta, started.client[at]) for at in started.index)
        for at in started.index:
            i, y = started.client[at], theta
            for _ in range(STEPS):
                y = y - LR * (own(y, i) - own(theta, i) + g + 0.5 * (y - theta))
            uploads[at] = y - theta
        arrived = jobs[jobs.applied_update == t]
        models.append(theta + sum(weights[at] * uploads[at] for at in arrived.index))
    np.testing.assert_allclose(found["dane"], models[-1], rtol=1e-10)


def test_full_gradients_are_counted_right_or_not_at_all(tmp_path: Path, data: Data) -> None:
    with pytest.raises(RunError, match=r"broadcast sends server\.theta itself in some rounds only"):
        run(words_of(data, tmp_path, "algorithm=dane_in_turn"), tmp_path / "run")
