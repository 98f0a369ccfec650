"""Two hosts at one sweep: a lease is renewed, survives its host for a while, and can be lost."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from fedbench.api import compose_config
from fedbench.errors import RunError
from fedbench.runs import lease
from fedbench.runs.directory import LOCK, in_use, locked
from fedbench.runs.lease import LASTS, NAME, InUse
from fedbench.runs.plan import make_plan
from fedbench.runs.runner import run
from fedbench.runs.walk import Walk

WORDS = ["rounds=4", "clients.total=4", "clients.per_round=2", "local.steps=1", "progress=none"]


def elsewhere(directory: Path, age: float = 0.0, text: str | None = None) -> None:
    """What a process on another host has left there so many seconds ago."""
    file = directory / NAME
    file.write_text(json.dumps({"host": "node7 abc", "token": "theirs"}) if text is None else text)
    os.utime(file, (time.time() - age,) * 2)
    (directory / LOCK).touch()


def test_a_run_of_another_host_is_in_use_until_its_lease_is_over(tmp_path: Path) -> None:
    plan = make_plan(compose_config(WORDS))
    elsewhere(tmp_path)
    assert in_use(tmp_path)
    with pytest.raises(InUse, match="is in use by another process on node7"):
        run(plan, tmp_path)
    assert not (tmp_path / "config.yaml").exists()
    elsewhere(tmp_path, age=LASTS + 1)  # that host is dead
    assert not in_use(tmp_path)
    assert run(plan, tmp_path).rounds == 4
    assert not list(tmp_path.glob(f"{NAME}*"))


def test_a_process_of_this_host_that_died_is_none(tmp_path: Path) -> None:
    """The lock says so at once."""
    elsewhere(tmp_path, text=json.dumps({"host": lease.host(), "token": "dead"}))
    assert not in_use(tmp_path)
    with locked(tmp_path):
        assert in_use(tmp_path)
        assert json.loads((tmp_path / NAME).read_text())["host"] == lease.host()


def test_half_a_lease_counts_as_long(tmp_path: Path) -> None:
    elsewhere(tmp_path, text="")
    with pytest.raises(InUse, match="on another"), locked(tmp_path):
        pass
    elsewhere(tmp_path, text="", age=LASTS + 1)
    with locked(tmp_path):
        pass


def test_it_is_renewed_while_it_is_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "RENEWED", 0.01)
    with locked(tmp_path):
        os.utime(tmp_path / NAME, (0, 0))
        deadline = time.monotonic() + 60
        while (tmp_path / NAME).stat().st_mtime == 0:
            assert time.monotonic() < deadline
            time.sleep(0.01)
    assert not (tmp_path / NAME).exists()


def test_who_was_taken_for_dead_writes_nothing_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a host that slept: another one has the run by now."""
    update = Walk.update

    def sleeping(self: Walk) -> None:
        update(self)
        if self.version == 3:
            elsewhere(tmp_path)

    monkeypatch.setattr(Walk, "update", sleeping)
    with pytest.raises(RunError, match="was taken over by another host"):
        run(make_plan(compose_config([*WORDS, "checkpoint.seconds=1000"])), tmp_path)
    assert not (tmp_path / "summary.json").exists()
    assert not (tmp_path / "checkpoint.pt").exists()
    assert json.loads((tmp_path / NAME).read_text())["token"] == "theirs"  # not ours to give up


@pytest.mark.parametrize("moment", ["before", "after"])
def test_of_two_hosts_that_take_over_one_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """The other is quicker by a moment: before the dead one's lease is put aside, or right after that."""
    elsewhere(tmp_path, age=LASTS + 1)
    rename = os.rename

    def racing(source: Path, target: Path) -> None:
        quicker = json.dumps({"host": "node8 def", "token": "quicker"})
        if moment == "before":
            Path(source).write_text(quicker)
        rename(source, target)
        if moment == "after":
            Path(source).write_text(quicker)

    monkeypatch.setattr(os, "rename", racing)
    with pytest.raises(InUse, match="on node8"), locked(tmp_path):
        pass
    assert json.loads((tmp_path / NAME).read_text())["token"] == "quicker"
