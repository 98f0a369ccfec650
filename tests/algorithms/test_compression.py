"""Compressed uploads (`compress.kind=`), against NumPy in float64: replayed from jobs.csv."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from run_files import metrics, model, same_model
from test_own_methods import ASYNC, ENGINES, LR, ROUNDS, SEED, STEPS, D, Data, flat, uniform, words_of
from test_own_methods import data as data  # a fixture
from test_own_methods import gradient as gradient_of

from fedbench.api import run
from fedbench.errors import ConfigError
from fedbench.method.compression import qsgd, topk
from fedbench.rng import Stream, fold, make_key


def largest(v: np.ndarray, share: float) -> np.ndarray:
    """The k largest numbers, by sorting."""
    kept = np.argsort(-np.abs(v), kind="stable")[: max(int(share * len(v) + 0.5), 1)]
    sent = np.zeros_like(v)
    sent[kept] = v[kept]
    return sent


def rounded(v: np.ndarray, levels: int, drawn: np.ndarray) -> np.ndarray:
    """As in the paper: l/s, or (l + 1)/s with the probability |v_j| s / |v| - l."""
    norm = np.sqrt((v**2).sum())
    sent = np.zeros_like(v)
    for j in range(len(v)):
        low = int(abs(v[j]) / norm * levels)
        up = drawn[j] < abs(v[j]) / norm * levels - low
        sent[j] = norm * np.sign(v[j]) * (low + up) / levels
    return sent


CASES = {  # words, whether with feedback, bytes of an upload of 15 float64
    "topk": ("compress.kind=topk compress.share=0.3", True, 5 * 12),
    "topk alone": ("compress.kind=topk compress.share=0.3 compress.feedback=false", False, 5 * 12),
    "one number": ("compress.kind=topk", True, 12),
    "qsgd": ("compress.kind=qsgd compress.levels=3", False, 8 + 6),  # 7 levels: 3 bits
    "qsgd with feedback": ("compress.kind=qsgd compress.levels=4 compress.feedback=true", True, 8 + 8),
}


EACH = [
    (name, schedule, engine) for name in CASES for schedule in ("sync", "async") for engine in ENGINES[:2]
]
COMPILED = [
    pytest.param(name, "sync", "compile", marks=pytest.mark.slow) for name in ("topk", "qsgd with feedback")
]


@pytest.mark.parametrize(("name", "schedule", "engine"), [*EACH, *COMPILED])
def test_uploads_are_compressed(tmp_path: Path, data: Data, name: str, schedule: str, engine: str) -> None:
    """With what a client has left; in a resumed run too. The bytes are those that travel."""
    asked, feedback, size = CASES[name]
    more = ASYNC if schedule == "async" else []
    words = words_of(data, tmp_path, *asked.split(), *more, "model.init=zeros", f"engine={engine}")
    words += [
        "algorithm.weighting=uniform",
        "chunk=2",
        f"algorithm.lr={LR}",
        f"seed={SEED}",
        "checkpoint.seconds=0",
        "rounds=6",
    ]
    made = run(words, tmp_path / "run")
    jobs = pd.read_csv(tmp_path / "run/jobs.csv", comment="#").sort_values("job")
    jobs["n"] = jobs.groupby("client").cumcount()
    models, left = [np.zeros(D)], {i: np.zeros(D) for i in jobs.client.unique()}
    sent: dict[int, np.ndarray] = {}
    for t in range(ROUNDS + 2):
        for job in jobs[(jobs.start_version == t) & (jobs.status == "applied")].itertuples():
            y, own = models[t], data["client"] == job.client
            for _ in range(STEPS):
                y = y - LR * gradient_of(y, data["x_train"][own], data["y_train"][own])
            v = y - models[t] + (left[job.client] if feedback else 0)
            if "topk" in asked:
                sent[job.job] = largest(v, 0.3 if "share" in asked else 0.01)
            else:
                key = fold(make_key(SEED, Stream.CLIENT, job.client, job.n), 1)
                sent[job.job] = rounded(v, 3 if "=3" in asked else 4, uniform(key, 0))
            left[job.client] = v - sent[job.job]
        arrived = jobs[jobs.applied_update == t]
        models.append(models[t] + np.mean([sent[job] for job in arrived.job], 0))
    np.testing.assert_allclose(flat(tmp_path / "run"), models[-1], rtol=1e-9, atol=1e-12)
    assert made.metrics.iloc[-1].uplink_bytes == size * (jobs.status == "applied").sum()
    run([*words, "checkpoint.until=3"], tmp_path / "parts")
    run(words, tmp_path / "parts")
    assert metrics(tmp_path / "parts") == metrics(tmp_path / "run")
    assert same_model(tmp_path / "parts", tmp_path / "run")


def test_qsgd_has_no_bias_and_the_papers_variance() -> None:
    """E|Q(v) - v|^2 <= min(d / s^2, sqrt(d) / s) |v|^2; zeros stay zeros."""
    v, draws = torch.linspace(-1, 2, 20, dtype=torch.float64), 20_000
    drawn = torch.rand(draws, 20, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for levels in (1, 3, 16):
        made = torch.func.vmap(lambda u, levels=levels: qsgd(v, levels, u))(drawn)
        deviation = v.norm() / levels / 2 / draws**0.5
        assert (made.mean(0) - v).abs().max() < 5 * deviation
        bound = min(20 / levels**2, 20**0.5 / levels) * v.square().sum()
        assert (made - v).square().sum(1).mean() <= bound
    assert qsgd(torch.zeros(4), 2, torch.rand(4)).tolist() == [0] * 4
    assert topk(torch.tensor([1.0, -3, 2, 0]), 0.5).tolist() == [0, -3, 2, 0]


def test_compression_goes_with_what_else_a_method_has(tmp_path: Path, data: Data) -> None:
    """All levels of all numbers are the difference itself, to rounding, with clients' state, personal parts,
    caches, other aggregates and attackers."""
    whole = "compress.kind=topk compress.share=1.0"
    for number, more in enumerate(
        (
            "algorithm=ditto",
            "algorithm=feddyn",
            "algorithm=fedexp",
            "algorithm=ca2fl schedule=async schedule.concurrency=4 delay=exponential",
            "algorithm=fedavg aggregation=median participation.attack=sign_flip participation.attackers=0.2",
            "algorithm=fednova local.batch_size=2",
        )
    ):
        words = words_of(data, tmp_path, *more.split(), "state.place=memory")
        run(words, tmp_path / f"plain{number}")
        run([*words, *whole.split()], tmp_path / f"whole{number}")
        found = [flat(tmp_path / f"{name}{number}") for name in ("plain", "whole")]
        np.testing.assert_allclose(*found, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("algorithm=scaffold", "compress.kind=topk: must be none: scaffold sends delta, dc, and not one of"),
        (
            "algorithm=fedasync clients.per_round=1 schedule=async",
            "must be none: fedasync sends x, and not one",
        ),
        ("algorithm=local clients.per_round=5", "must be none: local sends nothing, and not one of"),
        ("algorithm=fedavg algorithm.server_lr=average", "algorithm.server_lr=average: "),
        ("algorithm=fedavg compress.share=0", "compress.share=0: must be a number in (0, 1]"),
        (
            "participation=weighted",
            "lets a client count twice, which fedavg's per-client state does not allow",
        ),
    ],
)
def test_what_cannot_be_compressed_is_refused(tmp_path: Path, data: Data, words: str, line: str) -> None:
    with pytest.raises(ConfigError) as refused:
        run(words_of(data, tmp_path, *words.split(), "compress.kind=topk"), tmp_path / "run")
    assert line in str(refused.value)


def test_a_large_model_costs_what_it_sends(tmp_path: Path) -> None:
    """One whose other costs are measured by small stand-ins."""
    words = ["model=mlp", "model.hidden=[1200,800]", "rounds=1", "progress=none", "compress.kind=qsgd"]
    words += ["clients.total=2", "clients.per_round=2", "local.steps=1"]
    made = run(words, tmp_path / "run")
    d = sum(value.numel() for value in model(tmp_path / "run").values())
    assert d > 10**6
    assert made.metrics.uplink_bytes.iloc[-1] == 2 * (4 + d * 4 // 8)
