"""What only a CUDA device can show: the same numbers as on the CPU, and the same files twice."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from run_files import metrics

from fedbench.api import compose_config
from fedbench.runs.plan import make_plan
from fedbench.runs.runner import run
from fedbench.runs.session import Session
from fedbench.runs.walk import Walk

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]
ENGINES = ("loop", "vmap", "compile")


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four classes of 28 x 28 images, a bright quarter each, with noise."""
    random = np.random.default_rng(0)
    y = np.arange(400) % 4
    x = random.integers(0, 60, (400, 28, 28))
    for label in range(4):
        rows, columns = 14 * (label // 2), 14 * (label % 2)
        x[y == label, rows : rows + 14, columns : columns + 14] += 150
    path = tmp_path_factory.mktemp("data") / "quarters.npz"
    half = {"x_train": x[:300], "y_train": y[:300], "x_test": x[300:], "y_test": y[300:]}
    np.savez(path, **{k: v.astype(np.uint8) for k, v in half.items()})
    return path


def words(images: Path, *more: str) -> list[str]:
    return [
        "dataset=npz", f"dataset.path={images}", "partition=dirichlet", "partition.alpha=0.5", "rounds=3",
        "clients.total=8", "clients.per_round=3", "local.batch_size=8", "progress=none",
        "eval.every=1", *more,
    ]  # fmt: skip


def after_three_updates(arguments: list[str]) -> Walk:
    run = make_plan(compose_config([*arguments, "dtype=float64"]))
    run.prepare()
    walk = run.loop
    walk.start()
    for _ in range(3):
        walk.update()
    return walk


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    "what",
    [
        ["algorithm=fedavg", "model=cnn_small", "local.epochs=1"],
        ["algorithm=scaffold", "model=mlp", "model.dropout=0.3", "local.epochs=1"],
        ["algorithm=padamfed", "model=rnn", "model.hidden=16"],
        ["algorithm=padamfed_vr", "model=cnn", "model.norm=group"],
        ["algorithm=fedproxvr", "model=logistic"],
        ["algorithm=mime", "model=mlp"],
        ["algorithm=fedbn", "model=cnn", "model.norm=batch"],
        ["algorithm=adamasfl", "model=mlp", "schedule=async", "schedule.concurrency=5", "delay=exponential"],
    ],
    ids=lambda what: f"{what[0].partition('=')[2]}-{what[1].partition('=')[2]}",
)  # fmt: skip
def test_cuda_and_cpu_give_the_same_model(images: Path, engine: str, what: list[str]) -> None:
    arguments = words(images, *what)
    expected = after_three_updates([*arguments, "device=cpu", "engine=loop"]).theta
    found = after_three_updates([*arguments, "device=cuda", f"engine={engine}"]).theta
    assert found.device.type == "cuda"
    scale = expected.abs().max()
    assert float((found.cpu() - expected).abs().max() / scale) < 1e-9


def test_the_same_command_twice_writes_the_same_metrics(images: Path, tmp_path: Path) -> None:
    tables = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        arguments = words(images, "algorithm=padamfed", "model=cnn_small", "device=cuda", "engine=vmap")
        run(make_plan(compose_config([*arguments, "deterministic=true"])), tmp_path / name)
        tables.append(metrics(tmp_path / name))
    assert tables[0] == tables[1]


def test_a_second_run_takes_over_the_first_ones_program(images: Path, tmp_path: Path) -> None:
    seconds, session = [], Session()
    for lr in (0.1, 0.02):
        arguments = words(images, "model=mlp", "device=cuda", "engine=compile", f"algorithm.lr={lr}")
        run(make_plan(compose_config(arguments), session), tmp_path / str(lr), session)
        summary = json.loads((tmp_path / str(lr) / "summary.json").read_text())
        seconds.append(summary["compile_seconds"])
    assert seconds[0] > 0
    assert seconds[1] == 0


def test_the_data_lie_on_the_device(images: Path) -> None:
    run = make_plan(compose_config(words(images, "model=mlp", "device=auto")))
    run.prepare()
    assert run.device.type == "cuda"
    before = torch.cuda.memory_allocated()
    assert before >= 400 * 28 * 28
