"""Curves: what is drawn is what the CSV says, names never overlap, files are whole and fit for print."""

from __future__ import annotations

import csv
import json
import re
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from look_at import caption_of, outside, overlaps, texts
from make_results import comparison, rows, write_run, write_sweep
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from PIL import Image

from fedbench.errors import ConfigError, DataError, RunError
from fedbench.figures import style
from fedbench.figures.drawing import draw
from fedbench.figures.lines import PlotOptions
from fedbench.figures.page import Page

FEW = ["fedavg", "scaffold", "padamfed"]
ALL = list(style.ALGORITHMS)


def means(page: Page) -> dict[str, np.ndarray]:
    """The drawn mean lines, (points, 2), by colour."""
    lines = [line for ax in page.figure.axes for line in ax.lines if line.get_gid() == "mean"]
    return {to_hex(line.get_color()).upper(): np.asarray(line.get_xydata()) for line in lines}


def expected(sweep: Path, x: str = "round") -> dict[str, dict[float, list[float]]]:
    """algorithm -> x -> accuracies over seeds, read from rounds.csv with the csv module alone."""
    table: dict[str, dict[float, list[float]]] = defaultdict(lambda: defaultdict(list))
    with (sweep / "rounds.csv").open() as file:
        for row in csv.DictReader(file):
            table[row["algorithm"]][float(row[x])].append(float(row["test_accuracy"]))
    return table


def diverging(path: Path) -> Path:
    """FedAvg loses one seed of three, SCAFFOLD all three, PAdaMFed none."""
    runs = []
    for rank, name in enumerate(FEW):
        for seed in range(3):
            lost = name == "scaffold" or (name == "fedavg" and seed == 1)
            made = rows(0.8 + 0.03 * rank, 0.6, seed, stop=40 if lost else None)
            status = "diverged" if lost else "completed"
            runs.append({"metrics": made, "algorithm": name, "seed": seed, "status": status})
    return write_sweep(path, runs, ["algorithm", "seed"])


def test_lines_and_bands_are_mean_and_standard_deviation(tmp_path: Path, drawn: Callable[..., Page]) -> None:
    sweep = comparison(tmp_path, FEW)
    page = drawn([sweep])
    lines, table = means(page), expected(sweep)
    bands = {
        to_hex(band.get_facecolor()[0]).upper(): band.get_paths()[0].vertices
        for band in page.figure.axes[0].collections
        if isinstance(band, PolyCollection)
    }
    for name, values in table.items():
        colour = style.ALGORITHMS[name].colour
        mean = np.array([[x, np.mean(v)] for x, v in values.items()])
        np.testing.assert_allclose(lines[colour], mean, rtol=1e-12)
        edges = {(round(x, 6), round(y, 9)) for x, y in bands[colour]}
        for x, v in values.items():
            for sign in (-1, 1):
                assert (round(x, 6), round(np.mean(v) + sign * np.std(v, ddof=1), 9)) in edges


@pytest.mark.parametrize("width", ["one", "two"])
@pytest.mark.parametrize("count", [3, 8, 15, 37])
def test_no_text_overlaps_or_leaves_the_page(
    tmp_path: Path, drawn: Callable[..., Page], count: int, width: str
) -> None:
    names = [name for name in ALL if name != "fedavg"]
    sweep = comparison(tmp_path, ["fedavg", *names[: count - 1]], seeds=2)
    page = drawn([sweep], width=width)
    assert overlaps(page) == []
    assert outside(page) == []
    assert {style.ALGORITHMS[name].label for name in ["fedavg", *names[: count - 1]]} <= {
        " ".join(t.split()) for t, _ in texts(page)
    }
    assert page.figure.get_figwidth() == style.WIDTHS[width]
    assert page.figure.get_figheight() < 9.5
    assert min(text.get_fontsize() for text in page.figure.findobj(lambda a: hasattr(a, "get_fontsize"))) >= 8


def test_equal_accuracies_do_not_stack_their_names(tmp_path: Path, drawn: Callable[..., Page]) -> None:
    made = rows(0.8, 1.0, 0)
    runs = [{"metrics": made, "algorithm": name, "seed": 0} for name in ALL[:8]]
    page = drawn([write_sweep(tmp_path, runs, ["algorithm"])])
    assert overlaps(page) == []


def test_an_algorithm_has_one_colour_in_every_figure(tmp_path: Path, drawn: Callable[..., Page]) -> None:
    seen = []
    for place, names in (("a", FEW), ("b", ["fedadam", "padamfed", "led"]), ("c", ALL[:12])):
        sweep = comparison(tmp_path / place, names, seeds=1)
        last = expected(sweep)["padamfed"][100.0]
        found = [colour for colour, line in means(drawn([sweep])).items() if line[-1, 1] in last]
        seen += found
    assert set(seen) == {style.ALGORITHMS["padamfed"].colour}


def test_diverged_runs_are_shown_and_not_averaged(tmp_path: Path, drawn: Callable[..., Page]) -> None:
    sweep = diverging(tmp_path)
    page = drawn([sweep], caption=True)
    crosses = [line for line in page.figure.axes[0].lines if line.get_gid() == "diverged"]
    assert len(crosses) == 4
    page.figure.canvas.draw()
    image = np.asarray(page.figure.canvas.buffer_rgba())[::-1, :, :3]  # type: ignore[attr-defined]
    for cross in crosses:
        x, y = page.figure.axes[0].transData.transform(cross.get_xydata())[0]
        assert 0 < x < image.shape[1]
        assert 0 < y < image.shape[0]
        colour = [int(to_hex(cross.get_color())[i : i + 2], 16) for i in (1, 3, 5)]
        near = image[int(y) - 8 : int(y) + 8, int(x) - 8 : int(x) + 8].reshape(-1, 3).astype(int)
        assert (np.abs(near - colour).sum(axis=1) < 30).any()
    values = expected(sweep)["fedavg"]
    with (sweep / "rounds.csv").open() as file:
        kept = [r for r in csv.DictReader(file) if r["algorithm"] == "fedavg" and r["seed"] in "02"]
    line = means(page)[style.ALGORITHMS["fedavg"].colour]
    assert line[-1, 1] == pytest.approx(
        np.mean([float(r["test_accuracy"]) for r in kept if r["round"] == "100"])
    )
    assert len(values[40.0]) == 3
    assert "Diverged (×), not in the mean: FedAvg (1 of 3); SCAFFOLD (3 of 3)." in caption_of(page)
    assert style.ALGORITHMS["scaffold"].label in {text for text, _ in texts(page)}


def test_a_picture_holds_no_paragraph_unless_asked(tmp_path: Path, drawn: Callable[..., Page]) -> None:
    assert caption_of(drawn([comparison(tmp_path / "s", FEW)])) == ""
    page = drawn([diverging(tmp_path / "d")])
    assert caption_of(page) == ""
    assert {"diverged", "n = 3 seeds"} <= {text for text, _ in texts(page)}


def test_an_exploding_loss_does_not_flatten_the_others(tmp_path: Path, drawn: Callable[..., Page]) -> None:
    page = drawn([diverging(tmp_path)], y="test_loss")  # up to 1e40
    assert page.figure.axes[0].get_ylim()[1] < 3


def test_when_all_runs_diverged_they_are_still_drawn(tmp_path: Path, drawn: Callable[..., Page]) -> None:
    write_run(tmp_path, rows(0.8, 0.6, 0, stop=30), status="diverged")
    page = drawn([tmp_path])
    assert means(page) == {}
    assert [line.get_gid() for line in page.figure.axes[0].lines].count("diverged") == 1


def test_one_seed_and_one_evaluation(tmp_path: Path, drawn: Callable[..., Page]) -> None:
    write_run(tmp_path, rows(0.8, 0.6, 0, last=0))
    page = drawn([tmp_path], caption=True)
    assert [len(line) for line in means(page).values()] == [1]
    assert "n = 1 seed (0); no band" in caption_of(page)


def test_virtual_times_of_seeds_differ_and_are_interpolated(
    tmp_path: Path, drawn: Callable[..., Page]
) -> None:
    for seed, times, values in ((0, [0, 2, 4], [0, 0.2, 0.4]), (1, [0, 1, 3], [0, 0.2, 0.6])):
        made = rows(0.8, 0.6, seed, last=10)
        for row, time, value in zip(made, times, values, strict=True):
            row.update(virtual_time=time, test_accuracy=value)
        write_run(tmp_path / str(seed), made, seed=seed)
    (line,) = means(drawn([tmp_path], x="virtual_time")).values()
    np.testing.assert_allclose(line, [[0, 0], [1, 0.15], [2, 0.3], [3, 0.45]])  # y = 0.1 x and y = 0.2 x


@pytest.mark.parametrize(
    ("schedules", "label"),
    [(["async", "async"], "Server update"), (["async", "sync"], "Round"), (["sync", "sync"], "Round")],
)
def test_a_round_is_called_a_server_update_where_all_runs_are_asynchronous(
    tmp_path: Path, drawn: Callable[..., Page], schedules: list[str], label: str
) -> None:
    for seed, schedule in enumerate(schedules):
        write_run(tmp_path / str(seed), rows(0.8, 0.6, seed), config={"schedule": schedule}, seed=seed)
    page = drawn([tmp_path], by=["schedule"])
    assert page.figure.axes[0].get_xlabel() == label


def test_logarithmic_axes(tmp_path: Path, drawn: Callable[..., Page]) -> None:
    page = drawn([comparison(tmp_path, FEW)], y="test_loss", log=("y",))
    assert page.figure.axes[0].get_yscale() == "log"
    assert overlaps(page) == []


def test_a_logarithmic_x_axis_begins_with_the_first_evaluation_after_zero(
    tmp_path: Path, drawn: Callable[..., Page]
) -> None:
    sweep = diverging(tmp_path / "s")
    assert {0.0} < set(expected(sweep)["padamfed"])
    page = drawn([sweep], log=("x",))
    drawn_lines = [np.asarray(line.get_xdata()) for line in page.figure.axes[0].lines]
    bands = [band.get_paths()[0].vertices for band in page.figure.axes[0].collections]
    assert bands
    assert min(min(x) for x in drawn_lines) == min(v[:, 0].min() for v in bands) == 5


@pytest.mark.pdf
def test_files_for_print(tmp_path: Path) -> None:
    files = draw([comparison(tmp_path / "s", FEW)], PlotOptions()).save(tmp_path / "out" / "acc.png")
    assert [file.name for file in files] == ["acc.png", "acc.pdf", "acc.csv", "acc.json", "acc.md"]
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == sorted(file.name for file in files)
    png, pdf, table, said, text = files
    with Image.open(png) as image:
        pixels = np.asarray(image.convert("RGB")).reshape(-1, 3)
        assert image.width == round(3.25 * 300)
        assert image.info["dpi"][0] == pytest.approx(300, abs=0.1)
    assert (pixels.min(axis=1) < 200).mean() > 0.01
    for name in FEW:
        colour = [int(style.ALGORITHMS[name].colour[i : i + 2], 16) for i in (1, 3, 5)]
        assert (pixels == colour).all(axis=1).sum() > 200
    fonts = pdf.read_bytes()
    assert b"/Type3" not in fonts
    assert re.search(rb"/Subtype /(CIDFontType2|TrueType)", fonts)
    box = re.search(rb"/MediaBox \[ ?0 0 ([0-9.]+)", fonts)
    assert box
    assert float(box[1]) == pytest.approx(3.25 * 72)
    with table.open() as file:
        drawn_rows = list(csv.DictReader(file))
    assert len(drawn_rows) == 3 * 21
    values = expected(tmp_path / "s")
    for row in drawn_rows:
        seeds = values[row["algorithm"]][float(row["round"])]
        assert float(row["test_accuracy_mean"]) == pytest.approx(np.mean(seeds), rel=1e-12)
        assert float(row["test_accuracy_high"]) == pytest.approx(
            np.mean(seeds) + np.std(seeds, ddof=1), rel=1e-12
        )
        assert row["n"] == "3"
    caption = json.loads(said.read_text())
    assert caption["band"] == "band: ±1 sample standard deviation"
    assert [line["seeds"] for line in caption["series"]] == [[0, 1, 2]] * 3
    assert caption["settings"]["partition.alpha"] == 0.5
    assert "Fashion-MNIST, CNN, Dirichlet(0.5), N=100, S=10, K=5, B=32" in caption["text"][0]
    assert caption["sources"] == [f"{tmp_path.name}/s"]
    assert text.read_text().splitlines() == ["![acc](acc.png)", "", *caption["text"]]


@pytest.mark.pdf
def test_the_same_results_give_the_same_bytes(tmp_path: Path) -> None:
    sweep = comparison(tmp_path / "s", FEW)
    first = [file.read_bytes() for file in draw([sweep], PlotOptions()).save(tmp_path / "f")]
    assert first == [file.read_bytes() for file in draw([sweep], PlotOptions()).save(tmp_path / "f")]


def test_a_failed_write_leaves_the_old_figure_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sweep = comparison(tmp_path / "s", ["fedavg"])
    (tmp_path / "f.png").write_text("old")
    save = Figure.savefig

    def full(self: Figure, name: Path, *args: object, **more: object) -> None:
        save(self, name, *args, **more)
        if str(name).endswith(".tmp") and ".pdf" in str(name):
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(Figure, "savefig", full)
    with pytest.raises(RunError, match="No space left"):
        draw([sweep], PlotOptions()).save(tmp_path / "f")
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["f.png"]
    assert (tmp_path / "f.png").read_text() == "old"


def test_bad_columns_and_choices_are_named(tmp_path: Path) -> None:
    sweep = comparison(tmp_path / "s", ["fedavg"], seeds=1)
    with pytest.raises(ConfigError, match="did you mean 'test_accuracy'"):
        draw([sweep], PlotOptions(y="accuracy")).save(tmp_path / "f")
    with pytest.raises(DataError, match=r"train_loss.*empty.*eval.train=true"):
        draw([sweep], PlotOptions(y="train_loss")).save(tmp_path / "f")
    with pytest.raises(ConfigError, match="spread=sd"):
        draw([sweep], PlotOptions(spread="sd")).save(tmp_path / "f")
    with pytest.raises(ConfigError, match="width=three"):
        draw([sweep], PlotOptions(width="three")).save(tmp_path / "f")
    with pytest.raises(ConfigError, match="did you mean 'algorithm'"):
        draw([sweep], PlotOptions(by=("algoritm",))).save(tmp_path / "f")
    assert not list(tmp_path.glob("f*"))


def test_a_series_without_the_column_is_said_not_drawn(tmp_path: Path, drawn: Callable[..., Page]) -> None:
    measured = rows(0.8, 1.0, 0)
    for row in measured:
        row["grad_norm"] = 1.0
    write_run(tmp_path / "a", measured, algorithm="fedavg")
    write_run(tmp_path / "b", rows(0.8, 1.0, 0), algorithm="led")
    page = drawn([tmp_path], y="grad_norm", caption=True)
    assert len(means(page)) == 1
    assert "Without grad_norm, not drawn: LED." in caption_of(page)


def test_a_part_is_drawn_larger_and_several_keys_make_panels(
    tmp_path: Path, drawn: Callable[..., Page]
) -> None:
    """Two data sets with a model each; the inset has the means of the same runs within its own limits."""
    for name, model in (("mnist", "cnn"), ("fmnist", "logistic")):
        config = {"dataset": name, "model": model}
        write_run(tmp_path / name, rows(0.8, 0.6, 0), config=config)
    page = drawn([tmp_path], rows="dataset,model", width="two", inset=(50, 100, 0.7, 0.9))
    panels = [ax for ax in page.figure.axes if ax.get_gid() != "inset"]
    assert {ax.get_title() for ax in panels} == {"MNIST, CNN", "Fashion-MNIST, softmax regression"}
    for ax in panels:
        (inset,) = ax.child_axes
        assert (inset.get_xlim(), inset.get_ylim()) == ((50, 100), (0.7, 0.9))
        (line,) = (line for line in ax.lines if line.get_gid() == "mean")
        np.testing.assert_array_equal(inset.lines[0].get_xydata(), line.get_xydata())
