"""The benchmarks run, at a tiny size, and write what they say."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from run_files import read

SCRIPTS = Path(__file__).parents[2] / "scripts"


def bench(name: str, *words: str) -> str:
    done = subprocess.run([sys.executable, str(SCRIPTS / name), *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.data
def test_a_round_beside_a_bare_loop(tmp_path: Path, real_data: Callable[..., Path]) -> None:
    """Bare loop and fedbench reach the same accuracy: `bench` fails where they do not."""
    out = tmp_path / "table.csv"
    words = ["--models", "logistic", "--contenders", "vmap,auto", "--threads", "1", "--repeats", "2"]
    bench("bench.py", *words, "--root", str(real_data("mnist")), "--out", str(out))
    found = read(out)
    assert [row["contender"] for row in found] == ["bare", "vmap", "auto"]
    assert all(float(row["ms_per_round"]) > 0 and row["same"] == "True" for row in found)
    assert [row["model"] for row in json.loads(out.with_suffix(".json").read_text())] == ["logistic"] * 3
    assert out.with_suffix(".png").stat().st_size > 1000


@pytest.mark.slow
@pytest.mark.data
def test_a_sweep_beside_bare_loops(tmp_path: Path, real_data: Callable[..., Path]) -> None:
    out = tmp_path / "table.csv"
    words = ["--models", "logistic", "--runs", "3", "--rounds", "2", "--ways", "bare,one_thread"]
    bench("bench_sweep.py", *words, "--root", str(real_data("mnist")), "--out", str(out))
    found = read(out)
    assert [(row["way"], row["runs"]) for row in found] == [("bare", "3"), ("one_thread", "3")]
    accuracies = [float(row["accuracy"]) for row in found]  # FedAvg, FedProx and SCAFFOLD by hand and by us
    assert abs(accuracies[0] - accuracies[1]) < 0.03


@pytest.mark.slow
def test_growth(tmp_path: Path) -> None:
    out = tmp_path / "table.csv"
    bench(
        "bench_growth.py", "--axes", "S,hidden,exponent", "--points", "2", "--rounds", "1", "--out", str(out)
    )
    found = read(out)
    cells = [f"{row['axis']} {row['value']}" for row in found[:6]]
    assert cells == ["S 1", "S 3", "hidden 10", "hidden 30", "exponent 0.1", "exponent 0.5"]
    assert [row["algorithm"] for row in found] == ["fedavg"] * 6 + ["scaffold"] * 6
    assert out.with_suffix(".png").stat().st_size > 1000
