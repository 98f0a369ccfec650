"""The picture of a schedule."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from look_at import caption_of, laid_out, marked, outside, overlaps, texts

from fedbench.cli import main
from fedbench.errors import ConfigError, DataError
from fedbench.figures.lines import PlotOptions
from fedbench.figures.trace import draw_trace

# the specification's worked example: N = 4, M_c = 3, S = 2, T = 5
GOLDEN = """job,client,start_version,applied_update,position,dispatch_time,finish_time,status
0,0,0,0,0,0.0,1.0,applied
1,1,0,1,0,0.0,2.5,applied
2,2,0,2,1,0.0,4.0,applied
3,3,0,0,1,1.0,2.25,applied
4,0,1,1,1,2.25,3.25,applied
5,3,1,2,0,2.5,3.75,applied
6,0,2,3,0,3.25,4.25,applied
7,1,2,4,0,3.75,6.25,applied
8,2,3,,,4.0,8.0,outstanding
9,3,3,3,1,4.25,5.5,applied
10,0,4,4,1,5.5,6.5,applied
11,3,4,,,6.25,,outstanding
"""


def jobs(path: Path, text: str = GOLDEN) -> Path:
    path.mkdir(exist_ok=True)
    (path / "jobs.csv").write_text(text)
    return path


def test_an_update_is_never_before_the_one_before_it(tmp_path: Path) -> None:
    """Update 1's job arrived at 1.0, but update 0 waited until 3.0."""
    lines = [GOLDEN.splitlines()[0], "0,0,0,0,0,0.0,3.0,applied", "1,1,0,1,0,0.0,1.0,applied"]
    drawing = draw_trace(jobs(tmp_path, "\n".join(lines) + "\n"), PlotOptions())
    (ticks,) = marked(drawing.figure.axes[0], "update")
    assert list(ticks.get_xdata()) == [3.0, 3.0]


@pytest.mark.parametrize("width", ["one", "two"])
def test_the_time_line_shows_every_job_once(tmp_path: Path, width: str) -> None:
    drawing = draw_trace(jobs(tmp_path), PlotOptions(width=width, caption=True))
    assert drawing.points.part.tolist() == ["job"] * 12 + ["histogram"] * 3
    assert drawing.points.jobs.dropna().tolist() == [5, 3, 2]  # tau = [0,0], [1,0], [1,2], [1,0], [2,0]
    page = laid_out(drawing)
    line, histogram = page.figure.axes[:2]
    bars = [box for bar in line.collections for box in bar.get_paths()]
    assert len(bars) == 12
    starts = sorted(float(box.vertices[:, 0].min()) for box in bars)
    assert starts == [0, 0, 0, 1, 2.25, 2.5, 3.25, 3.75, 4, 4.25, 5.5, 6.25]
    ends = [float(box.vertices[:, 0].max()) for box in bars]  # of jobs 8 and 11 the picture's
    assert sorted(ends) == pytest.approx([1, 2.25, 2.5, 3.25, 3.75, 4, 4.25, 5.5, 6.25, 6.5, 6.5, 6.5])
    assert [patch.get_height() for patch in histogram.patches] == pytest.approx([0.5, 0.3, 0.2])
    (ticks,) = marked(line, "update")
    assert list(ticks.get_xdata()) == [2.25, 3.25, 4.0, 5.5, 6.5]
    assert overlaps(page) == []
    assert outside(page) == []
    assert "mean staleness 0.7, largest 2" in caption_of(page)


def test_failed_and_discarded_jobs_look_different(tmp_path: Path) -> None:
    text = GOLDEN.replace("5,3,1,2,0,2.5,3.75,applied", "5,3,1,,,2.5,3.75,failed")
    text = text.replace("7,1,2,4,0,3.75,6.25,applied", "7,1,2,,,3.75,6.25,discarded")
    text = text.replace("8,2,3,,,4.0,8.0,outstanding", "8,2,3,,,4.0,5.5,interrupted")
    page = laid_out(draw_trace(jobs(tmp_path, text), PlotOptions(width="two")))
    (cross,) = marked(page.figure.axes[0], "failed")
    assert cross.get_xydata().tolist() == [[3.75, 3.0]]
    hatches = [bar.get_hatch() for bar in page.figure.axes[0].collections if bar.get_hatch()]
    assert len(hatches) == len(set(hatches)) == 2
    assert {"applied", "outstanding", "discarded", "interrupted", "failed", "update"} <= {
        text for text, _ in texts(page)
    }


def test_a_long_trace_shows_its_beginning(tmp_path: Path) -> None:
    """2,000 synchronous rounds of 10 of 500 clients, each taking 1."""
    rng = np.random.default_rng(0)
    lines = [GOLDEN.splitlines()[0]]
    for t in range(2000):
        for position, client in enumerate(rng.choice(500, 10, replace=False)):
            lines.append(f"{10 * t + position},{client},{t},{t},{position},{t}.0,{t + 1}.0,applied")
    drawing = draw_trace(jobs(tmp_path, "\n".join(lines) + "\n"), PlotOptions(width="two", caption=True))
    shown = drawing.points[drawing.points.part == "job"]
    assert shown.client.nunique() == 24
    assert shown.dispatch_time.max() <= 14
    page = laid_out(drawing)
    assert overlaps(page) == []
    assert " updates (▾) of 24 clients. Histogram: 20000 applied jobs; mean" in caption_of(page)


def test_the_time_line_is_filled_and_the_clients_can_be_chosen(tmp_path: Path) -> None:
    """40 clients take turns, one job of 1 at a time: of 14 updates only as many are shown as leave a quarter
    of the time line filled, 4 updates by 4 clients; of chosen clients all 14."""
    lines = [GOLDEN.splitlines()[0]]
    lines += [f"{t},{t % 40},{t},{t},0,{t}.0,{t + 1}.0,applied" for t in range(200)]
    place = jobs(tmp_path, "\n".join(lines) + "\n")
    shown = draw_trace(place, PlotOptions(width="two")).points
    assert shown[shown.part == "job"].client.tolist() == [0, 1, 2, 3]
    drawing = draw_trace(place, PlotOptions(width="two", where={"client": ["3", "38"]}))
    assert drawing.points[drawing.points.part == "job"].client.tolist() == [3, 38]
    for where in ({"client": ["40"]}, {"algorithm": ["fedavg"]}):
        with pytest.raises(ConfigError, match=r"must be client=N,\.\.\., with clients that have jobs"):
            draw_trace(place, PlotOptions(where=where))


def test_a_long_tail_of_staleness_has_one_bar(tmp_path: Path) -> None:
    """Of 200 jobs one is 60 updates late: it does not stretch the histogram."""
    lines = [GOLDEN.splitlines()[0]]
    lines += [f"{t},{t},{0 if t == 60 else t},{t},0,{t}.0,{t + 1}.0,applied" for t in range(200)]
    drawing = draw_trace(jobs(tmp_path, "\n".join(lines) + "\n"), PlotOptions(width="two"))
    histogram = laid_out(drawing).figure.axes[1]
    assert [patch.get_height() for patch in histogram.patches] == pytest.approx([199 / 200, 1 / 200])
    assert histogram.get_xlabel() == "Staleness (last: 1 to 60)"


def test_windows_and_the_survey_are_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """MasFL asks all clients first, which takes 2; the windows, of every 10, count from there. A file that
    has changed since is not drawn."""
    monkeypatch.chdir(tmp_path)
    Path("there.csv").write_text("client,from,to\n0,0,10\n1,3,5\n1,8,9\n2,0,4\n")
    words = ["model=logistic", "rounds=8", "clients.total=3", "clients.per_round=1",
             "schedule=async", "delay=constant", "delay.c=2", "schedule.available=there.csv",
             "schedule.period=10", "schedule.concurrency=2", "trace=true", "progress=none",
             "hydra.run.dir=one"]  # fmt: skip
    assert main([*words, "algorithm=masfl"]) == 0
    page = laid_out(draw_trace("one", PlotOptions(width="two", caption=True)))
    bars: dict[int, list[tuple[float, float]]] = {}
    for row in page.figure.axes[0].collections:
        for box in row.get_paths() if row.get_gid() == "away" else ():
            x, y = box.vertices.T
            bars.setdefault(round(float(y.mean())), []).append((x.min(), x.max()))
    assert bars[1] == [(2.0, 5.0), (7.0, 10.0), (11.0, pytest.approx(12.0))]
    assert bars[2] == [(6.0, pytest.approx(12.0))]
    assert 0 not in bars
    assert "survey of all clients lasts until 2. Grey: a client can start no job." in caption_of(page)
    Path("there.csv").write_text("client,from,to\n0,0,10\n1,3,5\n2,0,4\n")
    assert "Not drawn: the windows, as there.csv is gone" in caption_of(
        laid_out(draw_trace("one", PlotOptions(width="two", caption=True)))
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "trace=true"),
        ("job,client\n0,0\n", "start_version"),
        (GOLDEN.splitlines()[0] + "\n", "no jobs"),
        (
            GOLDEN.replace("2.25,applied", "soon,applied"),
            "could not convert string to float: 'soon'",
        ),
    ],
)
def test_unreadable_traces_are_one_line(tmp_path: Path, text: str | None, message: str) -> None:
    if text is not None:
        jobs(tmp_path, text)
    with pytest.raises(DataError, match=message):
        draw_trace(tmp_path, PlotOptions())
    assert not list(tmp_path.glob("f*"))
