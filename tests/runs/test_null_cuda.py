"""What runs ask of a CUDA device, counted on one that computes nothing: waits, launches, memory, a full
device; and the tests of test_cuda.py with the CPU's values. Skipped where that device cannot be built."""

from __future__ import annotations

import json
from pathlib import Path

import null_cuda
import numpy as np
import pytest
import torch
from run_files import read

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device: test_cuda.py uses it"),
]
WORKER = str(Path(__file__).with_name("null_cuda_worker.py"))
MINE = Path(__file__).parents[1] / "algorithms/own_methods.py"
JOBS = {
    "mlp": "model=mlp",
    "dropout": "model=mlp model.dropout=0.3",
    "cnn_small": "model=cnn_small",
    "rnn": "model=rnn model.hidden=16",
    "lstm": "model=rnn model.cell=lstm model.hidden=16",
    "gru": "model=rnn model.cell=gru model.hidden=16",
    "resnet18": "model=resnet18 model.width=4",
    "scaffold": "model=mlp algorithm=scaffold",
    "mime": "model=mlp algorithm=mime",
    "moon": "model=mlp algorithm=moon",
    "topk": "model=mlp compress.kind=topk",
    "qsgd": "model=mlp compress.kind=qsgd",
    "mixing": f"model=mlp algorithm=mixing imports=[{MINE}]",
    "async": "model=mlp algorithm=adamasfl schedule=async schedule.concurrency=7 delay=exponential",
    "dirichlet": "model=mlp partition=dirichlet partition.alpha=0.5",
    "optimizer": "model=mlp optimizer.momentum=0.9 optimizer.keep=true local.clip_norm=1 lr_schedule=cosine",
}
VARIES = {"async": 8 * 2**20, "dirichlet": 2**20}
"""Bytes by which memory may differ between two rounds: uploads on their way, mini-batches of a chunk."""
KERNELS = {"qsgd": 300}
"""At most so many launches a round, where it is not 150: it draws in 32-bit steps outside graphs."""
OF_ENGINE = {
    "vmap": [*JOBS],
    "loop": ["mlp", "async"],
}
GRAPHS = {"vmap": "unchecked", "loop": "off"}


@pytest.fixture(scope="session")
def device() -> Path:
    return null_cuda.built()


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    random = np.random.default_rng(0)
    x = random.integers(0, 255, (2200, 28, 28)).astype(np.uint8)
    y = (np.arange(2200) % 10).astype(np.uint8)
    path = tmp_path_factory.mktemp("data") / "noise.npz"
    np.savez(path, x_train=x[:2000], y_train=y[:2000], x_test=x[2000:], y_test=y[2000:])
    return path


def job(images: Path, engine: str, *more: str) -> list[str]:
    """10 of 20 clients, 5 steps of 20 samples."""
    return [
        "dataset=npz", f"dataset.path={images}", "clients.total=20", "clients.per_round=10", "rounds=40",
        "local.epochs=1", "local.batch_size=20", "progress=none", "device=cuda", f"engine={engine}",
        f"cuda_graph={GRAPHS[engine]}", *more,
    ]  # fmt: skip


@pytest.mark.parametrize("engine", OF_ENGINE)
def test_what_a_round_asks_of_a_device(device: Path, images: Path, tmp_path: Path, engine: str) -> None:
    """It waits for nothing and keeps no memory, and the steps of a chunk are launches of a graph. All jobs of
    an engine in one process."""
    each = {key: JOBS[key] for key in OF_ENGINE[engine]}
    file = tmp_path / "jobs.json"
    file.write_text(json.dumps([job(images, engine, *words.split()) for words in each.values()]))
    done = null_cuda.python(device, WORKER, str(file), seconds=900)
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert len(lines) == len(each), done.stderr[-2000:]
    assert "16-bytes aligned" not in done.stderr
    for name, found in zip(each, lines, strict=True):
        assert found["engine"] == engine, name
        assert found["waits"] == 0, name
        assert found["row_waits"] == 1, name
        assert found["grown"] < VARIES.get(name, 1), (name, found)
        if engine == "loop":
            continue
        assert found["note"] is None, name
        assert found["kernels"] <= KERNELS.get(name, 150), name
        if name not in ("async", "dirichlet"):
            assert found["graph_launches"] == 5, name


def test_the_cuda_tests_pass_with_the_cpus_values(device: Path) -> None:
    file = str(Path(__file__).with_name("test_cuda.py"))
    plugins = ["-p", "emulplug", "-p", "no:cacheprovider"]
    done = null_cuda.python(device, "-m", "pytest", "-q", *plugins, "-m", "cuda", file, seconds=900)
    last = done.stdout.strip().splitlines()[-1]
    assert " passed" in last, done.stdout[-3000:]
    assert "failed" not in last, done.stdout[-3000:]
    assert "error" not in last, done.stdout[-3000:]


def test_all_gpu_checks_are_one_script(device: Path, tmp_path: Path) -> None:
    """`tiny`, with little data in MNIST's place: every step ends well and leaves what it should."""
    random, y = np.random.default_rng(0), np.arange(1200) % 10
    x = random.integers(0, 256, (1200, 28, 28))
    parts = {"x_train": x[:1000], "y_train": y[:1000], "x_test": x[1000:], "y_test": y[1000:]}
    np.savez(tmp_path / "mnist.npz", **{name: part.astype(np.uint8) for name, part in parts.items()})
    out = tmp_path / "out"
    done = null_cuda.script(device, "scripts/gpu_checks", str(tmp_path), str(out), "tiny")
    steps = read(out / "steps.csv")
    assert [row["step"] for row in steps] == ["tests", "models", "clients", "processes"], done.stderr[-1000:]
    assert {row["exit"] for row in steps} == {"0"}, steps
    assert done.returncode == 0
    rounds = read(out / "models.csv")
    assert [row["way"] for row in rounds] == ["graphs", "no graphs", "bare"]
    assert all(float(row["ms_per_round"]) > 0 for row in [*rounds, *read(out / "clients.csv")])
    assert [(row["processes"], row["runs"], row["exit"]) for row in read(out / "processes.csv")] == [
        ("1", "1", "0")
    ]
