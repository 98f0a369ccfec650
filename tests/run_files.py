"""What a run leaves, as tests compare it."""

from __future__ import annotations

import csv
import json
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedbench.api import compose_config
from fedbench.cli import main
from fedbench.runs.run import Run


def runs(common: str) -> Callable[..., Run]:
    """A function of a directory and further words: computes the run there, and returns it."""

    def go(directory: Path, *words: str) -> Run:
        run = Run(compose_config([*common.split(), *words]))
        run.go(directory)
        return run

    return go


class Call:
    """The command line in this process, given its words: (exit code, stdout, stderr)."""

    def __init__(self, captured: pytest.CaptureFixture[str]) -> None:
        self.captured = captured

    def __call__(self, *words: str) -> tuple[int, str, str]:
        code = main(words)
        out, err = self.captured.readouterr()
        return code, out, err

    def done(self, *words: str) -> str:
        """What a command prints that ends well, and says nothing else."""
        code, out, err = self(*words)
        assert (code, err) == (0, ""), words
        return out

    def refused(self, *words: str) -> str:
        """The one line that a command with bad input says, and nothing else."""
        code, out, err = self(*words)
        assert (code, out, err.count("\n")) == (2, "", 1), err
        assert err.startswith("fedbench: ")
        return err


def read(file: Path) -> list[dict[str, str]]:
    """The rows of a CSV file."""
    with open(file, newline="") as stream:
        return list(csv.DictReader(stream))


def metrics(directory: Path) -> list[dict[str, str]]:
    """The rows of metrics.csv without the column that says how long it took."""
    rows = read(directory / "metrics.csv")
    return [{k: v for k, v in row.items() if k != "wall_seconds"} for row in rows]


def model(directory: Path) -> dict[str, torch.Tensor]:
    """The parameters in model.pt."""
    return torch.load(directory / "model.pt", weights_only=True)


def same_model(one: Path, other: Path) -> bool:
    """Whether two runs have the same parameters, bit for bit."""
    a, b = model(one), model(other)
    return a.keys() == b.keys() and all(torch.equal(value, b[name]) for name, value in a.items())


def inputs(run: Run, part: str) -> np.ndarray:
    """The `train` or `test` samples of a run as its model gets them (n, features)."""
    data = run.problem.dataset
    x = getattr(data, f"x_{part}").double()
    found: np.ndarray = (x if data.mean is None else (x - data.mean) / data.std).flatten(1).numpy()
    return found


def logits(run: Run, directory: Path, part: str = "test") -> np.ndarray:
    """What the logistic model that a run has left says of its samples (n, classes)."""
    weight, bias = (value.double().numpy() for value in model(directory).values())
    found: np.ndarray = inputs(run, part) @ weight.T + bias
    return found


def summary(directory: Path) -> dict[str, Any]:
    """The content of summary.json."""
    found: dict[str, Any] = json.loads((directory / "summary.json").read_text())
    return found


def write_mnist(root: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """MNIST's four files in torchvision's layout, of uint8 `x_train`, `y_train`, `x_test` and `y_test`."""
    (root / "MNIST" / "raw").mkdir(parents=True)
    for name, values in arrays.items():
        kind, part = {"x": "images-idx3", "y": "labels-idx1"}[name[0]], name[2:].replace("test", "t10k")
        header = struct.pack(f">{values.ndim + 1}I", 0x0800 + values.ndim, *values.shape)
        file = root / "MNIST" / "raw" / f"{part}-{kind}-ubyte"
        file.write_bytes(header + values.astype(np.uint8).tobytes())


def own_method(name: str, body: str = "", update: str = "mean.delta") -> str:
    """The module of a user's with FedAvg as a method of this name. `body`: further lines of its class;
    `update`: what the server adds, times `h.server_lr`."""
    lines = ["from fedbench.method import Algorithm, positive, register", f"@register('{name}')"]
    lines += ["class Mine(Algorithm):", '    """Nothing new."""', "    lr: float = positive(0.1)"]
    lines += ["    server_lr: float = positive(1.0)", *(f"    {line}" for line in body.splitlines())]
    lines += ["    def server_step(self, server, mean, n, h):"]
    lines += [f"        return {{'theta': server.theta + h.server_lr * {update}}}"]
    return "\n".join(lines) + "\n"
