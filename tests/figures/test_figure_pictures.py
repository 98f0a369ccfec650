"""The pictures of a partition and of a schedule."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import yaml
from look_at import caption_of, laid_out, outside, overlaps, texts

from fedbench.api import compose_config
from fedbench.config.config import GROUPS
from fedbench.errors import DataError
from fedbench.figures import pictures
from fedbench.figures.lines import PlotOptions
from fedbench.figures.pictures import partition, trace
from fedbench.runs.run_directory import RunDirectory

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
LABELS = np.repeat(np.arange(10), 60)


@pytest.fixture
def run_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], Path]:
    """`run_dir(clients)` is a run whose 600 samples of 10 classes are spread over that many clients."""

    def make(clients: int) -> Path:
        path = tmp_path / f"run{clients}"
        path.mkdir()
        np.savez(path / "partition.npz", client=np.random.default_rng(0).integers(0, clients, len(LABELS)))
        config = {
            "seed": 3,
            "clients": {"total": clients},
            "dataset": {"name": "fmnist"},
            "partition": {"name": "dirichlet", "alpha": 0.5, "seed": None},
            "data": {"root": "."},
        }
        config = {**{name: {"name": "x"} for name in GROUPS}, **config}
        (path / "config.yaml").write_text(yaml.safe_dump(config))
        monkeypatch.setattr(pictures, "labels", lambda cfg: (LABELS, 10, int(cfg["clients"]["total"])))
        return path

    return make


def jobs(path: Path, text: str = GOLDEN) -> Path:
    path.mkdir(exist_ok=True)
    (path / "jobs.csv").write_text(text)
    return path


@pytest.mark.parametrize(("clients", "width"), [(1, "two"), (40, "one"), (300, "two")])
def test_partitions_of_any_size_are_readable(
    run_dir: Callable[[int], Path], clients: int, width: str
) -> None:
    page = laid_out(partition(run_dir(clients), PlotOptions(width=width, caption=True)))
    assert overlaps(page) == []
    assert outside(page) == []
    assert "Dirichlet(0.5)" in caption_of(page)


def test_a_heat_map_shows_the_share_of_each_class_at_a_client(run_dir: Callable[[int], Path]) -> None:
    """Clients in order of their commonest class; each one's shares add up to 1, and the bars are its size.
    The table has the counts."""
    path = run_dir(60)
    drawing = partition(path, PlotOptions())
    above, ax = laid_out(drawing).figure.axes[:2]
    client = np.load(path / "partition.npz")["client"]
    counts = np.array([[((client == i) & (j == LABELS)).sum() for j in range(10)] for i in range(60)])
    assert drawing.points.samples.tolist() == counts.ravel().tolist()
    order = sorted(range(60), key=lambda i: (counts[i].argmax(), -counts[i].max()))
    (image,) = ax.images
    expected = [[count / counts[i].sum() for count in counts[i]] for i in order]
    np.testing.assert_allclose(np.asarray(image.get_array()).T, expected)
    assert [bar.get_height() for bar in above.patches] == [counts[i].sum() for i in order]


def test_the_caption_of_a_partition_counts_samples_and_classes(run_dir: Callable[[int], Path]) -> None:
    """Clients with 300, 180 and 120 samples, of five, three and two classes."""
    path = run_dir(3)
    np.savez(path / "partition.npz", client=np.repeat([0, 1, 2], [300, 180, 120]))
    said = partition(path, PlotOptions()).said
    assert said["sizes"] == {"min": 120, "median": 180.0, "max": 300}
    assert said["classes_per_client"] == {"min": 2, "mean": pytest.approx(10 / 3), "max": 5}
    words = "N=3, seed 3: 120 to 300 samples of 2 to 5 classes per client. Data:"
    assert words in said["text"][0]


def test_an_update_is_never_before_the_one_before_it(tmp_path: Path) -> None:
    """Update 1's job arrived at 1.0, but update 0 waited until 3.0."""
    lines = [GOLDEN.splitlines()[0], "0,0,0,0,0,0.0,3.0,applied", "1,1,0,1,0,0.0,1.0,applied"]
    read = pictures.read_jobs(jobs(tmp_path, "\n".join(lines) + "\n"))
    assert pictures.update_times(read)["time"].tolist() == [3.0, 3.0]


def test_real_labels_come_from_the_run_s_own_data_set(tmp_path: Path) -> None:
    """A digits run: every class's counts add up to scikit-learn's."""
    pytest.importorskip("fedbench.data")
    config = dict(compose_config(["clients.total=7", "partition=iid"]).given)
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config))
    label, classes, clients = pictures.labels(RunDirectory(tmp_path).plain_config)
    assert (len(label), classes, clients) == (1437, 10, 7)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("config.yaml", None, "not a run directory"),
        ("config.yaml", "a: [", "cannot be read"),
        ("partition.npz", None, "partition.npz: cannot be read"),
        ("partition.npz", "text", "partition.npz: cannot be read"),
    ],
)
def test_unreadable_partitions_are_one_line(
    run_dir: Callable[[int], Path], name: str, content: str | None, message: str
) -> None:
    path = run_dir(5)
    (path / name).unlink()
    if content is not None:
        (path / name).write_text(content)
    with pytest.raises(DataError, match=message) as caught:
        partition(path, PlotOptions())
    assert "\n" not in str(caught.value)


def test_a_partition_of_other_data_is_refused(run_dir: Callable[[int], Path]) -> None:
    path = run_dir(5)
    np.savez(path / "partition.npz", client=np.zeros(3, dtype=int))
    with pytest.raises(DataError, match="names 3 samples, but the training set has 600"):
        partition(path, PlotOptions())


@pytest.mark.parametrize("width", ["one", "two"])
def test_the_time_line_shows_every_job_once(tmp_path: Path, width: str) -> None:
    drawing = trace(jobs(tmp_path), PlotOptions(width=width, caption=True))
    assert drawing.points.part.tolist() == ["job"] * 12 + ["histogram"] * 3
    assert drawing.points.jobs.dropna().tolist() == [5, 3, 2]  # tau = [0,0], [1,0], [1,2], [1,0], [2,0]
    page = laid_out(drawing)
    line, histogram = page.figure.axes[:2]
    bars = [box for bar in line.collections for box in bar.get_paths()]
    assert len(bars) == 12
    starts = sorted(float(box.vertices[:, 0].min()) for box in bars)
    assert starts == [0, 0, 0, 1, 2.25, 2.5, 3.25, 3.75, 4, 4.25, 5.5, 6.25]
    assert [patch.get_height() for patch in histogram.patches] == pytest.approx([0.5, 0.3, 0.2])
    (ticks,) = (mark for mark in line.lines if mark.get_gid() == "update")
    assert list(ticks.get_xdata()) == [2.25, 3.25, 4.0, 5.5, 6.5]
    assert overlaps(page) == []
    assert outside(page) == []
    assert "mean staleness 0.7, largest 2" in caption_of(page)


def test_failed_and_discarded_jobs_look_different(tmp_path: Path) -> None:
    text = GOLDEN.replace("5,3,1,2,0,2.5,3.75,applied", "5,3,1,,,2.5,3.75,failed")
    text = text.replace("7,1,2,4,0,3.75,6.25,applied", "7,1,2,,,3.75,6.25,discarded")
    text = text.replace("8,2,3,,,4.0,8.0,outstanding", "8,2,3,,,4.0,5.5,interrupted")
    page = laid_out(trace(jobs(tmp_path, text), PlotOptions(width="two")))
    (cross,) = (mark for mark in page.figure.axes[0].lines if mark.get_gid() == "failed")
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
    shown = pictures.window(pictures.read_jobs(jobs(tmp_path, "\n".join(lines) + "\n")))
    assert len(shown.clients) == 24
    assert len(shown.jobs) <= 150
    page = laid_out(trace(tmp_path, PlotOptions(width="two", caption=True)))
    assert overlaps(page) == []
    assert " updates (▾) of 24 clients. Histogram: 20000 applied jobs; mean" in caption_of(page)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "trace=true"),
        ("job,client\n0,0\n", "no column 'start_version'"),
        (GOLDEN.splitlines()[0] + "\n", "no jobs"),
        (GOLDEN.replace("2.25,applied", "soon,applied"), "column 'finish_time'"),
    ],
)
def test_unreadable_traces_are_one_line(tmp_path: Path, text: str | None, message: str) -> None:
    if text is not None:
        jobs(tmp_path, text)
    with pytest.raises(DataError, match=message):
        trace(tmp_path, PlotOptions())
    assert not list(tmp_path.glob("f*"))
