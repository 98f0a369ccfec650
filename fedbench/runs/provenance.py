"""What produced a number: versions, commit and hardware."""

from __future__ import annotations

import importlib.metadata
import platform
import subprocess
from pathlib import Path

import torch

import fedbench

_CODE = ("fedbench", "conf", "pyproject.toml")  # what a result depends on; figures and prose may differ
_PACKAGES = ("torch", "torchvision", "numpy", "hydra-core", "omegaconf", "pandas", "scikit-learn")


def versions() -> dict[str, str]:
    """Versions of Python, fedbench and the packages that compute."""
    found = {"python": platform.python_version(), "fedbench": fedbench.__version__}
    for name in _PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    found["torch"] = torch.__version__  # with the build's suffix
    if torch.version.cuda and torch.cuda.is_available():
        found["cuda"] = torch.version.cuda
    return found


def commit() -> str | None:
    """The checkout's commit, "+dirty" where code or conf/ differ from it or hold more; None outside a
    checkout of fedbench."""
    root = Path(fedbench.__file__).parents[1]
    if not (root / ".git").exists():
        return None
    try:
        head = _git(root, "rev-parse", "HEAD")
        dirty = _git(root, "status", "--porcelain", "--", *_CODE)
    except (OSError, subprocess.SubprocessError):
        return None
    return head + ("+dirty" if dirty else "")


def hardware(device: torch.device) -> dict[str, object]:
    """The processor that computed."""
    info: dict[str, object] = {
        "machine": platform.machine(),
        "cpu": _cpu_model(),
        "threads": torch.get_num_threads(),
    }
    if device.type == "cuda":
        info["gpu"] = torch.cuda.get_device_name(device)
    return info


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
