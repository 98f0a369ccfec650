"""What is kept of a figure: staleness, and the report's claims from kept tables alone."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from fedbench.claims.evidence import MADE
from fedbench.cli import main
from fedbench.errors import DataError
from fedbench.papers import experiment, pipeline, store
from fedbench.papers.figure import Figure, shown
from fedbench.papers.registry import FIGURES
from fedbench.papers.report import BEGIN, END, REPORT, write_report

NAME = "adamasfl/fig1"


def keep(root: Path, digest: str) -> Path:
    """Results as `make` leaves them: two methods, two seeds, one diverged run."""
    out = shown(NAME, "smoke", root)
    out.mkdir(parents=True)
    rows = [
        {"dir": f"final/{name}-{seed}", "dataset": "fmnist", "partition": "dirichlet", "model": "cnn",
         "algorithm": name, "schedule": "async", "seed": seed, "status": "completed",
         "final_accuracy": score, "best_accuracy": score}
        for name, score in (("adamasfl", 0.8), ("fedbuff", 0.7))
        for seed in (0, 1)
    ]  # fmt: skip
    pd.DataFrame(rows).to_csv(out / "runs.csv", index=False)
    pd.DataFrame([{**row, "round": 1, "test_accuracy": 0.5} for row in rows]).to_csv(
        out / "rounds.csv", index=False
    )
    (out / "updates.png").write_bytes(b"png")
    (out / "updates.json").write_text(json.dumps({"text": ["Four runs."]}))
    made = {
        "figure": NAME, "scale": "smoke", "digest": digest,
        "files": ["updates.json", "updates.png", "updates.pdf"],
        "command": store.command(NAME, "smoke"), "shared": {"rounds": 12}, "seeds": [0, 1],
        "runs": {"completed": 4}, "commit": ["0123456789abcdef", "0123456789abcdef+dirty"],
    }  # fmt: skip
    (out / MADE).write_text(json.dumps(made))
    return out


def test_results_of_other_configurations_are_stale(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """absent, current, incomplete, then stale as soon as the grid of a tuned algorithm changes."""
    now = experiment.experiment(FIGURES[NAME], "smoke").digest
    assert store.state(NAME, "smoke", tmp_path) == "absent"
    out = keep(tmp_path, now)
    assert store.state(NAME, "smoke", tmp_path) == "current"
    (out / "updates.png").unlink()
    assert store.state(NAME, "smoke", tmp_path) == "incomplete"
    (out / "updates.png").write_bytes(b"png")
    read = experiment.algorithm_file
    monkeypatch.setattr(experiment, "algorithm_file", lambda name: {**read(name), "grid": {"lr": [0.123]}})
    assert store.state(NAME, "smoke", tmp_path) == "stale"


def test_check_says_what_is_stale(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 1 and a line that names the figure and its scale."""
    keep(tmp_path, "0" * 12)
    monkeypatch.chdir(tmp_path)
    assert main(["figures", "--check"]) == 1
    assert f"stale       {NAME} --scale smoke" in capsys.readouterr().out


def test_the_report_is_made_from_what_is_kept(tmp_path: Path) -> None:
    """Pictures with captions, all claims, and text around the generated part stays."""
    keep(tmp_path, "0" * 12)
    report = tmp_path / REPORT
    report.write_text(f"# Mine\n\nkept\n\n{BEGIN}\noutdated words\n{END}\nalso kept\n")
    write_report(tmp_path)
    text = report.read_text()
    assert text.startswith("# Mine\n\nkept\n")
    assert text.endswith(f"{END}\nalso kept\n")
    assert "outdated words" not in text
    assert "![updates](figures/adamasfl/fig1/smoke/updates.png)" in text
    assert "*Four runs.*" in text
    assert "commit 0123456789, 0123456789+dirty." in text
    claims = pd.read_csv(tmp_path / "outputs/figures/claims.csv").set_index("claim")
    row = claims.loc["adamasfl-accuracy"]
    assert row.verdict == "untested at this scale"  # a smoke run proves nothing
    assert claims.loc["adamasfl-accuracy", "command"] != ""


def test_a_figure_without_its_data_does_not_stop_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 1, after all of them; a figure asked for alone says it with its own exit code."""
    monkeypatch.chdir(tmp_path)
    made = []

    def make(figure: Figure, scale: str, extra: object) -> list[str]:
        made.append(figure.name)
        if figure.name == "padamfed/fig1":
            raise DataError("data.root=data: no EMNIST there")
        return []

    monkeypatch.setattr(pipeline, "make", make)
    assert main(["figures", "padamfed/fig1", "speedup", "loss_scale"]) == 1
    assert made == ["padamfed/fig1", "speedup", "loss_scale"]
    err = capsys.readouterr().err
    assert "padamfed/fig1: data.root=data: no EMNIST there" in err
    assert err.count("\n") == 1
    assert main(["figures", "padamfed/fig1"]) == 2
    assert "no EMNIST there" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["figures"], "--all"),
        (["figures", "padamfed/fig3"], "padamfed/fig"),
        (["figures", "padamfed/fig1", "rounds=3"], "rounds=3"),
        (["figures", "padamfed/fig1", "--scale", "huge"], "huge"),
    ],
)
def test_bad_input_is_one_line(
    argv: list[str],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Exit code 2, nothing written."""
    monkeypatch.chdir(tmp_path)
    assert main(argv) == 2
    err = capsys.readouterr().err
    assert words in err
    assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
