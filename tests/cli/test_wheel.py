"""A wheel built from the checkout carries conf/ and runs."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


def build(kind: str, place: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(place)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)


@pytest.mark.slow
def test_a_wheel_carries_its_configuration_and_runs(tmp_path: Path) -> None:
    build("wheel", tmp_path)
    (wheel,) = tmp_path.glob("fedbench_runner-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        archive.extractall(tmp_path / "site")
    ours = {f"fedbench/{file.relative_to(ROOT)}" for file in (ROOT / "conf").rglob("*.yaml")}
    assert ours <= names
    pages = {f"fedbench/report/page.{kind}" for kind in ("html", "css", "js")}
    pages |= {f"fedbench/papers/{name}" for name in ("peers.csv", "peers.yaml", "pages/first.md")}
    assert pages <= names
    (licence,) = (name for name in names if name.endswith(".dist-info/licenses/LICENSE"))
    assert (tmp_path / "site" / licence).read_bytes() == (ROOT / "LICENSE").read_bytes()
    assert not any(name.startswith(("tests/", "scripts/", "outputs/")) for name in names)
    site = tmp_path / "site"
    # before the checkout; dependencies as they are here
    how: Any = {"cwd": tmp_path, "env": {**os.environ, "PYTHONPATH": str(site)}}
    start = "import sys, fedbench; from fedbench.cli import main; print(fedbench.__file__); sys.exit(main())"

    def run(*argv: str, code: int = 0, first: str = "") -> str:
        command = [sys.executable, "-c", first + start, *argv]
        done = subprocess.run(command, capture_output=True, text=True, **how)
        assert done.returncode == code, done.stderr
        assert done.stdout.startswith(str(site))
        return done.stdout if code == 0 else done.stderr

    assert f"path: {site}/fedbench/conf" in run("--cfg", "hydra")
    run("rounds=1", "progress=none", "engine=vmap")
    assert len(list(tmp_path.glob("outputs/runs/fedavg-*/summary.json"))) == 1
    line = run("report", "outputs", code=2, first="import sys; sys.modules['plotly'] = None; ")
    assert line == "fedbench: report: needs plotly: pip install 'fedbench-runner[report]'\n"


def test_a_source_distribution_carries_the_licence(tmp_path: Path) -> None:
    build("sdist", tmp_path)
    (file,) = tmp_path.glob("fedbench_runner-*.tar.gz")
    with tarfile.open(file) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"LICENSE", "README.md", "pyproject.toml", "fedbench/cli/__init__.py", "conf/config.yaml"} <= names
    assert not any(name.startswith(("tests/", "scripts/", "outputs/", ".venv")) for name in names)
