"""The buffers of CUDA graphs, on a CPU: a launch computes here what a capture would have kept. So what is
copied in and out, the number of steps, padding and the comparison are those of a device."""

from __future__ import annotations

import contextlib
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import tests_support
import torch
from test_engines import close, final

from fedbench.engine import graph
from fedbench.engine.choose import Sizes, make_executor
from fedbench.engine.compiled import Programs
from fedbench.engine.graph import GraphedSteps, State, StepGraph, eagerly


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Graphs that replay by computing again; the numbers of clients of all launches."""
    seen: list[int] = []
    waiting = SimpleNamespace(wait_stream=lambda _: None)
    for name, stand_in in {
        "Stream": lambda: waiting,
        "current_stream": lambda: waiting,
        "stream": lambda _: contextlib.nullcontext(),
        "graph": lambda *_, **__: contextlib.nullcontext(),
        "graph_pool_handle": lambda: None,
        "CUDAGraph": SimpleNamespace,
    }.items():
        monkeypatch.setattr(torch.cuda, name, stand_in)
    made = StepGraph.__init__

    def init(self: StepGraph, *given: object) -> None:
        made(self, *given)  # type: ignore[arg-type]

        def replay() -> None:
            seen.append(len(next(iter(self.buffers[0].values()))))
            self._once()

        self.graph.replay = replay  # type: ignore[method-assign]

    monkeypatch.setattr(StepGraph, "__init__", init)
    return seen


def graphed(
    monkeypatch: pytest.MonkeyPatch,
    how: str,
    *given: object,
    making: dict[str, object] | None = None,
    **options: object,
) -> torch.Tensor:
    """`making`: further options of make_executor; `longest` is one of its sizes."""
    more = dict(making or {})
    with monkeypatch.context() as patched:
        patched.setattr(tests_support, "Sizes", partial(Sizes, longest=more.pop("longest", 0)))
        make = partial(make_executor, cuda_graph=how, **more)  # type: ignore[arg-type]
        patched.setattr(tests_support, "make_executor", make)
        return final(*given, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["linear", "dropout", "batchnorm"])
@pytest.mark.parametrize("name", ["fedavg", "scaffold", "padamfed_vr", "fedproxvr"])
def test_replayed_steps_are_the_steps(
    monkeypatch: pytest.MonkeyPatch, launches: list[int], name: str, kind: str
) -> None:
    close(graphed(monkeypatch, "unchecked", name, "vmap", kind), final(name, "loop", kind))
    steps = 3 if name == "fedproxvr" else 4  # its full gradient is the first one
    assert launches == [4] * 3 * steps  # of 4 clients, in three rounds


@pytest.mark.parametrize("chunk", [3, 1000])
def test_shorter_chunks_and_other_sizes(
    monkeypatch: pytest.MonkeyPatch, launches: list[int], chunk: int
) -> None:
    """Two epochs are 2 to 8 steps; chunks of 3 and 1 clients are padded to no more than a full one."""
    options: dict[str, object] = {"steps": None, "epochs": 2, "chunk": chunk}
    close(
        graphed(monkeypatch, "auto", "scaffold", "vmap", "dropout", **options),
        final("scaffold", "loop", "dropout", **options),
    )
    assert set(launches) == ({3, 1} if chunk == 3 else {4})


def test_a_replay_with_other_numbers_is_not_used(
    monkeypatch: pytest.MonkeyPatch, launches: list[int]
) -> None:
    expected = final("scaffold", "vmap")
    given, notes = StepGraph.run, []

    def wrong(self: StepGraph, *chunk: object) -> object:
        local, statistics = given(self, *chunk)  # type: ignore[arg-type]
        return {name: value + 0.01 for name, value in local.items()}, statistics

    give_up = GraphedSteps._give_up
    monkeypatch.setattr(StepGraph, "run", wrong)
    monkeypatch.setattr(GraphedSteps, "_give_up", lambda self, why: (notes.append(why), give_up(self, why)))
    close(graphed(monkeypatch, "auto", "scaffold", "vmap"), expected)
    assert notes == ["its results differ from those of the steps run one by one"]
    assert len(launches) == 4  # of the first chunk


@pytest.fixture
def captures(launches: list[int], monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of clients of all captures."""
    seen: list[int] = []
    capture = StepGraph._capture

    def counted(self: StepGraph) -> None:
        seen.append(len(next(iter(self.buffers[0].values()))))
        capture(self)

    monkeypatch.setattr(StepGraph, "_capture", counted)
    return seen


def test_a_longer_chunk_needs_no_other_graph(monkeypatch: pytest.MonkeyPatch, captures: list[int]) -> None:
    """Clients take 2 to 8 steps, so cohorts have chunks of several lengths; the longest is known before."""
    options: dict[str, object] = {"steps": None, "epochs": 2, "chunk": 1}
    expected = final("scaffold", "loop", "linear", **options)
    close(graphed(monkeypatch, "unchecked", "scaffold", "vmap", "linear", **options), expected)
    assert len(captures) > 1  # otherwise this would not be a test
    captures.clear()
    roomy: dict[str, object] = {"longest": 8}
    close(graphed(monkeypatch, "unchecked", "scaffold", "vmap", "linear", making=roomy, **options), expected)
    assert captures == [1]


def test_a_graph_is_confirmed_once_for_all_runs_with_its_program(
    monkeypatch: pytest.MonkeyPatch, captures: list[int]
) -> None:
    """The second run of a sweep computes no chunk twice; another method's steps are compared."""
    compared: list[int] = []

    def counted(*chunk: object) -> State:
        compared.append(1)
        return eagerly(*chunk)  # type: ignore[arg-type]

    monkeypatch.setattr(graph, "eagerly", counted)
    sharing: dict[str, object] = {"programs": Programs()}
    for name, times in (("scaffold", 1), ("scaffold", 1), ("fedavg", 2)):
        close(graphed(monkeypatch, "auto", name, "vmap", making=sharing), final(name, "loop"))
        assert len(compared) == times
    assert captures == [4] * 3  # a run's graphs are its own


def test_the_graph_that_was_not_used_for_longest_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[object] = []

    class Made:
        length = 9

        def __init__(self, step: object, local: object, work: Any, *_: object) -> None:
            made.append(work.form)

        def run(self, local: object, work: object) -> object:
            return local

    monkeypatch.setattr(graph, "StepGraph", Made)
    monkeypatch.setattr(graph, "_form", lambda local, work: work.form)
    steps = GraphedSteps(SimpleNamespace(get=lambda: None, confirmed=set()), 4, check=False)  # type: ignore[arg-type]
    forms = [*range(graph.MOST_GRAPHS), 0, graph.MOST_GRAPHS, 0, 1]  # 0 was used again, 1 was not
    for form in forms:
        steps.run(None, None, SimpleNamespace(form=form, batches=range(2)), 0)  # type: ignore[arg-type]
    assert made == [*range(graph.MOST_GRAPHS + 1), 1]
