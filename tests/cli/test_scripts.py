"""scripts/run and the environment that it makes."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import gpu_checks
import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """scripts/environment.py about a pretended checkout, with its commands recorded instead of run."""
    spec = importlib.util.spec_from_file_location("environment", ROOT / "scripts" / "environment.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.ROOT, module.VENV = tmp_path, tmp_path / ".venv"
    module.STAMP = module.VENV / "stamp"
    (tmp_path / "pyproject.toml").write_text("one")
    module.commands = []

    def pretend(command: list[str], quiet: bool = False) -> None:
        module.commands.append([str(word) for word in command])
        (module.VENV / "bin").mkdir(parents=True, exist_ok=True)
        (module.VENV / "bin" / "fedbench").touch()
        if not (module.VENV / "bin" / "python").exists():
            (module.VENV / "bin" / "python").symlink_to(sys.executable)

    monkeypatch.setattr(module, "run", pretend)
    monkeypatch.setattr(sys, "argv", ["environment.py"])
    return module


@pytest.mark.parametrize("uv", ["/usr/bin/uv", None])
def test_it_installs_once_per_change_of_the_project_file(
    environment: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Any, uv: str | None
) -> None:
    monkeypatch.setattr(environment, "uv_of", lambda python: uv)
    assert environment.main() == 0
    made = environment.commands.copy()
    assert made[0][:3] == [sys.executable, "-m", "venv"]
    said = capsys.readouterr().err
    assert "5.5 GB of disk" in said
    assert ("uv cannot be had here" in said) == (uv is None)
    assert not any("--quiet" in command for command in made)  # progress is seen
    assert made[-1][-2:] == ["-e", str(tmp_path)]
    (tmp_path / ".venv/lib/python3.11/site-packages/torch").mkdir(parents=True)
    assert environment.main() == 0
    assert environment.commands == made
    monkeypatch.setattr(sys, "argv", ["environment.py", "--dev"])
    assert environment.main() == 0
    assert environment.commands[-1][-1] == f"{tmp_path}[dev]"
    count = len(environment.commands)
    monkeypatch.setattr(sys, "argv", ["environment.py"])
    (tmp_path / "pyproject.toml").write_text("two")
    capsys.readouterr()
    assert environment.main() == 0
    assert "GB" not in capsys.readouterr().err  # a torch that is there needs no line about its size
    assert environment.commands[-1][-1] == f"{tmp_path}[dev]"  # what was there stays there
    assert not any("venv" in word for word in environment.commands[count][1:3])  # and .venv is kept
    (tmp_path / ".venv" / "bin" / "python").unlink()
    assert environment.main() == 0
    assert "venv" in environment.commands[-2 if uv else -3]


@pytest.mark.parametrize("forbidden", [True, False])
def test_uv_compiles_modules_where_processes_may_not_keep_them(
    environment: ModuleType, monkeypatch: pytest.MonkeyPatch, forbidden: bool
) -> None:
    monkeypatch.setattr(environment, "uv_of", lambda python: "/usr/bin/uv")
    monkeypatch.setattr(sys, "dont_write_bytecode", forbidden)
    assert environment.main() == 0
    assert ("--compile-bytecode" in environment.commands[-1]) == forbidden


FETCHED = {
    "on the path": [], "in .venv": [], "fetched": ["ensurepip", "pip"],
    "a broken one": ["ensurepip", "pip"], "nothing": ["ensurepip"],
}  # fmt: skip


@pytest.mark.parametrize(("has", "fetched"), FETCHED.items())
def test_uv_is_found_or_fetched(
    environment: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, has: str, fetched: list[str]
) -> None:
    path, own, python = "/usr/bin/uv", tmp_path / ".venv" / "bin" / "uv", tmp_path / "python"
    there = path if has in ("on the path", "a broken one") else None
    monkeypatch.setattr(environment.shutil, "which", lambda name: there)
    asked: list[list[str]] = []

    def succeeds(command: list[str]) -> bool:
        asked.append(command)
        if command == [path, "--version"]:
            return has == "on the path"
        return has == "in .venv" if command[0] == str(own) else has != "nothing"

    monkeypatch.setattr(environment, "succeeds", succeeds)
    found = {"on the path": path, "nothing": None}.get(has, str(own))
    assert environment.uv_of(python) == found
    assert [command[2] for command in asked if command[0] == str(python)] == fetched


SCRIPTS = {file.name for file in (ROOT / "scripts").iterdir() if file.is_file() and not file.suffix}


@pytest.mark.parametrize("name", sorted(SCRIPTS - {"python"}))
def test_a_script_works_through_symbolic_links(tmp_path: Path, name: str) -> None:
    """A pretended checkout whose .venv only says what was started; two links lead to its script."""
    checkout = (tmp_path / "check out").resolve()
    shutil.copytree(ROOT / "scripts", checkout / "scripts")
    (checkout / ".venv" / "bin").mkdir(parents=True)
    (checkout / "pyproject.toml").write_text("")
    for program in ("fedbench", "python"):
        file = checkout / ".venv" / "bin" / program
        file.write_text('#!/bin/sh\necho "started: $0"\n')
        file.chmod(0o755)
    wanted = hashlib.sha256(str(checkout).encode()).hexdigest()
    (checkout / ".venv" / "fedbench-installed").write_text(f"{wanted} dev\n")
    links = tmp_path / "links"
    links.mkdir()
    (links / "first").symlink_to(os.path.relpath(checkout / "scripts" / name, links))
    (links / "second").symlink_to("first")
    done = subprocess.run([links / "second"], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("started: ")
    assert f"{checkout.name}/" in done.stdout or ".venv/bin/python" in done.stdout


def test_a_gpu_check_whose_time_is_up_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    """What it has printed by then is kept."""
    log = tmp_path / "long.txt"
    long = f"sleep 100000 & echo $! > {tmp_path / 'number'}; echo so far; wait"
    row = gpu_checks.step("long", 2, ["sh", "-c", long], log)
    assert (row["exit"], row["line"], log.read_text()) == ("time is up", "so far", "so far\n")
    number = (tmp_path / "number").read_text().strip()
    with contextlib.suppress(OSError):  # gone; an empty line: ended, not yet waited for
        for _ in range(600):  # what was killed takes a moment to end
            if not (line := Path(f"/proc/{number}/cmdline").read_text()):
                break
            time.sleep(0.05)
        assert line == ""
    row = gpu_checks.step("short", 5, ["sh", "-c", "echo done; exit 3"], log)
    assert (row["exit"], row["line"]) == (3, "done")
