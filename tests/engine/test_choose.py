"""What `engine=auto` takes: counted work, not timing, so that the same command takes the same engine."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from fedbench.api import compose_config
from fedbench.engine import choose
from fedbench.engine.choose import (
    SAFETY,
    THREADS,
    TRIAL,
    CompiledStep,
    Load,
    ModelCost,
    choose_chunk,
    choose_engine,
    compile_cost_seconds,
    compiled_chunk,
    expected_gain_seconds,
    measure_model,
    plain_chunk,
    step_threads,
    wide_batch,
)
from fedbench.models.onednn import has_lstm
from fedbench.runs.execution import set_numerics
from fedbench.runs.run import Run

CPU = torch.device("cpu")


@pytest.fixture
def load() -> Load:
    return Load(measure_model(nn.Linear(784, 10), torch.zeros(1, 784)), 7850, 20, 10, calls=1)


def test_a_gradients_work_is_counted() -> None:
    hidden, inputs, classes = 20, 30, 5
    model = nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, classes))
    cost = measure_model(model, torch.zeros(1, inputs))
    parameters = sum(p.numel() for p in model.parameters())
    assert parameters <= cost.shared <= parameters + 10  # the gradient, and the loss
    assert cost.written >= 2 * hidden + classes
    assert cost.convolutions == 0


def test_long_runs_are_compiled_and_short_ones_are_not(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choose, "compiler_missing", lambda device: None)
    assert choose_engine("auto", load, CPU) == ("vmap", None)
    assert choose_engine("auto", replace(load, calls=10**6), CPU) == ("compile", None)


def test_what_is_compiled_already_is_used_and_a_sweep_counts_as_a_whole(
    load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choose, "compiler_missing", lambda device: None)
    calls = 1 + int(SAFETY * compile_cost_seconds(load) / expected_gain_seconds(load, CPU))  # just worth it
    for runs in (1, 7):
        before, enough = replace(load, calls=calls // runs - 1), replace(load, calls=calls // runs + 1)
        assert choose_engine("auto", before, CPU, CompiledStep(runs)) == ("vmap", None)
        assert choose_engine("auto", enough, CPU, CompiledStep(runs)) == ("compile", None)
    just = replace(load, calls=calls + 1)
    assert choose_engine("auto", just, CPU, CompiledStep(untried=True)) == ("vmap", None)  # the trial of it
    more = int(SAFETY * TRIAL / expected_gain_seconds(load, CPU))
    longer = replace(load, calls=just.calls + more + 1)
    assert choose_engine("auto", longer, CPU, CompiledStep(untried=True)) == ("compile", None)
    assert choose_engine("auto", load, CPU, CompiledStep(compiled=True)) == ("compile", None)
    assert choose_engine("auto", replace(load, calls=0), CPU, CompiledStep(9, compiled=True)) == (
        "vmap",
        None,
    )


@pytest.mark.parametrize("method", ["fedavg", "padamfed_vr"])
def test_dropout_is_no_reason_to_compile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """150 rounds on digits take 4 and 8 s; compiling took 24 and 56 when masks were drawn inside steps."""
    monkeypatch.setattr(choose, "compiler_missing", lambda device: None)
    monkeypatch.setenv("FEDBENCH_CACHE", str(tmp_path))
    words = ["model=mlp", "model.dropout=0.3", f"algorithm={method}", "rounds=150", "device=cpu", "threads=1"]
    run, plain = (Run(compose_config([*words, *more])) for more in ([], ["model.dropout=0"]))
    steps, of_plain = (each.placement.load.cost.operations for each in (run, plain))
    assert steps <= of_plain + 8  # forward and backward, in no step a draw
    assert run.prepare().choice.engine == "vmap"


def test_on_cuda_auto_takes_the_steps_that_a_graph_launches(load: Load) -> None:
    for step in (CompiledStep(), CompiledStep(compiled=True)):
        assert choose_engine("auto", replace(load, calls=10**9), torch.device("cuda"), step) == ("vmap", None)


def test_without_a_compiler_it_says_so_once_it_would_have_compiled(
    load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choose, "compiler_missing", lambda device: "no C++ compiler was found")
    assert choose_engine("auto", load, CPU) == ("vmap", None)
    for name, calls in (("auto", 10**6), ("compile", 1)):
        engine, line = choose_engine(name, replace(load, calls=calls), CPU)
        assert engine == "vmap"
        assert "no C++ compiler was found; using vmap" in str(line)


def test_engine_compile_on_cuda_is_vmap_and_says_why(load: Load) -> None:
    engine, line = choose_engine("compile", load, torch.device("cuda"))
    why = "steps are compiled for CPUs, and launched as graphs on CUDA"
    assert (engine, line) == ("vmap", f"engine=compile: {why}; using vmap")


@pytest.mark.parametrize("name", ["loop", "vmap"])
def test_a_named_engine_is_taken(load: Load, name: str) -> None:
    assert choose_engine(name, replace(load, calls=10**9), CPU) == (name, None)


def test_a_chunk_fits_into_half_of_the_memory(load: Load) -> None:
    assert choose_chunk(load, CPU, 4) == 10  # small clients: the cohort
    huge = ModelCost(operations=1, written=1e12, shared=0.0, convolutions=0)
    assert choose_chunk(replace(load, cost=huge), CPU, 4) == 1


def test_a_chunk_has_memory_for_the_numbers_of_its_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of clients that may have many steps, half of the memory has room for as many as fit with their models.
    Where the numbers of a cohort take little, as usual, they do not count."""
    words = ["dataset=synthetic", "model=logistic", "clients.total=30", "clients.per_round=30"]
    words += ["local.epochs=900", "local.batch_size=10", "engine=vmap", "partition=natural"]
    run = Run(compose_config([*words, "local.epochs=9"]))
    assert run.placement.load.indices == 8 * 10 * run.problem.steps.max()
    assert run.placement.choice.chunk == 30
    load = Run(compose_config(words)).placement.load
    model = 4 * (10 * load.d + load.cost.shared + load.batch * load.cost.written)
    monkeypatch.setattr(choose, "total_memory", lambda device: 16 * (model + load.indices))
    assert 30 * load.indices > choose.INDICES
    assert choose_chunk(load, CPU, 4) == 8
    assert choose_chunk(replace(load, indices=choose.INDICES // 30), CPU, 4) == 30


def test_threads_follow_from_the_numbers_that_an_operation_writes() -> None:
    """An mlp at B = 20: 159,013 + 20 * 841 = 175,833 numbers a client in 15 operations, 11,722 each."""
    mlp = ModelCost(operations=15, written=841.0, shared=159013.0, convolutions=0)
    load = Load(mlp, 159010, 20, 10, calls=1)
    assert step_threads(load, 1, 16) == 1  # 11,722 of 32,768
    assert step_threads(load, 5, 16) == 1  # 58,611
    assert step_threads(load, 6, 16) == 2  # 70,333
    assert step_threads(load, 10, 16) == 3  # 117,222
    assert step_threads(load, 10, 2) == 2
    assert step_threads(load, 1000, 16) == 16


@pytest.fixture
def threads() -> Iterator[int]:
    before = torch.get_num_threads()
    yield before
    torch.set_num_threads(before)


def test_a_runs_threads_are_set_for_it_and_not_for_the_next(threads: int) -> None:
    def used(*words: str) -> int:
        run = Run(compose_config(["device=cpu", "rounds=1", *words]))
        set_numerics(run.problem, run.placement)
        assert torch.get_num_threads() == run.placement.threads
        return run.placement.threads

    assert used("threads=3") == 3
    assert used() == 1  # logistic on digits
    assert used("threads=2") == 2
    wide = ["model=mlp", "model.hidden=[2048]", "local.batch_size=1024", "clients.total=5"]
    assert used(*wide) == min(THREADS, 25)  # 842,000 numbers an operation


@pytest.mark.parametrize(("given", "kept"), [(None, "passive"), ("active", "active")])
def test_threads_wait_passively_unless_the_user_says_otherwise(given: str | None, kept: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    environment |= {} if given is None else {"OMP_WAIT_POLICY": given}
    code = "import fedbench, os, sys; print(os.environ['OMP_WAIT_POLICY'], 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert done.stdout.split() == [kept, "False"], done.stderr


def test_a_compiled_chunk_of_one_thread_stays_in_the_cache() -> None:
    """An mlp's parameters are most of what a step works on: 3 * 4 * 159,010 bytes a client."""
    mlp = ModelCost(operations=15, written=841.0, shared=159013.0, convolutions=0)
    load = Load(mlp, 159010, 20, 10, calls=1)
    assert compiled_chunk(load, 10, 1, CPU, 4) == 2
    assert compiled_chunk(load, 10, 2, CPU, 4) == 10  # two threads share the work of a chunk
    assert compiled_chunk(load, 10, 1, torch.device("cuda"), 4) == 10
    assert compiled_chunk(load, 1, 1, CPU, 4) == 1
    assert compiled_chunk(replace(load, d=7850), 10, 1, CPU, 4) == 10  # all of them fit
    assert compiled_chunk(replace(load, d=100_000), 10, 1, CPU, 4) == 2  # 3 fit, but 12 would be computed
    assert compiled_chunk(replace(load, d=10**7), 10, 1, CPU, 4) == 1
    activations = replace(load, cost=replace(mlp, written=9e4))
    assert compiled_chunk(activations, 10, 1, CPU, 4) == 10
    convolutional = replace(load, cost=replace(mlp, written=9e4, convolutions=2))
    assert compiled_chunk(convolutional, 10, 1, CPU, 4) == 1


def test_recorded_vectors_of_one_threads_clients_stay_in_the_cache() -> None:
    """4 * 159,010 bytes are a vector of an mlp's client: 6 fit into 4 MiB, and 10 are twice 5."""
    mlp = ModelCost(operations=15, written=841.0, shared=159013.0, convolutions=0)
    load = Load(mlp, 159010, 20, 10, calls=1)
    assert plain_chunk(load, 10, 1, CPU, 4) == 5
    assert plain_chunk(load, 10, 1, CPU, 8) == 2  # 3 fit, and 10 would take as many turns as with 4
    assert plain_chunk(load, 10, 2, CPU, 4) == plain_chunk(load, 10, 1, torch.device("cuda"), 4) == 10
    assert plain_chunk(replace(load, cohort=1, more=9), 10, 1, CPU, 4) == 5
    assert plain_chunk(replace(load, d=7850), 10, 1, CPU, 4) == 10
    assert plain_chunk(replace(load, vectors=20), 10, 1, CPU, 4) == 1
    assert plain_chunk(replace(load, d=15_010, vectors=20), 10, 1, CPU, 4) == 10
    assert plain_chunk(replace(load, cost=replace(mlp, written=9e3)), 10, 1, CPU, 4) == 10


def test_clients_whose_operations_keep_a_thread_busy_go_one_after_another() -> None:
    """resnet18 of width 8 at B = 20: 176,405 + 20 * 522,489 numbers in 142 operations, 74,832 each."""
    resnet = ModelCost(operations=142, written=522489.0, shared=176405.0, convolutions=20)
    load = Load(resnet, 176402, 20, 10, calls=10**6)
    assert plain_chunk(load, 10, 1, CPU, 4) == plain_chunk(load, 10, 2, CPU, 4) == 1
    assert plain_chunk(load, 10, 8, CPU, 4) == 10  # 120,000 are needed
    assert plain_chunk(load, 10, 1, torch.device("cuda"), 4) == 10
    assert plain_chunk(replace(load, batch=3), 10, 1, CPU, 4) == 10  # 12,281
    assert expected_gain_seconds(load, CPU) == 0
    assert expected_gain_seconds(replace(load, batch=8), CPU) > 0
    lenet = ModelCost(operations=34, written=38873.0, shared=83129.0, convolutions=2)
    cnn_small = ModelCost(operations=44, written=44241.0, shared=21843.0, convolutions=2)
    for cost, batch, chunk in (
        (lenet, 20, 1),
        (cnn_small, 20, 1),
        (cnn_small, 12, 10),
    ):  # 25,311, 20,606, 12,562
        assert plain_chunk(replace(load, cost=cost, batch=batch), 10, 1, CPU, 4) == chunk
    words = ["dataset=synthetic", "model=mlp", "model.hidden=[2048]", "device=cpu", "clients.per_round=3"]
    for more, chunk in (["local.batch_size=512", "threads=1"], 1), (["local.batch_size=2", "threads=1"], 3):
        assert Run(compose_config([*words, *more])).placement.choice.chunk == chunk


@pytest.mark.skipif(not has_lstm(torch.zeros(1)), reason="this torch has no LSTM of oneDNN")
@pytest.mark.parametrize(
    ("more", "chunk", "compiles"),
    [("cell=lstm", 1, False), ("cell=gru", 3, True), ("cell=lstm precision=bf16", 3, True)],
)
def test_an_lstm_of_onednn_is_neither_compiled_nor_vectorised(more: str, chunk: int, compiles: bool) -> None:
    words = ["dataset=digits", "model=rnn", "model.hidden=8", "clients.per_round=3", "device=cpu"]
    placement = Run(compose_config([*words, "threads=1", *f"model.{more}".split()])).placement
    assert placement.choice.chunk == chunk
    assert (expected_gain_seconds(placement.load, CPU) > 0) is compiles


@pytest.mark.parametrize(
    ("cost", "cohort", "measured"),
    [
        (ModelCost(9, 40.0, 7853.0, 0, read=784), 10, 0.35e-3),
        (ModelCost(15, 841.0, 159013.0, 0, read=784), 10, 0.26e-3),
        (ModelCost(15, 841.0, 15013.0, 0, read=64), 5, 0.08e-3),
        (ModelCost(44, 44241.0, 21843.0, 2, read=784), 10, 4.4e-3),
        (ModelCost(34, 38873.0, 83129.0, 2, read=3072), 10, 4.6e-3),
        (ModelCost(44, 44241.0, 21843.0, 2, read=784), 1, 0.53e-3),
        (ModelCost(15, 841.0, 159013.0, 0, read=784), 1, 0.12e-3),
    ],
    ids=["logistic", "mlp", "digits", "cnn_small", "lenet5", "cnn_small alone", "mlp alone"],
)
def test_what_compiling_gains_is_near_what_was_measured(
    cost: ModelCost, cohort: int, measured: float
) -> None:
    """Seconds a step; the table at `expected_gain_seconds`."""
    load = Load(cost, int(cost.shared), 20, cohort, calls=1)
    assert 0.8 * measured < expected_gain_seconds(load, CPU) < 2.5 * measured


def test_whole_data_sets_pass_a_convolution_one_client_after_another(load: Load) -> None:
    """From 2^22 numbers on: 77 samples of a CNN with 54,801 for each; never of a softmax regression."""
    small = ModelCost(operations=44, written=54801.0, shared=21843.0, convolutions=2)
    assert 76 < wide_batch(small, CPU) < 77
    assert wide_batch(load.cost, CPU) > 10_000
    assert wide_batch(small, torch.device("cuda")) == math.inf
