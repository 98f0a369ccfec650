"""What `engine=auto` takes: counted work, not timing, so that the same command takes the same engine."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import nn

from fedbench.api import compose_config
from fedbench.engine import choose
from fedbench.engine.choose import (
    SAFETY,
    CompiledStep,
    Load,
    ModelCost,
    choose_chunk,
    choose_engine,
    compile_cost_seconds,
    compiled_chunk,
    expected_gain_seconds,
    measure_model,
    rough_seconds,
    wide_batch,
)
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
    assert choose_engine("auto", load, CPU, CompiledStep(compiled=True)) == ("compile", None)
    assert choose_engine("auto", replace(load, calls=0), CPU, CompiledStep(9, compiled=True)) == (
        "vmap",
        None,
    )


def test_on_cuda_auto_takes_the_steps_that_a_graph_launches(load: Load) -> None:
    for step in (CompiledStep(), CompiledStep(compiled=True)):
        assert choose_engine("auto", replace(load, calls=10**9), torch.device("cuda"), step) == ("vmap", None)


def test_runs_on_cuda_are_work_too_although_nothing_is_compiled_there(load: Load) -> None:
    """Else a sweep would never take the processes of several GPUs unasked."""
    cuda, run = torch.device("cuda"), Run(compose_config(["device=cpu", "progress=none"]))
    assert expected_gain_seconds(load, cuda) == 0 < rough_seconds(load, cuda)
    run.device = cuda
    assert run.seconds == rough_seconds(run.load, cuda) > 0


def test_without_a_compiler_it_says_so_once_it_would_have_compiled(
    load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choose, "compiler_missing", lambda device: "no C++ compiler was found")
    assert choose_engine("auto", load, CPU) == ("vmap", None)
    for name, calls in (("auto", 10**6), ("compile", 1)):
        engine, line = choose_engine(name, replace(load, calls=calls), CPU)
        assert engine == "vmap"
        assert "no C++ compiler was found; using vmap" in str(line)


@pytest.mark.parametrize("name", ["loop", "vmap"])
def test_a_named_engine_is_taken(load: Load, name: str) -> None:
    assert choose_engine(name, replace(load, calls=10**9), CPU) == (name, None)


def test_a_chunk_fits_into_half_of_the_memory(load: Load) -> None:
    assert choose_chunk(load, CPU, 4) == 10  # small clients: the cohort
    huge = ModelCost(operations=1, written=1e12, shared=0.0, convolutions=0)
    assert choose_chunk(replace(load, cost=huge), CPU, 4) == 1


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


def test_whole_data_sets_pass_a_convolution_one_client_after_another(load: Load) -> None:
    """From 2^22 numbers on: 77 samples of a CNN with 54,801 for each; never of a softmax regression."""
    small = ModelCost(operations=44, written=54801.0, shared=21843.0, convolutions=2)
    assert 76 < wide_batch(small, CPU) < 77
    assert wide_batch(load.cost, CPU) > 10_000
    assert wide_batch(small, torch.device("cuda")) == math.inf
