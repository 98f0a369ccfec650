"""A figure drawn again from what is kept of it: the same files, without its runs and its data."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from fedbench.cli import main
from fedbench.papers.figure import shown

pytestmark = pytest.mark.slow
NAME = "speedup"


def test_a_picture_is_drawn_again_without_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Bytes of all files as they were, after the runs and the pictures are gone; it stays current."""
    monkeypatch.chdir(tmp_path)
    assert main(["figures", NAME, "--scale", "smoke"]) == 0
    out = shown(NAME, "smoke")
    before = {file.name: file.read_bytes() for file in out.iterdir() if file.is_file()}
    shutil.rmtree("outputs/runs")
    for file in out.glob("speedup.*"):
        file.unlink()
    assert main(["figures", NAME, "--scale", "smoke", "--redraw"]) == 0
    assert {file.name: file.read_bytes() for file in out.iterdir()} == before
    assert not Path("outputs/runs").exists()
    assert main(["figures", "--check"]) == 0
    capsys.readouterr()
    (out / "kept.json").unlink()
    assert main(["figures", NAME, "--scale", "smoke", "--redraw"]) == 2
    assert "cannot be redrawn" in capsys.readouterr().err
    assert main(["figures", NAME, "--scale", "smoke", "--redraw", "threads=1"]) == 2
    assert "nothing is computed" in capsys.readouterr().err
    assert main(["figures", "loss_scale", "--scale", "smoke", "--redraw"]) == 2
    assert "no results are kept" in capsys.readouterr().err
