"""CPU time of a round beside a bare PyTorch loop, for many workloads: models, schedules, cohorts, methods,
evaluation.

Each cell is a configuration as a user would give it: engine=auto, one thread, nothing compiled before. Run
and bare loop take turns in a process of their own, and each turn's CPU times make one ratio, so that a busy
machine slows both. Columns:
  ratio         median over the turns of the run's CPU time divided by the bare loop's in the same turn
  low, high     the smallest and the largest of these ratios
  bare_ms, ms   medians of a round's CPU time
  load          of the machine (average of a minute) when the cell was measured
A cell that `--out` has for this commit is not measured again, so a run can be interrupted and taken up.
`--page` writes the table into a Markdown file, between the lines that mark it, without measuring.
`--memory` measures peak resident memory instead, of a run and of a bare loop in a process each, which make
three rounds and what the cell evaluates: bare_mib, mib and their ratio.
`--peers` measures pfl, Flower and FLGo, where they are installed (see bench.py), in the cells that they can
run, each in turns with the run and the bare loop in a process of their own, and `--page` with it writes their
table. Columns:
  ratio, ms     as above, of the peer; wall time where other processes train (clock)
  ours          the run's ratio in the same turns, on the same clock
  *accuracy     test accuracy after as many rounds, of the peer, the bare loop and the run
"""

from __future__ import annotations

import argparse
import csv
import json
import logging
import math
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench_jobs import Bare, Ours, peak_kib, show, timed, write_rows
from bench_peers import PEERS, SAME, leave, peer, version

COLUMNS = ("cell", "engine", "chunk", "bare_ms", "ms", "ratio", "low", "high", "load")
OF_MEMORY = ("cell", "bare_mib", "mib", "ratio")
OF_PEERS = ("cell", "peer", "clock", "bare_ms", "ratio", "low", "high", "ours", "accuracy", "bare_accuracy",
            "our_accuracy", "load")  # fmt: skip
BEGIN, END = "<!-- bench_matrix{}: begin -->", "<!-- bench_matrix{}: end -->"
WARM = 12
"""Local steps before the first turn: by then they are recorded."""
SECONDS = 0.3
"""CPU time of a bare loop's turn, about."""


def _fedavg(dataset: str, total: int, cohort: int, batch: int, more: str = "") -> str:
    return (
        f"dataset={dataset} partition=iid clients.total={total} clients.per_round={cohort} "
        f"local.batch_size={batch} algorithm=fedavg algorithm.lr=0.05 {more}"
    )


MNIST, CIFAR = _fedavg("mnist", 100, 10, 20), _fedavg("cifar10", 100, 10, 20, "local.steps=2")
DIGITS = _fedavg("digits", 20, 5, 32, "local.steps=10")
HUNDRED = _fedavg("digits", 100, 10, 32, "local.steps=10")
REVIEWS = _fedavg("reviews", 50, 10, 20, "local.steps=10").replace("iid", "natural")
CHARACTERS = _fedavg("npz", 20, 5, 10, "local.steps=2 dataset.path=characters.npz dataset.vocabulary=90")
EPOCH, TEN = "local.epochs=1", "model=mlp local.steps=10"
ONE = "clients.per_round=1 schedule=async delay=uniform schedule.concurrency=10 local.steps=10 rounds=1000"
MANY = "schedule=async delay=uniform schedule.concurrency=50 rounds=200"
NO_RATE = "algorithm.lr= algorithm.server_lr=0.05"
RATES = "algorithm.lr=0.01 algorithm.server_lr=0.1 algorithm.beta=0.5"

CELLS: dict[str, str] = {
    "mnist logistic": f"{MNIST} {EPOCH} model=logistic",
    "mnist mlp": f"{MNIST} {EPOCH} model=mlp",
    "mnist cnn_small": f"{MNIST} {EPOCH} model=cnn_small",
    "mnist cnn": f"{MNIST} model=cnn local.steps=5",
    "mnist LeNet-5": f"{MNIST} {EPOCH} model=conv",
    "cifar10 LeNet-5": f"{CIFAR} model=conv local.steps=5",
    "cifar10 vgg11, S=3": f"{CIFAR} model=conv model.preset=vgg11 clients.per_round=3",
    "cifar10 resnet18 w8": f"{CIFAR} model=resnet18 model.width=8",
    "cifar10 resnet18 w8, B=50": f"{CIFAR} model=resnet18 model.width=8 local.batch_size=50",
    "cifar10 resnet18 w16": f"{CIFAR} model=resnet18 model.width=16",
    "cifar10 resnet18 w64, S=2": f"{CIFAR} model=resnet18 model.width=64 clients.per_round=2",
    "mnist rnn": f"{MNIST} model=rnn local.steps=5",
    "mnist rnn gru": f"{MNIST} model=rnn model.cell=gru local.steps=5",
    "mnist rnn lstm": f"{MNIST} model=rnn model.cell=lstm local.steps=5",
    "reviews embedding lstm": f"{REVIEWS} model=embedding_rnn",
    "reviews embedding gru": f"{REVIEWS} model=embedding_rnn model.cell=gru",
    "reviews transformer": f"{REVIEWS} model=transformer",
    "characters char_lstm": f"{CHARACTERS} model=char_lstm",
    "digits mlp": f"{DIGITS} model=mlp",
    "digits logistic": f"{DIGITS} model=logistic",
    "mnist cnn_small, group norm": f"{MNIST} model=cnn_small model.norm=group local.steps=10",
    "mnist mlp, layer norm": f"{MNIST} {TEN} model.norm=layer",
    "mnist mlp, dropout": f"{MNIST} {TEN} model.dropout=0.3",
    "mnist mlp, noise": f"{MNIST} {TEN} dataset.noise=0.1",
    "mnist mlp, momentum": f"{MNIST} {TEN} optimizer.momentum=0.9",
    "FedAsync, S=1, mlp": f"{MNIST} {ONE} algorithm=fedasync model=mlp",
    "FedAsync, S=1, logistic": f"{MNIST} {ONE} algorithm=fedasync model=logistic",
    "FedAsync, S=1, cnn_small": f"{MNIST} {ONE} algorithm=fedasync model=cnn_small",
    "FedAsync, S=1, digits": f"{DIGITS} {ONE} algorithm=fedasync model=mlp",
    "FedAsync, S=1, resnet18 w8": f"{CIFAR} {ONE} algorithm=fedasync model=resnet18 model.width=8",
    "Ringmaster, S=1, mlp": f"{MNIST} {ONE} algorithm=ringmaster_asgd model=mlp local.steps=1 {NO_RATE}",
    "FedBuff, S=10 of 50, mlp": f"{MNIST} {MANY} algorithm=fedbuff {TEN}",
    "FedBuff, S=10 of 50, digits": f"{HUNDRED} {MANY} algorithm=fedbuff model=mlp",
    "cohort of 1, mlp": f"{MNIST} {EPOCH} model=mlp clients.per_round=1",
    "cohort of 2, mlp": f"{MNIST} {EPOCH} model=mlp clients.per_round=2",
    "cohort of 100, mlp": f"{MNIST} {EPOCH} model=mlp clients.per_round=100",
    "cohort of 1, logistic": f"{MNIST} {EPOCH} model=logistic clients.per_round=1",
    "cohort of 1, cnn_small": f"{MNIST} {EPOCH} model=cnn_small clients.per_round=1",
    "cohort of 1, resnet18 w8": f"{CIFAR} model=resnet18 model.width=8 clients.per_round=1",
    "cohort of 1, rnn": f"{MNIST} model=rnn local.steps=5 clients.per_round=1",
    "cohort of 1, transformer": f"{REVIEWS} model=transformer clients.per_round=1",
    "cohort of 1, digits": f"{DIGITS} model=mlp clients.per_round=1",
    "cohort of 500, mlp": f"{MNIST} model=mlp local.steps=3 clients.total=1000 clients.per_round=500",
    "FedAvg, mlp": f"{MNIST} {TEN}",
    "FedProx, mlp": f"{MNIST} {TEN} algorithm=fedprox",
    "SCAFFOLD, mlp": f"{MNIST} {TEN} algorithm=scaffold",
    "SCAFFOLD, digits": f"{DIGITS} model=mlp algorithm=scaffold",
    "PAdaMFed, mlp": f"{MNIST} {TEN} algorithm=padamfed {RATES}",
    "PAdaMFed-VR, mlp": f"{MNIST} {TEN} algorithm=padamfed_vr {RATES}",
    "PAdaMFed, digits": f"{DIGITS} model=mlp algorithm=padamfed {RATES}",
    "PAdaMFed-VR, digits": f"{DIGITS} model=mlp algorithm=padamfed_vr {RATES}",
    "PAdaMFed-VR, rnn": f"{MNIST} model=rnn local.steps=5 algorithm=padamfed_vr {RATES}",
    "AdaMASFL, S=10 of 50, mlp": f"{MNIST} {TEN} {MANY} algorithm=adamasfl {RATES}",
    "AdaMASFL, S=1, mlp": f"{MNIST} {ONE} model=mlp algorithm=adamasfl {RATES}",
    "evaluated each round, mlp": f"{MNIST} {TEN} eval.every=1",
    "evaluated each round, logistic": f"{MNIST} model=logistic local.steps=10 eval.every=1",
    "evaluated each round, cnn_small": f"{MNIST} model=cnn_small local.steps=10 eval.every=1",
    "evaluated each round, digits": f"{DIGITS} model=mlp eval.every=1",
    "evaluated each round, transformer": f"{REVIEWS} model=transformer eval.every=1",
}  # fmt: skip
"""Each cell's overrides; where a name comes twice the later one counts, and `name=` takes it away."""

_PEERS_CELLS = {
    ("pfl", "flower", "flgo"): (
        "mnist logistic", "mnist mlp", "mnist cnn_small", "cifar10 LeNet-5", "cifar10 resnet18 w8",
        "mnist rnn lstm", "digits mlp", "mnist mlp, momentum", "cohort of 1, mlp", "cohort of 500, mlp",
    ),
    ("flgo",): (
        "FedAsync, S=1, logistic", "FedAsync, S=1, mlp", "FedAsync, S=1, cnn_small",
        "FedBuff, S=10 of 50, mlp", "FedBuff, S=10 of 50, digits",
    ),
}  # fmt: skip
BESIDE = {cell: peers for peers, cells in _PEERS_CELLS.items() for cell in cells}
"""The peers of a cell: those that can run the same job."""


def overrides(cell: str, root: str) -> list[str]:
    """A cell as fedbench's overrides: for 100 rounds unless it says, evaluated at the end unless it says."""
    words = ["rounds=100", "eval.every=100000", *CELLS[cell].split(), f"data.root={root}", "progress=none",
             "device=cpu", "threads=1"]  # fmt: skip
    last = dict(word.split("=", 1) for word in words)
    return [f"{name}={value}" for name, value in last.items() if value]


def repeat(work: Callable[[], Any], times: int) -> None:
    """Call it so many times."""
    for _ in range(times):
        work()


def child(arguments: argparse.Namespace) -> None:
    """Measure one cell in this process; print its row, or its peak memory in MiB, as one line of JSON."""
    logging.disable(logging.WARNING)
    import torch

    from fedbench.engine.memory import keep_memory

    keep_memory()
    torch.set_num_threads(1)
    job = overrides(arguments.cells, arguments.root)
    each = "eval.every=1" in job

    def bare_round() -> None:
        loop.round()
        if each:
            loop.accuracy()

    def our_round() -> None:
        ours.walk.update()
        if each:
            our_accuracy()

    def our_accuracy() -> float:
        return ours.running.evaluator.test(ours.walk.theta, ours.walk.statistics)[1]

    loop = Bare(job) if arguments.child != "ours" else None
    ours = Ours(job, Path("state")) if arguments.child != "bare" else None
    if arguments.child in ("ours", "bare"):
        for _ in range(3):
            (our_round if ours else bare_round)()
        print(peak_kib() / 2**10)
        return
    other = peer(arguments.child, job) if arguments.child in PEERS else None
    our_round(), bare_round()
    first = max(1, math.ceil(WARM / loop.steps))
    warm = timed(lambda: repeat(our_round, first))[1]
    once = timed(lambda: repeat(bare_round, first))[1] / first
    left = (ours.problem.config.rounds - ours.walk.version) // arguments.turns
    rounds = max(1, min(left, round(SECONDS / max(once, 1e-3))))
    clock = 1
    if other and other.processes:
        clock, rounds = 0, max(1, rounds // 4)  # they take ten times as long
    works = {"ours": lambda: repeat(our_round, rounds), "bare": lambda: repeat(bare_round, rounds)}
    if other:
        other.rounds(1 + first)
        works["peer"] = lambda: other.rounds(rounds)
    turns = [{name: timed(work)[clock] for name, work in works.items()} for _ in range(arguments.turns)]
    subject = "peer" if other else "ours"
    ratios = [turn[subject] / turn["bare"] for turn in turns]
    bare_ms, ms = (statistics.median(turn[x] for turn in turns) / rounds * 1e3 for x in ("bare", subject))
    row = {"cell": arguments.cells}
    if other:
        mine = statistics.median(turn["ours"] / turn["bare"] for turn in turns)
        row |= {
            "peer": arguments.child, "version": version(arguments.child), "clock": ("wall", "cpu")[clock],
            "cores": os.cpu_count(), "ours": round(mine, 3), "accuracy": round(other.accuracy(), 4),
            "bare_accuracy": round(loop.accuracy(), 4), "our_accuracy": round(our_accuracy(), 4),
        }  # fmt: skip
    else:
        row |= {"engine": ours.walk.trainer.executor.name, "chunk": ours.walk.trainer.chunk}
    row |= {
        "bare_ms": round(bare_ms, 3), "ms": round(ms, 3), "ratio": round(statistics.median(ratios), 3),
        "low": round(min(ratios), 3), "high": round(max(ratios), 3), "load": round(os.getloadavg()[0], 1),
        "turns": len(turns), "rounds": rounds, "warm_seconds": round(warm, 2),
        "torch": torch.__version__, "python": platform.python_version(),
    }  # fmt: skip
    print(json.dumps(row), flush=True)
    leave([other] if other else [])


def measure(cell: str, beside: str, arguments: argparse.Namespace) -> dict[str, Any] | None:
    """The row of a cell, beside a peer if one is named; None if it failed."""
    if not arguments.memory:
        return in_a_process(beside or "both", cell, arguments)
    peaks = [in_a_process(side, cell, arguments) for side in ("bare", "ours")]
    if None in peaks:
        return None
    bare, ours = map(round, peaks)
    return {"cell": cell, "bare_mib": bare, "mib": ours, "ratio": round(ours / bare, 3)}


def in_a_process(side: str, cell: str, arguments: argparse.Namespace) -> Any:
    """What `child` prints of a cell, from a fresh process with an empty cache of programs; None: failed."""
    command = [sys.executable, __file__, "--child", side, "--cells", cell, "--turns", str(arguments.turns)]
    command += ["--root", str(Path(arguments.root).resolve())]
    with tempfile.TemporaryDirectory() as elsewhere:
        make_characters(Path(elsewhere) / "characters.npz")
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "FEDBENCH_CACHE": str(Path(elsewhere) / "cache")}
        done = subprocess.run(command, capture_output=True, text=True, cwd=elsewhere, env=environment)
    if done.returncode:
        print(f"{cell} failed: {done.stderr.strip().splitlines()[-1]}", file=sys.stderr)
        return None
    return json.loads(done.stdout.splitlines()[-1])


def make_characters(file: Path) -> None:
    """Random characters, 80 for a sample; no measurement depends on which."""
    import numpy as np

    rng = np.random.default_rng(0)
    x, y = rng.integers(1, 90, (4000, 80)), rng.integers(0, 90, 4000)
    np.savez(file, x_train=x, y_train=y, x_test=x[:500], y_test=y[:500])


def commit() -> str:
    """The commit that is measured, with `+` if files differ from it."""
    here = Path(__file__).parent
    name = subprocess.run(
        ["git", "rev-parse", "--short=8", "HEAD"], cwd=here, capture_output=True, text=True
    ).stdout.strip()
    changed = subprocess.run(
        ["git", "status", "--porcelain", "--", "../fedbench", "../scripts"],
        cwd=here, capture_output=True, text=True,
    ).stdout.strip()  # fmt: skip
    return name + ("+" if changed else "")


def processor() -> str:
    """The processor's name, where the system says it."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    return next((x.split(":")[1].strip() for x in lines if x.startswith("model name")), platform.processor())


def measured_on(rows: list[dict[str, str]]) -> str:
    """The processor, the commits, the versions, the turns and the load that rows were measured with."""
    first, loads = rows[0], sorted(float(row["load"]) for row in rows)
    commits = ", ".join(dict.fromkeys(row["commit"] for row in rows))
    return "\n".join([
        f"({first['processor']}), commit {commits},",
        f"torch {first['torch']}, Python {first['python']}, medians of {first['turns']} turns, load average",
        f"{loads[0]:g} to {loads[-1]:g}.",
    ])  # fmt: skip


def table(rows: list[dict[str, str]]) -> str:
    """The rows by ratio, largest first, as Markdown, with what was measured on what."""
    rows = sorted(rows, key=lambda row: -float(row["ratio"]))
    mean = math.exp(statistics.fmean(math.log(float(row["ratio"])) for row in rows))
    missing = [cell for cell in CELLS if cell not in {row["cell"] for row in rows}]
    above = sum(float(row["ratio"]) > 1 for row in rows)
    lines = [
        f"{len(rows)} of {len(CELLS)} cells on one thread {measured_on(rows)}"
        f" Geometric mean of the ratios {mean:.2f}; {above} above 1.",
        *([f"Not measured: {'; '.join(missing)}."] if missing else []),
        "",
        "| cell | engine | clients at once | bare loop, ms | ratio | low to high |",
        "|---|---|---|---|---|---|",
    ]  # fmt: skip
    for row in rows:
        spread = f"{float(row['low']):.2f} to {float(row['high']):.2f}"
        cells = (
            row["cell"],
            row["engine"],
            row["chunk"],
            f"{float(row['bare_ms']):.4g}",
            f"{float(row['ratio']):.2f}",
            spread,
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def table_of_peers(rows: list[dict[str, str]]) -> str:
    """Ratios to the bare loop, a column for each peer, as Markdown, with what was measured on what."""
    names = {f"{row['peer']} {row['version']}": row["peer"] for row in rows}
    apart = [
        f"{row['cell']} ({row['peer']}) {float(row['accuracy']):.2f} and {float(row['our_accuracy']):.2f}"
        for row in rows
        if abs(float(row["accuracy"]) - float(row["our_accuracy"])) > SAME
    ]
    walls = ", ".join(dict.fromkeys(row["peer"] for row in rows if row["clock"] == "wall"))
    lines = [
        f"{len(rows)} of {sum(map(len, BESIDE.values()))} pairs of a cell and a peer, on one thread",
        measured_on(rows),
        *([f"Wall time of {walls}, with an actor on each of {rows[0]['cores']} cores."] if walls else []),
        f"Accuracy after these rounds: within {SAME} of fedbench's"
        + (f", but for {'; '.join(apart)}." if apart else "."),
        "",
        f"| cell | bare loop, ms | fedbench | {' | '.join(names)} |",
        "|" + "---|" * (3 + len(names)),
    ]  # fmt: skip
    for cell in dict.fromkeys(row["cell"] for row in rows):
        mine = {row["peer"]: row for row in rows if row["cell"] == cell}
        one = next((row for row in mine.values() if row["clock"] == "cpu"), next(iter(mine.values())))
        ratios = [f"{float(mine[name]['ratio']):.2f}" if name in mine else "" for name in names.values()]
        shown = (cell, f"{float(one['bare_ms']):.4g}", f"{float(one['ours']):.2f}", *ratios)
        lines.append(f"| {' | '.join(shown)} |")
    return "\n".join(lines)


def main() -> None:
    """Measure the cells; print rows and write them as CSV, or write a CSV's table into a page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cells", help="names, with ; between them (default: all)")
    parser.add_argument("--list", action="store_true", help="print the cells and end")
    parser.add_argument("--root", default=os.environ.get("FEDBENCH_DATA", "data"), help="torchvision's files")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("matrix.csv"), help="CSV file")
    parser.add_argument("--page", type=Path, help="Markdown file into which the table of --out is written")
    parser.add_argument("--memory", action="store_true", help="peak memory in place of time")
    parser.add_argument("--peers", nargs="?", const=",".join(PEERS), help="beside these (default: all)")
    parser.add_argument("--child", choices=("both", "ours", "bare", *PEERS), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        child(arguments)
        return
    known = BESIDE if arguments.peers else CELLS
    if arguments.list:
        print("\n".join(known))
        return
    rows: list[dict[str, Any]] = []
    if arguments.out.exists():
        with arguments.out.open(newline="") as stream:
            rows = list(csv.DictReader(stream))
    if arguments.page:
        begin, end = (mark.format(" peers" if arguments.peers else "") for mark in (BEGIN, END))
        before, rest = arguments.page.read_text().split(begin)
        text = (table_of_peers if arguments.peers else table)(rows)
        arguments.page.write_text(f"{before}{begin}\n{text}\n{end}{rest.split(end)[1]}")
        return
    asked = arguments.cells.split(";") if arguments.cells else [*known]
    if unknown := [cell for cell in asked if cell not in known]:
        sys.exit(f"no cell {unknown[0]!r}; --list names them")
    named = arguments.peers.split(",") if arguments.peers else []
    if unknown := [name for name in named if name not in PEERS]:
        sys.exit(f"no peer {unknown[0]!r}; there are {', '.join(PEERS)}")
    here = [name for name in named if version(name)] if named else [""]
    jobs = [(cell, name) for cell in asked for name in here if not name or name in BESIDE[cell]]
    now, columns = commit(), OF_PEERS if arguments.peers else OF_MEMORY if arguments.memory else COLUMNS
    show({name: name for name in columns}, columns)
    for cell, name in jobs:
        done = {(row["cell"], row.get("peer", "")): row for row in rows}
        if done.get((cell, name), {}).get("commit") == now:
            continue
        row = measure(cell, name, arguments)
        if row is not None:
            done.pop((cell, name), None)
            rows = [*done.values(), {**row, "commit": now, "processor": processor()}]
            write_rows(arguments.out, rows)
            show(row, columns)


if __name__ == "__main__":
    main()
