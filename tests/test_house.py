"""The house: imports point downwards, and the command line starts without torch."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "fedbench"

# What each floor may import of the package; a floor is the first name below fedbench.
GROUND = {
    "counting",
    "errors",
    "fields",
    "files",
    "machine",
    "own_options",
    "rng",
    "process_group",
    "torch_internals",
    "version",
    "provenance",
}
BELOW: dict[str, set[str]] = {
    "": {"api"},
    "errors": set(),
    "files": set(),
    "machine": set(),
    "version": set(),
    "provenance": {"version"},
    "process_group": {"errors", "torch_internals"},
    "rng": set(),
    "counting": set(),
    "torch_internals": {"errors"},
    "fields": {"errors"},
    "own_options": {"errors", "fields"},
    "optimizer": {"errors", "fields"},
    "loggers": set(),
    "config": {"data", "schedule", "loggers", "optimizer"},
    "data": set(),
    "models": set(),
    "method": {"theory", "optimizer"},
    "algorithms": {"method", "theory"},
    "schedule": set(),
    "theory": set(),
    "engine": {"method", "optimizer", "data", "models", "config"},
    "runs": {"engine", "schedule", "method", "algorithms", "data", "models", "config", "loggers"},
    "figures": {"runs", "schedule", "theory", "data", "config"},
    "sweeps": {"runs", "engine", "config"},
    "tuning": {"sweeps", "runs", "figures", "config"},
    "report": {"sweeps", "runs", "figures", "config"},
    "papers": {"sweeps", "tuning", "runs", "figures", "theory", "config"},
    "api": {"sweeps", "runs", "figures", "data", "config"},
    "cli": {"api", "tuning", "runs", "figures", "sweeps", "report", "algorithms", "method", "config"},
    "__main__": {"cli"},
}
NO_TORCH = (
    *(
        "errors",
        "files",
        "rng",
        "fields",
        "own_options",
        "config",
        "sweeps",
        "api",
        "cli",
        "__main__",
        "schedule",
        "optimizer",
    ),
    *("loggers", "process_group", "runs.metrics", "runs.run_directory", "runs.signals"),
)


def floor(dotted: str) -> str:
    parts = dotted.split(".")
    return parts[1] if len(parts) > 1 else ""


def light(dotted: str) -> bool:
    """Whether a module is to be imported without torch: its floor is, or itself."""
    return floor(dotted) in NO_TORCH or dotted.removeprefix("fedbench.") in NO_TORCH


def name_of(path: Path) -> str:
    relative = path.relative_to(PACKAGE.parent).with_suffix("")
    return ".".join(part for part in relative.parts if part != "__init__")


def imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            for alias in node.names:
                yield f"{node.module}.{alias.name}" if node.module == "fedbench" else str(node.module)


MODULES = {
    name_of(path): path
    for path in sorted(PACKAGE.rglob("*.py"))
    if "conf" not in path.relative_to(PACKAGE).parts
}
TREES = {name: ast.parse(path.read_text()) for name, path in MODULES.items()}


def test_imports_point_downwards() -> None:
    for name, tree in TREES.items():
        here = floor(name)
        assert here in BELOW, f"say in {Path(__file__).name} where the new floor {here} stands"
        allowed = BELOW[here] | GROUND | {here}
        for other in imported(tree):
            ours = other.split(".")[0] == "fedbench" and floor(other) in BELOW
            assert not ours or floor(other) in allowed, f"{name} imports {other}"


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Imports for the type checker count."""
    graph = {}
    for name, tree in TREES.items():
        found = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module in TREES:
                here = {f"{node.module}.{alias.name}" for alias in node.names}
                found |= {full for full in here if full in TREES} or {node.module}
        graph[name] = found - {name}
    TopologicalSorter(graph).prepare()  # raises CycleError


def test_no_torch_at_module_level() -> None:
    for name, tree in TREES.items():
        at_once = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
        tops = {other.split(".")[0] for node in at_once for other in imported(node)}
        assert not (light(name) and tops & {"torch", "torchvision"}), name


def test_starting_the_command_line_imports_neither_torch_nor_pandas() -> None:
    heavy = "{'torch', 'pandas', 'matplotlib', 'sklearn', 'scipy'}"
    ours = "fedbench.cli.run, fedbench.cli.results, fedbench.cli.listing"
    code = f"import sys, {ours}; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr


def test_one_file_alone_knows_the_inside_of_hydra() -> None:
    """Private modules may change with any version; what public API can do is done with it."""
    knowing = [
        name for name, tree in TREES.items() if any(other.startswith("hydra._") for other in imported(tree))
    ]
    assert knowing == ["fedbench.cli.run"]


def test_one_file_alone_knows_the_inside_of_torch() -> None:
    """Everybody else uses what torch documents. Private: a name with an underscore that is neither the
    package's own nor a named tuple's."""
    own = set().union(*map(private_names, TREES.values())) | {"_replace", "_fields"}
    for name, tree in TREES.items():
        every = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute | ast.ImportFrom)]
        used = {node.attr for node in every if isinstance(node, ast.Attribute)}
        for node in every:
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("torch"):
                used |= {*str(node.module).split("."), *(alias.name for alias in node.names)}
        private = {word for word in used - own if word.startswith("_") and not word.endswith("__")}
        of_torch = any(other.split(".")[0] == "torch" for other in imported(tree))
        knows = name == "fedbench.torch_internals" or not of_torch
        assert knows or not private, f"{name}: {sorted(private)}"


TOP_LEVEL = {
    "LICENSE",
    "README.md",
    "conf",
    "fedbench",
    "findings",
    "outputs",
    "pyproject.toml",
    "scripts",
    "tests",
}


def test_the_top_level_holds_only_what_was_chosen() -> None:
    listing = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    try:
        done = subprocess.run(listing, cwd=PACKAGE.parent, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git checkout")
    names = {line.split("/")[0] for line in done.stdout.splitlines()}
    assert {name for name in names if not name.startswith(".")} == TOP_LEVEL


def test_no_room_has_the_name_of_a_function_of_the_python_interface() -> None:
    """A module `fedbench.run` would take the place of the function `fedbench.run` once it is imported."""
    rooms = {path.stem for path in PACKAGE.iterdir()}
    assert rooms & {"run", "sweep", "plot", "results"} == set()


def test_a_file_is_read_in_one_sitting() -> None:
    for name, path in MODULES.items():
        assert len(path.read_text().splitlines()) <= 550, name


COMPUTING = {"data", "models", "method", "algorithms", "schedule", "theory", "engine", "runs"}


def test_what_computes_a_run_keeps_nothing_in_its_module() -> None:
    """What runs share is held by their session: no module-level collection that fills, no cached function."""
    for name, tree in TREES.items():
        if floor(name) not in COMPUTING:
            continue
        for node in tree.body:
            if isinstance(node, ast.Assign | ast.AnnAssign):
                value = ast.unparse(node.value or ast.Constant(1))
                assert value not in ("{}", "[]", "set()", "dict()", "list()"), name
        for node in ast.walk(tree):
            for decorator in node.decorator_list if isinstance(node, ast.FunctionDef) else ():
                function = ast.unparse(decorator).split("(")[0].split(".")[-1]
                assert function not in ("cache", "lru_cache"), name
            assert not isinstance(node, ast.Global), f"{name} has module-level state"


TESTS = Path(__file__).parent
STILL_PRIVATE = {
    "engine/test_compile_cache.py",
    "engine/test_engines.py",
    "engine/test_full_device.py",
    "engine/test_step_graph.py",
    "runs/null_cuda.py",
    "runs/null_cuda_worker.py",
    "runs/test_cuda.py",
    "runs/test_personal.py",
    "runs/test_validation.py",
}
"""These files use private names of the package. The list only gets shorter."""


def private_names(tree: ast.AST) -> set[str]:
    """The names with an underscore that a module defines: at its top, in classes, and on `self`."""
    names = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            own = isinstance(node, ast.Name) or getattr(node.value, "id", "") in ("self", "cls")
            names |= {node.id if isinstance(node, ast.Name) else node.attr} if own else set()
    return {name for name in names if name.startswith("_") and not name.endswith("_") and name != "_"}


def used(tree: ast.AST) -> Iterator[str]:
    """The names that a test uses of others: imported, as attributes, and in the texts of monkeypatch."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("fedbench"):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.Attribute):
            if not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls", "os")):
                yield node.attr
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "setattr":
            yield from (str(arg.value) for arg in node.args[1:2] if isinstance(arg, ast.Constant))
        elif isinstance(node, ast.Constant) and re.fullmatch(r"fedbench[.\w]+", str(node.value)):
            yield str(node.value).rpartition(".")[2]


def test_tests_use_no_private_names_of_the_package() -> None:
    """They use what users use, so that the inside can change."""
    private = set[str]().union(*map(private_names, TREES.values()))
    for file in sorted(TESTS.rglob("*.py")):
        tree = ast.parse(file.read_text())
        found = ({*used(tree)} & private) - private_names(tree)
        assert not found or file.relative_to(TESTS).as_posix() in STILL_PRIVATE, f"{file}: {sorted(found)}"
