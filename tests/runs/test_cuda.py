"""What only a CUDA device can show: the same numbers as on the CPU, and the same files twice."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from run_files import metrics, summary

from fedbench.api import compose_config
from fedbench.engine.executors import Result, Work
from fedbench.engine.graph import StepGraph
from fedbench.engine.vectorised import VmapExecutor
from fedbench.method import Vectors
from fedbench.runs.execution import set_numerics
from fedbench.runs.run import Run
from fedbench.runs.server_loop import ServerLoop

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]
ENGINES = ("loop", "vmap")
needs_values = pytest.mark.skipif("NULLCUDA" in os.environ, reason="a null device launches graphs of nothing")


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


def after_three_updates(arguments: list[str]) -> ServerLoop:
    run = Run(compose_config([*arguments, "dtype=float64"]))
    set_numerics(run.problem, run.placement)
    running = run.prepare()
    running.start()
    for _ in range(3):
        running.loop.update()
    return running.loop


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    "what",
    [
        "fedavg model=cnn_small local.epochs=1",
        "scaffold model=mlp model.dropout=0.3 local.epochs=1",
        "padamfed model=rnn model.hidden=16 local.steps=3",
        "fedprox model=rnn model.cell=lstm model.hidden=16 local.steps=2",
        "padamfed_vr model=cnn model.norm=group local.steps=3",
        "fedproxvr model=logistic",
        "mime model=mlp",
        "fedbn model=cnn model.norm=batch local.steps=3",
        "adamasfl model=mlp schedule=async schedule.concurrency=5 delay=exponential",
    ],
)
def test_cuda_and_cpu_give_the_same_model(images: Path, engine: str, what: str) -> None:
    arguments = words(images, *f"algorithm={what}".split())
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
        Run(compose_config([*arguments, "deterministic=true"])).go(tmp_path / name)
        tables.append(metrics(tmp_path / name))
    assert tables[0] == tables[1]


OWN = "algorithm=ditto dataset.pool=0.3 dataset.validation=0.1 eval.metrics=[auroc] eval.finetune_steps=2"


@pytest.mark.parametrize("what", ["eval.train=true eval.grad_norm=true", OWN])
def test_clients_scores_and_training_loss_are_the_cpus(images: Path, tmp_path: Path, what: str) -> None:
    rows = {}
    more = ["model=mlp", "eval.clients=true", "dtype=float64", *what.split()]
    for device in ("cpu", "cuda"):
        Run(compose_config(words(images, *more, f"device={device}", "engine=vmap"))).go(tmp_path / device)
        rows[device] = metrics(tmp_path / device)
    for one, other in zip(rows["cpu"], rows["cuda"], strict=True):
        assert one.keys() == other.keys()
        for column, value in one.items():
            assert float(other[column] or 0) == pytest.approx(float(value or 0), rel=1e-9), column


def test_the_data_lie_on_the_device(images: Path) -> None:
    run = Run(compose_config(words(images, "model=mlp", "device=auto")))
    running = run.prepare()
    assert running.placement.device.type == "cuda"
    assert torch.cuda.memory_allocated() >= 400 * 28 * 28


# ---- CUDA graphs -----------------------------------------------------------------------------------


@needs_values
@pytest.mark.parametrize(
    "what",
    [
        "model=logistic",
        "model=mlp model.dropout=0.3 algorithm=scaffold",
        "model=cnn_small model.norm=group",
        "model=cnn model.norm=batch",
        "model=rnn model.hidden=16",
        "model=rnn model.cell=lstm model.hidden=16",
        "model=resnet18 model.width=8",
        "model=mlp schedule=async schedule.concurrency=5 delay=exponential algorithm=adamasfl local.steps=3",
    ],
)
def test_graphs_give_what_the_steps_give(images: Path, what: str) -> None:
    much = [] if "local.steps" in what else ["local.epochs=1"]  # the theorem needs one K for all
    arguments = words(images, *much, *what.split(), "device=cuda", "engine=vmap")
    plain = after_three_updates([*arguments, "cuda_graph=off"])
    graphs = after_three_updates([*arguments, "cuda_graph=auto"])
    assert graphs.trainer.executor.note is None
    torch.testing.assert_close(graphs.theta, plain.theta, rtol=1e-9, atol=1e-12)


def finished(images: Path, place: Path, graph: str) -> tuple[list[dict[str, str]], list[str]]:
    arguments = words(images, "model=mlp", "device=cuda", "engine=vmap", f"cuda_graph={graph}")
    Run(compose_config(arguments)).go(place)
    return metrics(place), summary(place)["notes"]


def test_a_graph_with_other_numbers_is_not_used_and_that_is_noted(
    images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = StepGraph.run

    def wrong(self: StepGraph, *chunk: object) -> tuple[Vectors, Vectors]:
        local, statistics = given(self, *chunk)  # type: ignore[arg-type]
        return {name: value + 0.01 for name, value in local.items()}, statistics

    plain, nothing = finished(images, tmp_path / "off", "off")
    monkeypatch.setattr(StepGraph, "run", wrong)
    found, notes = finished(images, tmp_path / "auto", "auto")
    assert nothing == []
    assert [note for note in notes if note.startswith("cuda_graph: its results differ")]
    assert len(found) == len(plain)
    for one, other in zip(found, plain, strict=True):  # a chunk is computed alone or padded: rounding
        assert float(one["test_loss"]) == pytest.approx(float(other["test_loss"]), rel=1e-4)


def test_a_step_that_cannot_be_captured_goes_on_without_a_graph(
    images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: StepGraph) -> None:
        raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr(StepGraph, "_once", refuse)
    found, notes = finished(images, tmp_path / "run", "unchecked")
    assert len(found) == 4
    assert [note for note in notes if "cannot be captured (RuntimeError: operation not permitted" in note]


def test_a_wait_inside_a_step_ends_its_graph_and_nothing_else(
    images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CUDA makes such a capture invalid, so that ending it fails too; the null device is told to."""
    once, end, waited = StepGraph._once, torch.cuda.CUDAGraph.capture_end, []

    def with_a_wait(self: StepGraph) -> None:
        once(self)
        if torch.cuda.is_current_stream_capturing():
            waited.append(True)
            self.k.item()

    def invalid(self: torch.cuda.CUDAGraph) -> None:
        end(self)
        if waited:
            raise RuntimeError("CUDA error: operation failed due to a previous error during capture")

    plain, _ = finished(images, tmp_path / "off", "off")
    torch.cuda.empty_cache()
    before = torch.cuda.current_stream()
    monkeypatch.setattr(StepGraph, "_once", with_a_wait)
    if "NULLCUDA" in os.environ:
        monkeypatch.setattr(torch.cuda.CUDAGraph, "capture_end", invalid)
    found, notes = finished(images, tmp_path / "unchecked", "unchecked")
    (note,) = notes
    assert waited
    assert note.startswith("cuda_graph: a local step cannot be captured (")
    assert "previous error" not in note  # but the wait, which came first
    assert torch.cuda.current_stream() == before
    for one, other in zip(found, plain, strict=True):  # a chunk is computed alone or padded: rounding
        assert float(one["test_loss"]) == pytest.approx(float(other["test_loss"]), rel=1e-4)
    gc.collect()
    torch.cuda.empty_cache()
    assert {part["segment_pool_id"] for part in torch.cuda.memory_snapshot()} <= {(0, 0)}


def test_a_full_device_halves_the_chunk(
    images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The device has 1 MiB left for the steps of more than one client."""
    run, whole = VmapExecutor.run, torch.cuda.get_device_properties(0).total_memory

    def short(self: VmapExecutor, work: Work) -> Result:
        if len(work.batches.steps) > 1:
            torch.cuda.empty_cache()
            torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + 2**20) / whole)
        try:
            return run(self, work)
        finally:
            torch.cuda.set_per_process_memory_fraction(1.0)

    monkeypatch.setattr(VmapExecutor, "run", short)
    arguments = words(images, "model=mlp", "model.hidden=[2000]", "device=cuda", "engine=vmap")
    Run(compose_config(arguments)).go(tmp_path / "run")
    ended = summary(tmp_path / "run")
    assert ended["chunk"] == 1
    assert "out of memory with chunk=3; started again with chunk=1" in ended["notes"]
