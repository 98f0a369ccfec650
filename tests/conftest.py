"""Fixtures for all tests."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.singleton import Singleton
from hypothesis import settings

settings.register_profile("fedbench", deadline=None)  # shared machines are slow now and then
settings.load_profile("fedbench")
# The C++ around kernels takes most of a compilation: half as long unoptimised, with the same numbers.
os.environ.setdefault("AOT_INDUCTOR_COMPILE_WRAPPER_OPT_LEVEL", "O0")
os.environ.setdefault("AOT_INDUCTOR_ENABLE_LINE_TABLES", "0")
for name in ("FEDBENCH_TRACEBACK", "FEDBENCH_DATA", "HYDRA_FULL_ERROR"):
    os.environ.pop(name, None)  # no test, and no fixture of a module, sees the caller's settings
os.fsync = lambda descriptor: None  # no test cuts the power; a tiny run would mostly wait for the disk


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Slow tests first: begun last, one of them would keep all workers but its own waiting."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


PLACES = {
    "mnist": "MNIST/raw/t10k-labels-idx1-ubyte",
    "fmnist": "FashionMNIST/raw/t10k-labels-idx1-ubyte",
    "emnist": "emnist.npz",
    "cifar10": "cifar10.npz",
}
PREPARE = Path(__file__).parents[2] / "shared" / "data" / "prepare.py"


@pytest.fixture(autouse=True)
def hydra_as_it_was() -> Iterator[None]:
    """A test that leaves other plugins of Hydra, or another store, behind would fail tests after it: it fails
    itself."""
    before = {**Singleton._instances}
    yield
    after = Singleton._instances
    assert [cls.__name__ for cls in before if after.get(cls) is not before[cls]] == []


@pytest.fixture
def plugins_again(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """For tests in which Hydra loads its plugins a second time: it does so into the same modules, where the
    classes of before no longer find themselves. What was there before is there again afterwards."""
    modules = [vars(module) for name, module in sys.modules.items()
               if name.startswith(("hydra._internal.core_plugins.", "hydra_plugins."))]  # fmt: skip
    before = [{**names} for names in modules]
    monkeypatch.setattr(Singleton, "_instances", {**Singleton._instances})
    monkeypatch.setattr(ConfigStore.instance(), "repo", copy.deepcopy(ConfigStore.instance().repo))
    yield
    for names, old in zip(modules, before, strict=True):
        names.update(old)


@pytest.fixture(autouse=True)
def fresh_hydra(
    hydra_as_it_was: None, nothing_registered_by_other_tests: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hydra keeps one global state per process; no test sees another one's.

    After the registries' fixture, so that it ends after monkeypatch, which puts back what a test took out.
    """
    GlobalHydra.instance().clear()


@pytest.fixture(autouse=True)
def one_core(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sweep is computed in the test's own process, unless it asks for several."""
    monkeypatch.setattr("fedbench.sweeps.launcher.cores", lambda: 1)


@pytest.fixture(autouse=True)
def nothing_registered_by_other_tests() -> Iterator[None]:
    """A method, data set or model that a test registers is known to that test alone; the next executes its
    file again."""
    known = getattr(sys.modules.get("fedbench.fields"), "REGISTERED", {})
    executed = getattr(sys.modules.get("fedbench.config.imports"), "executed", {})
    before, executed_before = {*known}, {**executed}
    yield
    for key in {*known} - before:
        if not known[key].__module__.startswith("fedbench."):
            del known[key]
    for name in {*executed} - {*executed_before}:
        del executed[name]


@pytest.fixture
def tmp_path(tmp_path: Path) -> Path:
    """A directory with nothing beside it."""
    place = tmp_path / "test"
    place.mkdir()
    return place


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty current directory."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No test sees programs that another one, or the caller, has compiled."""
    cache = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("FEDBENCH_CACHE", str(cache))
    return cache


@pytest.fixture(autouse=True)
def placeholders_for_pdf(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A figure's PDF is one line, except in tests marked `pdf`: it takes longer than all its other files."""
    if request.node.get_closest_marker("pdf") or "matplotlib" not in sys.modules:
        return
    from matplotlib.figure import Figure

    save = Figure.savefig

    def savefig(self: Figure, name: Any, **options: Any) -> None:
        if options.get("format") == "pdf":
            Path(name).write_text("%PDF: not drawn in tests\n")
        else:
            save(self, name, **options)

    monkeypatch.setattr(Figure, "savefig", savefig)


@pytest.fixture
def packed(monkeypatch: pytest.MonkeyPatch) -> list[Callable[..., Any]]:
    """Every function that had to be compiled, in order. The compiler is left out: `pack` puts a function away
    under a token, and `load` finds it again by its file."""
    from fedbench.engine import compiled

    made: list[Callable[..., Any]] = []

    def pack(function: Callable[..., Any], args: object, held: object, file: Path) -> None:
        made.append(function)
        with zipfile.ZipFile(file, "w") as content:
            content.writestr("token", str(len(made) - 1))

    def load(file: Path, held: object) -> Callable[..., Any]:
        with zipfile.ZipFile(file) as content:
            return made[int(content.read("token"))]

    monkeypatch.setattr(compiled, "pack", pack)
    monkeypatch.setattr(compiled, "load", load)
    return made


@pytest.fixture(scope="session")
def real_data() -> Callable[..., Path]:
    """`real_data("mnist", "cifar10")` is a data root that holds these data sets; skips where there is none.

    Looked for in the environment's FEDBENCH_TEST_DATA; else unpacked by ../shared/data/prepare.py into a
    cache directory, once. Tests that use it are marked `data`.
    """

    def root(*names: str) -> Path:
        given = os.environ.get("FEDBENCH_TEST_DATA")
        if given:
            absent = [name for name in names if not (Path(given) / PLACES[name]).is_file()]
            if absent:
                pytest.skip(f"FEDBENCH_TEST_DATA={given} has no {', '.join(absent)}")
            return Path(given)
        if not PREPARE.is_file():
            pytest.skip("no real data: set FEDBENCH_TEST_DATA to a directory with the data sets")
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fedbench-test-data"
        cache.mkdir(parents=True, exist_ok=True)
        with FileLock(cache / ".lock"):
            absent = [name for name in names if not (cache / PLACES[name]).is_file()]
            if absent:
                done = subprocess.run(
                    [sys.executable, str(PREPARE), str(cache), *absent], capture_output=True, text=True
                )
                if done.returncode:
                    pytest.skip(f"{PREPARE} failed: {done.stderr.strip()[-200:]}")
        return cache

    return root
