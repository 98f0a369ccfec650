"""A figure as a page and as files: nothing overlaps, text is as it is, files are whole and fit for print."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from look_at import laid_out, outside, overlaps, texts
from make_results import comparison, exact, write_run, write_sweep
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from PIL import Image
from test_figure_artists import LR, legend, sweep

from fedbench.errors import RunError
from fedbench.figures import style
from fedbench.figures.drawing import draw
from fedbench.figures.lines import PlotOptions
from fedbench.figures.page import Page, sheet

ALL = list(style.ALGORITHMS)


@pytest.mark.parametrize(
    ("x", "count", "width"),
    [
        ("round", 3, "one"),
        ("round", 8, "two"),
        ("round", 16, "two"),
        (LR, 3, "two"),
        (LR, 12, "one"),
        pytest.param("round", 37, "one", marks=pytest.mark.slow),
        pytest.param("round", 37, "two", marks=pytest.mark.slow),
    ],
)
def test_no_text_overlaps_or_leaves_the_page(tmp_path: Path, x: str, count: int, width: str) -> None:
    """Of few lines and of many, also of equal heights, with crosses, theorems and a caption; nothing is
    smaller than 8 points, and every panel has room."""
    names = ("padamfed", *(name for name in ALL if name != "padamfed"))[:count]
    place = sweep(tmp_path, names) if x == LR else comparison(tmp_path, list(names), seeds=2)
    page = laid_out(draw([place], PlotOptions(x, width=width, caption=count == 3)))
    assert (overlaps(page), outside(page)) == ([], [])
    labels = {style.ALGORITHMS[name].label for name in names}
    assert labels <= {" ".join(text.split()) for text, _ in texts(page)}
    assert page.figure.get_figwidth() == style.WIDTHS[width]
    assert page.figure.get_figheight() < 9.5
    assert min(text.get_fontsize() for text in page.figure.findobj(lambda a: hasattr(a, "get_fontsize"))) >= 8
    assert all(ax.get_window_extent().height > 0.4 * page.figure.dpi for ax in page.figure.findobj(Axes))


def test_a_title_is_no_wider_than_its_panel(tmp_path: Path) -> None:
    """Twelve panels of three keys, of which one alone has a long title, above a caption."""
    keys = ("dataset.iid", "dataset.alpha", "participation.stragglers")
    for rank in range(12):
        values = (rank > 8, float(rank), 0.123456789)
        write_run(tmp_path / str(rank), exact([0.1, 0.5]), config=dict(zip(keys, values, strict=True)))
    page = laid_out(draw([tmp_path], PlotOptions(rows=",".join(keys), width="two", caption=True)))
    for ax in page.figure.axes:
        assert ax.title.get_window_extent().width < ax.get_window_extent().width
    assert (overlaps(page), outside(page)) == ([], [])


def test_a_name_that_is_wider_than_the_page_is_broken(tmp_path: Path) -> None:
    """Such as one with a path."""
    for rank in range(2):
        config = {"dataset.path": f"/data/{'deep_' * 20}/{rank}/" + "much-longer" * 4}
        write_run(tmp_path / str(rank), exact([0.1, 0.5]), config=config)
    page = laid_out(draw([tmp_path], PlotOptions()))
    assert (overlaps(page), outside(page)) == ([], [])
    names = ["".join(text.split()) for text, _ in texts(page)]
    assert sum("deep_" * 20 in name for name in names) == 2


def test_a_legend_has_as_many_columns_as_its_longest_name_allows() -> None:
    names = ["FedAvg", "SCAFFOLD", "SCAFFOLD-M", "PAdaMFed (vector)", "PAdaMFed-VR (vector)", "diverged"]
    for long, columns in (("PAdaMFed-VR (vector)", 2), ("PAdaMFed-VR, the norm of a tensor", 1)):
        with sheet():
            page = Page("one", 2.0)
            page.legend({name: Line2D([], []) for name in [*names, long]})
            page.settle()
        assert len({round(box.x0) for _, box in texts(page)}) == columns
        assert (overlaps(page), outside(page)) == ([], [])


def test_the_rows_of_a_legend_are_even() -> None:
    """Six names where five have room beside each other: three and three."""
    with sheet():
        page = Page("two", 2.0)
        page.legend({f"a name of letters {rank}": Line2D([], []) for rank in range(6)})
        page.settle()
    rows = [round(box.y0) for _, box in texts(page)]
    assert sorted(rows.count(row) for row in set(rows)) == [3, 3]


def test_whole_numbers_stand_at_rounds(tmp_path: Path) -> None:
    write_run(tmp_path, exact([0.1, 0.3, 0.5], every=1))
    (ax,) = laid_out(draw([tmp_path], PlotOptions())).figure.axes
    assert [float(tick) for tick in ax.get_xticks()] == [0.0, 1.0, 2.0]


def test_any_text_is_drawn_as_it_is(tmp_path: Path) -> None:
    """Dollars are no formula, and a name may begin with an underscore: one alone, two, or more."""
    names = ["fee$5$.npz", "_a$.npz", "$\\frac{1}$.npz"]
    for name in names:
        write_run(tmp_path / name.replace("\\", ""), exact([0.1, 0.5]), config={"dataset.path": name})
    drawing = draw([tmp_path], PlotOptions(by=("dataset.path",), caption=True))
    assert sorted(legend(drawing))[1:] == sorted(f"path={name}" for name in names)
    assert not any(text.get_parse_math() for text in drawing.figure.legends[0].get_texts())
    drawing.figure.savefig(tmp_path / "figure.pdf")


@pytest.mark.pdf
def test_files_for_print(tmp_path: Path) -> None:
    """300 dots an inch, TrueType, the width of a column; the points and the caption beside it. The same
    results give the same bytes."""
    place = comparison(tmp_path / "s", ["fedavg", "scaffold", "padamfed"])
    drawing = draw([place], PlotOptions())
    files = drawing.save(tmp_path / "out" / "acc.png")
    assert [file.name for file in files] == ["acc.png", "acc.pdf", "acc.csv", "acc.json", "acc.md"]
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == sorted(file.name for file in files)
    png, pdf, table, said, text = files
    with Image.open(png) as image:
        pixels = np.asarray(image.convert("RGB")).reshape(-1, 3)
        assert image.width == round(3.25 * 300)
        assert image.info["dpi"][0] == pytest.approx(300, abs=0.1)
    for name in ("fedavg", "scaffold", "padamfed"):
        colour = [int(style.ALGORITHMS[name].colour[i : i + 2], 16) for i in (1, 3, 5)]
        assert (pixels == colour).all(axis=1).sum() > 200
    fonts = pdf.read_bytes()
    assert b"/Type3" not in fonts
    assert re.search(rb"/Subtype /(CIDFontType2|TrueType)", fonts)
    box = re.search(rb"/MediaBox \[ ?0 0 ([0-9.]+)", fonts)
    assert box is not None
    assert float(box[1]) == pytest.approx(3.25 * 72)
    pd.testing.assert_frame_equal(pd.read_csv(table, float_precision="round_trip"), drawing.points)
    caption = json.loads(said.read_text())["text"]
    assert text.read_text().splitlines() == ["![acc](acc.png)", "", *caption]
    before = [file.read_bytes() for file in files]
    assert before == [file.read_bytes() for file in draw([place], PlotOptions()).save(tmp_path / "out/acc")]


def test_a_failed_write_leaves_the_old_file_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = comparison(tmp_path / "s", ["fedavg"])
    (tmp_path / "f.pdf").write_text("old")
    save = Figure.savefig

    def full(self: Figure, name: Path, *args: object, **more: object) -> None:
        save(self, name, *args, **more)
        if str(name).endswith(".tmp") and ".pdf" in str(name):
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(Figure, "savefig", full)
    with pytest.raises(RunError, match=r"f.pdf: No space left"):
        draw([place], PlotOptions()).save(tmp_path / "f")
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == ["f.pdf", "f.png"]
    assert (tmp_path / "f.pdf").read_text() == "old"


@pytest.mark.parametrize(
    ("metrics", "label"),
    [
        (["R2", "R2"], "Test R²"),
        (["subset accuracy"] * 2, "Test share with all labels right"),
        (["accuracy", "R2"], "Test score"),
    ],
)
def test_axes_say_what_the_accuracies_are(tmp_path: Path, metrics: list[str], label: str) -> None:
    """As summary.json says; of curves and against a key alike."""
    for seed, metric in enumerate(metrics):
        place = tmp_path / str(seed)
        summary = write_run(place, exact([0.1, 0.5]), seed=seed, config={LR: 0.1 + seed})
        (place / "summary.json").write_text(json.dumps({**summary, "metric": metric}))
    for x, expected in (("round", label), (LR, label.replace("Test", "Final test"))):
        (ax,) = draw([tmp_path], PlotOptions(x, "test_accuracy")).figure.axes
        assert ax.get_ylabel() == expected


def test_a_notebook_shows_the_figure_in_print_quality(tmp_path: Path) -> None:
    figure = draw([write_sweep(tmp_path, [{"metrics": exact([0.1, 0.5])}], [])], PlotOptions()).figure
    shown = figure._repr_png_()
    assert int.from_bytes(shown[16:20]) == pytest.approx(300 * figure.get_figwidth(), abs=2)
