#!/usr/bin/env python3
"""Create or update .venv beside this folder, once per change of pyproject.toml; safe when several start.

    python3 scripts/environment.py [--dev]

Uses uv: the one on the path, else it fetches uv (one wheel of about 25 MB) into .venv. Where uv cannot be had
it uses pip, which takes minutes. Says what it does and shows its progress; prints nothing when there is
nothing to do. A torch that .venv already has is kept if it is new enough, so a smaller build can be put there
first.
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
SIZE = """\
fedbench: with CUDA's libraries, which torch brings along on Linux, this fetches about 3 GB and takes
  5.5 GB of disk. A smaller torch that is in .venv already is kept. Without a GPU stop this with Ctrl-C, give
    {python} -m venv --clear {venv}
    {venv}/bin/pip install FILE.whl    (a wheel of torch that you have, or the line for "CPU" of pytorch.org)
  and then the same command again."""


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
    usable = python.exists() and subprocess.run([python, "-c", ""]).returncode == 0
    print(f"fedbench: installing into {VENV}; this happens once", file=sys.stderr)
    if not any(VENV.glob("lib/python*/site-packages/torch")):
        print(SIZE.format(python=sys.executable, venv=VENV), file=sys.stderr)
    if not usable:
        shutil.rmtree(VENV, ignore_errors=True)
        run([sys.executable, "-m", "venv", "--without-pip", str(VENV)])
    uv = uv_of(python)
    if uv:
        # if processes may not save bytecode, compile torch's thousands of modules once (pip always does)
        once = ["--compile-bytecode"] if sys.dont_write_bytecode else []
        run([uv, "pip", "install", *once, "--python", str(python), "-e", target])
    else:
        print(
            "fedbench: uv cannot be had here; pip takes minutes, and is silent while it unpacks",
            file=sys.stderr,
        )
        run([str(python), "-m", "ensurepip", "--default-pip"], quiet=True)
        run([str(python), "-m", "pip", "install", "-e", target])
    STAMP.write_text(wanted() + (" dev" if dev or had_dev else "") + "\n")


def uv_of(python: Path) -> str | None:
    """The uv on the path, else the one in .venv, fetched if need be; None if it cannot be had."""
    for uv in (shutil.which("uv"), str(VENV / "bin" / "uv")):
        if uv and succeeds([uv, "--version"]):
            return uv
    print("fedbench: fetching uv, which installs the rest", file=sys.stderr)
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "uv"]
    fetched = succeeds([str(python), "-m", "ensurepip", "--default-pip"]) and succeeds(pip)
    return str(VENV / "bin" / "uv") if fetched else None


def succeeds(command: list[str]) -> bool:
    """Run a command in silence; say whether it worked."""
    try:
        return not subprocess.run(command, capture_output=True, env=environment(), cwd=ROOT).returncode
    except OSError:
        return False


def environment() -> dict[str, str]:
    """The environment without a virtual environment that happens to be active."""
    return {key: value for key, value in os.environ.items() if key not in ("VIRTUAL_ENV", "PYTHONHOME")}


def run(command: list[str], quiet: bool = False) -> None:
    """Run a command with its output on stderr; end this script with one line if it fails."""
    sink = subprocess.DEVNULL if quiet else sys.stderr
    if subprocess.run(command, stdout=sink, stderr=sys.stderr, env=environment(), cwd=ROOT).returncode:
        print(f"fedbench: failed: {' '.join(command)}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except OSError as error:
        print(f"fedbench: cannot make the environment: {error}", file=sys.stderr)
        sys.exit(1)
