"""The benchmarks run, at a tiny size, and write what they say."""

from __future__ import annotations

import argparse
import json
import logging
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import bench_matrix
import bench_peers
import pytest
import torch
from bench_jobs import Bare, Ours
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


@pytest.mark.slow
def test_a_matrix_of_cells_is_measured_once_and_written_into_a_page(tmp_path: Path) -> None:
    """The FedAsync cell has a queue of jobs in its bare loop, PAdaMFed-VR a second gradient."""
    out, page = tmp_path / "matrix.csv", tmp_path / "page.md"
    cells = ["digits mlp", "FedAsync, S=1, digits", "PAdaMFed-VR, digits"]
    words = ["bench_matrix.py", "--cells", ";".join(cells), "--turns", "1", "--out", str(out)]
    bench(*words)
    found = read(out)
    assert [row["cell"] for row in found] == cells
    assert all(0 < float(row["low"]) == float(row["ratio"]) == float(row["high"]) for row in found)
    assert len(bench(*words).splitlines()) == 1  # nothing again, but for the head
    page.write_text("Above.\n<!-- bench_matrix: begin -->\nold\n<!-- bench_matrix: end -->\nBelow.\n")
    bench("bench_matrix.py", "--out", str(out), "--page", str(page))
    text = page.read_text()
    assert text.startswith("Above.")
    assert text.endswith("Below.\n")
    assert "old" not in text
    lines = [line.split(" | ")[0].removeprefix("| ") for line in text.splitlines() if line.startswith("| ")]
    slowest_first = sorted(found, key=lambda row: -float(row["ratio"]))
    assert lines == ["cell", *(row["cell"] for row in slowest_first)]
    assert "3 of 59 cells" in text
    assert "Not measured: mnist logistic; " in text


@pytest.mark.slow
def test_the_peak_memory_of_a_cell_is_beside_a_bare_loops(tmp_path: Path) -> None:
    out = tmp_path / "memory.csv"
    bench("bench_matrix.py", "--memory", "--cells", "evaluated each round, digits", "--out", str(out))
    (row,) = read(out)
    assert 100 < float(row["bare_mib"]) < 4000
    assert float(row["ratio"]) == pytest.approx(float(row["mib"]) / float(row["bare_mib"]), abs=0.001)
    assert float(row["ratio"]) < 1.1


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fedavg", "fedprox", "scaffold", "padamfed", "padamfed_vr"])
def test_the_bare_loop_is_the_method(method: str, tmp_path: Path) -> None:
    """With all clients, full batches and one step, no draw differs: the models are the same after a round."""
    job = [
        f"algorithm={method}", "dataset=digits", "model=logistic", "partition=iid", "clients.total=4",
        "clients.per_round=4", "local.steps=1", "local.batch_size=null", "rounds=5", "device=cpu",
        "algorithm.lr=0.05",
        *(["algorithm.lr=0.01", "algorithm.server_lr=0.1", "algorithm.beta=0.5"] if "adam" in method else []),
    ]  # fmt: skip
    bare, ours = Bare(job), Ours(job, tmp_path)
    for _ in range(3):
        bare.round()
        ours.walk.update()
    theirs = torch.cat([p.flatten() for p in bare.server])
    torch.testing.assert_close(theirs, ours.walk.theta, rtol=1e-3, atol=1e-5)


JOB = [
    "dataset=digits", "model=logistic", "partition=iid", "local.steps=1", "local.batch_size=null", "rounds=5",
    "device=cpu", "algorithm.lr=0.05",
]  # fmt: skip
EVERYONE = [*JOB, "algorithm=fedavg", "clients.total=4", "clients.per_round=4"]
ALONE = [*JOB, "clients.total=1", "clients.per_round=1", "schedule=async", "schedule.concurrency=1"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "job"),
    [
        *((name, EVERYONE) for name in bench_peers.PEERS),
        *(("flgo", [*ALONE, f"algorithm={method}"]) for method in ("fedasync", "fedbuff")),
    ],
)
def test_a_peer_runs_the_job(
    name: str, job: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With all clients, full batches and one step, no draw differs: its models are the bare loop's."""
    if bench_peers.version(name) is None:
        pytest.skip("not installed")
    monkeypatch.chdir(tmp_path)
    peer, bare = bench_peers.peer(name, job), Bare(job)
    peer.rounds(1)
    peer.rounds(2)
    for _ in range(3):
        bare.round()
    for theirs, mine in zip(peer.parameters(), bare.server, strict=True):
        torch.testing.assert_close(theirs.detach(), mine, rtol=1e-3, atol=1e-5)
    if name == "flgo":
        assert peer.server.gv.clock.current_time == 3
    getattr(peer, "close", int)()


class Pretended(bench_peers.Peer):
    """The bare loop, called a peer."""

    def rounds(self, times: int) -> None:
        for _ in range(times):
            self.bare.round()

    def parameters(self) -> list[torch.Tensor]:
        return self.bare.server


@pytest.mark.slow
def test_cells_beside_a_peer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A peer that is installed is measured in its cells only, once, and has a column in the page."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        bench_peers, "PEERS", {"same": ("torch", __name__, "Pretended"), "none": ("no_such", "", "")}
    )
    monkeypatch.setattr(bench_matrix, "PEERS", bench_peers.PEERS)
    cells = {"digits logistic": ("same", "none"), "FedAsync, S=1, digits": ("same",), "digits mlp": ("none",)}
    monkeypatch.setattr(bench_matrix, "BESIDE", cells)
    monkeypatch.setattr(bench_matrix, "SECONDS", 0.01)
    measured, said = [], []

    def here(side: str, cell: str, arguments: argparse.Namespace) -> dict[str, Any]:
        measured.append((side, cell))
        arguments.child, arguments.cells = side, cell
        bench_matrix.child(arguments)
        logging.disable(logging.NOTSET)
        captured = capsys.readouterr()
        said.append(captured.err)
        return json.loads(captured.out.splitlines()[-1])

    monkeypatch.setattr(bench_matrix, "in_a_process", here)

    def run(*words: str) -> None:
        monkeypatch.setattr(
            sys, "argv", ["bench_matrix", "--peers", "--out", "peers.csv", "--turns", "3", *words]
        )
        bench_matrix.main()

    run()
    assert "none is not installed here" in said[0]
    run()
    assert measured == [("same", "digits logistic"), ("same", "FedAsync, S=1, digits")]
    found = read(tmp_path / "peers.csv")
    for row in found:
        assert float(row["low"]) <= float(row["ratio"]) <= float(row["high"])
        assert torch.__version__.startswith(row["version"])
        assert float(row["accuracy"]) == float(row["bare_accuracy"])
        assert float(row["our_accuracy"]) > 0.3
    page = tmp_path / "page.md"
    marks = [mark.format(" peers") for mark in (bench_matrix.BEGIN, bench_matrix.END)]
    page.write_text(f"Above.\n{marks[0]}\nold\n{marks[1]}\nBelow.\n")
    run("--page", "page.md")
    lines = page.read_text().splitlines()
    assert (lines[0], lines[-1]) == ("Above.", "Below.")
    assert f"| cell | bare loop, ms | fedbench | same {found[0]['version']} |" in lines
    first = next(line for line in lines if line.startswith("| digits logistic"))
    numbers = [float(found[0][name]) for name in ("ours", "ratio")]
    assert first.split(" | ")[2:] == [f"{numbers[0]:.2f}", f"{numbers[1]:.2f} |"]
    assert "2 of 4 pairs of a cell and a peer, on one thread" in lines
    for wrong, line in (
        ({"--cells": "mnist cnn"}, "no cell 'mnist cnn'"),
        ({"--peers": "pfl,"}, "no peer 'pfl'"),
    ):
        with pytest.raises(SystemExit, match=line):
            run(*next(iter(wrong.items())))
