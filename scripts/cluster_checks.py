"""Sweeps on a real Slurm: three nodes on this machine, made in a temporary directory and ended by their ids.

    scripts/cluster_checks [--accounting] [--only NAME[,NAME]] [--data DIR] [--out FILE]

Needs the packages slurm-wlm and munge (with --accounting also slurmdbd and mariadb-server) and root; without
them it says so and ends with 0. Each check prints a line; FILE gets them as a table. About ten minutes.
"""

from __future__ import annotations

import argparse
import csv
import importlib.metadata
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from slurm_here import Slurm, missing, until

FEDBENCH = Path(sys.executable).with_name("fedbench")
RUN = ["rounds=5", "clients.total=4", "clients.per_round=2", "local.steps=1", "progress=none", "engine=vmap"]
SLOW = [*RUN, "rounds=80", "hooks=[slow.py]"]  # 40 s, so that something can happen to it
LONG = [*RUN, "rounds=130", "hooks=[slow.py]"]  # 65 s, so more than a job of a minute has
HOOK = """
import time
from fedbench.runs.server_loop import ServerLoop
update = ServerLoop.update
def slowly(self):
    time.sleep(0.5)
    return update(self)
ServerLoop.update = slowly
"""
SUBMIT = ["hydra/launcher=slurm", "hydra.launcher.mem_gb=1.5"]
STARTED = 240  # seconds in which a process must have begun


class Checks:
    """The checks, and what they use: the cluster, a directory, and a run without Slurm to compare with."""

    def __init__(self, slurm: Slurm, place: Path, data: str) -> None:
        self.slurm, self.place = slurm, place
        self.environment = {**slurm.environment, "FEDBENCH_DATA": data, "OMP_NUM_THREADS": "1"}
        (place / "slow.py").write_text(HOOK)
        self.known: dict[tuple[str, ...], str] = {}

    # ---- commands ------------------------------------------------------------------------------------

    def start(self, *words: str, prefix: tuple[str, ...] = ()) -> subprocess.Popen[str]:
        """Start `fedbench WORDS`."""
        return subprocess.Popen(
            [*prefix, str(FEDBENCH), *words], cwd=self.place, env=self.environment, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip

    def say(self, *words: str, prefix: tuple[str, ...] = (), seconds: int = 900) -> tuple[int, str]:
        """The exit code and the output of `fedbench WORDS`."""
        process = self.start(*words, prefix=prefix)
        try:
            output, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            output, _ = process.communicate()
        return process.returncode, output

    def sweep(self, name: str, seeds: int, *words: str) -> list[str]:
        """The words of a sweep over seeds in a directory of this name."""
        return ["-m", f"seed=range({seeds})", f"hydra.sweep.dir={name}", *words]

    def places(self, name: str) -> list[Path]:
        """The runs of a sweep."""
        return sorted((self.place / name).glob("seed_*"))

    def statuses(self, name: str) -> dict[str, int]:
        """How many runs of a sweep have each status."""
        self.say("collect", name)
        with (self.place / name / "runs.csv").open() as stream:
            found = [row["status"] for row in csv.DictReader(stream)]
        return {status: found.count(status) for status in sorted({*found})}

    def queue(self) -> list[str]:
        """The jobs in the queue."""
        return self.slurm.run("squeue", "-h", "-r", "-o", "%i %T").split("\n")[:-1]

    def emptied(self) -> None:
        """Wait until no job is left."""
        until(lambda: not self.queue(), 300, f"jobs are left: {self.queue()}")

    def evaluated(self, place: Path) -> int:
        """Rows of a run's metrics.csv."""
        file = place / "metrics.csv"
        return len(file.read_text().splitlines()) - 1 if file.exists() else 0

    def under_way(self, name: str, seed: int = 0) -> Path:
        """Wait until the run of a seed has computed some rounds; return its directory."""

        def begun() -> bool:
            return any(self.evaluated(place) > 3 for place in (self.place / name).glob(f"seed_{seed}-*"))

        until(begun, STARTED, f"{name}: seed {seed} did not begin")
        return next((self.place / name).glob(f"seed_{seed}-*"))

    def expect(self, holds: object, why: object) -> None:
        """Fail unless it holds."""
        if not holds:
            raise AssertionError(str(why))

    def same_bytes(self, name: str, words: list[str], seeds: int) -> None:
        """A sweep's rows and models are those that one process computes without Slurm."""
        plain = self.known.setdefault(tuple(words), f"plain{len(self.known)}")
        if not (self.place / plain).exists() or len(self.places(plain)) < seeds:
            quick = [word for word in words if not word.startswith("hooks=")]
            code, output = self.say(*self.sweep(plain, seeds, *quick), "hydra/launcher=basic")
            self.expect(code == 0, output)
        for seed in range(seeds):
            one, other = (next((self.place / where).glob(f"seed_{seed}-*")) for where in (plain, name))
            rows = [_without_seconds(where / "metrics.csv") for where in (one, other)]
            self.expect(rows[0] == rows[1], f"{other}: other numbers than {one}")
            models = [(where / "model.pt").read_bytes() for where in (one, other)]
            self.expect(models[0] == models[1], f"{other}: another model than {one}")

    # ---- what is tried -------------------------------------------------------------------------------

    def sweep_of_12(self) -> str:
        """A sweep of 12, four runs a job."""
        code, output = self.say(*self.sweep("twelve", 12, *RUN, *SUBMIT), "hydra.launcher.runs_per_job=4")
        self.expect(code == 0, output)
        self.same_bytes("twelve", RUN, 12)
        return "12 completed in 3 jobs; rows and models as without Slurm"

    def cancelled(self) -> str:
        """scancel of one of 12 jobs that wait."""
        words = [*self.sweep("cancelled", 12, *RUN, *SUBMIT), "hydra.launcher.array_parallelism=3"]
        process = self.start(*words)
        until(lambda: any("PENDING" in job for job in self.queue()), STARTED, "nothing waits")
        waits = [job.split()[0] for job in self.queue() if "PENDING" in job]
        self.slurm.run("scancel", waits[-1])
        output, _ = process.communicate(timeout=900)
        found = self.statuses("cancelled")
        self.expect(process.returncode == 1 and found == {"completed": 11, "failed": 1}, f"{found} {output}")
        return "1 of 12 failed, 11 completed; " + output.strip().splitlines()[-1]

    def cancelled_running(self) -> str:
        """scancel of a job under way, of three."""
        process = self.start(*self.sweep("ended", 3, *SLOW, *SUBMIT))
        self.under_way("ended", 1)
        job = next(job.split()[0] for job in self.queue() if job.split()[0].endswith("_1"))
        self.slurm.run("scancel", job)
        until(lambda: self.statuses("ended").get("failed") == 1, 120, "the job is not noticed as lost")
        found = self.statuses("ended")
        self.expect(found == {"failed": 1, "running": 2}, found)
        kept = next((self.place / "ended").glob("seed_1-*")) / "checkpoint.pt"
        self.expect(kept.exists(), "no checkpoint")
        self.say("cancel", "ended")
        process.communicate(timeout=120)
        self.emptied()
        after = self.statuses("ended")
        return f"its own run failed, with a checkpoint; 2 ran on; after `fedbench cancel` {after}"

    def time_limit(self) -> str:
        """A job's time is over, without and with being queued again."""
        limit = ["hydra.launcher.timeout_min=1", "hydra.launcher.signal_delay_s=15"]
        words = [*self.sweep("limit", 1, *LONG, *SUBMIT), *limit]
        code, output = self.say(*words, "hydra.launcher.max_num_timeout=0")
        found = self.statuses("limit")
        stopped = code == 1 and found == {"stopped": 1} and "max_num_timeout=N" in output
        self.expect(stopped, f"{found} {output}")
        code, output = self.say(*words, "hydra.launcher.max_num_timeout=20", seconds=1500)
        self.expect(code == 0 and self.statuses("limit") == {"completed": 1}, output)
        self.same_bytes("limit", LONG, 1)
        logs = sorted((self.place / "limit" / ".submitit").glob("*/*_log.out"))
        again = sum(log.read_text().count("Requeued job") for log in logs) // 2
        return f"stopped without; queued again {again} times and completed with; bytes as without Slurm"

    def requeued(self) -> str:
        """scontrol requeue of a job under way, and a node that dies under another."""
        process = self.start(*self.sweep("requeued", 1, *SLOW, *SUBMIT), "hydra.launcher.partition=alone")
        self.under_way("requeued")
        job = self.queue()[0].split()[0]
        said = self.slurm.run("scontrol", "requeue", job)
        until(
            lambda: (
                "requeued" in self.say("status", "requeued")[1] or "running" not in self.statuses("requeued")
            ),
            60,
            said,
        )
        output, _ = process.communicate(timeout=900)
        self.expect(self.statuses("requeued") == {"completed": 1}, output)
        self.same_bytes("requeued", SLOW, 1)
        return "went on after scontrol requeue; bytes as without Slurm"

    def dead_node(self) -> str:
        """slurmd of a node is killed with its job; the node comes back."""
        process = self.start(*self.sweep("node", 1, *SLOW, *SUBMIT), "hydra.launcher.partition=alone")
        self.under_way("node")
        self.slurm.end("n1", signal.SIGKILL)
        until(lambda: not any("RUNNING" in job for job in self.queue()), 200, self.queue())
        self.slurm.start_node("n1")
        output, _ = process.communicate(timeout=900)
        found = self.statuses("node")
        self.expect(found == {"completed": 1}, f"{found} {output}")
        self.same_bytes("node", SLOW, 1)
        return "queued again by Slurm, completed; bytes as without Slurm"

    def interrupted(self) -> str:
        """Ctrl-C, and the same command again; then two at once, and one that leaves."""
        words = [*self.sweep("twice", 3, *SLOW, "rounds=60", *SUBMIT)]
        process = self.start(*words)
        self.under_way("twice")
        before = {job.split("_")[0] for job in self.queue()}
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=60)
        self.expect(process.returncode == 130 and "the jobs go on" in output, output)
        others = [self.start(*words), self.start(*words)]
        said = self.say(*words, "hydra.launcher.wait=false")
        self.expect(said[0] == 0, said)
        self.expect({job.split("_")[0] for job in self.queue()} <= before, f"{before} {self.queue()}")
        for other in others:
            output, _ = other.communicate(timeout=600)
            self.expect(other.returncode == 0, output)
        self.expect(self.statuses("twice") == {"completed": 3}, "not completed")
        return "one array for four commands, three of them at once"

    def two_submitters(self) -> str:
        """Two people give the same command at once."""
        words = [*self.sweep("two", 4, *RUN, *SUBMIT), "hydra.launcher.runs_per_job=2"]
        both = [self.start(*words), self.start(*words)]
        seen: set[str] = set()
        deadline = time.monotonic() + 600
        while any(one.poll() is None for one in both) and time.monotonic() < deadline:
            seen |= {job.split("_")[0].split()[0] for job in self.queue()}
            time.sleep(1)
        outputs = [one.communicate(timeout=10)[0] for one in both]
        self.expect([one.returncode for one in both] == [0, 0] and len(seen) == 1, f"{seen} {outputs}")
        return "one array, both saw 4 completed"

    def leave(self) -> str:
        """Submit and leave; status, collect."""
        code, output = self.say(*self.sweep("left", 4, *RUN, *SUBMIT), "hydra.launcher.wait=false")
        self.expect(code == 0 and "4 runs in jobs" in output, output)
        self.expect("queued" in self.say("status", "left")[1], "nothing queued")
        self.emptied()
        self.expect(self.statuses("left") == {"completed": 4}, self.statuses("left"))
        return "4 completed; status and collect from another process"

    def out_of_memory(self) -> str:
        """A job with too little memory."""
        words = self.sweep("memory", 1, *SLOW, "hydra/launcher=slurm", "hydra.launcher.mem_gb=0.2")
        code, output = self.say(*words)
        found = self.statuses("memory")
        self.expect(code == 1 and found == {"failed": 1}, f"{found} {output}")
        return output.strip().splitlines()[-1]

    def array_of_commands(self) -> str:
        """sbatch --array of the same `fedbench -m` in each task, and srun with two tasks."""
        words = " ".join([str(FEDBENCH), *self.sweep("array", 6, *RUN).copy()])
        script = f"#!/bin/sh\n{words.replace('range(6)', '0,1,2,3,4,5')}\n"
        (self.place / "array.sh").write_text(script)
        how = ["--parsable", "--array=0-1", "--mem=2G", "--chdir", str(self.place), "--output=array-%a.log"]
        done = subprocess.run(
            ["sbatch", *how, str(self.place / "array.sh")],
            env=self.environment,
            capture_output=True,
            text=True,
        )
        self.expect(done.returncode == 0, done.stderr)
        until(lambda: not self.queue(), 600, self.queue())
        self.expect(self.statuses("array") == {"completed": 6}, self.statuses("array"))
        prefix = ("srun", "--ntasks=2", "--mem=4G")
        code, output = self.say(*self.sweep("srun", 6, *RUN), prefix=prefix)
        self.expect(code == 0 and self.statuses("srun") == {"completed": 6}, output)
        return "6 completed in two tasks each, none computed twice"

    def torchrun(self) -> str:
        """torchrun in a job that is cancelled: no process computes on."""
        torchrun = Path(sys.executable).with_name("torchrun")
        command = [str(torchrun), "--standalone", "--nproc-per-node=2", "-m", "fedbench", *SLOW]
        script = f"#!/bin/sh\nexec {' '.join(command)} hydra.run.dir=torchrun\n"
        (self.place / "torchrun.sh").write_text(script.replace("[slow.py]", "'[slow.py]'"))
        how = [
            "--parsable",
            "--cpus-per-task=2",
            "--mem=4G",
            "--chdir",
            str(self.place),
            "--output=torchrun.log",
        ]
        done = subprocess.run(
            ["sbatch", *how, str(self.place / "torchrun.sh")],
            env=self.environment,
            capture_output=True,
            text=True,
        )
        self.expect(done.returncode == 0, done.stderr)
        run = self.place / "torchrun"
        until(lambda: self.evaluated(run) > 3, STARTED, "torchrun did not begin: torchrun.log")
        self.slurm.run("scancel", "--signal=USR1", "--full", done.stdout.strip())  # torchrun dies of it
        until(lambda: not self.queue(), 120, self.queue())
        until(lambda: not _processes("hydra.run.dir=torchrun"), 60, "processes compute on")
        self.expect((run / "checkpoint.pt").exists(), "no checkpoint")
        self.expect("stopped" in self.say("status", "torchrun")[1], "is not stopped")
        return "after torchrun had died of SIGUSR1 its processes saved and stopped"

    def signals(self) -> str:
        """SIGUSR1, SIGTERM and SIGHUP to a run and to a sweep at ten instants from 100 ms on."""
        odd = []
        for number in (signal.SIGUSR1, signal.SIGTERM, signal.SIGHUP):
            for tenth in range(10):
                name = f"{number.name}{tenth}"
                words = [*RUN, "rounds=3", f"hydra.run.dir={name}"]
                process = self.start(*words)
                time.sleep(0.1 + 0.6 * tenth)
                process.send_signal(number)
                output, _ = process.communicate(timeout=300)
                allowed = (0,) if number == signal.SIGUSR1 else (0, -number, 128 + number)
                if process.returncode not in allowed or "Traceback" in output:
                    odd.append(f"{name}: {process.returncode} {output[-300:]}")
                elif number != signal.SIGUSR1:
                    code, again = self.say(*words)
                    if code != 0:
                        odd.append(f"{name}, again: {again[-300:]}")
        self.expect(not odd, "; ".join(odd))
        return "30 processes: SIGUSR1 ended none; after the others the same command completed"


def _without_seconds(file: Path) -> list[dict[str, str]]:
    with file.open() as stream:
        return [{k: v for k, v in row.items() if k != "wall_seconds"} for row in csv.DictReader(stream)]


def _processes(word: str) -> list[str]:
    shown = subprocess.run(["ps", "-eo", "pid,args"], capture_output=True, text=True, check=True).stdout
    return [line for line in shown.splitlines() if word in line]


ALL = (
    *("signals", "sweep_of_12", "cancelled", "cancelled_running", "time_limit", "requeued", "dead_node"),
    *("interrupted", "two_submitters", "leave", "out_of_memory", "array_of_commands", "torchrun"),
)


def main() -> int:
    """Make the cluster, make the checks, end the cluster. Returns 1 if one does not hold."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--accounting", action="store_true", help="with slurmdbd and a database")
    parser.add_argument("--only", help=f"some of {', '.join(ALL)}")
    parser.add_argument("--data", default=os.environ.get("FEDBENCH_DATA", "data"))
    parser.add_argument("--out", type=Path, help="a csv file: check, accounting, held, what was seen")
    args = parser.parse_args()
    if why := missing(args.accounting):
        print(f"skipped: {why}")
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the daemons end, too
    rows = []
    with tempfile.TemporaryDirectory(prefix="slurm-") as below:
        place = Path(below) / "cluster"
        place.mkdir()
        with Slurm(place, args.accounting) as slurm:
            version = slurm.run("sinfo", "--version").strip()
            names = ("submitit", "hydra-core", "torch")
            versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in names)
            print(f"{version}, {versions}, Python {platform.python_version()}", flush=True)
            checks = Checks(slurm, Path(below), str(Path(args.data).absolute()))
            for name in args.only.split(",") if args.only else ALL:
                check: Callable[[], str] = getattr(checks, name)
                begun = time.monotonic()
                try:
                    held, seen = "yes", check()
                except Exception as error:
                    held, seen = "no", f"{type(error).__name__}: {error}"
                    slurm.run("scancel", f"--user={slurm.user}")
                    time.sleep(12)  # KillWait
                seen = seen.replace(str(below), "DIR")
                print(f"{name} ({time.monotonic() - begun:.0f} s): {held}: {seen}", flush=True)
                rows.append([name, "yes" if args.accounting else "no", held, " ".join(seen.split())])
    if args.out:
        with args.out.open("a", newline="") as stream:
            csv.writer(stream, lineterminator="\n").writerows(rows)
    return 0 if all(row[2] == "yes" for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
