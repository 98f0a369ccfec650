"""Which bytes were read: path, size and hash of every data file."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any


def file_record(path: Path) -> dict[str, Any]:
    """{"path", "bytes", "sha256"} of a file, read in blocks."""
    with path.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    return {"path": str(path), "bytes": path.stat().st_size, "sha256": digest}
