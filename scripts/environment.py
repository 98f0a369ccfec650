#!/usr/bin/env python3
"""Create or update .venv beside this folder, once per change of pyproject.toml; safe when several start.

    python3 scripts/environment.py [--dev]

Uses uv if it is found, else venv and pip. Prints nothing when there is nothing to do.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VENV = ROOT / ".venv"
STAMP = VENV / "fedbench-installed"
LOWEST = (3, 11)


def main() -> int:
    """Return 0 when .venv is ready."""
    if sys.version_info < LOWEST:
        print(
            f"fedbench needs Python >= {LOWEST[0]}.{LOWEST[1]}; this is {sys.version.split()[0]}",
            file=sys.stderr,
        )
        return 1
    dev = "--dev" in sys.argv[1:]
    if ready(dev):
        return 0
    with open(ROOT / ".venv.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not ready(dev):  # another process may have made it meanwhile
            make(dev)
    return 0


def ready(dev: bool) -> bool:
    """Whether the installation is what pyproject.toml asks for now."""
    try:
        installed = STAMP.read_text().split()
    except OSError:
        return False
    if not (VENV / "bin" / "python").exists() or not (VENV / "bin" / "fedbench").exists():
        return False
    return bool(installed) and installed[0] == wanted() and (not dev or "dev" in installed[1:])


def wanted() -> str:
    """A hash of what the installation depends on: the project file and the path of the checkout."""
    return hashlib.sha256((ROOT / "pyproject.toml").read_bytes() + str(ROOT).encode()).hexdigest()


def make(dev: bool) -> None:
    """Create .venv unless there is a usable one, and install the checkout into it in editable mode."""
    had_dev = STAMP.is_file() and "dev" in STAMP.read_text().split()
    STAMP.unlink(missing_ok=True)
    target = f"{ROOT}[dev]" if dev or had_dev else str(ROOT)
    python = VENV / "bin" / "python"
    uv = shutil.which("uv")
    print(f"fedbench: installing into {VENV} ({'uv' if uv else 'pip'}); this happens once", file=sys.stderr)
    usable = python.exists() and subprocess.run([python, "-c", ""]).returncode == 0
    if not usable:
        shutil.rmtree(VENV, ignore_errors=True)
    if uv:
        if not usable:
            run([uv, "venv", "--quiet", "--python", sys.executable, str(VENV)])
        # if processes may not save bytecode, compile torch's thousands of modules once (pip always does)
        once = ["--compile-bytecode"] if sys.dont_write_bytecode else []
        run([uv, "pip", "install", "--quiet", *once, "--python", str(python), "-e", target])
    else:
        if not usable:
            run([sys.executable, "-m", "venv", str(VENV)])
        run([str(python), "-m", "ensurepip", "--default-pip"], quiet=True)
        run([str(python), "-m", "pip", "install", "--quiet", "-e", target])
    STAMP.write_text(wanted() + (" dev" if dev or had_dev else "") + "\n")


def run(command: list[str], quiet: bool = False) -> None:
    """Run a command with its output on stderr; end this script with one line if it fails."""
    sink = subprocess.DEVNULL if quiet else sys.stderr
    # do not install into a virtual environment that happens to be active
    environment = {
        key: value for key, value in os.environ.items() if key not in ("VIRTUAL_ENV", "PYTHONHOME")
    }
    if subprocess.run(command, stdout=sink, stderr=sys.stderr, env=environment, cwd=ROOT).returncode:
        print(f"fedbench: failed: {' '.join(command)}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except OSError as error:
        print(f"fedbench: cannot make the environment: {error}", file=sys.stderr)
        sys.exit(1)
