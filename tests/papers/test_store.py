"""What is kept of a figure: whether it is current, what is refused, what its captions say."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pandas as pd
import pytest
from figures.make_results import rows, write_run
from papers.keep import NAME, keep, keep_runs
from run_files import Call

from fedbench import provenance
from fedbench.config.identity import run_hash
from fedbench.errors import DataError
from fedbench.figures.results import OUTCOMES, read
from fedbench.figures.style import WIDTHS
from fedbench.papers import FIGURES, command, figure, kept
from fedbench.papers.evidence import measured
from fedbench.papers.figure import Figure, shown
from fedbench.papers.kept import say_how_it_was_tuned


def test_check_says_what_is_stale(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fedbench: Call) -> None:
    """Absent, current, incomplete without a file, stale when the grid of a tuned algorithm is another one."""

    def check() -> tuple[int, list[str]]:
        code, said, _ = fedbench("figures", "--check")
        return code, re.findall(rf"^(\w+) .*{NAME}(?:,| --scale)", said, re.MULTILINE)

    assert check() == (0, ["no"])
    out = keep(
        tmp_path, {"adamasfl": 0.8}, scale="smoke", digest=figure.experiment(FIGURES[NAME], "smoke").digest
    )
    assert check() == (0, ["current"])
    (out / "updates.png").unlink()
    assert check() == (1, ["incomplete"])
    (out / "updates.png").write_bytes(b"png")
    read = figure.algorithm_file
    monkeypatch.setattr(figure, "algorithm_file", lambda name: {**read(name), "grid": {"lr": [0.123]}})
    assert check() == (1, ["stale"])


def test_a_figure_is_made_with_its_panels_and_one_without_its_data_does_not_stop_the_others(
    monkeypatch: pytest.MonkeyPatch, fedbench: Call
) -> None:
    """Its panels after it; exit code 1 after all of them. Asked for alone, it says it with its own code."""
    made = []

    def fails(one: Figure, scale: str, extra: object) -> list[str]:
        made.append(one.name)
        if one.name == "padamfed/fig1":
            raise DataError("data.root=data: no EMNIST there")
        return []

    monkeypatch.setattr(command, "make", fails)
    code, _, err = fedbench("figures", "padamfed/fig1", "speedup", "loss_scale")
    assert made == ["padamfed/fig1", "padamfed/fig1_average", "speedup", "loss_scale"]
    assert (code, err.count("\n")) == (1, 1)
    assert "padamfed/fig1: data.root=data: no EMNIST there" in err
    code, _, err = fedbench("figures", "padamfed/fig1")
    assert (code, "no EMNIST there" in err) == (2, True)
    made.clear()
    assert fedbench("figures", "padamfed/fig1_average")[0] == 0
    assert made == ["padamfed/fig1_average"]


def test_published_results_name_a_commit_that_they_were_made_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fedbench: Call
) -> None:
    """With changes that are not committed only smoke results are made."""
    monkeypatch.setattr(provenance, "commit", lambda: "0123456789abcdef+dirty")
    monkeypatch.setattr(command, "make", lambda *_: [])
    assert "commit first" in fedbench.refused("figures", "speedup", "--scale", "cpu")
    assert list(tmp_path.iterdir()) == []
    assert fedbench("figures", "speedup", "--scale", "smoke")[0] == 0


@pytest.mark.parametrize("packed", [False, True])
def test_a_kept_run_is_read_as_its_own_files_say_it(
    packed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two methods in two stages: choices, outcome, hyper-parameters, measurements, and what they were
    computed on; `threads` of the hardware is kept, that of the configuration, which changes no result, is
    not. A key that only one method has is no choice of the other, and null stays null. Many measurements are
    packed."""
    if packed:
        monkeypatch.setattr(kept, "LARGEST", 0)
    methods = (
        ("final", "padamfed", {"algorithm.lr": None, "algorithm.norm": "vector"}),
        ("final-lr", "fedavg", {"algorithm.lr": 0.1, "local.batch_size": None}),
    )
    for stage, name, more in methods:
        place = tmp_path / "sweeps" / stage / name
        config = {**more, "threads": 1, "model": "mlp", "model.hidden": [32, 16], "seed": 3}
        summary = write_run(place, rows(0.7, 0.6, 3), algorithm=name, seed=3, config=config,
                            hyper={"lr": 1e-05})  # fmt: skip
        own = {"hardware": {"cpu": "a, b", "threads": 1}, "data_note": "a.npz", "commit": "abc"}
        (place / "summary.json").write_text(json.dumps({**summary, **own}))
    (rounds,) = keep_runs(tmp_path).glob("rounds.csv*")
    if not packed:
        title, *lines = rounds.read_text().splitlines()
        rounds.write_text("\n".join([title, *lines[::-1]]))  # in whatever order
    assert rounds.suffix == (".gz" if packed else ".csv")
    assert len(measured(read([rounds.parent]))) == len(pd.read_csv(rounds)) > 0
    kept_runs = {Path(run.source).name: run for run in read([rounds.parent])}
    for run in read([tmp_path / "sweeps"]):
        kept_run = kept_runs[Path(run.source).name]
        assert kept_run.settings() == run.settings()
        assert "threads" not in kept_run.choices
        assert all(kept_run.summary.get(name) == run.summary.get(name) for name in OUTCOMES)
        assert kept_run.hyper == run.hyper
        pd.testing.assert_frame_equal(kept_run.metrics, run.metrics)
        assert {name: kept_run.summary[name] for name in own} == own


def test_no_committed_file_is_large() -> None:
    """Measurements of many runs are packed."""
    files = [one for one in (Path(__file__).parents[2] / "outputs/figures").rglob("*.*") if one.is_file()]
    assert [one for one in files if one.stat().st_size > kept.LARGEST] == []


@pytest.mark.parametrize("name", ["fig1_average", "fig2_average"])
def test_a_line_of_padamfed_names_its_norm(name: str) -> None:
    """PAdaMFed-VR's too, which has one norm there."""
    root = Path(__file__).parents[2]
    lines = pd.read_csv(shown(f"padamfed/{name}", "cpu", root) / "average.csv").series.unique()
    ours = [line for line in lines if line.startswith("PAdaMFed")]
    assert {line.split(",")[0] for line in ours} == {
        "PAdaMFed (vector)", "PAdaMFed (tensor)", "PAdaMFed-VR (vector)",
    }  # fmt: skip


def test_published_pictures_have_a_column_or_a_page_in_width() -> None:
    """At the 300 dots per inch that they are saved with: nothing is scaled, so text keeps its size."""
    pictures = list((Path(__file__).parents[2] / "outputs/figures").rglob("*.png"))
    widths = {int.from_bytes(picture.read_bytes()[16:20]) for picture in pictures}
    assert widths == {round(300 * inches) for inches in WIDTHS.values()}


@pytest.mark.slow  # the committed report is CI's
def test_kept_results_are_current() -> None:
    """No change of the code alone makes a committed figure stale, and each is a figure's."""
    root = Path(__file__).parents[2]
    published = [made.parent for made in (root / "outputs/figures").rglob("made.json")]
    states = {shown(name, scale, root): state for name, scale, state in kept.states(root)}
    assert published
    assert {place: states.get(place) for place in published} == dict.fromkeys(published, "current")


def test_kept_runs_are_named_after_their_identity() -> None:
    """So a default that changes is noticed here: the run would have another name if it was made today. Every
    measurement is of one of the runs."""
    places = [file.parent for file in (Path(__file__).parents[2] / "outputs/figures").rglob("runs.csv")]
    assert places
    for place in places:
        runs = read([place])
        for run in runs:
            assert run.source.endswith(f"-{run_hash(run.choices)}"), run.source
            assert len(run.metrics), run.source


@pytest.mark.parametrize(
    ("share", "whose"),
    [
        (None, "the test set"),
        (0.1, "held-out training samples (dataset.validation=0.1), with seeds that are not evaluated"),
    ],
)
def test_a_tuned_figures_caption_says_what_it_was_tuned_on(
    share: float | None, whose: str, tmp_path: Path
) -> None:
    """Once, in both files, and below a table; a figure without a search says nothing."""
    picture, said = tmp_path / "a.json", {"x": "round", "text": ["Mean over 3 seeds."]}
    for tuned in (False, True):
        picture.write_text(json.dumps(said))
        picture.with_suffix(".md").write_text("![a](a.png)\n\nMean over 3 seeds.\n")
        (table := tmp_path / "t.md").write_text("| a |\n| --- |\n| 1 |\n")
        if tuned:
            (tmp_path / "tuning.csv").write_text("")
        say_how_it_was_tuned(tmp_path, [tmp_path / "a.png", picture, tmp_path / "a.md", table], share)
        line = f" Hyper-parameters were chosen by the accuracy on {whose}." if tuned else ""
        assert json.loads(picture.read_text()) == {**said, "text": [f"Mean over 3 seeds.{line}"]}
        assert picture.with_suffix(".md").read_text() == f"![a](a.png)\n\nMean over 3 seeds.{line}\n"
        below = f"\n{line.lstrip()}\n" if tuned else ""
        assert table.read_text() == f"| a |\n| --- |\n| 1 |\n{below}"
