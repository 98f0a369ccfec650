"""Every figure and table at smoke scale, from one command and nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from fedbench.cli import main
from fedbench.papers import CLAIMS, FIGURES
from fedbench.papers.figure import shown

pytestmark = pytest.mark.slow


def test_every_figure_is_made_at_smoke_scale_and_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Tuned, run, drawn, kept with its provenance, current, in the report; no claim is decided by smoke."""
    monkeypatch.chdir(tmp_path)
    assert main(["figures", "--all", "--scale", "smoke"]) == 0
    for name, figure in FIGURES.items():
        out = shown(name, "smoke")
        made = json.loads((out / "made.json").read_text())
        assert made["files"], name
        assert all((out / file).stat().st_size > 0 for file in made["files"]), name
        pictures = {Path(file).stem for file in made["files"] if file.endswith(".png")}
        for stem in pictures:
            assert {f"{stem}.{end}" for end in ("csv", "json", "pdf", "png")} <= set(made["files"]), name
        if figure.runs:
            runs = pd.read_csv(out / "runs.csv")
            assert set(runs.status) <= {"completed", "diverged"}, name
            assert made["runs"] == runs.status.value_counts().to_dict(), name
        assert (out / "tuning.csv").is_file() == bool(figure.tuned or figure.search), name
    claims = pd.read_csv("outputs/smoke/claims.csv")
    assert list(claims.claim.unique()) == [claim.name for claim in CLAIMS]
    needs_more = [claim.name for claim in CLAIMS if claim.scale != "smoke"]
    assert set(claims[claims.claim.isin(needs_more)].verdict) == {"cannot tell"}
    report = Path("outputs/smoke/README.md").read_text()
    assert all(f"**[{name}]({name}/README.md)**" in report for name in FIGURES)
    assert sorted(path.name for path in Path("outputs").iterdir()) == ["runs", "smoke"]  # nothing to commit
    capsys.readouterr()
    assert main(["figures", "--check"]) == 0
    assert "no results" not in capsys.readouterr().out
