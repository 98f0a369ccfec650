"""Downloads, once: under a lock, into a staging directory, each file moved into place when all are whole."""

from __future__ import annotations

import contextlib
import http.client
import io
import logging
import os
import shutil
import socket
import tarfile
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from filelock import FileLock

from fedbench.errors import DataError

logger = logging.getLogger(__name__)
TIMEOUT = 30.0  # seconds without an answer before a server counts as unreachable
_FAILURES = (
    RuntimeError,  # torchvision: no mirror answered, or a checksum is wrong
    OSError,  # no network (URLError), time-outs, full or unwritable disks
    ValueError,
    EOFError,
    zlib.error,
    tarfile.TarError,
    zipfile.BadZipFile,
    http.client.HTTPException,
)


def fetch(
    name: str, root: Path, files: Sequence[str], archives: Sequence[str], download: Callable[[Path], None]
) -> None:
    """Make `files` (relative to `root`) exist, or raise DataError naming them.

    `download` fills a directory with `files`. `archives` (glob patterns relative to `root`) are copied there
    first: an archive that is there but not unpacked needs no network. Several processes may call this
    together: one of them works, the others wait and find the files.
    """
    staging = root / f".download-{name}"
    lock = root / f".{name}.lock"
    try:
        with _made(root), FileLock(lock), _removed_on_failure(lock):
            if not missing(root, files):
                return  # another process fetched them meanwhile
            logger.info("%s is not below %s: downloading it", name, root)
            shutil.rmtree(staging, ignore_errors=True)  # left behind by a killed process
            try:
                _copy(root, archives, staging)
                with _quiet():
                    download(staging)
                for file in files:
                    (root / file).parent.mkdir(parents=True, exist_ok=True)
                    os.replace(staging / file, root / file)
            finally:
                shutil.rmtree(staging, ignore_errors=True)
    except _FAILURES as error:
        absent = missing(root, files)
        where = ", ".join(str(root / file) for file in absent)
        reason = " ".join(str(error).split()) or type(error).__name__
        raise DataError(
            f"dataset={name}: not found: {root / name}.npz, nor {where}; and downloading failed: {reason}"
        ) from error


@contextlib.contextmanager
def _made(root: Path) -> Iterator[None]:
    """`root`, with the folders above it; those that were made here are gone again after a failure."""
    new = [folder for folder in (root, *root.parents) if not folder.exists()]
    root.mkdir(parents=True, exist_ok=True)
    try:
        yield
    except BaseException:
        with contextlib.suppress(OSError):  # not empty: another process works there
            for folder in new:
                folder.rmdir()
        raise


@contextlib.contextmanager
def _removed_on_failure(lock: Path) -> Iterator[None]:
    """The last act under the lock, so that whoever comes next finds nothing half-made."""
    try:
        yield
    except BaseException:
        lock.unlink(missing_ok=True)
        raise


def missing(root: Path, files: Sequence[str]) -> list[str]:
    """Those of `files` that do not exist below `root`."""
    return [file for file in files if not (root / file).is_file()]


def _copy(root: Path, patterns: Sequence[str], staging: Path) -> None:
    staging.mkdir(parents=True)
    for pattern in patterns:
        for archive in root.glob(pattern):
            target = staging / archive.relative_to(root)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(archive, target)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without progress bars and warnings, and without waiting for a silent server for ever."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(TIMEOUT)
    sink = io.StringIO()
    try:
        with contextlib.redirect_stdout(sink), contextlib.redirect_stderr(sink), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        socket.setdefaulttimeout(before)
