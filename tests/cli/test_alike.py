"""Which runs of a sweep are told to share a compiled step."""

from __future__ import annotations

import pickle

import pytest

from fedbench.api import compose_config
from fedbench.sweeps.job import RunJob, program

BASE = ["algorithm=padamfed", "progress=none"]
SHARED = [
    "algorithm.lr=0.3 algorithm.beta=0.5", "seed=4", "rounds=7", "clients.total=31", "threads=1",
    "engine=compile", "eval.every=2", "partition=dirichlet",
]  # fmt: skip
ITS_OWN = [
    "algorithm=scaffold", "algorithm.normalise=false", "algorithm.norm=tensor", "model=mlp",
    "dataset=synthetic", "local.batch_size=7", "clients.per_round=6", "loss.weight_decay=0.1",
    "dtype=float64",
]  # fmt: skip


@pytest.mark.parametrize("words", [*SHARED, *ITS_OWN])
def test_numbers_and_seeds_share_a_step_and_variants_and_shapes_do_not(words: str) -> None:
    one, other = (program(compose_config([*BASE, *more])) for more in ([], words.split()))
    assert (one == other) == (words in SHARED)


def test_a_run_knows_how_many_are_to_come(runs, fedbench) -> None:
    """Of those that are not finished; also in a process that was sent the job."""
    words = ["-m", "rounds=1", "algorithm=fedavg,scaffold", "algorithm.lr=0.1,0.2"]
    assert fedbench(*words, "seed=0")[0] == 0
    assert runs.to_come[4:] == [2] * 4  # four were made to check them
    assert fedbench(*words, "seed=0,1,2")[0] == 0
    assert runs.to_come[12:] == [4] * 8
    configs = [compose_config([*BASE, f"seed={seed}"]) for seed in range(3)]
    job = RunJob()
    job.expect(configs)
    assert pickle.loads(pickle.dumps(job)).to_come(configs[1]) == 3
