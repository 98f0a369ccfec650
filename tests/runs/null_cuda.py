"""A CUDA device that computes nothing, where one is at hand (../shared/tools/nullcuda): libraries in
place of CUDA's, so that torch's CUDA code runs and what it asks of a device is counted.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from filelock import FileLock

SOURCE = Path(__file__).parents[3] / "shared" / "tools" / "nullcuda"
TESTS = Path(__file__).parents[1]


def built() -> Path:
    """The null device's libraries, built once for this torch in the user's cache; skips with the reason where
    they cannot be."""
    import torch

    if not SOURCE.is_dir():
        pytest.skip(f"no null CUDA device: there is no {SOURCE}")
    if torch.version.cuda is None:
        pytest.skip("no null CUDA device: this torch was built without CUDA")
    if torch.cuda.is_available():
        pytest.skip("there is a CUDA device")
    if not all(map(shutil.which, ("gcc", "g++", "nm"))):
        pytest.skip("no null CUDA device: gcc, g++ and nm build it")
    sources = sorted(file for file in SOURCE.rglob("*") if file.suffix in (".cpp", ".sh", ".py"))
    made_of = "".join(file.read_text() for file in sources) + torch.__version__ + sys.prefix
    name = hashlib.sha256(made_of.encode()).hexdigest()[:12]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fedbench-test-nullcuda"
    cache.mkdir(parents=True, exist_ok=True)
    place = cache / name
    with FileLock(cache / f"{name}.lock"):
        if not (place / "python").is_file():
            command = ["sh", str(SOURCE / "build.sh"), sys.executable, str(place)]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                pytest.skip(f"no null CUDA device: {done.stderr.strip()[-200:]}")
    return place


def _environment(place: Path) -> dict[str, str]:
    paths = [TESTS.parent, TESTS, TESTS / "algorithms", TESTS / "runs"]
    return {
        **os.environ,
        "NULLCUDA": str(place),
        "PYTHONPATH": os.pathsep.join(map(str, paths)),
        "FEDBENCH_CACHE": str(place / "programs"),
        "OMP_NUM_THREADS": "1",
    }


def python(place: Path, *arguments: str, seconds: float = 600) -> subprocess.CompletedProcess[str]:
    """Python with the null device, and this checkout's package and tests."""
    environment = _environment(place)
    command = ["sh", str(SOURCE / "nullpy"), *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, env=environment, timeout=seconds, cwd=TESTS.parent
    )


def script(
    place: Path, name: str, *arguments: str, seconds: float = 1800
) -> subprocess.CompletedProcess[str]:
    """A script of this checkout whose PYTHON is one with the null device and the CPU's values."""
    interpreter = place / "with_values"
    environment = _environment(place)
    interpreter.write_text(f'#!/bin/sh\nNULLCUDA_IMPORT=emulplug exec sh "{SOURCE}/nullpy" "$@"\n')
    interpreter.chmod(0o755)
    return subprocess.run(
        [str(TESTS.parent / name), *arguments],
        capture_output=True, text=True, env={**environment, "PYTHON": str(interpreter)}, timeout=seconds,
    )  # fmt: skip
