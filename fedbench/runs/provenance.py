"""What produced a number: versions, commit and hardware; and the command that produces it again."""

from __future__ import annotations

import importlib.metadata
import platform
import shlex
import subprocess
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fedbench
from fedbench.config.config import GROUPS, flat
from fedbench.config.identity import inputs
from fedbench.config.overrides import written
from fedbench.files import write_text

if TYPE_CHECKING:
    import torch

    from fedbench.runs.run import Run

Code = dict[str, Any]
"""What code computed a part of a run: `commit` (str | None), `versions` (dict), and `from_round`, the first
round that it computed."""

_CODE = ("fedbench", "conf", "pyproject.toml")  # what a result depends on; figures and prose may differ
_HOW = ("engine", "chunk", "device", "resume", "progress", "verbose")  # what `reproduce` omits or says last
_PACKAGES = ("torch", "torchvision", "numpy", "hydra-core", "omegaconf", "pandas", "scikit-learn")


def versions() -> dict[str, str]:
    """Versions of Python, fedbench and the packages that compute."""
    import torch

    found = {"python": platform.python_version(), "fedbench": fedbench.__version__}
    for name in _PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    found["torch"] = str(torch.__version__)  # with the build's suffix
    if torch.version.cuda and torch.cuda.is_available():
        found["cuda"] = torch.version.cuda
    return found


def commit() -> str | None:
    """The checkout's commit, with "+dirty" if code or conf/ have changes or untracked files. None outside a
    checkout of fedbench, or if git fails."""
    root = Path(fedbench.__file__).parents[1]
    if not (root / ".git").exists():
        return None
    try:
        said = _git(root, "status", "--porcelain=v2", "--branch", "--", *_CODE).splitlines()
    except (OSError, subprocess.SubprocessError):
        return None
    head = next((line.split()[2] for line in said if line.startswith("# branch.oid ")), "(initial)")
    dirty = any(not line.startswith("# ") for line in said)
    return None if head == "(initial)" else head + ("+dirty" if dirty else "")


def hardware(device: torch.device) -> dict[str, object]:
    """The machine, processor and threads of this process, and the GPU if `device` is one."""
    import torch

    info: dict[str, object] = {
        "machine": platform.machine(),
        "cpu": _cpu_model(),
        "threads": torch.get_num_threads(),
    }
    if device.type == "cuda":
        info["gpu"] = torch.cuda.get_device_name(device)
    return info


def code(from_round: int = 0) -> Code:
    """The code of this process, which computes from round `from_round` on."""
    return {"from_round": from_round, "commit": commit(), "versions": versions()}


def codes_of(summary: Mapping[str, Any]) -> list[Code]:
    """The code that computed the run of a summary.json, part by part; empty if nothing says it."""
    if summary.get("code"):
        return list(summary["code"])
    if "versions" not in summary:
        return []
    return [{"from_round": 0, "commit": summary.get("commit"), "versions": summary["versions"]}]


def code_changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """How the code of two parts differs, in words: `commit 1234, here 5678`, `torch 2.9.0, here 2.10.0`.

    What only one of them has, such as `cuda` on a host with a GPU, is no difference.
    """
    found = {"commit": before.get("commit"), **(before.get("versions") or {})}
    here = {"commit": now.get("commit"), **(now.get("versions") or {})}
    keys = [key for key in here if key in found and found[key] != here[key]]
    return [f"{key} {_short(found[key])}, here {_short(here[key])}" for key in keys]


def refusal_of_other_code(parts: Sequence[Code]) -> str | None:
    """Why resume=same refuses what these parts' code computed, in words; None: it was this code."""
    here = code()
    for part in parts:
        if changes := code_changes(part, here):
            return f"was computed with {'; '.join(changes)}"
    return None if parts else "was computed by a version that did not record its code"


def mixed_code(summaries: Iterable[Mapping[str, Any]]) -> str | None:
    """One line that says how the code of the runs of these summaries differs; None if the same code computed
    all of them."""
    count: Counter[tuple[tuple[str, str], ...]] = Counter()
    for found in summaries:
        count.update(list(dict.fromkeys(map(_kind, codes_of(found)))))
    if len(count) < 2:
        return None
    kinds = [dict(kind) for kind in count]
    every = dict.fromkeys(key for kind in kinds for key in kind)
    keys = [key for key in every if len({kind.get(key) for kind in kinds}) > 1]
    each = [", ".join(f"{key} {kind.get(key, 'not recorded')}" for key in keys) for kind in kinds]
    counted = [f"{kind}: {number}" for kind, number in zip(each, count.values(), strict=True)]
    return f"computed by different code (runs, or parts of runs): {'; '.join(counted)}"


def _kind(part: Code) -> tuple[tuple[str, str], ...]:
    versions = {key: str(value) for key, value in (part.get("versions") or {}).items() if key != "cuda"}
    return ("commit", _short(part.get("commit"))), *sorted(versions.items())


def _short(value: object) -> str:
    """A commit's first twelve digits, with "+dirty" if it has that; other values as text."""
    text = "none" if value is None else str(value)
    head, plus, rest = text.partition("+")
    return f"{head[:12]}{plus}{rest}" if len(head) == 40 else text


# ---- the command that computes a run again --------------------------------------------------------------


def write_reproduce(file: Path, run: Run) -> None:
    """Write `reproduce`: a shell script that computes the run again. Its comments say what computed it."""
    config, choices = run.config, dict(flat(run.config))
    lines = ["#!/bin/sh", "# Computes this run again; `fedbench replay DIRECTORY` also compares the numbers."]
    found = {**run.code[-1]["versions"], "commit": run.code[-1]["commit"]}
    found |= {**hardware(run.device), "device": run.device}
    if run.group.size > 1:
        found["processes"] = run.group.size  # the command uses one: the same up to rounding
    lines += [f"# {name}: {value}" for name, value in found.items()]
    lines += [f"# {key}: sha256 {digest}" for key, digest in inputs(flat(config)).items()]
    for read in run.dataset.files:
        lines.append("# data: " + ", ".join(f"{name} {value}" for name, value in read.items()))
    groups = {
        key: choices.pop(key) for key in GROUPS if key in choices
    }  # these come first; the engine used comes last
    rest = {k: value for k, value in choices.items() if k not in _HOW and not k.startswith("logger.")}
    said = {**groups, **rest, "engine": run.choice.engine, "chunk": run.choice.chunk}
    words = [f"  {shlex.quote(f'{key}={written(value)}')}" for key, value in said.items()]
    write_text(file, "\n".join([*lines, " \\\n".join(["fedbench", *words])]) + "\n")


def _git(root: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=root, capture_output=True, text=True, check=True, timeout=10
    )
    return done.stdout.strip()


def _cpu_model() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or "unknown"
