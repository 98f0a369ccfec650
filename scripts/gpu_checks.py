"""All that only a GPU can show, in two parts of at most ten minutes each.

    scripts/gpu_checks DATA OUT [tiny] [PART] [-- COMMAND...]

    PART 1  start      data and wheels; is there a device?
            image      what is installed, and what compiles
            tests      graphs, the same bytes twice, a wait inside a capture, out of memory
            models     five of them, beside a bare loop
            clients    10 to 1,200 in one chunk
            figure     padamfed/fig1 at scale paper
            processes  such runs in 12, 1, 6 processes
    PART 2  start
            compiling  compiled steps, and loading them
            cifar10    the whole ResNet-18

Without PART both; PART 0 is start alone. DATA: a folder for data.root with MNIST, EMNIST and, for the last
step, cifar10.npz. Its files that end in .gz or .xz are unpacked first. outputs.tar.gz in it is what an
earlier call left in its OUT. `tiny`: a little of each, to try the script itself. Each COMMAND is run by the
shell after the steps, as long as there is time: `fedbench` in it is this checkout's, data.root has its
default, and its files go into outputs.tar.gz. A run that is stopped goes on from its checkpoint if the next
call finds the same machine.

OUT gets steps.csv (a line as each step ends), tables of the steps as their rows come, runs.csv (every run
that has ended), logs.tar.gz and outputs.tar.gz. Each step has a time limit; all of them together have SECONDS
(570). Environment: WHEELS, a folder of wheels to install where fedbench's requirements are not met; COMMIT,
for tables, where there is no git; PYTHON.
"""

from __future__ import annotations

import contextlib
import csv
import gzip
import json
import lzma
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parents[1]
MARK = "GPU_CHECKS_STEP"  # in the environment of all processes of a step
SAVE = 20.0  # seconds that a stopped step has to save, and that packing takes
GRAPHS = "test_graphs_give_what_the_steps_give"
TESTS = (
    "test_the_same_command_twice_writes_the_same_metrics",
    "test_a_wait_inside_a_step_ends_its_graph_and_nothing_else",
    "test_a_full_device_halves_the_chunk",
    *(f"{GRAPHS}[{model}-vmap]" for model in (
        "model=rnn model.hidden=16", "model=cnn_small model.norm=group", "model=resnet18 model.width=8")),
)  # fmt: skip
TINY_TESTS = TESTS[1:2]
COLUMNS = ("step", "exit", "seconds", "limit", "line")
OF_RUN = (
    "algorithm",
    "algorithm.norm",
    "partition",
    "algorithm.lr",
    "algorithm.server_lr",
    "algorithm.beta",
    "seed",
)


class Checks:
    """The steps of a call: what they are given, and what they leave."""

    def __init__(self, data: Path, out: Path, tiny: bool) -> None:
        self.out, self.tiny, self.begun = out, tiny, time.monotonic()
        self.limit = float(os.environ.get("SECONDS", 1800 if tiny else 570))
        kept = Path(tempfile.gettempdir()) / f"fedbench-gpu-checks-{os.getuid()}"
        self.work = Path(tempfile.mkdtemp(prefix="fedbench-tiny-")) if tiny else kept
        self.logs = self.work / "logs"
        shutil.rmtree(self.logs, ignore_errors=True)
        self.logs.mkdir(parents=True)
        out.mkdir(parents=True, exist_ok=True)
        self.given, self.data = data, data
        self.rows: list[dict[str, Any]] = []
        self.failed = False

    @property
    def left(self) -> float:
        """Seconds of the call, without those that the last step's files take."""
        return self.limit - (time.monotonic() - self.begun) - SAVE

    @property
    def environment(self) -> dict[str, str]:
        """Of every command: this checkout, its `fedbench`, the data."""
        paths = [str(HERE), str(self.work / "site"), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
        kept = {} if self.tiny else {"FEDBENCH_CACHE": str(self.work / "cache")}
        return {
            **os.environ, **kept,
            "PYTHONPATH": os.pathsep.join(filter(None, paths)), "PYTHONUNBUFFERED": "1",
            "PATH": f"{self.work / 'bin'}{os.pathsep}{os.environ['PATH']}", "FEDBENCH_DATA": str(self.data),
            **({"CUDA_HOME": "/usr/local/cuda"} if "CUDA_HOME" not in os.environ
               and Path("/usr/local/cuda").is_dir() else {}),
        }  # fmt: skip

    # ---- steps -------------------------------------------------------------------------------------

    def step(self, name: str, seconds: float, command: Sequence[str]) -> int:
        """Run a command in the folder of outputs; stop it and all that it started when its time is up."""
        limit = min(seconds * (5 if self.tiny else 1), self.left)  # tiny: where there is no GPU
        if limit < 1:
            self.note(name, "", 0.0, 0.0, "no time was left")
            return 1
        mark, log, start = uuid.uuid4().hex, self.logs / f"{name}.txt", time.monotonic()
        with open(log, "w") as stream:
            process = subprocess.Popen(
                command, stdout=stream, stderr=subprocess.STDOUT, cwd=self.work, start_new_session=True,
                env={**self.environment, MARK: mark},
            )  # fmt: skip
        try:
            code: int | str = process.wait(limit)
        except subprocess.TimeoutExpired:
            code = "time is up"
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.75 * SAVE)
        _end(mark)
        process.wait()
        lines = log.read_text(errors="replace").split("\n")
        last = next((line for line in reversed(lines) if line.strip()), "")
        self.note(name, code, time.monotonic() - start, limit, last[:300])
        self.failed |= code not in (0, "time is up")
        return 0 if code == 0 else 1

    def ours(self, name: str, seconds: float, table: str = "", shared: bool = False) -> None:
        """A step of bench_gpu.py, and its table. `shared`: several processes use the device."""
        words = [name, "--root", str(self.data), "--out", str(self.out / f"{table or name}.csv")]
        words += ["--tiny"] if self.tiny else []
        with _side_by_side() if shared else contextlib.nullcontext():
            self.step(name, seconds, [sys.executable, str(HERE / "scripts" / "bench_gpu.py"), *words])

    def note(self, name: str, code: object, took: float, limit: float, line: str) -> None:
        """Write a step's line, and everything that has come about until now."""
        self.rows.append(dict(zip(COLUMNS, (name, code, round(took, 1), round(limit), line), strict=True)))
        print(f"{name}: exit {code} after {took:.0f} s: {line}", flush=True)
        _write(self.out / "steps.csv", self.rows, COLUMNS)
        _pack(self.out / "logs.tar.gz", self.logs, "logs")
        if (self.work / "outputs").is_dir():
            self.runs()
            _pack(self.out / "outputs.tar.gz", self.work / "outputs", "outputs")

    def runs(self) -> None:
        """A row for every run that has ended."""
        rows = []
        for file in sorted((self.work / "outputs").rglob("summary.json")):
            with contextlib.suppress(OSError, ValueError, KeyError):
                rows.append(_row(file))
        if rows:
            _write(self.out / "runs.csv", rows, list(rows[0]))

    def start(self) -> bool:
        """Data, wheels and `fedbench`; whether there is a device."""
        start = time.monotonic()
        restore = self.given / "outputs.tar.gz"
        if restore.is_file() and not (self.work / "outputs").exists():
            with tarfile.open(restore) as packed:
                packed.extractall(self.work, filter="data")
        self.data = _unpacked(self.given, self.work / "data")
        program = self.work / "bin" / "fedbench"
        program.parent.mkdir(exist_ok=True)
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m fedbench "$@"\n')
        program.chmod(0o755)
        wheels = (
            sorted(Path(os.environ["WHEELS"]).resolve().glob("*.whl")) if os.environ.get("WHEELS") else []
        )
        said = f"{time.monotonic() - start:.0f} s for the data"
        if wheels:
            how = ["--no-index", "--no-deps", "--no-compile", "--no-cache-dir", "--upgrade", "--quiet"]
            command = [sys.executable, "-m", "pip", "install", *how, "--target", str(self.work / "site")]
            self.step("wheels", 60, [*command, *map(str, wheels)])
        code = (
            "import torch, fedbench.provenance as p\n"
            "assert torch.cuda.is_available(), 'no CUDA device'\n"
            f"print(torch.cuda.get_device_name(), p.versions(), {said!r})"
        )
        return self.step("start", 90, [sys.executable, "-c", code]) == 0

    def tests(self) -> None:
        """A few tests; the ids are those of tests/runs/test_cuda.py."""
        file = HERE / "tests" / "runs" / "test_cuda.py"
        ids = [f"{file}::{name}" for name in (TINY_TESTS if self.tiny else TESTS)]
        words = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "cuda", "-rA", "--tb=short"]
        self.step("tests", 50, [sys.executable, *words, "--rootdir", str(HERE), *ids])


def main() -> int:
    """Run the steps of the words; 0 if none has failed (a step whose time was up has not)."""
    words = sys.argv[1:]
    commands = words[words.index("--") + 1 :] if "--" in words else []
    given = words[: words.index("--")] if "--" in words else words
    parts = [word for word in given[2:] if word in ("0", "1", "2")] or ["1", "2"]
    if len(given) < 2 or set(given[2:]) - {"0", "1", "2", "tiny"}:
        print(__doc__, file=sys.stdout if "--help" in words else sys.stderr)
        return 0 if "--help" in words else 2
    data, out = (Path(word).resolve() for word in given[:2])
    if not data.is_dir():
        print(f"gpu_checks: {data}: there is no such folder", file=sys.stderr)
        return 2
    checks = Checks(data, out, "tiny" in given)
    try:
        return _all(checks, parts, commands)
    finally:
        if checks.tiny:
            shutil.rmtree(checks.work, ignore_errors=True)


def _all(checks: Checks, parts: Sequence[str], commands: Sequence[str]) -> int:
    if not checks.start():
        return 1
    ours: dict[str, list[Callable[[], None]]] = {
        "1": [
            lambda: checks.ours("image", 30),
            checks.tests,
            lambda: checks.ours("models", 85, "rounds"),
            lambda: checks.ours("clients", 40, "rounds"),
            lambda: checks.ours("figure", 120, "sweeps", shared=True),
            lambda: checks.ours("processes", 75, "sweeps", shared=True),
        ],
        "2": [lambda: checks.ours("compiling", 120), lambda: checks.ours("cifar10", 90)],
        "0": [],
    }
    for part in parts:
        for step in ours[part]:
            step()
    with _side_by_side():
        for number, command in enumerate(commands, 1):
            checks.step(f"command{number}", checks.limit, ["sh", "-c", command])
    return int(checks.failed)


# ---- files and processes ---------------------------------------------------------------------------------


def _row(file: Path) -> dict[str, Any]:
    """What a run's summary says, in the form of outputs/benchmarks."""
    found = json.loads(file.read_text())
    config, hyper = found["config"], found.get("hyper", {})
    names = {key: key.removeprefix("algorithm.") for key in OF_RUN}
    row = {name: hyper.get(name, config.get(key, "")) for key, name in names.items()}
    named = ("status", "rounds", "final_accuracy", "wall_seconds", "engine")
    return {
        "stage": file.parent.parent.name,
        **row,
        **{name: found.get(name, "") for name in named},
        "device": found.get("hardware", {}).get("gpu", found.get("device", "")),
        "torch": found.get("versions", {}).get("torch", ""),
        "commit": found.get("commit") or os.environ.get("COMMIT", ""),
    }


def _write(file: Path, rows: Sequence[dict[str, Any]], columns: Sequence[str]) -> None:
    with open(file, "w", newline="") as stream:
        writer = csv.DictWriter(stream, columns, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def _pack(file: Path, folder: Path, name: str) -> None:
    """The folder as a .tar.gz, without models and checkpoints; other processes may be writing into it. The
    partitions of runs are few, so each is packed once and linked to after that."""
    partitions: dict[bytes, str] = {}

    def small(info: tarfile.TarInfo) -> tarfile.TarInfo | None:
        if info.name.endswith("/partition.npz"):
            content = (folder.parent / info.name).read_bytes()
            there = partitions.setdefault(content, info.name)
            if there != info.name:
                info.type, info.linkname, info.size = tarfile.LNKTYPE, there, 0
        return None if info.name.endswith((".pt", ".part")) or "/state" in info.name else info

    part = file.with_suffix(".part")
    with contextlib.suppress(OSError):
        with tarfile.open(part, "w:gz", compresslevel=4) as packed:
            packed.add(folder, name, filter=small)
        part.replace(file)
    part.unlink(missing_ok=True)


def _unpacked(data: Path, place: Path) -> Path:
    """`data`, or a copy in which its .gz and .xz files are unpacked and the others are links."""
    opened: dict[str, Callable[[Path], Any]] = {".gz": gzip.open, ".xz": lzma.open}
    files = [file for file in data.rglob("*") if file.is_file() and not file.name.endswith(".tar.gz")]
    if not any(file.suffix in opened for file in files):
        return data
    for file in files:
        there = place / file.relative_to(data)
        there.parent.mkdir(parents=True, exist_ok=True)
        if file.suffix not in opened:
            there.unlink(missing_ok=True)
            there.symlink_to(file)
        elif not (whole := there.with_suffix("")).exists():
            part = there.with_suffix(".part")
            with opened[file.suffix](file) as source, open(part, "wb") as target:
                shutil.copyfileobj(source, target, 2**20)
            part.rename(whole)
    return place


def _end(mark: str) -> None:
    """Kill what is left of a step: workers have process groups of their own."""
    if not Path("/proc").is_dir():
        return
    for place in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            number = int(place.name)
            if number != os.getpid() and f"{MARK}={mark}".encode() in (place / "environ").read_bytes():
                os.kill(number, signal.SIGKILL)


@contextlib.contextmanager
def _side_by_side() -> Any:
    """NVIDIA's multi-process service, where it is installed: kernels of processes run side by side."""
    program = shutil.which("nvidia-cuda-mps-control")
    if program is None:
        yield
        return
    place = tempfile.mkdtemp()
    os.environ["CUDA_MPS_PIPE_DIRECTORY"] = os.environ["CUDA_MPS_LOG_DIRECTORY"] = place
    subprocess.run([program, "-d"], check=False)
    try:
        yield
    finally:
        subprocess.run([program], input="quit\n", text=True, check=False, timeout=20)
        del os.environ["CUDA_MPS_PIPE_DIRECTORY"], os.environ["CUDA_MPS_LOG_DIRECTORY"]


if __name__ == "__main__":
    sys.exit(main())
