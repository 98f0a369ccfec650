"""What is drawn is what the table beside the figure says: lines, bands, crosses, stars, points, panels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from look_at import caption_of, laid_out, marked, texts
from make_results import exact, rows, write_run, write_sweep
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.colors import to_hex

from fedbench.figures import style
from fedbench.figures.drawing import draw
from fedbench.figures.lines import PlotOptions
from fedbench.figures.page import Drawing

LR = "algorithm.lr"
RATES = (0.001, 0.01, 0.1, 1.0)
METHODS = ("fedavg", "scaffold", "padamfed")
THEOREM = 0.0047


def sweep(path: Path, names: tuple[str, ...] = METHODS) -> Path:
    """Three seeds at every rate: at 1 all diverge, at 0.1 seed 1 does; PAdaMFed never, and also at the rate
    of its theorem."""
    runs = []
    for rank, name in enumerate(names):
        for lr in (*RATES, *((None,) if name == "padamfed" else ())):
            for seed in range(3):
                lost = name != "padamfed" and (lr == 1.0 or (lr == 0.1 and seed == 1))
                top = 0.8 + 0.003 * rank - 0.05 * abs(np.log10((lr or THEOREM) / 0.01))
                runs.append({"metrics": rows(top, 1.0, seed, last=40, stop=20 if lost else None),
                             "algorithm": name, "seed": seed, "status": "diverged" if lost else "completed",
                             "config": {LR: lr}, "hyper": {"lr": lr or THEOREM}})  # fmt: skip
    return write_sweep(path, runs, ["algorithm", LR, "seed"])


def legend(drawing: Drawing) -> dict[str, Any]:
    """Name -> the mark beside it."""
    (found,) = drawing.figure.legends
    return dict(zip([text.get_text() for text in found.get_texts()], found.legend_handles, strict=True))


def rows_of(drawing: Drawing, name: str, y: str, x: str) -> np.ndarray:
    """x, mean, low and high of a method's row in the table, without diverged runs and theorems."""
    points = drawing.points[drawing.points.algorithm == name]
    points = points[points.part == "mean"] if "part" in points else points[~points.theorem]
    return points[[x, *(f"{y}_{end}" for end in ("mean", "low", "high"))]].to_numpy(float)


@pytest.mark.parametrize(("x", "y"), [("round", "test_accuracy"), (LR, "final_accuracy")])
def test_lines_and_bands_are_the_tables(tmp_path: Path, x: str, y: str) -> None:
    """In the method's colour, dash and marker, with its name in the legend."""
    where = {LR: [0.001]} if x == "round" else {}
    drawing = draw([sweep(tmp_path)], PlotOptions(x, y, where=where))
    (ax,) = drawing.figure.axes
    bands = {to_hex(band.get_facecolor()[0]).upper(): band.get_paths() for band in ax.collections
             if isinstance(band, PolyCollection)}  # fmt: skip
    for name in METHODS:
        look, table = style.ALGORITHMS[name], rows_of(drawing, name, y, x)
        (line,) = marked(ax, "mean", name)
        np.testing.assert_array_equal(line.get_xydata(), table[:, :2])
        corners = {tuple(np.round(at, 9)) for path in bands[look.colour] for at in path.vertices}
        edges = {tuple(np.round((row[0], end), 9)) for row in table for end in row[2:] if np.isfinite(end)}
        assert edges <= corners
        entry = legend(drawing)[look.label]
        assert (to_hex(entry.get_color()).upper(), entry.get_marker()) == (look.colour, look.marker)
        assert line.get_marker() == look.marker


def test_the_cross_of_a_curve_ends_the_curve_of_its_run(tmp_path: Path) -> None:
    """At the last finite point, whatever the others did; a loss of 1e40 does not flatten the others."""
    for seed, (values, losses, status) in enumerate((
        ([0.1, 0.3, 0.5, 0.7], [2.0, 1.5, 1.2, 1.0], "completed"),
        ([0.1, 0.4, 0.2], [2.0, 1.6, 1e40], "diverged"),
    )):  # fmt: skip
        write_run(tmp_path / str(seed), exact(values, test_loss=losses), seed=seed, status=status)
    drawing = draw([tmp_path], PlotOptions())
    (ax,) = drawing.figure.axes
    (cross,) = marked(ax, "diverged")
    assert cross.get_xydata().tolist() == [[10, 0.2]]
    assert "diverged" in legend(drawing)
    (ax,) = draw([tmp_path], PlotOptions(y="test_loss")).figure.axes
    assert ax.get_ylim()[1] < 3
    (ax,) = draw([tmp_path], PlotOptions(where={"seed": [1]})).figure.axes  # all diverged
    assert (len(marked(ax, "diverged")), marked(ax, "mean")) == (1, [])


def test_crosses_of_results_stand_in_a_strip_below_all_others(tmp_path: Path) -> None:
    """At the value of their runs, in a row for each method; the y axis says nothing there."""
    page = laid_out(draw([sweep(tmp_path)], PlotOptions(LR)))
    (ax,) = page.figure.axes
    (strip,) = (patch for patch in ax.patches if patch.get_gid() == "strip")
    box = strip.get_window_extent()
    crosses = marked(ax, "diverged")
    assert sorted(float(cross.get_xdata()[0]) for cross in crosses) == [0.1, 0.1, 1.0, 1.0]
    places = [cross.get_transform().transform(cross.get_xydata())[0] for cross in crosses]
    assert all(box.contains(*place) for place in places)
    assert len({round(y) for _, y in places}) == 2
    drawn = np.concatenate([line.get_xydata() for line in marked(ax, "mean")])
    assert ax.transData.transform(drawn[np.isfinite(drawn[:, 1])])[:, 1].min() > box.y1
    heights = ax.transData.transform([(0.01, tick) for tick in ax.get_yticks()])[:, 1]
    labels = [label.get_text() for label in ax.get_yticklabels()]
    assert {text for text, height in zip(labels, heights, strict=True) if height < box.y1 - 1} <= {""}
    assert any(labels)


def test_a_theorems_value_is_a_star_at_the_side_if_it_lies_beyond(tmp_path: Path) -> None:
    """And the legend then says where it is."""
    drawing = draw([sweep(tmp_path / "in")], PlotOptions(LR))
    (ax,) = drawing.figure.axes
    stars = [line.get_xydata().tolist() for line in marked(ax, "theorem")]
    row = drawing.points[drawing.points.theorem].iloc[0]
    assert stars == [[[THEOREM, row.final_accuracy_mean]]]
    (bars,) = (part for part in ax.collections if isinstance(part, LineCollection))
    ends = [[[THEOREM, row.final_accuracy_low], [THEOREM, row.final_accuracy_high]]]
    np.testing.assert_allclose(bars.get_segments(), ends)
    assert "theorem" in legend(drawing)  # not at the side
    for lr in (None, 0.1, 1.0):
        write_run(tmp_path / "out" / str(lr), exact([0.1, 0.5]), config={LR: lr}, hyper={"lr": lr or 1e-4})
    drawing = draw([tmp_path / "out"], PlotOptions(LR))
    (ax,) = drawing.figure.axes
    (star,) = marked(ax, "theorem")
    assert "theorem (beyond the axis: 0.0001)" in legend(drawing)
    assert 0.08 < ax.get_xlim()[0] < star.get_xdata()[0] < 0.1


def test_a_step_that_averages_the_models_is_a_star_at_its_number(tmp_path: Path) -> None:
    """It is drawn at what it came to, by its own name."""
    for rate, used in ((0.5, 0.5), ("average", 0.8), (2.0, 2.0)):
        more = {"config": {"algorithm.server_lr": rate}, "hyper": {"server_lr": used}}
        write_run(tmp_path / str(rate), exact([0.1, 0.5]), **more)
    drawing = draw([tmp_path], PlotOptions("server_lr"))
    assert drawing.points["algorithm.server_lr"].tolist() == [0.5, 0.8, 2.0]
    assert "average" in legend(drawing)
    assert "Not drawn" not in drawing.said["text"][0]


@pytest.mark.parametrize("small", [False, True])
def test_what_one_panel_shows_does_not_move_the_axes_of_the_next(tmp_path: Path, small: bool) -> None:
    """Crosses below and a star beside the values: every panel has the limits of the values alone."""
    for rank in range(9 if small else 2):
        split = {"algorithm.beta": rank / 100} if small else {"partition": ("iid", "dirichlet")[rank]}
        for lr, last in ((0.1, 0.4), (1.0, 0.5), (10.0, None), (None, 0.5)):
            write_run(tmp_path / f"{rank}-{lr}", exact([0.1, last or 0.2]), config={LR: lr, **split},
                      hyper={"lr": lr or 1e-4}, status="completed" if last else "diverged")  # fmt: skip
    axes = draw([tmp_path], PlotOptions(LR, rows=None if small else "partition", width="two")).figure.axes
    assert len(axes) == (9 if small else 2)
    for ax in axes:
        (strip,) = (patch for patch in ax.patches if patch.get_gid() == "strip")
        bottom, top = strip.get_patch_transform().transform_path(strip.get_path()).get_extents().intervaly
        assert top == pytest.approx(0.4 - 0.05 * 0.1)
        assert bottom == pytest.approx(ax.get_ylim()[0])
        assert ax.get_ylim()[1] == pytest.approx(0.5 + 0.05 * 0.1)
        assert ax.get_xlim() == pytest.approx([10 ** (-1 - 0.05 * 2), 10 ** (1 + 0.05 * 2)])
        (star,) = marked(ax, "theorem")
        assert ax.get_xlim()[0] < star.get_xdata()[0] < 0.1


def test_the_scale_of_a_small_panel_can_be_read_above_its_strip(tmp_path: Path) -> None:
    for rank in range(9):
        for lr, last in ((0.1, 0.1), (1.0, 0.86), (10.0, None)):
            config, status = {LR: lr, "algorithm.beta": rank / 100}, "completed" if last else "diverged"
            write_run(tmp_path / f"{rank}-{lr}", exact([0.1, last or 0.2]), config=config, status=status)
    figure = draw([tmp_path], PlotOptions(LR, width="two")).figure
    figure.canvas.draw()
    ax = figure.axes[0]
    shown = [tick for tick in ax.yaxis.get_major_ticks() if tick.get_loc() <= ax.get_ylim()[1]]
    assert len([tick for tick in shown if tick.label1.get_text()]) >= 2


@pytest.mark.parametrize(("x", "y"), [("round", "test_accuracy"), (LR, "final_accuracy")])
def test_points_are_the_seeds_and_there_is_no_band(tmp_path: Path, x: str, y: str) -> None:
    results = {(lr, seed): 0.5 + 0.1 * lr + 0.01 * seed for lr in (1.0, 2.0) for seed in (0, 1)}
    for (lr, seed), top in results.items():
        write_run(tmp_path / f"{lr}{seed}", exact([0.1, top]), seed=seed, config={LR: lr})
    where = {LR: [1.0]} if x == "round" else {}
    drawing = draw([tmp_path], PlotOptions(x, y, spread="points", where=where, caption=True))
    (ax,) = drawing.figure.axes
    (points,) = marked(ax, "seed")
    expected = [(lr, top) for (lr, _), top in results.items()]
    if x == "round":
        expected = [at for (lr, _), top in results.items() if lr == 1.0 for at in ((0, 0.1), (5, top))]
    assert sorted(map(tuple, points.get_xydata().tolist())) == sorted(expected)
    assert not ax.collections
    assert "a seed" in legend(drawing)
    assert "small points: the seeds." in caption_of(drawing.page)


def test_small_multiples_show_each_line_before_all_others(tmp_path: Path) -> None:
    """Nine lines in three rows of three, the others behind in grey. Of a number's values in its order, and
    with any text as it is."""
    names = list(style.ALGORITHMS)[:9]
    for rank, name in enumerate(names):
        write_run(tmp_path / "s" / name, exact([0.1, 0.3 + 0.05 * rank]), algorithm=name)
    figure = draw([tmp_path / "s"], PlotOptions(width="two")).figure
    titles = {ax.get_title(): ax for ax in figure.axes}
    for rank, name in enumerate(names):
        ax = titles[style.ALGORITHMS[name].label]
        (line,) = marked(ax, "mean")
        assert line.get_ydata()[-1] == 0.3 + 0.05 * rank
        (behind,) = (part for part in ax.collections if isinstance(part, LineCollection))
        assert sorted(part[-1, 1] for part in behind.get_segments()) == [0.3 + 0.05 * at for at in range(9)]
    figure.draw_without_rendering()
    assert len({round(ax.get_position().x0, 6) for ax in figure.axes}) == 3
    for path in "9$", "8$", "7", "6", "5", "4", "3", "2", "1", "10":
        config = {"dataset.path": f"${path}", "partition.alpha": float(path.strip("$"))}
        write_run(tmp_path / "n" / path, exact([0.1, 0.5]), config=config)
    axes = draw([tmp_path / "n"], PlotOptions(by=("partition.alpha", "dataset.path"))).figure.axes
    assert [ax.get_title().partition(",")[0] for ax in axes] == [f"Dirichlet({n})" for n in range(1, 11)]
    assert axes[7].get_title().endswith("path=$8$")
    assert not any(ax.title.get_parse_math() for ax in axes)


@pytest.mark.parametrize(("x", "own_y"), [("round", False), (LR, True)])
def test_a_panel_for_each_value_of_keys(tmp_path: Path, x: str, own_y: bool) -> None:
    """With that value's runs, in order, side by side at two columns. They share their axes, or the harder
    task has a y axis of its own; a method looks the same in both, and the legend names it once."""
    for split, drop in (("shards", 0.4), ("iid", 0.0)):
        for name in METHODS:
            for lr in (0.1, 1.0):
                config = {"partition": split, "partition.alpha": None, "model": "cnn", LR: lr}
                made = rows(0.8 - drop, 0.6, 0)
                write_run(tmp_path / f"{split}{name}{lr}", made, algorithm=name, config=config)
    where = {LR: [0.1]} if x == "round" else {}
    one, two = (
        draw([tmp_path], PlotOptions(x, where=where, rows="partition,model", width=width, own_y=own_y))
        for width in ("one", "two")
    )
    assert [ax.get_title() for ax in two.figure.axes] == ["iid, CNN", "shards(2), CNN"]
    easy, hard = two.figure.axes
    for name in METHODS:
        tops = [marked(ax, "mean", name)[0].get_ydata()[-1] for ax in (easy, hard)]
        assert tops[0] > tops[1] + 0.3
        assert marked(easy, "mean", name)[0].get_marker() == marked(hard, "mean", name)[0].get_marker()
    assert easy.get_xlim() == hard.get_xlim()
    assert (easy.get_ylim() == hard.get_ylim()) != own_y
    assert sorted(legend(two)) == sorted([*(style.ALGORITHMS[name].label for name in METHODS), "n = 1 seed"])
    for drawing, columns in ((one, 1), (two, 2)):
        laid_out(drawing)
        assert len({round(ax.get_position().x0, 3) for ax in drawing.figure.axes}) == columns


def test_limits_and_levels(tmp_path: Path) -> None:
    """Nothing is drawn beyond limits; a level is within the axes."""
    write_run(tmp_path, rows(0.8, 0.6, 0))
    (ax,) = draw([tmp_path], PlotOptions(limits={"x": (0, 50), "y": (0.5, 0.9)})).figure.axes
    assert (ax.get_xlim(), ax.get_ylim()) == ((0, 50), (0.5, 0.9))
    assert all(line.get_clip_on() for line in marked(ax, "mean"))
    drawing = draw([tmp_path], PlotOptions(levels=(0.95, 0.7)))
    (ax,) = drawing.figure.axes
    assert [set(line.get_ydata()) for line in marked(ax, "level")] == [{0.95}, {0.7}]
    assert ax.get_ylim()[1] > 0.95
    assert "level 0.95, 0.7" in legend(drawing)


@pytest.mark.parametrize(
    ("swept", "scale", "written"),
    [
        ((10, 20, 50, 100), "log", {"10", "20", "50", "100"}),
        ((10, 11, 100), "log", {"$\\mathdefault{10^{1}}$", "$\\mathdefault{10^{2}}$"}),  # no room for both
    ],
)
def test_few_swept_values_are_written_below_the_axis(
    tmp_path: Path, swept: tuple[int, ...], scale: str, written: set[str]
) -> None:
    for clients in swept:
        write_run(tmp_path / f"{clients}", rows(0.7, 1.0, 0), config={"clients.per_round": clients})
    drawing = draw([tmp_path], PlotOptions("clients.per_round"))
    (ax,) = drawing.figure.axes
    shown = {text for text, _ in texts(laid_out(drawing))}
    assert ax.get_xscale() == scale
    assert written <= shown
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("Clients per round", "Final test accuracy")


def test_logarithmic_axes_begin_with_the_first_evaluation_after_zero(tmp_path: Path) -> None:
    for seed in (0, 1):
        write_run(tmp_path / str(seed), rows(0.8, 0.6, seed), seed=seed)
    (ax,) = draw([tmp_path], PlotOptions(log=("x", "y"))).figure.axes
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")
    (band,) = ax.collections
    assert min(marked(ax, "mean")[0].get_xdata()) == band.get_paths()[0].vertices[:, 0].min() == 5
