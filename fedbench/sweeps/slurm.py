"""Slurm's commands: what state jobs are in, and ending them."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

ENDED = (
    *("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY"),
    *("PREEMPTED", "REVOKED", "TIMEOUT"),
)
"""States of a job that computes no more. In all others it will begin, or goes on."""
GONE = "GONE"
"""Of a job that Slurm no longer knows: it has ended long ago without accounting, or was cancelled before it
began."""
_SECONDS = 60  # for an answer


@dataclass(frozen=True)
class State:
    """A job's state in Slurm's word. `restarts`: how often it was queued again."""

    name: str
    restarts: int = 0

    @property
    def ended(self) -> bool:
        """Whether it computes no more."""
        return self.name in ENDED or self.name == GONE

    def __str__(self) -> str:
        return self.name + (f", requeued {self.restarts} times" if self.restarts else "")


def states(ids: Collection[str]) -> dict[str, State] | None:
    """The states of jobs, by their ids (`12`, or `12_3` in an array). None: Slurm does not answer."""
    parents = sorted({name.partition("_")[0] for name in ids})
    if not parents:
        return {}
    asked = ["--states=all", "--array", "--noheader", "--jobs", ",".join(parents)]
    queue = _output(["squeue", *asked, "--Format=JobArrayID:40,State:30,RestartCnt:10"])
    if queue is None:
        return None
    found = {name: State(state, int(count)) for name, state, count in _words(queue, 3) if count.isdigit()}
    if {*ids} - {*found}:  # they ended minutes ago, or were cancelled as they waited
        kept = _output(["sacct", "-X", "-n", "-P", "-o", "JobID,State", "-j", ",".join(parents)]) or ""
        for name, state, *_ in _words(kept.replace("|", " "), 2):
            if state in ENDED:
                found.setdefault(name, State(state))
    return {name: found.get(name, State(GONE)) for name in ids}


def cancel(ids: Sequence[str]) -> str | None:
    """End jobs. Returns what Slurm has against it; None: nothing."""
    done = subprocess.run(["scancel", *ids], capture_output=True, text=True, check=False)
    return done.stderr.strip() if done.returncode else None


def largest_array() -> int:
    """How many jobs an array has at most."""
    said = re.search(r"MaxArraySize\s*=\s*(\d+)", _output(["scontrol", "show", "config"]) or "")
    return max(1, int(said[1])) if said else 1001  # Slurm's default


def is_here() -> bool:
    """Whether jobs can be given to a Slurm from this machine."""
    return all(map(shutil.which, ("sbatch", "srun", "squeue")))


def joined(ids: Collection[str]) -> str:
    """Ids in few words: `12_[0-3,5]`."""
    arrays: dict[str, list[int]] = {}
    alone = [name for name in ids if "_" not in name]
    for name in ids:
        parent, _, number = name.partition("_")
        if number:
            arrays.setdefault(parent, []).append(int(number))
    spans = {parent: list(_spans(sorted(numbers))) for parent, numbers in arrays.items()}
    return ", ".join([*alone, *(f"{name}_[{','.join(parts)}]" for name, parts in spans.items())])


def _spans(numbers: Sequence[int]) -> Iterator[str]:
    first = last = numbers[0]
    for number in [*numbers[1:], None]:
        if number is not None and number == last + 1:
            last = number
            continue
        yield str(first) if first == last else f"{first}-{last}"
        if number is not None:
            first = last = number


def _words(text: str, least: int) -> Iterator[list[str]]:
    for line in text.splitlines():
        if len(words := line.split()) >= least:
            yield words


def _output(command: Sequence[str]) -> str | None:
    """What a command prints; None if it cannot be run. An id that Slurm does not know is no error."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    unknown = "Invalid job id" in done.stderr
    return done.stdout if done.returncode == 0 or unknown else None
