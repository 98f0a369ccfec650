"""What produced a number: versions, commit and hardware."""

from __future__ import annotations

import contextlib
import importlib.metadata
import platform
import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from fedbench.version import PACKAGE, VERSION

if TYPE_CHECKING:
    import torch

_CODE = ("fedbench", "conf", "pyproject.toml")  # what a result depends on; figures and prose may differ
_PACKAGES = ("torch", "torchvision", "numpy", "hydra-core", "omegaconf", "pandas", "scikit-learn")


@cache
def versions() -> Mapping[str, str]:
    """Versions of Python, fedbench and the packages that compute: those that this process has loaded."""
    import torch

    found = {"python": platform.python_version(), "fedbench": VERSION}
    for name in _PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    found["torch"] = str(torch.__version__)  # with the build's suffix
    if torch.version.cuda and torch.cuda.is_available():
        found["cuda"] = torch.version.cuda
    return found


@cache
def commit() -> str | None:
    """The checkout's commit, with "+dirty" if code or conf/ have changes or untracked files. None outside a
    checkout of fedbench, or if git fails. As it was when the process first asked, which runs that code."""
    root = PACKAGE.parent
    if not (root / ".git").exists():
        return None
    command = ["git", "status", "--porcelain=v2", "--branch", "--", *_CODE]
    try:
        done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return None
    said = done.stdout.splitlines()
    head = next((line.split()[2] for line in said if line.startswith("# branch.oid ")), "(initial)")
    dirty = any(not line.startswith("# ") for line in said)
    return None if head == "(initial)" else head + ("+dirty" if dirty else "")


def hardware(device: torch.device) -> dict[str, object]:
    """The machine, processor and threads of this process, and the GPU if `device` is one."""
    import torch

    cpu = platform.processor() or "unknown"
    with contextlib.suppress(OSError, StopIteration):  # on Linux
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        cpu = next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    threads = torch.get_num_threads()
    info: dict[str, object] = {"machine": platform.machine(), "cpu": cpu, "threads": threads}
    if device.type == "cuda":
        info["gpu"] = torch.cuda.get_device_name(device)
    return info


def short(commit: str | None) -> str:
    """A commit for a line of text: twelve characters, and "+dirty" if it says so."""
    head, plus, rest = (commit or "not known").partition("+")
    return head[:12] + plus + rest
