"""Random commands: the valid run to finite numbers or are refused with one line; the broken leave nothing."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import math
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hydra.core.global_hydra import GlobalHydra
from hypothesis import example, given, settings
from hypothesis import strategies as st
from run_files import metrics

from fedbench.algorithms import get, names
from fedbench.cli import main
from fedbench.config.config import Settings
from fedbench.data.options import DATASETS
from fedbench.data.partition_options import PARTITIONS
from fedbench.fields import Rule, rules
from fedbench.schedule.options import DELAYS, SCHEDULES

pytestmark = pytest.mark.slow

SMALL = (
    "rounds=2", "clients.total=4", "clients.per_round=2", "local.steps=2", "local.batch_size=8",
    "progress=none",
)  # fmt: skip
DATA = {"digits": DATASETS["digits"], "synthetic": DATASETS["synthetic"]}
FEW = ("dataset.train_samples=60", "dataset.test_samples=20")
MODELS = ("logistic", "mlp", "cnn_small")
NUMBERS = (0, 1, 2, 3, 4, 0.01, 0.1, 0.3, 0.5, 0.9, 1.5)
MACHINE = {"device", "threads", "engine", "data.root", "progress", "imports", "init_from"}
LONG = {"rounds", "clients.total", "local.epochs"}


def call(argv: list[str], directory: Path) -> tuple[int, str, str]:
    """`fedbench ARGV` in this process, with `directory` as the current one: (exit code, stdout, stderr)."""
    GlobalHydra.instance().clear()
    out, err, before = io.StringIO(), io.StringIO(), Path.cwd()
    os.chdir(directory)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main(argv)
    finally:
        os.chdir(before)
    return code, out.getvalue(), err.getvalue()


@contextlib.contextmanager
def empty() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def check_refusal(code: int, out: str, err: str, directory: Path) -> None:
    assert code in (1, 2)
    assert (out, err.count("\n")) == ("", 1), err
    assert err.startswith("fedbench: ")
    assert "internal error" not in err
    assert list(directory.iterdir()) == []


def texts(rule: Rule) -> list[str]:
    """A few values that the rule allows, as a command line says them."""
    if rule.kind == "switch":
        return ["true", "false"]
    if rule.kind == "choice":
        return [str(option) for option in rule.options]
    allowed = ["null"] if rule.null else []
    if rule.kind in ("number", "integer"):
        for number in NUMBERS:
            with contextlib.suppress(ValueError):
                rule.check(number)
                allowed.append(str(number))
    return allowed


def some_of(draw: Any, options: Mapping[str, Rule], prefix: str) -> list[str]:
    """Up to two of the options, set to something that is allowed."""
    keys = sorted(key for key, rule in options.items() if texts(rule))
    chosen = draw(st.lists(st.sampled_from(keys), max_size=2, unique=True)) if keys else []
    return [f"{prefix}{key}={draw(st.sampled_from(texts(options[key])))}" for key in chosen]


@st.composite
def commands(draw: Any) -> list[str]:
    """A command line of declared options with allowed values; together they may still make no sense."""
    argv = [*SMALL, f"model={draw(st.sampled_from(MODELS))}"]
    algorithm = draw(st.sampled_from(names()))
    argv += [f"algorithm={algorithm}", *some_of(draw, dict(rules(get(algorithm))), "algorithm.")]
    groups = (("dataset", DATA), ("partition", PARTITIONS), ("schedule", SCHEDULES), ("delay", DELAYS))
    for group, classes in groups:
        name = draw(st.sampled_from(sorted(classes)))
        argv += [f"{group}={name}", *some_of(draw, dict(rules(classes[name])), f"{group}.")]
    every = {key: rule for key, rule in rules(Settings) if key not in MACHINE | LONG}
    argv += [f"engine={draw(st.sampled_from(('loop', 'vmap')))}", *some_of(draw, every, "")]
    given_keys = {word.partition("=")[0] for word in argv}
    return [*argv, *(word for word in FEW if word.partition("=")[0] not in given_keys)]


@settings(max_examples=100, derandomize=True)
@given(commands())
def test_valid_options_run_to_finite_numbers_or_are_refused(argv: list[str]) -> None:
    with empty() as directory:
        code, out, err = call([*argv, "hydra.run.dir=run"], directory)
        if code:
            return check_refusal(code, out, err, directory)
        summary = json.loads((directory / "run" / "summary.json").read_text())
        with (directory / "run" / "metrics.csv").open(newline="") as stream:
            rows = list(csv.DictReader(stream))
        assert rows
        if summary["status"] != "diverged":
            numbers = [float(text) for row in rows for text in row.values() if text]
            assert all(math.isfinite(number) for number in numbers)
            assert 0 <= summary["final_accuracy"] <= 1
    return None


VALID = (
    *SMALL, *FEW, "dataset=digits", "dataset.normalize=true", "partition=dirichlet", "partition.alpha=0.5",
    "model=mlp", "model.hidden=[8]", "algorithm=fedadam", "algorithm.lr=0.1", "algorithm.beta1=0.9",
    "schedule=async", "schedule.concurrency=3", "schedule.refill=immediate", "delay=exponential",
    "delay.mean=1.5", "seed=1", "dtype=float32", "loss.weight_decay=0.001", "loss.scale=1.0", "eval.every=1",
    "eval.final_k=1", "eval.train=true", "trace=true", "checkpoint.seconds=5", "resume=true", "engine=vmap",
    "chunk=2", "imports=[]", "init_from=null", "hydra.run.dir=run",
)  # fmt: skip
WRONG = (
    "", "x", "-1", "0", "nan", "-inf", "1e999", "null", "true", "[]", "{}", "{a: 1}", "[1, 2", "'", "${x}",
    "$", "é", "a b", "=", "x" * 300, "../x", "~", "1_0", "0x10", "[null]", "range(3)", "1,2",
)  # fmt: skip


@settings(max_examples=40, derandomize=True)
@given(st.integers(0, len(VALID) - 1), st.sampled_from(WRONG))
def test_a_wrong_value_is_refused_and_leaves_nothing(index: int, value: str) -> None:
    argv = list(VALID)
    argv[index] = f"{argv[index].partition('=')[0]}={value}"
    with empty() as directory:
        code, out, err = call(argv, directory)
        if code:
            check_refusal(code, out, err, directory)


@st.composite
def misspelt(draw: Any) -> tuple[int, str]:
    """One of the valid words with one character of its key changed, doubled or left out."""
    index = draw(st.integers(0, len(VALID) - 1))
    key, _, value = VALID[index].partition("=")
    at = draw(st.integers(0, len(key) - 1))
    other = draw(st.sampled_from(("", key[at] * 2, "q", ".", "-", "_", "+", "~", "@", "/", " ")))
    return index, f"{key[:at]}{other}{key[at + 1 :]}={value}"


@settings(max_examples=50, derandomize=True)
@given(misspelt())
@example((len(SMALL) + len(FEW), "dataset@=digits"))  # composed itself anew for ever
def test_a_misspelt_key_is_refused_and_leaves_nothing(change: tuple[int, str]) -> None:
    index, word = change
    argv = [*VALID[:index], word, *VALID[index + 1 :]]
    with empty() as directory:
        code, out, err = call(argv, directory)
        assert code == 2, word
        check_refusal(code, out, err, directory)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a finished run below it."""
    directory = tmp_path_factory.mktemp("finished")
    assert call(list(VALID), directory)[0] == 0
    return directory


FILES = [
    "config.yaml",
    "metrics.csv",
    "summary.json",
    "partition.npz",
    "model.pt",
    "jobs.csv",
]
"""Files of a finished run, without checkpoint.pt: it needs none (test_holes.py)."""


def content(file: Path) -> Any:
    """What has to be the same in two runs of one command."""
    if file.name == "metrics.csv":
        return metrics(file.parent)
    if file.suffix == ".npz":
        return np.load(file)["client"].tolist()
    if file.name == "model.pt":
        return {key: value.tolist() for key, value in torch.load(file, weights_only=True).items()}
    if file.name == "summary.json":
        whole = json.loads(file.read_text())
        return [whole[key] for key in ("status", "rounds", "final_accuracy", "hyper", "config")]
    return file.read_text()


@pytest.mark.parametrize("name", FILES)
@settings(max_examples=3, derandomize=True)
@given(share=st.floats(0, 1, exclude_max=True))
@example(share=0.0)
def test_a_cut_file_is_noticed(finished: Path, name: str, share: float) -> None:
    """The same command makes the file whole again, or refuses the directory with one line."""
    with empty() as directory:
        shutil.copytree(finished / "run", directory / "run")
        file = directory / "run" / name
        whole = file.read_bytes()
        file.write_bytes(whole[: int(share * len(whole))])
        code, _, err = call(list(VALID), directory)
        if code:
            assert (code in (1, 2), err.count("\n")) == (True, 1)
            assert "internal error" not in err
            assert "run" in err
        else:
            assert content(file) == content(finished / "run" / name)
