"""FedProxVR's step size from a measured smoothness, and what a job of it computes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from run_files import metrics, summary

from fedbench import algorithms
from fedbench.algorithms.curvature import largest_curvature
from fedbench.api import compose_config
from fedbench.data.transforms import to_input
from fedbench.errors import ConfigError
from fedbench.method import Counts
from fedbench.runs.run import Run


def test_step_from_beta_and_smoothness() -> None:
    n = Counts(S=2, N=2, K=4, T=4)
    create = algorithms.get("fedproxvr").create
    assert create({"lr": None, "beta": 5.0, "L": 4.0}).resolve(n)["lr"] == 0.05
    assert "beta" not in create({"lr": 0.3}).resolve(n)
    for values in ({"lr": 0.1, "beta": 5.0, "L": 4.0}, {"lr": 0.1, "L": 4.0}):
        with pytest.raises(ConfigError, match=r"either algorithm\.lr or algorithm\.beta"):
            create(values)
    for values in ({"lr": None}, {"lr": None, "L": 2.0}):
        with pytest.raises(ConfigError, match=r"give algorithm\.lr, or algorithm\.beta"):
            create(values)


def test_a_run_measures_the_smoothness(tmp_path: Path) -> None:
    """Softmax regression at 0: the Hessian is (I - 11^T/10)/10 (x) the mean of z z^T, z = (x, 1)."""
    cfg = compose_config(
        ["algorithm=fedproxvr", "algorithm.lr=null", "algorithm.beta=5", "model=logistic", "model.init=zeros",
         "rounds=1", "clients.total=4", "clients.per_round=2", "partition=iid", "progress=none"]
    )  # fmt: skip
    data = Run(cfg).problem.dataset
    x = to_input(data.x_train, data.mean, data.std, torch.float64).flatten(1).numpy()
    z = np.hstack([x, np.ones((len(x), 1))])
    Run(cfg).go(tmp_path)
    assert any("mean training loss at theta^0" in note for note in summary(tmp_path)["notes"])
    hyper = summary(tmp_path)["hyper"]
    assert hyper["L"] == pytest.approx(np.linalg.eigvalsh(z.T @ z / len(z))[-1] / 10, rel=0.02)
    assert hyper["lr"] == pytest.approx(1 / (5 * hyper["L"]), rel=1e-12)
    first, last = (int(row["gradient_evaluations"]) for row in metrics(tmp_path))
    assert (first, last) == (0, 2 * (12 + 2 * 9))  # two jobs: a full pass in 12 mini-batches, then nine steps


@pytest.mark.parametrize(("factor", "far", "dtype"), [(1.0, 1.0, torch.float64), (1e-6, 1.0, torch.float64),
                                                      (1.0, 1e4, torch.float32)])  # fmt: skip
def test_curvature_is_absolute_and_not_0(factor: float, far: float, dtype: torch.dtype) -> None:
    """Whatever the unit of the loss, and far from 0, where a fixed step would drown in rounding."""
    scale = factor * torch.tensor([1.0, -5.0, 3.0], dtype=dtype)
    theta = far * torch.ones(3, dtype=dtype)
    assert largest_curvature(lambda at: scale * at, theta) == pytest.approx(5 * factor, rel=1e-2)
    assert largest_curvature(torch.zeros_like, theta) == 0
    with pytest.raises(ConfigError, match="estimate"):
        algorithms.get("fedproxvr").create({"lr": None, "beta": 5.0}).measured(torch.zeros_like, theta)
