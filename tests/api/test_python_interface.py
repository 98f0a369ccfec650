"""`fedbench.run`, `sweep`, `results` and `plot`: what the command line does, as Python values."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hydra.core.global_hydra import GlobalHydra
from run_files import metrics

import fedbench
from fedbench.cli import main
from fedbench.config.identity import run_name
from fedbench.data.builtin import digits
from fedbench.errors import ConfigError, DataError, UsageError

pytestmark = pytest.mark.usefixtures("here")
SMALL = ["rounds=2", "clients.total=4", "clients.per_round=2", "local.steps=2", "progress=none"]


def test_importing_it_imports_nothing_heavy() -> None:
    heavy = "{'torch', 'pandas', 'matplotlib', 'hydra', 'omegaconf'}"
    code = f"import sys, fedbench; dir(fedbench); print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr
    assert {"run", "sweep", "results", "plot", "Run"} <= set(dir(fedbench))
    with pytest.raises(AttributeError):
        fedbench.walk  # type: ignore[attr-defined]  # noqa: B018


def test_a_run_is_that_of_the_command_line() -> None:
    """Same place, same numbers; and the one that is there is reported, not computed again."""
    words = [*SMALL, "algorithm=scaffold"]
    run = fedbench.run(words)
    assert main([*words, "hydra.run.dir=other"]) == 0
    assert metrics(run.directory) == metrics(Path("other"))
    written = (run.directory / "metrics.csv").stat().st_mtime_ns
    assert main(words) == 0  # finds it finished
    again = fedbench.run({**{text.split("=")[0]: text.split("=")[1] for text in words}})
    assert again.directory == fedbench.run(run.config).directory == run.directory
    assert (run.directory / "metrics.csv").stat().st_mtime_ns == written
    assert {"model.pt", "summary.json", "checkpoint.pt"} <= {path.name for path in run.directory.iterdir()}


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (
            lambda: fedbench.run(SMALL, {"seed": 1}),
            "run: directory={'seed': 1}: must be a path; all overrides",
        ),
        (lambda: fedbench.run(SMALL, config_dir=3), "run: config_dir=3: must be a path"),
        (lambda: fedbench.run(["rounds=1", 3]), "overrides=['rounds=1', 3]: must be a list of texts such as"),
        (lambda: fedbench.run(5), "overrides=5: must be a list of texts"),
        (lambda: fedbench.sweep(SMALL, [1]), "sweep: grid=[1]: must be a mapping, such as {'seed': [0, 1]}"),
        (lambda: fedbench.sweep(SMALL, {"seed": [0]}, [1]), "sweep: directory=[1]: must be a path"),
        (lambda: fedbench.log_to("x", ["rounds=3"]), "log_to: rounds=3: must be logger=NAME or logger.NAME"),
        (lambda: fedbench.log_to("x", []), "log_to: name a logger"),
    ],
)
def test_an_argument_of_another_kind_is_one_line(call, says: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as refused:
        call()
    assert str(refused.value).startswith(says)
    assert list(tmp_path.iterdir()) == []


def test_a_large_float_has_a_short_name() -> None:
    """Its identity has all 31 digits."""
    for value, said in (
        ("1e30", "lr_1e+30-"),
        ("1e300", "lr_1e+300-"),
        ("1e-30", "lr_1e-30-"),
        ("5", "lr_5-"),
    ):
        config = fedbench.compose_config([f"algorithm.lr={value}"])
        assert run_name(config).startswith(f"fedavg-digits-iid-logistic-seed0-{said}")


def test_what_a_run_leaves() -> None:
    run = fedbench.Run(fedbench.run([*SMALL, "seed=3", "model=mlp"], "mine").directory)
    assert run.directory == Path("mine")
    assert [repr(float(value)) for value in run.metrics["test_loss"]] == [
        row["test_loss"] for row in metrics(Path("mine"))
    ]
    assert run.metrics["round"].tolist() == [0, 1, 2]
    assert run.metrics["uplink_bytes"].dtype == "int64"
    assert run.config.seed == 3
    assert run.final_accuracy == run.metrics["test_accuracy"].iloc[-1] == run.summary["final_accuracy"]
    # the model's accuracy on the test set, computed here from the raw pixels
    data = digits()
    raw = data.x_train.float()
    with torch.no_grad():
        right = run.model((data.x_test - raw.mean()) / raw.std(correction=0)).argmax(1) == data.y_test
    assert right.float().mean().item() == pytest.approx(run.final_accuracy, abs=0.01)
    assert not run.model.training


def test_a_sweep_its_results_and_its_figure(caplog: pytest.LogCaptureFixture) -> None:
    root, handler = logging.getLogger(), logging.NullHandler()
    root.addHandler(handler)
    grid = {"algorithm": ["fedavg", "scaffold"], "seed": range(2)}
    swept = fedbench.sweep([*SMALL, "model=logistic"], grid)
    assert handler in root.handlers
    root.removeHandler(handler)
    assert GlobalHydra.instance().hydra is None
    command = ["-m", *SMALL, "model=logistic", "algorithm=fedavg,scaffold", "seed=0,1"]
    before = (swept.directory / "multirun.yaml").stat().st_mtime_ns
    assert main(command) == 0
    assert (swept.directory / "multirun.yaml").stat().st_mtime_ns > before  # the same directory

    table = fedbench.results(swept)
    assert table.equals(swept.results)
    assert list(zip(table["algorithm"], table["seed"], strict=True)) == [
        ("fedavg", 0), ("fedavg", 1), ("scaffold", 0), ("scaffold", 1),
    ]  # fmt: skip
    for run, row in zip(swept.runs, table.to_dict("records"), strict=True):
        assert {**row, **run.config.choices} == row
        accuracy, loss = run.metrics.test_accuracy, run.metrics.test_loss
        assert row["final_accuracy"] == run.final_accuracy == accuracy.iloc[-1]
        assert row["best_accuracy"] == accuracy[row["best_round"]] == accuracy.max()
        assert row["final_test_loss"] == loss.iloc[-1]
        assert (row["status"], row["rounds_done"]) == ("completed", 2)

    figure = fedbench.plot(swept, out="picture.png")
    assert Path("picture.png").stat().st_size > 1000
    assert Path("picture.pdf").is_file()
    drawn = [line.get_ydata() for line in figure.axes[0].get_lines() if line.get_gid() == "mean"]
    mean = np.mean([run.metrics["test_accuracy"] for run in swept.runs[:2]], axis=0)
    assert any(np.allclose(ys, mean) for ys in drawn)
    assert figure._repr_png_().startswith(b"\x89PNG")  # type: ignore[attr-defined]
    looks = {"by": "seed", "y": "test_loss", "where": {"algorithm": ["fedavg"]}, "log": "y"}
    assert fedbench.plot(swept, **looks).axes[0].get_yscale() == "log"

    # a run that has not ended is a row too
    (swept.runs[0].directory / "summary.json").unlink()
    (swept.directory / "runs.csv").unlink()
    row = fedbench.results(swept.directory).set_index("dir").loc[str(swept.runs[0].directory)]
    assert (row["status"], row["rounds_done"]) == ("stopped", 2)


def test_failures_are_rows(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    """A directory where a run's file belongs: that run fails, the other one is there."""
    first = fedbench.sweep(SMALL, {"seed": [0, 1]}, directory="s")
    place = first.runs[0].directory
    for name in ("summary.json", "metrics.csv", "checkpoint.pt"):
        (place / name).unlink()
    (place / "metrics.csv").mkdir()
    table = fedbench.sweep(SMALL, {"seed": [0, 1]}, directory="s").results
    assert table.set_index("seed")["status"].to_dict() == {0: "failed", 1: "completed"}
    assert "1 of 2 runs failed" in caplog.text


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: fedbench.run("rounds=1"), "rounds=1: a list of overrides is needed"),
        (lambda: fedbench.run(["seed=0,1"]), "seed=0,1: several values need --multirun"),
        (lambda: fedbench.run(["hydra.mode=MULTIRUN"]), "hydra.mode=MULTIRUN: is a sweep"),
        (lambda: fedbench.sweep([], {"seed": "01"}), "grid: seed: must be a list of values"),
        (lambda: fedbench.sweep([], {"rounds": [1, -1]}), "rounds=-1: must be an integer >= 0"),
        (lambda: fedbench.results("nowhere"), "nowhere: no such directory"),
        (lambda: fedbench.Run("nowhere").metrics, "nowhere/metrics.csv: there is none"),
        (lambda: fedbench.Run("nowhere").config, "nowhere: not a run directory"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(call, said: str, tmp_path: Path) -> None:
    with pytest.raises((UsageError, ConfigError, DataError)) as refused:
        call()
    assert str(refused.value).startswith(said)
    assert "\n" not in str(refused.value)
    assert list(tmp_path.iterdir()) == []
