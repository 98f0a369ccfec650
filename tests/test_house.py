"""The house: imports point downwards, and the command line starts without torch."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "fedbench"

# What each floor may import of the package; a floor is the first name below fedbench.
GROUND = {"errors", "fields", "files", "rng", "process_group", "torch_internals", "version", "provenance"}
BELOW: dict[str, set[str]] = {
    "": {"api"},
    "errors": set(),
    "files": set(),
    "version": set(),
    "provenance": {"version"},
    "process_group": {"errors", "torch_internals"},
    "rng": set(),
    "torch_internals": {"errors"},
    "fields": {"errors"},
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
    "figures": {"runs", "theory", "schedule", "data", "algorithms", "models", "config"},
    "sweeps": {"runs", "engine", "figures", "config"},
    "tuning": {"sweeps", "runs", "figures", "config"},
    "report": {"sweeps", "runs", "figures", "config"},
    "papers": {"sweeps", "tuning", "runs", "figures", "theory", "config"},
    "api": {"sweeps", "runs", "figures", "config", "loggers"},
    "cli": {
        "api",
        "tuning",
        "engine",
        "runs",
        "papers",
        "figures",
        "sweeps",
        "report",
        "algorithms",
        "method",
        "config",
    },
    "__main__": {"cli"},
}
NO_TORCH = (
    "errors",
    "files",
    "rng",
    "fields",
    "config",
    "sweeps",
    "api",
    "cli",
    "__main__",
    "schedule",
    "optimizer",
    "loggers",
    "runs.metrics",
    "runs.run_directory",
    "runs.signals",
    "process_group",
)


def modules() -> list[Path]:
    return sorted(path for path in PACKAGE.rglob("*.py") if "conf" not in path.relative_to(PACKAGE).parts)


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


@pytest.mark.parametrize("path", modules(), ids=name_of)
def test_imports_point_downwards(path: Path) -> None:
    here = floor(name_of(path))
    assert here in BELOW, f"say in {Path(__file__).name} where the new floor {here} stands"
    for other in imported(ast.parse(path.read_text())):
        if other.split(".")[0] != "fedbench" or floor(other) not in BELOW:
            continue  # another package
        allowed = BELOW[here] | GROUND | {here}
        assert floor(other) in allowed, f"{name_of(path)} imports {other}"


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Imports for the type checker count."""
    names = {name_of(path): path for path in modules()}
    graph = {}
    for name, path in names.items():
        found = set()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module in names:
                here = {f"{node.module}.{alias.name}" for alias in node.names}
                found |= {full for full in here if full in names} or {node.module}
        graph[name] = found - {name}
    TopologicalSorter(graph).prepare()  # raises CycleError


@pytest.mark.parametrize("path", [p for p in modules() if light(name_of(p))], ids=name_of)
def test_no_torch_at_module_level(path: Path) -> None:
    tree = ast.parse(path.read_text())
    for node in tree.body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            assert not any(name.split(".")[0] in ("torch", "torchvision") for name in imported(node))


def test_starting_the_command_line_imports_neither_torch_nor_pandas() -> None:
    heavy = "{'torch', 'pandas', 'matplotlib', 'sklearn', 'scipy'}"
    ours = "fedbench.cli.run, fedbench.cli.results, fedbench.cli.listing"
    code = f"import sys, {ours}; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr


def test_one_file_alone_knows_the_inside_of_hydra() -> None:
    """Private modules may change with any version; what public API can do is done with it."""
    knowing = [
        name_of(path)
        for path in modules()
        if any(name.startswith("hydra._") for name in imported(ast.parse(path.read_text())))
    ]
    assert knowing == ["fedbench.cli.run"]


TOP_LEVEL = {"LICENSE", "README.md", "conf", "fedbench", "outputs", "pyproject.toml", "scripts", "tests"}


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
    longest = max(modules(), key=lambda path: len(path.read_text().splitlines()))
    assert len(longest.read_text().splitlines()) <= 550, name_of(longest)


COMPUTING = {"data", "models", "method", "algorithms", "schedule", "theory", "engine", "runs"}
REGISTRIES = {
    "fedbench.method.registry",
    "fedbench.models.registry",
    "fedbench.data.registry",
}  # names that modules enter when imported


@pytest.mark.parametrize("path", [p for p in modules() if floor(name_of(p)) in COMPUTING], ids=name_of)
def test_what_computes_a_run_keeps_nothing_in_its_module(path: Path) -> None:
    """What runs share is held by their session: no module-level collection that fills, no cached function."""
    tree = ast.parse(path.read_text())
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and name_of(path) not in REGISTRIES:
            assert ast.unparse(node.value or ast.Constant(1)) not in ("{}", "[]", "set()", "dict()", "list()")
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            for decorator in node.decorator_list:
                assert ast.unparse(decorator).split("(")[0].split(".")[-1] not in ("cache", "lru_cache")
        assert not isinstance(node, ast.Global), "no module-level state"
