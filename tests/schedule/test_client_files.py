"""Files about clients, by number or by name: durations of jobs, and windows of time in which they can start
jobs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from naive_schedule import config

from fedbench.cli import main
from fedbench.errors import ConfigError
from fedbench.runs.traces import build_trace

LISTED = [1.0, [2.5, 0.5], 4.0, 1.25]
BY_NUMBER = "client,duration\n3,1.25\n1,2.5\n0,1\n1,0.5\n2,4\n"
BY_NAME = "name,duration\nd,1.25\nb,2.5\na,1\nelsewhere,9\nb,0.5\nc,4\n"
WINDOWS = "client,from,to\n0,0,2\n0,6,\n1,1,3\n1,2.5,3.5\n2,3.5,9\n"


def file(place: Path, text: str) -> str:
    (place / "clients.csv").write_text(text)
    return str(place / "clients.csv")


def traced(path: str, rounds: int = 5, c: float = 1.0, **keys: Any) -> Any:
    """A trace of three clients, one job at a time, each of `c` units."""
    delay = {"name": "constant", "c": c}
    keys = {"concurrency": 1, "select": "lowest", "available": path, **keys}
    return build_trace(config(rounds, 3, 1, 0, delay, **keys))


@pytest.mark.parametrize("text", [BY_NUMBER, BY_NAME])
@pytest.mark.parametrize("keys", [{}, {"concurrency": 3}])
def test_a_file_of_durations_is_the_list_of_them(text: str, keys: dict[str, Any], tmp_path: Path) -> None:
    tables = (file(tmp_path, text), LISTED)
    one, other = (
        build_trace(config(9, 4, 2, 0, {"name": "table", "table": table}, **keys), names=tuple("abcd"))
        for table in tables
    )
    for name in ("client", "finish_time", "applied_update"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


def test_clients_start_jobs_in_their_windows_alone(tmp_path: Path) -> None:
    """By hand: client 0 until 2, then 1 until 3.5 (its windows overlap; it starts at 2 and at 3, and that job
    goes on after 3.5), then 2, and from 6 on 0 again, the lowest."""
    trace = traced(file(tmp_path, WINDOWS), 8)
    assert list(zip(trace.client.tolist(), trace.dispatch_time.tolist(), strict=True)) == [
        (0, 0), (0, 1), (1, 2), (1, 3), (2, 4), (2, 5), (0, 6), (0, 7),
    ]  # fmt: skip


@pytest.mark.parametrize("pool", ["idle", "idle_incl_buffered", "self", "all"])
def test_windows_come_again_after_each_period(pool: str, tmp_path: Path) -> None:
    """Client 0 in the first tenth of a day of 10, client 1 at 4.5; client 2's night goes over midnight. In
    tenths, which floats do not add exactly."""
    text = "client,from,to\n0,0,0.1\n1,0.45,0.5\n2,0,0.05\n2,0.9,1\n"
    keys = {"concurrency": 3, "pool": pool, "period": 1.0, "select": "uniform"}
    trace = traced(file(tmp_path, text), 400, 0.3, **keys)
    assert trace.updates == 400
    windows = {0: [(0.0, 0.1)], 1: [(0.45, 0.5)], 2: [(0.0, 0.05), (0.9, 1.0)]}
    for client, at in zip(trace.client.tolist(), trace.dispatch_time.tolist(), strict=True):
        assert any(begin - 1e-9 <= at % 1.0 < end or at % 1.0 > 1 - 1e-9 for begin, end in windows[client])
    assert {*trace.client.tolist()} == {0, 1, 2}


def test_a_schedule_that_nobody_can_go_on_with_starves(tmp_path: Path) -> None:
    """After its last window, and where windows come again but the buffer needs a fourth client's upload."""
    assert traced(file(tmp_path, "client,from,to\n0,0,2\n1,0,2\n2,0,2\n")).updates == 2
    path = file(tmp_path, "client,from,to\n0,0,2\n1,0,2\n2,0,2\n")
    keys: dict[str, Any] = {"concurrency": 2, "pool": "idle", "available": path, "period": 7.0, "p_fail": 0.0}
    trace = build_trace(config(5, 3, 3, 0, {"name": "constant", "c": 1.0}, **keys))
    assert (trace.updates, trace.starved) == (5, False)


BAD = [
    ("client,duration\n0,1\n1,1\n2,1\n", "must have a row for every client, has none for 3"),
    (
        "client,duration\n0,1\n1_0,1\n",
        "line 3 must have the columns client (a number from 0 to 3) or name",
    ),
    ("client,duration\n0,-1\n", "line 2 must have"),
    ("client,duration\n0,1_0\n", "line 2 must have"),
    ("client,duration\n4,1\n", "line 2 must have"),
    ("who,duration\na,1\n", "line 2 must have"),
    (BY_NAME.replace("c,4\n", ""), "has none for c"),
    ("", "has none for 0 and 3 more"),
]


@pytest.mark.parametrize(("text", "line"), BAD)
def test_a_wrong_file_is_refused_in_one_line(text: str, line: str, tmp_path: Path) -> None:
    cfg = config(2, 4, 2, 0, {"name": "table", "table": file(tmp_path, text)})
    with pytest.raises(ConfigError) as error:
        build_trace(cfg, names=tuple("abcd"))
    assert str(error.value).startswith("delay.table=")
    assert line in str(error.value)


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        ({"leave": [[0, 1.0]]}, "schedule.leave=[[0,1.0]]: must be null beside schedule.available"),
        (
            {"pool": "queue", "select": None},
            "pool=queue: must be idle, idle_incl_buffered, self or all beside",
        ),
        ({"period": 4.0}, "must have from < to <= schedule.period=4, has 6, inf"),
        ({"available": None, "period": 4.0}, "schedule.period=4.0: must be null without schedule.available"),
        ({"available": "absent.csv"}, "schedule.available=absent.csv: cannot be read"),
    ],
)
def test_what_windows_exclude_is_said(keys: dict[str, Any], line: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as error:
        traced(file(tmp_path, WINDOWS), **keys)
    assert line in str(error.value)


def test_a_run_names_its_clients_as_the_data_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Names without partition=natural are refused before anything is written; a changed file is another
    run."""
    monkeypatch.chdir(tmp_path)
    rows = "".join(f"{i % 7},{i % 2},{user}\n" for i, user in enumerate(["north", "south", "east"] * 8))
    Path("train.csv").write_text("x,label,site\n" + rows)
    words = ["dataset=table", "dataset.path=train.csv", "dataset.target=label", "dataset.user=site",
             "model=logistic", "local.batch_size=2", "clients.total=3", "clients.per_round=1", "rounds=6",
             "schedule=async", "trace=true", "progress=none", "delay=table", "delay.table=speeds.csv",
             "algorithm=fedasync"]  # fmt: skip
    Path("speeds.csv").write_text("name,duration\nnorth,1\nsouth,10\neast,100\n")
    assert main([*words, "partition=iid"]) == 2
    assert "delay.table=speeds.csv: has names, which clients have with partition=natural only" in (
        capsys.readouterr().err
    )
    assert not Path("outputs").exists()
    assert main([*words, "partition=natural", "hydra.run.dir=one"]) == 0
    names = [line.split(",")[1] for line in Path("one/users.csv").read_text().splitlines()[1:]]
    lasts = {"north": 1.0, "south": 10.0, "east": 100.0}
    for line in Path("one/jobs.csv").read_text().splitlines()[1:]:
        _, client, *_, begin, end, _ = line.split(",")
        assert float(end) - float(begin) == pytest.approx(lasts[names[int(client)]])
    Path("speeds.csv").write_text("name,duration\nnorth,1\nsouth,10\neast,99\n")
    assert main([*words, "partition=natural", "hydra.run.dir=one"]) == 2
    assert "delay.table" in capsys.readouterr().err
