"""What must not pass for a result, or end in an accident: foreign files, missing ones, memory, full disks."""

from __future__ import annotations

import logging
import os
import resource
import shutil
import tempfile
from pathlib import Path

import pytest
import torch
from run_files import metrics, model, runs, same_model, summary

from fedbench.engine.vectorised import VmapExecutor
from fedbench.errors import DataError, RunError
from fedbench.runs.checkpoint import write_torch
from fedbench.runs.server_loop import ServerLoop

run = runs(
    "rounds=4 clients.total=8 clients.per_round=4 local.steps=2 local.batch_size=16 progress=none "
    "checkpoint.seconds=0 engine=vmap"
)


# ---- the model to start from -------------------------------------------------------------------------


def test_two_halves_are_the_whole_in_float64(tmp_path: Path) -> None:
    """FedAvg with one client and full batches: nothing depends on the round, nor an order."""
    one = ["clients.total=1", "clients.per_round=1", "local.batch_size=null"]
    words = ["dtype=float64", *one, "model=mlp", "model.hidden=[8]"]
    run(tmp_path / "whole", *words, "rounds=6")
    run(tmp_path / "first", *words, "rounds=3")
    run(tmp_path / "second", *words, "rounds=3", f"init_from={tmp_path / 'first' / 'model.pt'}")
    assert model(tmp_path / "whole")["1.weight"].dtype == torch.float64
    assert same_model(tmp_path / "whole", tmp_path / "second")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "cannot be read as a model's state_dict"),
        ([1, 2], "does not fit the model: Expected state_dict to be dict-like, got <class 'list'>."),
        ({"1.weight": torch.zeros(10, 64)}, 'does not fit the model: Missing key.*"1.bias".*'),
        (
            {"1.weight": torch.zeros(10, 63), "1.bias": torch.zeros(10)},
            "does not fit.*mismatch for 1.weight.*",
        ),
    ],
)
def test_a_file_that_is_no_such_model_is_refused(tmp_path: Path, content: object, reason: str) -> None:
    file = tmp_path / "given.pt"
    file.write_bytes(b"") if content == b"" else torch.save(content, file)
    with pytest.raises(DataError, match=f"^init_from={file}: {reason}$"):
        run(tmp_path / "run", f"init_from={file}")
    assert not (tmp_path / "run").exists()


# ---- checkpoints and finished runs -------------------------------------------------------------------


def test_a_checkpoint_of_another_run_is_refused(tmp_path: Path) -> None:
    for seed in (0, 1):
        run(tmp_path / str(seed), f"seed={seed}", "checkpoint.until=2")
    shutil.copy(tmp_path / "1" / "checkpoint.pt", tmp_path / "0" / "checkpoint.pt")
    with pytest.raises(RunError, match=r"checkpoint\.pt was saved by another run; resume=false"):
        run(tmp_path / "0", "seed=0")
    run(tmp_path / "0", "seed=0", "resume=false")


def test_a_damaged_checkpoint_is_refused(tmp_path: Path) -> None:
    run(tmp_path, "checkpoint.until=2")
    file = tmp_path / "checkpoint.pt"
    whole, state = file.read_bytes(), torch.load(file, weights_only=True)
    flips = []
    for kept in (state["loop_state"]["server"]["theta"].numpy().tobytes()[:64], b"test_accuracy"):
        at = whole.find(kept)
        assert at > 0
        flips.append(whole[: at + 1] + bytes([whole[at + 1] ^ 1]) + whole[at + 2 :])
    for damaged in (*flips, whole[: len(whole) // 2], b""):
        file.write_bytes(damaged)
        with pytest.raises(RunError, match=r"checkpoint\.pt (cannot be read|is damaged).*; resume=false"):
            run(tmp_path)


def test_a_finished_run_without_its_files_is_finished_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run(tmp_path / "whole")
    shutil.copytree(tmp_path / "whole", tmp_path / "lost")
    for name, content in (("metrics.csv", None), ("model.pt", b"")):
        file = tmp_path / "lost" / name
        file.unlink() if content is None else file.write_bytes(content)
        with caplog.at_level(logging.WARNING):
            run(tmp_path / "lost")
        assert f"{name} is missing or empty" in caplog.text
        assert metrics(tmp_path / "lost") == metrics(tmp_path / "whole")
        assert same_model(tmp_path / "lost", tmp_path / "whole")


def test_a_finished_run_needs_no_checkpoint(tmp_path: Path) -> None:
    """Deleting checkpoint.pt frees its space; a paused run without it starts again, and says so."""
    for until, words in ((4, []), (2, ["checkpoint.until=2"])):
        here = tmp_path / str(until)
        run(here, *words)
        (here / "checkpoint.pt").unlink()
        before = (here / "summary.json").stat().st_mtime_ns
        run(here, *words)
        assert ((here / "summary.json").stat().st_mtime_ns == before) == (until == 4)
        assert (here / "checkpoint.pt").exists() == (until == 2)


def test_a_starved_run_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """All clients leave after three jobs of one time unit."""
    leave = ",".join(f"[{client},3.5]" for client in range(8))
    words = ["schedule=async", "schedule.concurrency=4", f"schedule.leave=[{leave}]", "rounds=5"]
    with caplog.at_level(logging.INFO):
        run(tmp_path, *words)
    ended = summary(tmp_path)
    assert (ended["status"], ended["rounds"]) == ("starved", 3)
    assert "starved after 3 of 5 rounds, since too few clients were left" in caplog.text
    assert ended["final_accuracy"] == float(metrics(tmp_path)[-1]["test_accuracy"])
    run(tmp_path, *words)
    assert summary(tmp_path) == ended  # it is finished, and not tried again


# ---- memory ------------------------------------------------------------------------------------------


def test_a_chunk_too_large_is_halved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The numbers are those of the smaller chunk, bit for bit."""
    run(tmp_path / "given", "chunk=1", "algorithm=scaffold")
    whole = VmapExecutor.run

    def small(self: VmapExecutor, work):
        if len(work.batches.steps) > 1:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        return whole(self, work)

    monkeypatch.setattr(VmapExecutor, "run", small)
    run(tmp_path / "halved", "algorithm=scaffold")
    ended = summary(tmp_path / "halved")
    assert ended["chunk"] == 1
    assert [note for note in ended["notes"] if "chunk=2; started again with chunk=1" in note]
    assert metrics(tmp_path / "halved") == metrics(tmp_path / "given")
    assert same_model(tmp_path / "halved", tmp_path / "given")


def test_out_of_memory_later_on_keeps_the_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(tmp_path / "whole")
    update = ServerLoop.update
    errors = [
        torch.OutOfMemoryError("CUDA out of memory.\nMore"),
        MemoryError(),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes."),
    ]

    def starves(walk: ServerLoop) -> None:
        if walk.version > 0 and errors:
            raise errors.pop()
        update(walk)

    monkeypatch.setattr(ServerLoop, "update", starves)
    while errors:
        with pytest.raises(RunError, match=r"^out of memory: .*; the same command goes on from the last"):
            run(tmp_path / "parts")
    run(tmp_path / "parts")
    assert metrics(tmp_path / "parts") == metrics(tmp_path / "whole")


# ---- a run directory that is full or gone ------------------------------------------------------------


def test_a_full_disk_is_one_line_and_loses_nothing(tmp_path: Path) -> None:
    """Simulated by a limit on the size of files."""
    run(tmp_path / "whole")
    run(tmp_path / "full", "checkpoint.until=2")
    before = (tmp_path / "full" / "checkpoint.pt").read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, hard))
    try:
        with pytest.raises(RunError, match=r"^cannot write .*full/[a-z.]+: File too large$"):
            run(tmp_path / "full")
        with pytest.raises(RunError, match=r"large: File too large$"):  # where torch has an error of its own
            write_torch(tmp_path / "large", torch.zeros(10**5))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert (tmp_path / "full" / "checkpoint.pt").read_bytes() == before
    run(tmp_path / "full")
    assert metrics(tmp_path / "full") == metrics(tmp_path / "whole")


def test_a_read_only_place_is_one_line_and_keeps_what_is_there() -> None:
    """Without the rights that root has everywhere; below the temporary directory, which all may enter."""
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        place.chmod(0o755)
        run(place / "run", "rounds=2")
        before = {file.name: file.read_bytes() for file in (place / "run").iterdir() if file.is_file()}
        (place / "run").chmod(0o555)
        place.chmod(0o555)
        root = os.geteuid() == 0
        if root:
            os.seteuid(65534)
        try:
            with pytest.raises(RunError, match=r"^cannot use .*/new: Permission denied$"):
                run(place / "new", "rounds=2")
            with pytest.raises(RunError, match=r"^cannot use .*/run: Permission denied$"):
                run(place / "run", "rounds=2", "resume=false")
        finally:
            if root:
                os.seteuid(0)
            place.chmod(0o755)
            (place / "run").chmod(0o755)
        assert all((place / "run" / name).read_bytes() == content for name, content in before.items())
