"""What is kept of a figure: staleness, and the report's claims from kept tables alone."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from fedbench.cli import main
from fedbench.errors import DataError
from fedbench.figures.style import WIDTHS
from fedbench.papers import CLAIMS, FIGURES, PAPERS, figure, make
from fedbench.papers.claims import MADE
from fedbench.papers.figure import Figure, shown
from fedbench.papers.make import KEPT, write_kept
from fedbench.papers.report import BEGIN, END, write_report
from fedbench.runs import provenance

NAME = "adamasfl/fig1"


def keep(root: Path, digest: str, scale: str = "smoke") -> Path:
    """Results as `make` leaves them: two methods, two seeds, one diverged run."""
    out = shown(NAME, scale, root)
    out.mkdir(parents=True)
    rows = [
        {"dir": f"final/{name}-{seed}", "dataset": "fmnist", "partition": "dirichlet", "model": "cnn",
         "algorithm": name, "algorithm.norm": "vector", "schedule": "async", "seed": seed,
         "status": "completed", "final_accuracy": score, "best_accuracy": score}
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
        "figure": NAME, "scale": scale, "digest": digest,
        "files": ["updates.json", "updates.png", "updates.pdf"],
        "command": make.command(NAME, scale), "seeds": [0, 1],
        "shared": {"rounds": 12, "dataset": "digits", "model": "mlp"},
        "runs": {"completed": 4}, "commit": ["0123456789abcdef", "0123456789abcdef+dirty"],
    }  # fmt: skip
    (out / MADE).write_text(json.dumps(made))
    return out


def test_results_of_other_configurations_are_stale(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """absent, current, incomplete, then stale as soon as the grid of a tuned algorithm changes."""
    now = figure.experiment(FIGURES[NAME], "smoke").digest
    assert make.state(NAME, "smoke", tmp_path) == "absent"
    out = keep(tmp_path, now)
    assert make.state(NAME, "smoke", tmp_path) == "current"
    (out / "updates.png").unlink()
    assert make.state(NAME, "smoke", tmp_path) == "incomplete"
    (out / "updates.png").write_bytes(b"png")
    read = figure.algorithm_file
    monkeypatch.setattr(figure, "algorithm_file", lambda name: {**read(name), "grid": {"lr": [0.123]}})
    assert make.state(NAME, "smoke", tmp_path) == "stale"


def test_check_says_what_is_stale(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 1 and a line that names the figure and its scale."""
    keep(tmp_path, "0" * 12)
    monkeypatch.chdir(tmp_path)
    assert main(["figures", "--check"]) == 1
    assert f"stale       {NAME} --scale smoke" in capsys.readouterr().out


def test_the_report_is_made_from_what_is_kept(tmp_path: Path) -> None:
    """Pictures with captions, a page of claims, the ledger; text around the generated part stays."""
    keep(tmp_path, "0" * 12, "cpu")
    report = tmp_path / "outputs/README.md"
    report.write_text(f"# Mine\n\nkept\n\n{BEGIN}\noutdated words\n{END}\nalso kept\n")
    write_report(tmp_path)
    text = report.read_text()
    assert text.startswith("# Mine\n\nkept\n")
    assert text.endswith(f"{END}\nalso kept\n")
    assert "outdated words" not in text
    assert "![updates](figures/adamasfl/fig1/cpu/updates.png)" in text
    assert "*Four runs.*" in text
    assert "commit 0123456789, 0123456789 with changes that were not committed." in text
    assert "| highest | 80.00% +- 0.00%; fedbuff 70.00% +- 0.00% |" not in text  # three baselines are absent
    claims = pd.read_csv(tmp_path / "outputs/figures/claims.csv").set_index("claim")
    assert claims.loc["adamasfl-accuracy", "reason"].startswith("no runs of ca2fl, defedavg_niid")
    assert claims.loc["adamasfl-accuracy", "command"] == make.command(NAME, "cpu")
    ledger = (tmp_path / "outputs/ledger.md").read_text()
    assert all(claim.text in ledger for claim in CLAIMS)


def test_the_first_page_has_a_picture_and_ten_claims_a_paper(tmp_path: Path) -> None:
    """Of every paper, those of which it states a number or an order, with our number and the verdict."""
    write_report(tmp_path)
    text = (tmp_path / "outputs/README.md").read_text()
    for paper in PAPERS[:3]:
        rows = [claim for claim in paper.claims if claim.published]
        assert 5 < len(rows) <= 10
        assert paper.citation in text
        assert all(f"| {claim.text} | {claim.published} |" in text for claim in rows)
        name, file = paper.picture
        assert (Path(__file__).parents[2] / shown(name, FIGURES[name].scales[1]) / file).is_file()


def test_smoke_results_are_no_part_of_the_report(tmp_path: Path) -> None:
    """They and their report lie in a directory of their own, which is not committed; they decide no claim."""
    out = keep(tmp_path, "0" * 12)
    assert out == tmp_path / "outputs/smoke" / NAME
    write_report(tmp_path)
    assert "updates.png" not in (tmp_path / "outputs/README.md").read_text()
    before = {file: file.read_bytes() for file in (tmp_path / "outputs").glob("*.md")}
    report, _, csv = write_report(tmp_path, smoke=True)
    assert report == tmp_path / "outputs/smoke/README.md"
    assert f"![updates]({NAME}/updates.png)" in report.read_text()
    assert "with digits and mlp in place of the paper's data and model" in report.read_text()
    assert pd.read_csv(csv).set_index("claim").loc["adamasfl-accuracy", "verdict"] == "untested"
    assert before == {file: file.read_bytes() for file in (tmp_path / "outputs").glob("*.md")}


def test_published_results_name_a_commit_that_they_were_made_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With changes that are not committed only smoke results are made; older results say it in words."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(provenance, "commit", lambda: "0123456789abcdef+dirty")
    monkeypatch.setattr(make, "make", lambda *_: [])
    assert main(["figures", "speedup", "--scale", "cpu"]) == 2
    assert "commit first" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
    assert main(["figures", "speedup", "--scale", "smoke"]) == 0
    assert "dirty" not in (Path(__file__).parents[2] / "outputs/README.md").read_text()


def test_what_is_kept_of_a_run_says_on_what_it_was_computed(tmp_path: Path) -> None:
    """`threads` of the hardware is kept; that of the configuration, which changes no result, is not."""
    stage = tmp_path / "runs" / "final"
    (stage / "one").mkdir(parents=True)
    said = {"config": {"threads": 1, "rounds": 2}, "hardware": {"cpu": "a", "threads": 1}}
    (stage / "one" / "summary.json").write_text(json.dumps(said))
    write_kept(tmp_path, [stage], tmp_path)
    common = json.loads((tmp_path / KEPT).read_text())["common"]
    assert common == {"config/rounds": 2, "hardware/cpu": "a", "hardware/threads": 1}


def test_published_pictures_have_a_column_or_a_page_in_width() -> None:
    """At the 300 dots per inch that they are saved with: nothing is scaled, so text keeps its size."""
    pictures = list((Path(__file__).parents[2] / "outputs/figures").rglob("*.png"))
    widths = {int.from_bytes(picture.read_bytes()[16:20]) for picture in pictures}
    assert widths == {round(300 * inches) for inches in WIDTHS.values()}


def test_kept_results_are_current() -> None:
    """No change of the code alone makes a committed figure stale, and each is a figure's."""
    root = Path(__file__).parents[2]
    published = [made.parent for made in (root / "outputs/figures").rglob("made.json")]
    states = {shown(name, scale, root): state for name, scale, state in make.states(root)}
    assert published
    assert {place: states.get(place) for place in published} == dict.fromkeys(published, "current")


def test_a_figure_without_its_data_does_not_stop_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 1, after all of them; a figure asked for alone says it with its own exit code."""
    monkeypatch.chdir(tmp_path)
    made = []

    def fails(one: Figure, scale: str, extra: object) -> list[str]:
        made.append(one.name)
        if one.name == "padamfed/fig1":
            raise DataError("data.root=data: no EMNIST there")
        return []

    monkeypatch.setattr(make, "make", fails)
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
