"""How much memory a process has: the machine's, or what the limits of its control groups leave."""

from __future__ import annotations

import gc
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from fedbench.engine import choose
from fedbench.engine import memory as planning
from fedbench.engine.choose import Load, ModelCost, choose_chunk, choose_state, planned_bytes
from fedbench.machine import Loading, Memory, kills, memory

CPU = torch.device("cpu")
MACHINE = {
    "proc/meminfo": "MemTotal:  16000 kB\nMemFree: 1 kB\nMemAvailable:  9000 kB\n",
    "proc/vmstat": "pgfault 12\noom_kill 3\n",
}
V2, V1 = "sys/fs/cgroup", "sys/fs/cgroup/memory"
GROUPS = [
    ({}, (16000, 9000)),
    ({"proc/self/cgroup": "0::/\n", f"{V2}/memory.max": "max"}, (16000, 9000)),
    (  # a container: its group is the root that it sees
        {
            "proc/self/cgroup": "0::/\n",
            f"{V2}/memory.max": str(8000 * 1024),
            f"{V2}/memory.current": str(5000 * 1024),
            f"{V2}/memory.stat": f"anon 1\ninactive_file {1000 * 1024}\n",
        },
        (8000, 4000),
    ),
    (  # a job of a cluster: the limit is that of a group further out
        {
            "proc/self/cgroup": "0::/slurm/job_7/step_0\n",
            f"{V2}/slurm/job_7/step_0/memory.max": "max",
            f"{V2}/slurm/job_7/memory.max": str(6000 * 1024),
            f"{V2}/slurm/job_7/memory.current": str(6000 * 1024),
            f"{V2}/slurm/job_7/memory.stat": "inactive_file 0\n",
        },
        (6000, 0),
    ),
    (
        {
            "proc/self/cgroup": "9:cpuset:/\n4:memory:/box/one\n0::/\n",
            f"{V1}/memory.limit_in_bytes": str(2**63 - 4096),
            f"{V1}/memory.usage_in_bytes": "0",
            f"{V1}/memory.stat": "total_inactive_file 0\n",
            f"{V1}/box/one/memory.limit_in_bytes": str(12000 * 1024),
            f"{V1}/box/one/memory.usage_in_bytes": str(11000 * 1024),
            f"{V1}/box/one/memory.stat": f"total_inactive_file {500 * 1024}\n",
        },
        (12000, 1500),
    ),
]


@pytest.mark.parametrize(("files", "expected"), GROUPS)
def test_the_narrowest_limit_counts(files: dict[str, str], expected: tuple[int, int], tmp_path: Path) -> None:
    for name, text in {**MACHINE, **files}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert memory(tmp_path) == Memory(*(1024 * number for number in expected))
    assert kills(tmp_path) == 3
    assert 0 < memory().available <= memory().total


def test_a_run_plans_with_what_is_left_of_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """1,000 bytes are left of 10,000, of which 70 % are planned with; the run itself takes 200. A client
    takes 4 * (10 * 2 + 5) = 100. Processes of a sweep share all that the machine has."""
    there = Memory(10_000, 1_000)
    monkeypatch.setattr(planning, "memory", lambda: there)
    load = Load(ModelCost(1, 0.0, 5.0, 0), d=2, batch=1, cohort=100, calls=1, fixed=200)
    assert choose.LEFT == 0.7
    assert choose_chunk(load, CPU, 4) == 5
    assert planned_bytes(load, 5, 4) == 700
    assert [choose_state("auto", needed, CPU) for needed in (500, 501)] == ["memory", "disk"]
    there = Memory(10_000, 10_000)
    assert choose_chunk(load, CPU, 4) == 50  # half of all
    monkeypatch.setenv("FEDBENCH_SHARING", "1")  # is put back afterwards
    planning.share_machine(5)
    assert choose_chunk(load, CPU, 4) == 10
    assert choose_state("auto", 1_001, CPU) == "disk"


@pytest.mark.parametrize("collects", [True, False])
def test_what_is_imported_is_not_collected_meanwhile(collects: bool) -> None:
    """Also in a process that collects nothing itself."""
    try:
        (gc.enable if collects else gc.disable)()
        with Loading():
            assert not gc.isenabled()
        assert gc.isenabled() == collects
    finally:
        gc.enable()


@pytest.mark.parametrize("words", ["", "Loading.keeps = True", "import torch; Loading.keeps = True"])
def test_only_the_commands_own_process_keeps_what_is_loaded(words: str) -> None:
    """And only as it loads torch: a user's objects that are in cycles could not be freed afterwards."""
    code = f"import gc; from fedbench.machine import Loading; {words}\nwith Loading(): import torch\n"
    code += "print(gc.get_freeze_count() > 100_000)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(words == "Loading.keeps = True")
