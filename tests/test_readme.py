"""The table of methods is what the code says, the README's example works as written, and pages stay short."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from run_files import read

from fedbench import algorithms
from fedbench.method.table import markdown

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
NAMES = (
    "README.md fedbench/README.md conf/README.md conf/algorithm/README.md outputs/README.md "
    "outputs/benchmarks/README.md .github/CONTRIBUTING.md .github/CHANGELOG.md"
)
PAGES = [ROOT / name for name in NAMES.split()]
RUN = ["algorithm=signed", "rounds=3", "progress=none", "partition=dirichlet"]


def headings_of(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    lines = [line.lstrip("# ").lower() for line in page.read_text().splitlines() if line.startswith("#")]
    return {"#" + re.sub(r"[^a-z0-9_ -]", "", line).replace(" ", "-") for line in lines}


def examples() -> dict[str, str]:
    """File name -> content of the README's example files."""
    found = re.findall(r"<!-- example: (\S+) -->\n```\w+\n(.*?)```", README, flags=re.DOTALL)
    return dict(found)


def fedbench(arguments: list[str], cwd: Path, **environment: str) -> None:
    command = [sys.executable, "-m", "fedbench", *arguments]
    done = subprocess.run(command, cwd=cwd, env={**os.environ, **environment}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def accuracy(directory: Path) -> list[float]:
    return [float(row["test_accuracy"]) for row in read(directory / "metrics.csv")]


def test_the_table_of_algorithms_is_fresh() -> None:
    page = (ROOT / "conf/algorithm/README.md").read_text()
    written = page.split("<!-- algorithms: begin -->\n")[1].split("<!-- algorithms: end -->")[0]
    assert written == markdown(algorithms.every()), "scripts/readme_table writes it"
    assert f" {len(algorithms.every())} methods under " in README, "scripts/readme_table writes it"


def test_the_first_page_is_read_in_a_minute() -> None:
    assert len(README.splitlines()) <= 150
    assert len(README.encode()) <= 9_000
    assert README.count("![") <= 2


def accuracies(figure: str, **where: object) -> pd.Series[float]:
    """Method and norm -> mean final accuracy in per cent, of the runs of a figure at scale cpu."""
    runs = pd.read_csv(ROOT / "outputs/figures" / figure / "cpu/runs.csv").fillna({"algorithm.norm": ""})
    for key, value in where.items():
        runs = runs[runs[key] == value]
    return runs.groupby(["algorithm", "algorithm.norm"])["final_accuracy"].mean() * 100


def test_the_first_page_says_what_came_out() -> None:
    """Its numbers are those of the committed runs."""
    digits = accuracies("padamfed/fig1", partition="iid")
    assert f"(EMNIST, iid): {digits['padamfed', 'vector']:.1f}% +- " in README
    assert f"(3), SCAFFOLD-M {digits['scaffold_m', '']:.1f}% +- " in README

    few, many = (accuracies("adamasfl/fig2", **{"schedule.concurrency": m}) for m in (10, 100))
    assert f": {many['adamasfl', 'vector']:.1f}% to {few['adamasfl', 'vector']:.1f}% (3)" in README

    tuned = accuracies("adamasfl/fig1")
    ours, _ = tuned.pop(("adamasfl", "vector")), tuned.pop(("adamasfl", "tensor"))
    assert f" without tuning: {ours:.1f}% +- " in README
    assert f"DeFedAvg-niid {tuned.max():.1f}% +- " in README


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_of_the_pages_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)\s]+)\)", page.read_text())
    here = [link for link in links if "://" not in link]
    for link in here:
        file, _, anchor = link.partition("#")
        target = page.parent / file if file else page
        assert target.exists(), link
        if anchor:
            assert "#" + anchor in headings_of(target), link


def test_every_algorithm_is_checked_by_a_test() -> None:
    lines = markdown(algorithms.every()).splitlines()[2:]
    assert len(lines) >= 35
    assert [line for line in lines if not line.rstrip(" |").endswith(".py")] == []


@pytest.mark.slow
def test_the_example_works_beside_an_experiment(tmp_path: Path) -> None:
    """Without touching the package, and without a file of its options: imports, with every engine."""
    (tmp_path / "signed.py").write_text(examples()["fedbench/algorithms/signed.py"])
    for engine in ("loop", "vmap", "compile"):
        out = f"hydra.run.dir={engine}"
        arguments = ["imports=[signed.py]", "optimizer.momentum=0.9", *RUN, f"engine={engine}", out]
        fedbench(arguments, tmp_path)
        files_there = {path.name for path in (tmp_path / engine).iterdir()}
        assert {"metrics.csv", "summary.json", "model.pt", "partition.npz", "config.yaml"} <= files_there
    assert accuracy(tmp_path / "loop") == pytest.approx(accuracy(tmp_path / "vmap"), abs=0.01)
    assert accuracy(tmp_path / "loop") == pytest.approx(accuracy(tmp_path / "compile"), abs=0.01)
    assert accuracy(tmp_path / "loop")[-1] > accuracy(tmp_path / "loop")[0]


@pytest.mark.slow
def test_the_example_works_in_the_package(tmp_path: Path) -> None:
    for name in ("fedbench", "conf"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name, content in examples().items():
        (tmp_path / name).write_text(content)
    fedbench([*RUN, "hydra.run.dir=out"], tmp_path, PYTHONPATH=str(tmp_path))
    assert accuracy(tmp_path / "out")[-1] > 0.3
