"""Each method names the test that compares it with its paper; here is seen whether that test runs it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

import pytest
from filelock import FileLock

from fedbench import algorithms
from fedbench.engine.executors import LocalProgram

NAMED: dict[str, set[str]] = defaultdict(set)
"""The methods that name a test, by FILE::FUNCTION."""
for _method in algorithms.every():
    if _method.__module__.startswith("fedbench."):
        NAMED[_method.checked_by].add(_method.name)

_cases: Counter[str] = Counter()  # of each named test, in all workers


def function(item: pytest.Item) -> str:
    """FILE::FUNCTION of a test, without its parameters."""
    return item.nodeid.split("[")[0]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    _cases.update(function(item) for item in items if function(item) in NAMED)


def pytest_deselected(items: list[pytest.Item]) -> None:
    """A test of which not all cases run cannot be judged."""
    for item in items:
        _cases.pop(function(item), None)


@pytest.fixture(autouse=True)
def methods_that_a_named_test_runs(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[None]:
    """After the last case of a test that methods name, in whatever worker: its cases have run the local
    program of each of them."""
    name, init = function(request.node), LocalProgram.__init__
    if name not in _cases or any("[" in word for word in request.config.args):
        yield
        return
    run: set[str] = set()

    def recorded(self: LocalProgram, algorithm: algorithms.Algorithm, *rest: object, **more: object) -> None:
        run.add(algorithm.name)
        init(self, algorithm, *rest, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(LocalProgram, "__init__", recorded)
    yield
    together = tmp_path_factory.getbasetemp()
    if hasattr(request.config, "workerinput"):
        together = together.parent
    file = together / f"{name.replace('/', '-')}.ran"
    with FileLock(f"{file}.lock"):
        with file.open("a") as stream:
            stream.write(" ".join(sorted(run)) + "\n")
        cases = file.read_text().split("\n")[:-1]
    if len(cases) == _cases[name]:
        ran = set(" ".join(cases).split())
        assert ran >= NAMED[name], f"{name} does not run {sorted(NAMED[name] - ran)}"
