"""dataset.validation: what is held out is not trained on, and what is measured on it."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from run_files import logits, runs, summary
from run_files import model as saved
from scipy.special import log_softmax

from fedbench.api import compose_config
from fedbench.cli import main
from fedbench.data.builtin import digits
from fedbench.data.partition_options import Dirichlet
from fedbench.data.partitions import partition, validation_samples
from fedbench.errors import ConfigError
from fedbench.runs.run import Run
from fedbench.runs.run_directory import RunDirectory

N = 8
SMALL = (
    f"dtype=float64 rounds=4 clients.total={N} clients.per_round=3 local.steps=3 local.batch_size=8 "
    "threads=1 partition=dirichlet engine=vmap progress=none dataset.train_samples=300"
)
go = runs(SMALL)
ALL = ["eval.train=true", "eval.grad_norm=true", "eval.clients=true"]
ASYNC = ["algorithm=fedbuff", "schedule=async", "schedule.concurrency=4", "delay=exponential"]


def table(place: Path) -> pd.DataFrame:
    return RunDirectory(place).metrics.drop(columns="wall_seconds")


# ---- which samples ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("share", [0.1, 0.25, 0.9])
def test_each_client_holds_out_the_nearest_number_to_its_share(share: float) -> None:
    client = partition(Dirichlet(alpha=0.3), digits().y_train.numpy(), 10, 40, 3)
    held = validation_samples(client, share, 3)
    sizes, out = np.bincount(client), np.bincount(client[held], minlength=40)
    exact = Fraction(str(share))
    nearest = [math.floor(exact * int(n) + Fraction(1, 2)) for n in sizes]
    np.testing.assert_array_equal(out, np.minimum(nearest, sizes - 1))
    assert sizes.min() == 1 or share < 0.5 or out[sizes.argmin()] < sizes.min()
    assert np.array_equal(held, np.unique(held))


def test_a_client_keeps_a_sample_and_somebody_holds_one_out() -> None:
    np.testing.assert_array_equal(validation_samples(np.array([0, 1, 1, 1]), 0.99, 0).size, 2)
    assert len(validation_samples(np.zeros(5, dtype=int), 0.0, 0)) == 0
    with pytest.raises(ConfigError, match=r"^dataset\.validation=0\.1: holds out no sample: the largest"):
        validation_samples(np.repeat(np.arange(5), 4), 0.1, 0)


def test_a_clients_draw_is_its_own_and_the_seeds() -> None:
    client = np.repeat(np.arange(4), 50)
    other = np.where(client == 0, 0, 1 + np.arange(200) % 3)  # the other samples in other hands
    mine = [set(held[client[held] == 0]) for held in (validation_samples(c, 0.2, 5) for c in (client, other))]
    assert mine[0] == mine[1]
    assert len(mine[0]) == 10
    assert set(validation_samples(client, 0.2, 6)) != set(validation_samples(client, 0.2, 5))
    often = np.mean([np.isin(np.arange(200), validation_samples(client, 0.2, s)) for s in range(400)], axis=0)
    assert often.mean() == pytest.approx(0.2, abs=1e-12)
    assert abs(often - 0.2).max() < 5 * math.sqrt(0.2 * 0.8 / 400)  # five standard deviations


# ---- nothing is trained on them --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        ["algorithm=fedavg", "algorithm.weighting=samples", "local.steps=null", "local.epochs=1"],
        ["algorithm=scaffold_m_vr", "algorithm.lr=0.05", "algorithm.server_lr=0.5", "engine=loop"],
        ["algorithm=mime"],  # full local gradients
        ASYNC,
    ],
    ids=lambda words: words[0],
)
def test_training_is_that_of_the_data_without_them(words: list[str], tmp_path: Path) -> None:
    words = [*words, *ALL, "dataset.normalize=false"]
    run = go(tmp_path / "held", *words, "dataset.validation=0.2")
    data, division = run.problem.dataset, run.problem.division
    stay = np.setdiff1d(np.arange(300), division.validation)
    parts = {"x_train": data.x_train.numpy()[stay, 0], "y_train": data.y_train.numpy()[stay]}
    parts |= {"x_test": data.x_test.numpy()[:, 0], "y_test": data.y_test.numpy()}
    np.savez(tmp_path / "less.npz", **parts, client=division.partition[stay])
    without = ["dataset=npz", f"dataset.path={tmp_path}/less.npz", "partition=natural"]
    words = [w for w in [*SMALL.split(), *words] if not w.startswith(("partition", "dataset.train"))]
    Run(compose_config([*words, *without])).go(tmp_path / "less")
    held, less = table(tmp_path / "held"), table(tmp_path / "less")
    added = ["validation_loss", "validation_accuracy"]
    assert list(held.columns) == [*less.columns[:11], *added, *less.columns[11:]]
    pd.testing.assert_frame_equal(held[less.columns], less, rtol=1e-12, atol=1e-13)
    without_them = saved(tmp_path / "less")
    for name, value in saved(tmp_path / "held").items():
        torch.testing.assert_close(without_them[name], value, rtol=1e-11, atol=1e-13)


# ---- what is measured and written ------------------------------------------------------------------------

WITH_DATA = {
    "shards": ["partition=shards"],
    "lognormal_labels": ["partition=lognormal_labels", "dataset.train_samples=null", "dataset=digits"],
    "natural": ["dataset=synthetic", "dataset.train_samples=null", "partition=natural", "eval.clients=true"],
    "pool": ["dataset.pool=0.3", "eval.clients=true"],
    "async": ASYNC,
}


@pytest.mark.parametrize("words", WITH_DATA.values(), ids=WITH_DATA)
def test_the_last_row_is_what_the_saved_model_does_on_the_samples_of_the_file(
    words: list[str], tmp_path: Path
) -> None:
    run = go(tmp_path, *words, "dataset.validation=0.15", "eval.train=true")
    with np.load(tmp_path / "partition.npz") as arrays:
        client, held = arrays["client"], arrays["validation"]
    assert client.shape == held.shape == run.problem.dataset.y_train.shape
    assert (client[held] >= 0).all()
    many, sizes = np.bincount(client[held], minlength=N), np.bincount(client[client >= 0], minlength=N)
    assert (many <= np.ceil(0.15 * sizes)).all()
    assert many.sum() > 0
    row, y = table(tmp_path).iloc[-1], run.problem.dataset.y_train.numpy()
    out = logits(run, tmp_path, "train")
    loss = -log_softmax(out, 1)[np.arange(len(y)), y]
    assert row.validation_loss == pytest.approx(loss[held].mean(), rel=1e-10)
    right = out.argmax(1) == y
    assert row.validation_accuracy == pytest.approx(right[held].mean(), rel=1e-12)
    own = ~held & (client >= 0)
    assert row.train_loss == pytest.approx(loss[own].mean(), rel=1e-10)


def test_clients_own_models_are_measured_on_what_is_held_out_of_their_samples(tmp_path: Path) -> None:
    words = ["algorithm=fedbn", "model=mlp", "model.hidden=[9]", "model.norm=layer"]
    run = go(tmp_path, *words, "dataset.validation=0.02", "partition.alpha=0.1")
    problem, running = run.problem, run.prepare(tmp_path / "state")
    running.start()
    for _ in range(problem.counts.T):
        running.loop.update()
    store, data, division = running.loop.trainer.store, problem.dataset, problem.division
    module = running.evaluator.model
    losses, right = [], []
    for i in range(N):
        mine = division.validation[division.partition[division.validation] == i]
        if not len(mine):
            continue
        shared = problem.method.shared(running.loop.theta)  # type: ignore[attr-defined]
        theta = problem.method.join(shared, store.gather(torch.tensor([i]))["own"][0])  # type: ignore[attr-defined]
        module.load_state_dict(problem.layout.unflatten(theta), strict=False)
        with torch.no_grad():
            out = module((data.x_train[mine].double() - data.mean) / data.std)
        losses.append(torch.nn.functional.cross_entropy(out, data.y_train[mine]).item())
        right.append((out.argmax(1) == data.y_train[mine]).double().mean().item())
    assert 1 < len(losses) < N  # somebody has too few samples
    row = table(tmp_path).iloc[-1]
    assert row.validation_loss == pytest.approx(np.mean(losses), rel=1e-10)
    assert row.validation_accuracy == pytest.approx(np.mean(right), rel=1e-12)


@pytest.mark.parametrize("name", ["dirichlet", "lognormal_labels"])
def test_the_file_rebuilds_the_partition_and_what_is_held_out(name: str, tmp_path: Path) -> None:
    """Samples that no client has are -1 there."""
    go(tmp_path / "one", "dataset.validation=0.2", f"partition={name}", "dataset.train_samples=1200")
    unused = np.count_nonzero(np.load(tmp_path / "one" / "partition.npz")["client"] == -1)
    assert (unused > 0) == (name == "lognormal_labels")
    note = summary(tmp_path / "one")["data_note"]
    assert (f"; {1200 - unused:,} training samples were used, {unused:,} samples" in note) == (unused > 0)
    words = [word for word in SMALL.split() if not word.startswith(("partition", "dataset"))]
    words += ["dataset.train_samples=1200"]
    words += ["dataset.validation=0.2", "partition=file", f"partition.path={tmp_path}/one/partition.npz"]
    Run(compose_config(words)).go(tmp_path / "again")
    pd.testing.assert_frame_equal(table(tmp_path / "one"), table(tmp_path / "again"), check_exact=True)
    one, other = (np.load(tmp_path / name / "partition.npz") for name in ("one", "again"))
    assert all(np.array_equal(one[key], other[key]) for key in ("client", "validation"))
    go(tmp_path / "without")
    assert np.load(tmp_path / "without" / "partition.npz").files == ["client"]
    assert "  validation: 0.0\n" in (tmp_path / "without" / "config.yaml").read_text()
    assert not [name for name in table(tmp_path / "without") if "validation" in name]


@pytest.mark.parametrize("words", [[], ["partition=lognormal_labels"]], ids=["dirichlet", "lognormal_labels"])
def test_the_file_of_a_pooled_run_rebuilds_both_sets_and_fits_no_other_pool(
    words: list[str], tmp_path: Path
) -> None:
    """partition=file with the same pool gives the same training and test samples, also with another seed of
    the draws. Any other pool is refused."""
    rest = [word for word in SMALL.split() if not word.startswith(("partition", "dataset"))]
    one = Run(compose_config([*rest, *(words or ["partition=dirichlet"]), "dataset.pool=0.2"]))
    one.go(tmp_path / "one")
    path = tmp_path / "one" / "partition.npz"
    rest += ["partition=file", f"partition.path={path}", "partition.seed=5"]
    again = Run(compose_config([*rest, "dataset.pool=0.2"]))
    again.go(tmp_path / "again")
    pd.testing.assert_frame_equal(table(tmp_path / "one"), table(tmp_path / "again"), check_exact=True)
    for part in ("x_train", "x_test"):
        assert torch.equal(getattr(one.problem.dataset, part), getattr(again.problem.dataset, part))
    first, second = np.load(path), np.load(tmp_path / "again" / "partition.npz")
    assert first.files == second.files
    assert all(np.array_equal(first[name], second[name]) for name in first.files)

    client, test = first["pooled_client"], first["pooled_test"]  # by hand: of digits' 1437 and 360 samples
    images = torch.cat([digits().x_train, digits().x_test])
    assert torch.equal(images[torch.from_numpy(test)], one.problem.dataset.x_test)
    trained = ~test & (client >= 0)
    assert torch.equal(images[torch.from_numpy(trained)], one.problem.dataset.x_train)
    assert np.array_equal(client[trained], first["client"])

    for pool in ("null", "0.3"):
        with pytest.raises(ConfigError) as refused:
            Run(compose_config([*rest, f"dataset.pool={pool}"])).go(tmp_path / "other")
        expected = f"dataset.pool={pool}: must be 0.2, as in the run that wrote partition.path={path}"
        assert str(refused.value) == expected
    with pytest.raises(ConfigError, match=r"client 8 of clients\.total=9 has no sample$"):
        Run(compose_config([*rest, "dataset.pool=0.2", "clients.total=9"])).go(tmp_path / "other")


def test_target_and_patience_look_at_the_validation(tmp_path: Path) -> None:
    words = ["dataset.validation=0.2", "rounds=25", "algorithm.lr=0.05"]
    go(tmp_path / "all", *words)
    rows = table(tmp_path / "all")
    target = next(  # reached in different rounds by the two
        level
        for level in rows.validation_accuracy.iloc[3:]
        if (rows.validation_accuracy >= level).idxmax() != (rows.test_accuracy >= level).idxmax()
    )
    at = int((rows.validation_accuracy >= target).idxmax())
    go(tmp_path / "target", *words, f"target={target!r}")
    assert summary(tmp_path / "target")["rounds"] == at
    assert summary(tmp_path / "target")["rounds_to_validation_accuracy"][f"{target:g}"] == at

    def stop(accuracies: pd.Series) -> int:
        best = accuracies.cummax()
        since = [t - int((accuracies[: t + 1] == best[t]).idxmax()) for t in range(len(accuracies))]
        return next((t for t, waited in enumerate(since) if waited >= 2), 25)

    assert stop(rows.validation_accuracy) != stop(rows.test_accuracy)
    go(tmp_path / "patience", *words, "patience=2")
    assert summary(tmp_path / "patience")["rounds"] == stop(rows.validation_accuracy)
    said = summary(tmp_path / "all")
    best = int(rows.validation_accuracy.idxmax())
    assert said["best_validation_round"] == best
    assert said["accuracy_at_best_validation"] == rows.test_accuracy[best]
    assert said["best_validation_accuracy"] == rows.validation_accuracy.max()
    assert said["final_validation_accuracy"] == rows.validation_accuracy.iloc[-1]


def test_the_tables_of_a_sweep_have_its_columns_where_a_run_has_them(tmp_path: Path) -> None:
    words = [*SMALL.split(), "dataset.validation=0,0.2", f"hydra.sweep.dir={tmp_path}"]
    assert main(["-m", *words]) == 0
    runs = pd.read_csv(tmp_path / "runs.csv").set_index("dataset.validation")
    assert runs.loc[0, ["final_validation_accuracy", "best_validation_accuracy"]].isna().all()
    rounds = pd.read_csv(tmp_path / "rounds.csv")
    own = rounds[rounds["dataset.validation"] == 0.2]
    assert runs.loc[0.2, "final_validation_accuracy"] == own.validation_accuracy.iloc[-1]
    assert runs.loc[0.2, "best_validation_accuracy"] == own.validation_accuracy.max()
    assert rounds[rounds["dataset.validation"] == 0].validation_loss.isna().all()
