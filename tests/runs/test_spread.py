"""One run by several processes: the same numbers as by one, to rounding, for every method and schedule."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from run_files import metrics, model, summary

from fedbench import algorithms
from fedbench.api import compose_config
from fedbench.errors import ConfigError, DataError
from fedbench.method import Algorithm
from fedbench.process_group import ProcessGroup
from fedbench.runs.replay import replay
from fedbench.runs.run import Run

TINY = [
    "dtype=float64", "rounds=4", "clients.total=7", "clients.per_round=4", "local.steps=2", "engine=vmap",
    "local.batch_size=16", "partition=dirichlet", "dataset.train_samples=200", "progress=none", "threads=1",
    "checkpoint.seconds=0", "eval.grad_norm=true", "eval.train=true",
]  # fmt: skip
ASYNC = ["schedule=async", "schedule.concurrency=6", "delay=exponential", "schedule.p_fail=0.1"]
FULL = ["clients.per_round=7"]
OWN = ["eval.grad_norm=false", "eval.train=false"]  # clients' models are their own
BN = ["model=mlp", "model.hidden=[8]", "model.norm=layer", "eval.clients=true", *OWN]
FURTHER = ["macro_f1", "confusion_matrix"] if find_spec("torchmetrics") else ["auroc"]
MEASURED = ["eval.clients=true", "eval.finetune_steps=2", f"eval.metrics=[{','.join(FURTHER)}]"]
UNEQUAL = ["local.steps=null", "local.epochs=2"]

MINE = Path(__file__).parents[1] / "algorithms/own_methods.py"
BESIDES = {
    "a loss of its own": ["algorithm=own_loss", f"imports=[{MINE}]"],
    "full gradients of a survey": ["algorithm=dane", f"imports=[{MINE}]"],
    "unequal steps": ["algorithm=fedavg", *UNEQUAL],
    "loop": ["algorithm=fedavg", "engine=loop", *UNEQUAL],
    "chunks": ["algorithm=scaffold", "chunk=1"],
    "validation": ["algorithm=fedbn", *BN, "dataset.validation=0.1", "target=0.9"],
    "clients' metrics": ["algorithm=ditto", "dataset.pool=0.3", "dataset.validation=0.1", *MEASURED, *OWN],
    "fine-tuned": ["algorithm=scaffold", *MEASURED],
    "kept momentum": ["optimizer.momentum=0.9", "optimizer.keep=true", "local.clip_norm=1"],
    "kept adam": ["algorithm=fedbuff", "optimizer=adam", "optimizer.keep=true", "algorithm.lr=0.01", *ASYNC],
    # features without ties, of which rounding would pick one
    "compressed": ["compress.kind=topk", "compress.share=0.3", "dataset=synthetic", "partition=natural"],
    "rounded": ["algorithm=fedbuff", "compress.kind=qsgd", *ASYNC],
    "rates": ["algorithm=scaffold", "lr_schedule=cosine", "server_lr_schedule=exponential"],
}
PERSONAL = {cls.name: BN for cls in algorithms.every() if cls().is_personal}
NEEDS = {**PERSONAL, "vrl_sgd": FULL, "led": FULL, "fafed": FULL}
OF_ALL = ("area", "defedavg_iid", "dude_asgd")  # asynchronously, every client is always at work
ALONE = {cls.name for cls in algorithms.every() if cls.every_arrival}  # one client makes an update


def needs(name: str, schedule: str) -> list[str]:
    whole = ["schedule.concurrency=null"] if schedule == "async" and name in OF_ALL else []
    steps = [] if algorithms.get(name).fixed_steps is None else ["local.steps=null"]
    return [*NEEDS.get(name, []), *whole, *steps]


def start(size: int, command: list[str], **more: str) -> list[subprocess.Popen]:
    """`size` processes that meet, as torchrun starts them; the first one's lines and the others' are kept."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    common = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "OMP_NUM_THREADS": "1"}
    common["WORLD_SIZE"] = str(size)
    piped: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    each = [{"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(size)]
    return [
        subprocess.Popen([sys.executable, *command], env={**common, **mine, **more}, **piped) for mine in each
    ]


def ended(processes: list[subprocess.Popen], seconds: float = 300) -> list[tuple[int, str]]:
    """Exit codes, and what was said."""
    try:
        said = [process.communicate(timeout=seconds)[1] for process in processes]
    finally:
        for process in processes:
            process.kill()
    return [(process.returncode, text) for process, text in zip(processes, said, strict=True)]


def several(size: int, root: Path, cases: dict[str, list[str]]) -> None:
    """All cases by the same `size` processes."""
    root.mkdir(exist_ok=True)
    (root / "cases.json").write_text(json.dumps({name: [*TINY, *more] for name, more in cases.items()}))
    worker = Path(__file__).with_name("spread_worker.py")
    found = ended(start(size, [str(worker), str(root), str(root / "cases.json")]))
    assert [code for code, _ in found] == [0] * size, found


def alone(root: Path, cases: dict[str, list[str]]) -> None:
    for name, more in cases.items():
        Run(compose_config([*TINY, *more])).go(root / name)


def rows(directory: Path) -> list[list[float]]:
    return [[float(value or "nan") for value in row.values()] for row in metrics(directory)]


def same(one: Path, other: Path) -> None:
    np.testing.assert_allclose(rows(one), rows(other), rtol=1e-12, err_msg=one.name)
    models = model(one), model(other)
    for name, value in models[0].items():
        largest = value.abs().max().clamp_min(1e-30).item()
        torch.testing.assert_close(models[1][name], value, rtol=1e-12, atol=1e-12 * largest)
    if (counts := one / "confusion_matrix.csv").exists():
        assert counts.read_bytes() == (other / counts.name).read_bytes()


@pytest.mark.slow
def test_any_number_of_processes_goes_on(tmp_path: Path) -> None:
    """From what 3 have saved, with uploads under way and clients' state: 2, and one alone; from one's: 2."""
    cases = {"scaffold": [], "ca2fl": ASYNC, "fedbn": BN, "mixing": ASYNC, "mixing_own": OWN, "drawn": []}
    cases = {name: [f"algorithm={name}", f"imports=[{MINE}]", *more] for name, more in cases.items()}
    until = {name: [*more, "checkpoint.until=2"] for name, more in cases.items()}
    alone(tmp_path / "one", cases)
    several(3, tmp_path / "three", {**until, **{f"{name} alone": more for name, more in until.items()}})
    assert summary(tmp_path / "three/ca2fl")["status"] == "paused"
    assert summary(tmp_path / "three/ca2fl")["rounds"] == 2
    alone(tmp_path / "three", {f"{name} alone": more for name, more in cases.items()})
    alone(tmp_path / "three", {"from one": until["scaffold"]})
    several(2, tmp_path / "three", {**cases, "from one": cases["scaffold"]})
    for name in cases:
        same(tmp_path / "one" / name, tmp_path / "three" / name)
        same(tmp_path / "one" / name, tmp_path / "three" / f"{name} alone")
    same(tmp_path / "one/scaffold", tmp_path / "three/from one")


def kind(method: type[Algorithm], schedule: str) -> tuple[object, ...]:
    """What of a method several processes may get wrong."""
    hooks = "client_init server_init broadcast local_init local_final arrival_weight personal"
    own = [getattr(method, name) is not getattr(Algorithm, name) for name in hooks.split()]
    kept = method.survey, method.keeps_buffers, method.caches, method.recalls
    return schedule, *own, *kept


@pytest.mark.slow
def test_methods_of_every_kind_under_every_schedule(tmp_path: Path) -> None:
    """By three processes, among which a cohort of four divides unevenly."""
    kinds = {}
    for name in algorithms.names():
        method = algorithms.get(name)
        for schedule, more in (("sync", []), ("async", ASYNC)):
            if schedule in method.schedules and name not in ALONE:
                words = [f"algorithm={name}", *more, *needs(name, schedule)]
                kinds.setdefault(kind(method, schedule), (f"{name} {schedule}", words))
    cases = {**dict(kinds.values()), **BESIDES}
    alone(tmp_path / "one", cases)
    several(3, tmp_path / "several", cases)
    for name in cases:
        same(tmp_path / "one" / name, tmp_path / "several" / name)
    assert [summary(tmp_path / where / "loop")["processes"] for where in ("one", "several")] == [1, 3]
    with pytest.raises(DataError, match="was computed by 3 processes"):
        replay(tmp_path / "several/loop")


SECOND = ProcessGroup(rank=1, size=3)


@pytest.mark.parametrize(
    ("overrides", "line"),
    [
        (["clients.per_round=2"], "clients.per_round=2: must be at least the number of processes, 3"),
        (["state.place=disk"], "state.place=disk: 3 processes keep clients' state in memory"),
    ],
)
def test_what_several_processes_cannot_do_is_refused(overrides: list[str], line: str) -> None:
    with pytest.raises(ConfigError, match=line):
        Run(compose_config([*TINY, *overrides]), None, SECOND)


# ---- the command line ------------------------------------------------------------------------------------

COMMAND = ["-m", "fedbench", *TINY, "algorithm=scaffold"]


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["-m", "fedbench", "plot", "."], "fedbench: fedbench plot is for one process"),
        pytest.param(
            [*COMMAND, "clients.per_round=1"],
            "fedbench: clients.per_round=1: must be at least",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_one_line_says_what_is_refused(tmp_path: Path, words: list[str], line: str) -> None:
    more = [] if "plot" in words else [f"hydra.run.dir={tmp_path / 'run'}"]
    found = ended(start(2, [*words, *more]), 60)
    assert [code for code, _ in found] == [2, 2]
    assert found[0][1].startswith(line)
    assert found[1][1] == ""
    assert not (tmp_path / "run").exists()


FAILS = """
import os
from fedbench.runs.server_loop import ServerLoop
update = ServerLoop.update
def fails(self):
    if os.environ["RANK"] == "1" and self.version == 2:
        {what}
    update(self)
ServerLoop.update = fails
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("what", "line"),
    [
        ("raise ValueError('a wrong turn')", "hook.py, line 7: ValueError: a wrong turn"),
        ("os.kill(os.getpid(), 9)", "another of the 3 processes of this run has ended\n"),
    ],
    ids=["error", "killed"],
)
def test_an_error_in_one_process_ends_all(tmp_path: Path, what: str, line: str) -> None:
    (tmp_path / "hook.py").write_text(FAILS.format(what=what))
    more = [f"hooks=[{tmp_path / 'hook.py'}]", f"hydra.run.dir={tmp_path / 'run'}", "rounds=100000"]
    found = ended(start(3, [*COMMAND, *more]))
    assert all(code != 0 for code, _ in found), found
    said = [text for _, text in found if "fedbench: " in text]
    assert len(said) == 1, found
    assert line in said[0]


@pytest.mark.slow
def test_torchrun_starts_and_a_signal_saves_and_stops(tmp_path: Path) -> None:
    run_dir = f"hydra.run.dir={tmp_path / 'run'}"
    words = [*COMMAND, run_dir, "rounds=150"]
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *words]
    process = subprocess.Popen([sys.executable, *launcher], stderr=subprocess.PIPE, text=True)
    while not (tmp_path / "run/metrics.csv").is_file() or len(rows(tmp_path / "run")) < 4:
        assert process.poll() is None
        time.sleep(0.05)
    process.terminate()
    process.communicate(timeout=60)
    assert (tmp_path / "run/checkpoint.pt").is_file()
    assert not (tmp_path / "run/summary.json").exists()
    found = ended(start(2, words), 300)  # goes on
    assert [code for code, _ in found] == [0, 0], found
    assert len(rows(tmp_path / "run")) == 151


@pytest.mark.slow
def test_a_signal_at_another_process_stops_all(tmp_path: Path) -> None:
    words = [*COMMAND, f"hydra.run.dir={tmp_path / 'run'}", "rounds=100000"]
    processes = start(2, words)
    while not (tmp_path / "run/metrics.csv").is_file() or len(rows(tmp_path / "run")) < 3:
        assert processes[0].poll() is None, ended(processes)
        time.sleep(0.05)
    processes[1].terminate()
    found = ended(processes, 60)
    assert [code for code, _ in found] == [143, 143]
    assert "stopped after round" in found[0][1]
    assert "stopp" not in found[1][1]
    assert (tmp_path / "run/checkpoint.pt").is_file()
