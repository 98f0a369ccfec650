"""The first signal is answered at once, the second one ends at once; what was saved stays. A signal that
somebody else handles (submitit requeues on it) is relayed once a checkpoint is there."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from fedbench.api import compose_config
from fedbench.cli import main
from fedbench.runs.run import Run
from fedbench.runs.run_directory import RunDirectory
from fedbench.runs.server_loop import ServerLoop
from fedbench.runs.signals import Interrupted, Signals, stop_with_parent

SLOW = """
import os
import time
from pathlib import Path
from fedbench.runs.server_loop import ServerLoop
update = ServerLoop.update
def stuck(self):
    if self.version < 3:
        time.sleep(0.5)  # so that a checkpoint is due
        return update(self)
    Path(f"stuck{os.getpid()}").touch()
    time.sleep(600)
ServerLoop.update = stuck
"""
COMMON = ["rounds=9", "threads=1", "checkpoint.seconds=0", "hooks=[slow.py]", "progress=none"]
POOL = ["-m", "seed=0,1", "hydra.sweep.dir=.", "hydra/launcher=processes", "hydra.launcher.processes=2"]
SECOND = "; a second Ctrl-C stops at once"


def start(place: Path, *words: str) -> subprocess.Popen:
    (place / "slow.py").write_text(SLOW)
    command = [sys.executable, "-m", "fedbench", *COMMON, *words]
    errors = (place / "errors").open("w")
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # inherited; below nohup it is ignored
    try:
        return subprocess.Popen(
            command, cwd=place, stdout=subprocess.DEVNULL, stderr=errors, start_new_session=True
        )
    finally:
        signal.signal(signal.SIGHUP, before)


def until(process: subprocess.Popen, place: Path, pattern: str, count: int) -> None:
    deadline = time.monotonic() + 300
    while len(list(place.glob(pattern))) < count:
        assert process.poll() is None, (place / "errors").read_text()
        assert time.monotonic() < deadline
        time.sleep(0.05)


def said(process: subprocess.Popen, place: Path, text: str) -> None:
    deadline = time.monotonic() + 60
    while text not in (place / "errors").read_text():
        assert process.poll() is None, (place / "errors").read_text()
        assert time.monotonic() < deadline, (place / "errors").read_text()
        time.sleep(0.05)


def test_what_a_signal_waits_for_is_said_while_an_operation_goes_on(
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Python calls a signal's handler only after the operation: here one that begins again when a signal
    comes, as those that compute do."""
    reading, writing = os.pipe()
    found = []

    def signalled() -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        deadline = time.monotonic() + 20
        while not (said := capfd.readouterr().err) and time.monotonic() < deadline:
            time.sleep(0.02)
        found.append((said, signals.stop))
        os.write(writing, b"1")

    with Signals(lambda: "waits for a stone").installed() as signals:
        sender = threading.Timer(0.2, signalled)
        sender.start()
        libc, place = ctypes.CDLL(None), ctypes.create_string_buffer(1)
        while libc.read(reading, place, 1) != 1:  # without Python's own check for signals
            pass
        sender.join()
    assert signals.stop == signal.SIGTERM
    assert [said for said, _ in found] == [f"fedbench: stopping: waits for a stone{SECOND}\n"]
    for end in (reading, writing):
        os.close(end)


@pytest.mark.slow
def test_a_run_says_what_it_waits_for_and_a_second_signal_ends_it(tmp_path: Path) -> None:
    run = start(tmp_path, "hydra.run.dir=run")
    until(run, tmp_path, "stuck*", 1)
    checkpoint = tmp_path / "run" / "checkpoint.pt"
    saved = checkpoint.read_bytes()
    round_saved = torch.load(checkpoint)["loop_state"]["version"]
    assert 0 < round_saved <= 3  # less than 3 where writing takes long
    run.send_signal(signal.SIGTERM)
    said(run, tmp_path, "stopping: waits for the end of round 4, to save it" + SECOND)
    assert run.poll() is None
    run.send_signal(signal.SIGTERM)
    assert run.wait(60) == 143
    assert "Traceback" not in (tmp_path / "errors").read_text()
    assert checkpoint.read_bytes() == saved
    assert not list(tmp_path.glob("run/.*.tmp"))
    (tmp_path / "slow.py").write_text("")
    again = [sys.executable, "-m", "fedbench", *COMMON, "hydra.run.dir=run"]
    done = subprocess.run(again, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert f"going on from round {round_saved}\n" in done.stdout
    assert "completed after 9 rounds" in done.stdout


@pytest.mark.slow
def test_a_sweep_stops_all_its_workers_together(tmp_path: Path) -> None:
    sweep = start(tmp_path, *POOL)
    until(sweep, tmp_path, "stuck*", 2)
    first = "stopping: waits for 2 runs to end a round and save it" + SECOND
    os.killpg(sweep.pid, signal.SIGHUP)  # as a closed terminal sends it, to every process
    said(sweep, tmp_path, first)
    os.kill(sweep.pid, signal.SIGINT)
    assert sweep.wait(60) == 129
    line = "stopped at once; the same command goes on with what is missing in ."
    assert (tmp_path / "errors").read_text() == f"fedbench: {first}\nfedbench: {line}\n"
    assert len(list(tmp_path.glob("seed*/checkpoint.pt"))) == 2
    assert not list(tmp_path.glob("seed*/.*.tmp"))


@pytest.mark.slow
def test_a_signal_while_workers_start_stops_them(tmp_path: Path) -> None:
    """They ignore signals until their imports are done. Nothing is computed, and nobody is waited for."""
    words = [sys.executable, "-u", "-m", "fedbench", "-m", "rounds=100000", "algorithm=fedavg,fedadam"]
    words += ["hydra.launcher.processes=1", "hydra/launcher=processes", f"hydra.sweep.dir={tmp_path}"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as sweep:
        assert sweep.stdout is not None
        for line in sweep.stdout:
            if line.startswith("1 process"):
                break
        time.sleep(0.03)
        sweep.send_signal(signal.SIGINT)
        rest, _ = sweep.communicate(timeout=50)  # workers that do not hear it are killed after 60 s
    assert sweep.returncode == 130
    assert "waits for 0" not in rest


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_at_any_instant_costs_nothing_that_was_computed(number: int, tmp_path: Path) -> None:
    """While the process imports, reads data, trains or writes its last files."""
    words = [sys.executable, "-m", "fedbench", "rounds=20", "progress=none", "engine=vmap"]
    for instant in (0.5, 2.0, 4.0):
        command = [*words, f"hydra.run.dir=at{instant}"]
        process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
        ignored = 0  # the mask of /proc; before `main` begins the process is Python's alone
        while sys.platform == "linux" and not ignored >> (signal.SIGUSR1 - 1) & 1 and process.poll() is None:
            ignored = int(Path(f"/proc/{process.pid}/status").read_text().split("SigIgn:")[1].split()[0], 16)
            time.sleep(0.01)
        time.sleep(instant)
        process.send_signal(number)
        _, errors = process.communicate(timeout=300)
        assert "Traceback" not in errors
        assert process.returncode in ((0,) if number == signal.SIGUSR1 else (0, -number, 128 + number))
        assert subprocess.run(command, cwd=tmp_path, timeout=300).returncode == 0
        assert RunDirectory(tmp_path / f"at{instant}").status == "completed"


CTRL_C = """
import os, signal, time
from fedbench.sweeps.pool import prepare
prepare()
time.sleep(0.2)
try:
    os.killpg(0, signal.SIGINT)
    time.sleep(10)
except KeyboardInterrupt:
    print("heard")
"""


@pytest.mark.slow
def test_ctrl_c_while_the_fork_server_imports_is_heard_by_its_parent_alone() -> None:
    command = [sys.executable, "-c", CTRL_C]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, start_new_session=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "heard\n", "")


# ---- signals to a run, and to what is none ----

WORDS = ["rounds=5", "clients.total=4", "clients.per_round=2", "local.steps=1", "progress=none"]
LONG = "checkpoint.seconds=1000"  # so that only the signal asks for a checkpoint


def signalled(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """The signal comes while the third round is computed."""
    update = ServerLoop.update

    def updating(self: ServerLoop) -> None:
        if self.version == 2:
            os.kill(os.getpid(), number)
        update(self)

    monkeypatch.setattr(ServerLoop, "update", updating)


@pytest.fixture
def handled() -> Iterator[list[int]]:
    """The process as submitit leaves it: the numbers of the signals that its handlers got."""
    seen: list[int] = []

    def requeue(number: int, frame: object) -> None:
        seen.append(number)
        raise SystemExit(3)

    numbers = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM)
    old = {number: signal.getsignal(number) for number in numbers}
    for number in numbers[:2]:
        signal.signal(number, requeue)
    signal.signal(signal.SIGTERM, lambda number, frame: seen.append(number))
    yield seen
    for number, handler in old.items():
        signal.signal(number, handler)


def test_the_job_is_requeued_from_a_checkpoint_of_this_round(
    handled: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = Run(compose_config([*WORDS, LONG]))
    with monkeypatch.context() as patched:
        signalled(patched, signal.SIGUSR2)
        with pytest.raises(SystemExit):
            plan.go(tmp_path / "run")
    assert handled == [signal.SIGUSR2]
    saved = torch.load(tmp_path / "run/checkpoint.pt", weights_only=True)
    assert saved["loop_state"]["version"] == 3
    assert Run(compose_config([*WORDS, LONG])).go(tmp_path / "run")["rounds"] == 5


def test_what_another_bypasses_stops_nothing(
    handled: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SLURM sends SIGTERM before the signal that requeues, and submitit waits for that one."""
    signalled(monkeypatch, signal.SIGTERM)
    assert Run(compose_config([*WORDS, LONG])).go(tmp_path / "run")["rounds"] == 5
    assert handled == [signal.SIGTERM]


def test_a_closed_terminal_stops_a_run_at_a_checkpoint_unless_it_was_to_outlive_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGHUP, which `nohup` lets be ignored."""
    signalled(monkeypatch, signal.SIGHUP)
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    try:
        with pytest.raises(Interrupted, match="after round 3") as stop:
            Run(compose_config([*WORDS, LONG])).go(tmp_path / "run")
        assert stop.value.exit_code == 129
        assert torch.load(tmp_path / "run/checkpoint.pt", weights_only=True)["loop_state"]["version"] == 3
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        assert Run(compose_config([*WORDS, LONG])).go(tmp_path / "other")["rounds"] == 5
    finally:
        signal.signal(signal.SIGHUP, before)


def test_the_signal_that_saves_ends_no_command_that_has_nothing_to_save() -> None:
    """A cluster sends SIGUSR1 to all processes of a job, whatever they do at that moment."""
    before = signal.signal(signal.SIGUSR1, signal.SIG_DFL)
    try:
        assert main(["--version"]) == 0
        os.kill(os.getpid(), signal.SIGUSR1)
        child = subprocess.run(["sh", "-c", "kill -USR1 $$; echo alive"], capture_output=True, text=True)
        assert child.stdout == "alive\n"
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_process_whose_parent_is_gone_is_told_to_save_and_stop() -> None:
    told = threading.Event()
    before = signal.signal(signal.SIGTERM, lambda number, frame: told.set())
    try:
        stop_with_parent(lambda: False)
        assert told.wait(10)
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_run_that_was_killed_in_its_first_rounds_has_been_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is saved yet, and its files are there."""

    def killed(self: ServerLoop) -> None:
        raise SystemExit(137)

    monkeypatch.setattr(ServerLoop, "update", killed)
    with pytest.raises(SystemExit):
        Run(compose_config([*WORDS, LONG])).go(tmp_path / "run")
    assert RunDirectory(tmp_path / "run").status == "stopped"
