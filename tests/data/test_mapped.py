"""Directories of .npy files: samples stay on the disk, and nothing reads or copies them as a whole."""

from __future__ import annotations

import resource
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from option_helpers import load, refusal

from fedbench import files
from fedbench.api import compose_config
from fedbench.data import Dataset
from fedbench.data.transforms import mean_std, to_input
from fedbench.errors import DataError
from fedbench.runs.run import Run

RNG = np.random.default_rng(0)
COLOURS = {
    "x_train": RNG.integers(0, 256, (600, 16, 16, 3), dtype=np.uint8),
    "y_train": RNG.integers(0, 3, 600),
    "x_test": RNG.integers(0, 256, (60, 16, 16, 3), dtype=np.uint8),
    "y_test": RNG.integers(0, 3, 60),
    "client": RNG.permutation(np.arange(600) % 5),
}
GREY: dict[str, Any] = {key: x[..., 0] if key[0] == "x" else x for key, x in COLOURS.items()}
NUMBERS: dict[str, Any] = {
    key: x.reshape(len(x), -1)[:, :7].astype(np.float32) if key[0] == "x" else x for key, x in COLOURS.items()
}


@pytest.fixture(autouse=True)
def _cache_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def write(directory: Path, arrays: dict[str, Any] = COLOURS, **changes: Any) -> Path:
    directory.mkdir(exist_ok=True)
    for key, array in {**arrays, **changes}.items():
        np.save(directory / f"{key}.npy", array)
    return directory


def read(path: Path, **keys: Any) -> Dataset:
    return load({"name": "npz", "path": str(path), **keys}, "unused", seed=0, clients=1)


@pytest.mark.parametrize("per", [None, "pixel"])
@pytest.mark.parametrize("unit", [None, 255.0])
def test_samples_and_statistics_are_the_arrays(per: str | None, unit: float | None, tmp_path: Path) -> None:
    """Of bytes, which stand for value / 255, and of floats; more of both than are looked at together."""
    stored = {key: x / unit if unit and key[0] == "x" else x for key, x in COLOURS.items()}
    data = read(write(tmp_path / "a", stored), normalize_per=per)
    assert data.on_disk == ("x_train", "x_test")
    for got, key in ((data.x_train, "x_train"), (data.x_test, "x_test")):
        np.testing.assert_array_equal(got, stored[key].transpose(0, 3, 1, 2))
    np.testing.assert_array_equal(data.client, COLOURS["client"])
    values, axes = COLOURS["x_train"].astype(float) / 255, (0,) if per else (0, 1, 2)
    mean, std = values.mean(axes), values.std(axes) + (0.001 if per else 0)
    if per:
        mean, std = mean.transpose(2, 0, 1), std.transpose(2, 0, 1)
    for result, expected in ((data.mean, mean), (data.std, std)):
        assert result is not None
        np.testing.assert_allclose(result.numpy().reshape(expected.shape), expected, rtol=1e-12)


@pytest.mark.parametrize("kind", [np.uint8, np.float32])
def test_normalising_never_has_all_in_memory(kind: type, tmp_path: Path) -> None:
    x = np.resize(COLOURS["x_train"].astype(kind), (10_000, 16, 16, 3))  # 8 or 30 MB
    own = {"y_train": np.arange(len(x)) % 3, "client": np.zeros(len(x), int)}
    path = write(tmp_path / "a", x_train=x, x_test=x[:60], **own)
    tracemalloc.start()
    read(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < x.nbytes / 4


def test_a_run_on_samples_larger_than_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """128 GiB in a sparse file whose hash is known, as after a first run: few of its pages are read."""
    n, features = 2**17, 2**20
    path = write(tmp_path / "a", x_test=np.zeros((4, features), np.uint8), y_test=np.arange(4) % 2)
    large = np.lib.format.open_memmap(path / "x_train.npy", mode="w+", dtype=np.uint8, shape=(n, features))
    large[5, :3] = 7
    large.flush()
    for key, array in (("y_train", np.arange(n) % 2), ("client", np.arange(n) % 8)):
        np.save(path / f"{key}.npy", array)
    real = files.sha256
    monkeypatch.setattr(files, "sha256", lambda file: "0" * 64 if file.name == "x_train.npy" else real(file))
    words = ["dataset=npz", f"dataset.path={path}", "dataset.normalize=false", "partition=natural"]
    words += ["clients.total=8", "clients.per_round=2", "rounds=1", "local.steps=1", "local.batch_size=2"]
    before = resource.getrusage(resource.RUSAGE_SELF)
    run = Run(compose_config([*words, "model=logistic", "engine=loop", "progress=none"]))
    assert run.problem.dataset.x_train[5, :4].tolist() == [7, 7, 7, 0]
    assert run.go(tmp_path / "run")["status"] == "completed"
    after = resource.getrusage(resource.RUSAGE_SELF)  # 16 pages of 4 KiB are mapped at once
    faults = after.ru_minflt + after.ru_majflt - before.ru_minflt - before.ru_majflt
    assert faults < n * features / (16 * 4096) / 2


@pytest.mark.parametrize(
    ("arrays", "partition"),
    [(NUMBERS, "natural"), (GREY, "natural"), (COLOURS, "natural"), (GREY, "lognormal_labels")],
)
def test_a_run_is_that_on_an_npz_file(arrays: dict[str, Any], partition: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", **arrays)
    write(tmp_path / "a", arrays)
    losses = []
    for path in (tmp_path / "a.npz", tmp_path / "a"):
        words = ["dataset=npz", f"dataset.path={path}", "clients.total=5", "clients.per_round=2", "rounds=1"]
        words += [f"partition={partition}", "model=logistic", "local.steps=2", "eval.train=true"]
        run = tmp_path / f"run of {path.name}"
        run_of_path = Run(compose_config([*words, "dataset.validation=0.2", "progress=none"]))
        assert run_of_path.go(run)["status"] == "completed"
        losses.append(pd.read_csv(run / "metrics.csv").filter(regex="loss$"))
    assert losses[0].shape == (2, 3)
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-6)


@pytest.mark.parametrize(
    ("keys", "changes", "says"),
    [
        ({"classes": [0, 1]}, {}, "dataset.classes=[0,1]: must be null: samples of a directory of"),
        ({"pool": 0.2}, {}, "dataset.pool=0.2: must be null: samples of a directory of .npy files"),
        ({}, {"x_train": NUMBERS["x_train"].astype(">f4")}, "x_train is >f4 of shape (600, 7); uint8"),
        ({}, {"x_train": NUMBERS["x_train"] * np.float32(np.nan)}, "x_train has a NaN or an infinity"),
        ({"vocabulary": 300}, {"x_train": np.ones((600, 7), int)}, "x_train is int64 of shape (600, 7)"),
        ({}, {"x_train": np.array(["a"], object)}, "x_train.npy: cannot be read as an array ("),
        ({}, {"x_train": np.zeros((0, 7), np.float32)}, "x_train"),
    ],
)
def test_what_is_wrong_is_one_line(keys: Any, changes: Any, says: str, tmp_path: Path) -> None:
    path = write(tmp_path / "a", NUMBERS, **changes)
    assert says in refusal({"name": "npz", "path": str(path), **keys})


def test_a_file_cut_short(tmp_path: Path) -> None:
    path = write(tmp_path / "a", NUMBERS)
    with (path / "x_test.npy").open("r+b") as stream:
        stream.truncate(1000)
    with pytest.raises(DataError, match=r"x_test.npy: cannot be read as an array \("):
        read(path)


def test_a_subset_is_in_memory(tmp_path: Path) -> None:
    data = read(write(tmp_path / "a"), train_samples=100)
    assert data.on_disk == ("x_test",)
    assert len(data.x_train) == 100


def test_features_and_channels_that_never_vary_become_zero() -> None:
    images = torch.arange(24, dtype=torch.uint8).view(3, 2, 2, 2)
    images[:, 1] = 51
    assert (to_input(images, *mean_std(images), torch.float64)[:, 1] == 0).all()
    x = torch.from_numpy(np.random.default_rng(0).normal(size=(1000, 3)))
    x[:, 1] = 0.1  # its mean in floating point is not 0.1, so its computed variance would not be 0
    mean, std = mean_std(x)
    z = to_input(x, mean, std, torch.float64)
    assert (z[:, 1] == 0).all()
    np.testing.assert_allclose(z[:, [0, 2]].std(0, correction=0), 1.0, rtol=1e-12)
