"""The command line in an empty directory."""

from __future__ import annotations

from pathlib import Path

import pytest
from run_files import Call


@pytest.fixture
def fedbench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    monkeypatch.chdir(tmp_path)
    return Call(capsys)
