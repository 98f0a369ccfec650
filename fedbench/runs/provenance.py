"""What produced a number: versions, commit and hardware; and the command that produces it again."""

from __future__ import annotations

import importlib.metadata
import platform
import shlex
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import fedbench
from fedbench.config.config import GROUPS, flat
from fedbench.config.identity import inputs
from fedbench.config.overrides import written
from fedbench.files import write_text

if TYPE_CHECKING:
    import torch

    from fedbench.runs.run import Run

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


def short(commit: str | None) -> str:
    """A commit for a line of text: twelve characters, and "+dirty" if it says so."""
    head, plus, rest = (commit or "not known").partition("+")
    return head[:12] + plus + rest


# ---- the command that computes a run again --------------------------------------------------------------


def write_reproduce(file: Path, run: Run) -> None:
    """Write `reproduce`: a shell script that computes the run again. Its comments say what computed it."""
    config, choices = run.config, dict(flat(run.config))
    lines = ["#!/bin/sh", "# Computes this run again; `fedbench replay DIRECTORY` also compares the numbers."]
    found: dict[str, object] = {**versions(), "commit": run.commit}
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
