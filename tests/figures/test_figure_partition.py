"""The picture of a partition, of the samples of scikit-learn's digits."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from look_at import caption_of, laid_out, outside, overlaps
from matplotlib.axis import Axis

from fedbench.api import compose_config
from fedbench.cli import main
from fedbench.config.options import build
from fedbench.errors import DataError
from fedbench.figures.lines import PlotOptions
from fedbench.figures.partition import draw_partition

Make = Callable[..., Path]


def config(clients: int) -> dict[str, Any]:
    words = [f"clients.total={clients}", "clients.per_round=1", "seed=3", "partition=dirichlet"]
    return dict(compose_config(words).given)


@cache
def labels() -> np.ndarray:
    """Of the training samples, in the data set's order."""
    from fedbench.runs.session import Session

    return Session().dataset(build(config(1))).y_train.numpy()


@pytest.fixture
def run_dir(tmp_path: Path) -> Make:
    """`run_dir(clients)` is a run whose samples are spread over that many clients, or as `client` says."""

    def make(clients: int, client: np.ndarray | None = None) -> Path:
        drawn = np.random.default_rng(0).integers(0, clients, len(labels()))
        np.savez(tmp_path / "partition.npz", client=drawn if client is None else client)
        (tmp_path / "config.yaml").write_text(yaml.safe_dump(config(clients)))
        return tmp_path

    return make


@pytest.mark.parametrize(("clients", "width"), [(1, "two"), (40, "one"), (300, "two")])
def test_partitions_of_any_size_are_readable(run_dir: Make, clients: int, width: str) -> None:
    page = laid_out(draw_partition(run_dir(clients), PlotOptions(width=width, caption=True)))
    assert (overlaps(page), outside(page)) == ([], [])
    assert "Dirichlet(0.5)" in caption_of(page)


def test_a_heat_map_shows_the_share_of_each_class_at_a_client(run_dir: Make) -> None:
    """Clients in order of their commonest class; each one's shares add up to 1, and the bars are its size.
    The table has the counts. A sample of no client counts nowhere."""
    client = np.random.default_rng(1).integers(-1, 60, len(labels()))
    drawing = draw_partition(run_dir(60, client), PlotOptions())
    above, ax = drawing.figure.axes[:2]
    counts = np.array([[((client == i) & (j == labels())).sum() for j in range(10)] for i in range(60)])
    assert drawing.points.samples.tolist() == counts.ravel().tolist()
    order = sorted(range(60), key=lambda i: (counts[i].argmax(), -counts[i].max()))
    (image,) = ax.images
    expected = [[count / counts[i].sum() for count in counts[i]] for i in order]
    np.testing.assert_allclose(np.asarray(image.get_array()).T, expected)
    assert [bar.get_height() for bar in above.patches] == [counts[i].sum() for i in order]


def test_classes_go_by_their_names_in_both_pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a table whose labels are texts; names are no formulas, and long ones are cut."""
    long = "a name that nobody would want below a column"
    rows = [(at % 7, ("$low", long)[at % 2], f"w{at % 3}") for at in range(60)]
    pd.DataFrame(rows, columns=["x", "kind", "ward"]).to_csv(tmp_path / "t.csv", index=False)
    words = [f"dataset.path={tmp_path / 't.csv'}", "dataset=table", "dataset.target=kind", "rounds=1",
             "dataset.user=ward", "partition=natural", "clients.total=3", "clients.per_round=1",
             "local.batch_size=4", "model=logistic", f"hydra.run.dir={tmp_path / 'run'}"]  # fmt: skip
    drawn: list[str] = []
    seen = Axis.set_ticks
    monkeypatch.setattr(
        Axis, "set_ticks",
        lambda axis, ticks, labels=(), **more: drawn.extend(labels) or seen(axis, ticks, labels, **more),
    )  # fmt: skip
    asked = ["eval.metrics=[confusion_matrix]"] if find_spec("torchmetrics") else []
    assert main([*words, *asked]) == 0
    cut = f"{long[:10]}...{long[-5:]}"
    assert drawn == ["$low", cut] * 2 * len(asked)
    page = laid_out(draw_partition(tmp_path / "run", PlotOptions()))
    assert drawn[-2:] == ["$low", cut]
    assert (overlaps(page), outside(page)) == ([], [])


def test_the_caption_of_a_partition_counts_samples_and_classes(run_dir: Make) -> None:
    """Clients of five, three and two classes."""
    client = np.repeat([0, 1, 2], [5, 3, 2])[labels()]
    said = draw_partition(run_dir(3, client), PlotOptions()).said
    sizes = sorted(int((client == i).sum()) for i in range(3))
    assert said["sizes"] == {"min": sizes[0], "median": sizes[1], "max": sizes[2]}
    assert said["classes_per_client"] == {"min": 2, "mean": pytest.approx(10 / 3), "max": 5}
    words = f"N=3, seed 3: {sizes[0]} to {sizes[2]} samples of 2 to 5 classes per client. Data:"
    assert words in said["text"][0]


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
    run_dir: Make, name: str, content: str | None, message: str
) -> None:
    path = run_dir(5)
    (path / name).unlink()
    if content is not None:
        (path / name).write_text(content)
    with pytest.raises(DataError, match=message) as caught:
        draw_partition(path, PlotOptions())
    assert "\n" not in str(caught.value)


def test_a_partition_of_other_data_is_refused(run_dir: Make) -> None:
    with pytest.raises(DataError, match="names 3 samples, but the training set has 1437"):
        draw_partition(run_dir(5, np.zeros(3, dtype=int)), PlotOptions())
