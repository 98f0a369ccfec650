"""Partitions by default: a data set with clients of its own brings its own, and each default divides it."""

from __future__ import annotations

import numpy as np
import pytest

from fedbench.api import compose_config
from fedbench.data.partition_options import PARTITIONS
from fedbench.runs.run import Run


@pytest.mark.parametrize(
    ("words", "partition"),
    [
        ([], "iid"),
        (["dataset=synthetic"], "natural"),
        (["dataset=synthetic", "partition=dirichlet"], "dirichlet"),
        (["partition=dirichlet", "dataset=synthetic", "partition.alpha=2"], "dirichlet"),
    ],
)
def test_synthetic_takes_its_natural_partition_unless_told_otherwise(
    words: list[str], partition: str
) -> None:
    assert compose_config(words).partition.name == partition


@pytest.mark.parametrize("name", [name for name in PARTITIONS if name not in ("file", "lognormal_labels")])
def test_defaults_of_the_options_work(name: str) -> None:
    words = ["dataset=synthetic", "dataset.iid=true", "clients.total=10", "clients.per_round=2"]
    run = Run(compose_config([*words, f"partition={name}"]))
    assert sorted(np.unique(run.problem.division.assignment[run.problem.division.assignment >= 0])) == list(
        range(10)
    )
