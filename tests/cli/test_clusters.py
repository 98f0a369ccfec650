"""Runs that a cluster's jobs were given, with commands of Slurm that say what a test wants. What a real Slurm
does is tried by `scripts/cluster_checks`."""

from __future__ import annotations

import json
import os
import pickle
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from run_files import read

from fedbench.cli import main
from fedbench.runs.run_directory import RunDirectory
from fedbench.runs.server_loop import ServerLoop
from fedbench.sweeps.launcher import cores  # as it is: the fixture of all tests replaces it

WORDS = ["rounds=5", "clients.total=4", "clients.per_round=2", "local.steps=1", "progress=none"]
SWEEP = [*WORDS, "-m", "seed=0,1,2", "hydra.sweep.dir=s", "hydra/launcher=slurm"]
LEAVE = "hydra.launcher.wait=false"

SCRIPTS = {
    "sbatch": """
echo "$@" >> "$FAKE/submitted"
grep -q 'partition=wrong' "$1" && { echo 'sbatch: error: invalid partition specified: wrong' >&2; exit 1; }
cp "$1" "$FAKE/script"
count=$(cat "$FAKE/submitted" | wc -l)
echo "Submitted batch job $((11 + count))"
""",
    "squeue": """
[ -e "$FAKE/down" ] && { echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1; }
cat "$FAKE/queue" 2>/dev/null || true
""",
    "sacct": 'cat "$FAKE/accounts" 2>/dev/null || exit 1\n',
    "scancel": 'echo "$@" > "$FAKE/cancelled"\n',
    "scontrol": "echo 'MaxArraySize            = 1001'\n",
    "srun": "exit 1\n",
}


class Slurm:
    """The stand-in's memory: what it was told, and what it says."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def says(self, **states: str) -> None:
        """The queue, by a run's number in the array 12: `_1="FAILED 0"`."""
        lines = [f"12{name} {state if ' ' in state else state + ' 0'}" for name, state in states.items()]
        (self.place / "queue").write_text("\n".join(lines) + "\n")

    @property
    def submissions(self) -> int:
        file = self.place / "submitted"
        return len(file.read_text().splitlines()) if file.exists() else 0

    def __call__(self, name: str) -> str:
        return (self.place / name).read_text()


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Slurm:
    place = tmp_path / "fake"
    place.mkdir()
    for name, text in SCRIPTS.items():
        (place / name).write_text(f"#!/bin/sh\n{text}")
        (place / name).chmod(0o755)
    monkeypatch.setenv("FAKE", str(place))
    monkeypatch.setenv("PATH", f"{place}:{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    return Slurm(place)


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str]]:
    def call(*words: str) -> tuple[int, str]:
        capsys.readouterr()
        code = main([*words])
        both = capsys.readouterr()
        return code, both.out + both.err

    return call


Said = Callable[..., tuple[int, str]]


def place(seed: int) -> Path:
    (found,) = Path("s").glob(f"seed_{seed}-*")
    return found


def test_jobs_are_submitted_left_alone_watched_and_ended(slurm: Slurm, said: Said) -> None:
    code, out = said(*SWEEP, LEAVE)
    assert code == 0
    line = "3 runs in jobs 12_[0-2]: `fedbench status s` shows them, `fedbench cancel s` ends them"
    assert line in out
    assert "--array=0-2%3" in slurm("script")
    assert "--mem=2GB" in slurm("script")
    assert [row["status"] for row in read(Path("s/runs.csv"))] == ["queued"] * 3
    slurm.says(_0="RUNNING", _1="PENDING", _2="PENDING 2")
    code, out = said("status", "s")
    assert "3 queued" in out
    assert "(job 12_1: PENDING)" in out
    assert "(job 12_2: PENDING, requeued 2 times)" in out
    assert said(*SWEEP, LEAVE)[0] == 0
    assert slurm.submissions == 1  # what is queued is not submitted again
    code, out = said("cancel", "s")
    assert (code, slurm("cancelled")) == (0, "12_0 12_1 12_2\n")
    assert out == "s: ended 12_[0-2], with 3 runs\n"
    assert "3 missing" in said("status", "s")[1]
    assert said(*SWEEP, LEAVE)[0] == 0
    assert slurm.submissions == 2


@pytest.mark.parametrize(
    ("state", "status", "words"),
    [
        ("CANCELLED", "failed", "job 12_1 was cancelled"),
        ("OUT_OF_MEMORY", "failed", "job 12_1 was out of memory (hydra.launcher.mem_gb asks for more)"),
        ("NODE_FAIL", "failed", "job 12_1 was lost with its node"),
        (None, "failed", "job 12_1 is no longer in the queue"),  # nor in the accounts, if there are any
        ("TIMEOUT", "missing", ""),
        ("SUSPENDED", "queued", ""),
    ],
)
def test_a_lost_job_costs_only_its_own_run(
    state: str | None, status: str, words: str, slurm: Slurm, said: Said
) -> None:
    said(*SWEEP, LEAVE)
    log = Path(json.loads((place(1) / ".job").read_text())["log"])
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text("slurmstepd: error: why it ended\n")
    queue = {"_0": "RUNNING", "_2": "PENDING"} | ({"_1": state} if state else {})
    slurm.says(**queue)
    assert said("collect", "s")[0] == 0
    rows = read(Path("s/runs.csv"))
    assert [row["status"] for row in rows] == ["queued", status, "queued"]
    if status == "failed":
        assert rows[1]["error"] == f"{words}; slurmstepd: error: why it ended ({log})"


def test_a_job_that_has_left_no_log_never_began(slurm: Slurm, said: Said) -> None:
    """Slurm keeps nothing of a job of an array that is cancelled while it waits."""
    said(*SWEEP, LEAVE)
    slurm.says(_0="RUNNING", _1="PENDING")
    said("collect", "s")
    assert "job 12_2 was taken out of the queue before it began" in read(Path("s/runs.csv"))[2]["error"]


def test_what_slurm_does_not_answer_is_not_concluded(slurm: Slurm, said: Said) -> None:
    said(*SWEEP, LEAVE)
    (slurm.place / "down").touch()
    assert "3 queued" in said("status", "s")[1]


def test_the_accounts_say_what_the_queue_has_forgotten(slurm: Slurm, said: Said) -> None:
    said(*SWEEP, LEAVE)
    slurm.says(_0="RUNNING", _2="RUNNING")
    (slurm.place / "accounts").write_text("12_1|NODE_FAIL\n12_0|RUNNING\n")
    said("collect", "s")
    assert "lost with its node" in read(Path("s/runs.csv"))[1]["error"]


def test_waiting_is_interrupted_and_the_jobs_go_on(
    slurm: Slurm, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("fedbench.sweeps.launching.time", SimpleNamespace(sleep=interrupted))
    code, out = said(*SWEEP)
    assert code == 130
    assert "the jobs go on, and the same command waits for them: 3 runs in jobs 12_[0-2]" in out
    slurm.says(_0="RUNNING", _1="PENDING", _2="PENDING")
    assert "3 queued" in said("status", "s")[1]


@pytest.mark.parametrize(
    ("last", "line"),
    [
        ("CANCELLED", "1 of 3 runs failed: job 12_2 was cancelled"),
        (
            "TIMEOUT",
            "3 of 3 runs have stopped: the same command goes on; with hydra.launcher.max_num_timeout=N",
        ),
    ],
)
def test_a_command_that_waited_says_what_was_lost_and_what_has_stopped(
    last: str, line: str, slurm: Slurm, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slurm does not queue a job again whose time is over."""
    ends = SimpleNamespace(sleep=lambda seconds: slurm.says(_0="TIMEOUT", _1="TIMEOUT", _2=last))
    monkeypatch.setattr("fedbench.sweeps.launching.time", ends)
    code, out = said(*SWEEP)
    assert (code, slurm.submissions) == (1, 1)
    assert line in out


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["hydra.launcher.partition=wrong"], "hydra/launcher=slurm: sbatch: error: invalid partition specif"),
        (["hydra.launcher.timeout_min=abc"], "hydra.launcher.timeout_min=abc: must be an integer >= 1"),
        (["hydra.launcher.partitoin=x"], "did you mean 'hydra.launcher.partition'?"),
    ],
)
def test_what_is_refused_is_one_line_and_fails_no_run(
    words: list[str], line: str, slurm: Slurm, said: Said
) -> None:
    code, out = said(*SWEEP, *words)
    assert code == 2
    assert line in out.splitlines()[-1]
    assert not [*Path("s").glob("seed*")]


def test_no_slurm_here(said: Said, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    line = "fedbench: hydra/launcher=slurm: needs sbatch, srun and squeue, which are not here\n"
    assert said(*SWEEP) == (2, line)


# ---- inside a job ----


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({}, 8),
        ({"SLURM_CPUS_PER_TASK": "1", "SLURM_CPUS_ON_NODE": "4"}, 1),
        ({"SLURM_CPUS_ON_NODE": "4"}, 4),
        ({"SLURM_CPUS_ON_NODE": "4", "SLURM_STEP_TASKS_PER_NODE": "2(x3),1"}, 2),
        ({"SLURM_CPUS_ON_NODE": "2", "SLURM_STEP_TASKS_PER_NODE": "4"}, 1),
        ({"SLURM_CPUS_ON_NODE": "64"}, 8),
    ],
)
def test_a_job_has_the_cores_that_slurm_gives_it(
    said: dict[str, str], expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a node of eight whose Slurm binds no process to cores; the tasks of a step share the job's."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(8)), raising=False)
    for name in ("SLURM_CPUS_PER_TASK", "SLURM_CPUS_ON_NODE", "SLURM_STEP_TASKS_PER_NODE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in said.items():
        monkeypatch.setenv(name, value)
    assert cores() == expected


@pytest.fixture
def time_over(plugins_again: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """submitit's handler of a job that is not to be queued again; it is sent while round 3 is computed."""

    def refuse(number: int, frame: object) -> None:
        raise RuntimeError("Job not requeued because: timed-out too many times.")

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGHUP, signal.SIGUSR2)}
    signal.signal(signal.SIGUSR2, refuse)
    update = ServerLoop.update

    def updating(self: ServerLoop) -> None:
        if self.version == 2:
            os.kill(os.getpid(), signal.SIGUSR2)
        update(self)

    monkeypatch.setattr(ServerLoop, "update", updating)
    monkeypatch.setattr(os, "setpgrp", lambda: None)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_a_job_of_two_runs_goes_on_where_its_time_was_over(slurm: Slurm, said: Said, time_over: None) -> None:
    """The run under way has stopped with a checkpoint; the other one of its job has not begun."""
    said(*SWEEP, LEAVE, "hydra.launcher.runs_per_job=2", "engine=vmap")
    assert "--array=0-1%2" in slurm("script")
    job = pickle.loads(next(Path("s/.submitit").glob("12_0/12_0_submitted.pkl")).read_bytes())
    with pytest.raises(SystemExit):
        job.result()
    assert (place(0) / "checkpoint.pt").exists()
    statuses = [RunDirectory(place(seed)).status for seed in range(3)]
    assert statuses == ["stopped", "missing", "queued"]
    slurm.says(_0="FAILED", _1="PENDING")  # as a job is that has not ended with 0
    assert "1 queued, 1 stopped, 1 missing" in said("status", "s")[1]
