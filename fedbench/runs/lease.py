"""Who computes a run where several hosts share a file system: a lease in the run's directory.

The lock of the directory says it at once and dies with its process, but not between hosts on every file
system. So who has the lock keeps a lease too: its host and a token, renewed now and then. Another host's
lease counts until it has not been renewed for LASTS seconds by the file system's clock: hosts die, and clocks
differ.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
import threading
from pathlib import Path

from fedbench.errors import RunError
from fedbench.files import read_json

NAME = ".lease"
RENEWED, LASTS = 10.0, 60.0  # seconds


class InUse(RunError):
    """Another process computes the run."""


def host() -> str:
    """This machine, and no other of the same name."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    return " ".join([socket.gethostname(), boot.read_text().strip() if boot.is_file() else ""]).strip()


def other_host(directory: Path, clock: Path) -> str | None:
    """The host, not this one, that has the run in `directory`; None: no other has it.

    `clock`: a file of ours beside it, whose time is set to learn the file system's time.
    """
    file = directory / NAME
    try:
        renewed = file.stat().st_mtime
    except FileNotFoundError:
        return None
    name = str((read_json(file) or {}).get("host", "another host"))
    if name == host():
        return None  # the lock says it
    os.utime(clock)
    return name.split()[0] if clock.stat().st_mtime - renewed < LASTS else None


class Lease:
    """A lease that is held, and renewed by a thread until it is given up."""

    def __init__(self, directory: Path, clock: Path) -> None:
        """Take it; InUse where another host has it. Who calls holds the lock among this host's processes."""
        self.file, self.token = directory / NAME, secrets.token_hex(8)
        self.lost = False
        self._ended = threading.Event()
        there = read_json(self.file)
        name = other_host(directory, clock)
        if name is None and self.file.exists():
            name = self._clear(there)
        if name is None:
            name = self._create()
        if name is not None:
            raise InUse(f"{directory} is in use by another process on {name}")
        self._renewing = threading.Thread(target=self._renew, daemon=True)
        self._renewing.start()

    def check(self) -> None:
        """Raise RunError where another host has taken the run over, as from one that seemed dead."""
        self.lost = self.lost or not self._mine()
        if self.lost:
            raise RunError(f"{self.file.parent} was taken over by another host, which took this one for dead")

    def release(self) -> None:
        """Give it up."""
        self._ended.set()
        self._renewing.join(1.0)  # none is left when the interpreter ends
        if self._mine():
            with contextlib.suppress(OSError):
                self.file.unlink()

    def _create(self) -> str | None:
        try:
            descriptor = os.open(self.file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
        except FileExistsError:
            return str((read_json(self.file) or {}).get("host", "another host")).split()[0]
        with open(descriptor, "w") as stream:
            json.dump({"host": host(), "token": self.token}, stream)
        return None

    def _clear(self, there: dict[str, object] | None) -> str | None:
        """Take away the lease of a dead process; who has been quicker, where it is another one by now."""
        aside = self.file.with_name(f"{NAME}.{self.token}")
        try:
            os.rename(self.file, aside)
        except FileNotFoundError:
            return None
        found = read_json(aside)
        if found != there:
            with contextlib.suppress(OSError):
                os.link(aside, self.file)
        aside.unlink()
        return None if found == there else str((found or {}).get("host", "another host")).split()[0]

    def _mine(self) -> bool:
        return (read_json(self.file) or {}).get("token") == self.token

    def _renew(self) -> None:
        while not self._ended.wait(RENEWED):
            if not self._mine():
                self.lost = True
                return
            with contextlib.suppress(OSError):
                os.utime(self.file)
