"""A finished run with many options together, recomputed from its own files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from run_files import inputs, model, read, summary

from fedbench.api import compose_config
from fedbench.runs.run import Run

N, SAMPLES, B, EPOCHS, LABELS = 6, 110, 8, 2, (7, 1, 4)
WORDS = [
    "dataset=digits", f"dataset.classes=[{','.join(map(str, LABELS))}]", f"dataset.train_samples={SAMPLES}",
    "dataset.test_samples=40", "partition=powerlaw", "partition.exponent=1.3", f"clients.total={N}",
    "clients.per_round=3", f"local.epochs={EPOCHS}", f"local.batch_size={B}", "model=conv",
    "model.channels=[3]", "model.kernels=[3]", "model.padding=[1]", "model.pools=[1]", "model.hidden=[]",
    "model.norm=batch", "model.pooling=max", "model.activation=relu", "algorithm=mime", "algorithm.base=sgd",
    "algorithm.lr=0.1", "rounds=3", "eval.every=3", "eval.train=true", "eval.finetune_steps=2",
    "eval.finetune_lr=0.02", "eval.clients=true", "trace=true", "loss.weight_decay=0.01", "dtype=float64",
    "threads=1", "progress=none",
]  # fmt: skip


@pytest.mark.parametrize("engine", ["loop", "vmap"])
def test_a_run_with_many_options_is_what_its_files_say(tmp_path: Path, engine: str) -> None:
    run = Run(compose_config([*WORDS, f"engine={engine}"]))
    run.go(tmp_path)
    row, data = read(tmp_path / "metrics.csv")[-1], run.problem.dataset

    # the subset is taken of the chosen classes, and clients have the law's sizes: the leftover samples go
    # to the largest remainders
    client = np.load(tmp_path / "partition.npz")["client"]
    assert len(client) == SAMPLES
    assert (len(data.y_test), set(data.y_train.tolist())) == (40, {0, 1, 2})
    share = np.arange(1, N + 1) ** -1.3
    exact = SAMPLES * share / share.sum()
    sizes = np.floor(exact).astype(int)
    for place in sorted(range(N), key=lambda i: exact[i] % 1)[::-1][: SAMPLES - sizes.sum()]:
        sizes[place] += 1
    assert np.bincount(client, minlength=N).tolist() == sizes.tolist()

    # model.pt, by torch's own layers in evaluation mode: batch norm's statistics are those of the training
    kept = model(tmp_path)
    shapes = [tuple(value.shape) for value in kept.values()]
    assert shapes == [(3, 1, 3, 3), (3,), (3,), (3,), (3,), (3,), (3, 48), (3,)]
    weight, bias, gain, shift, mean, var, out, base = kept.values()
    assert not torch.equal(var, torch.ones_like(var))
    for part, y, loss in (
        ("train", data.y_train, row["train_loss"]),
        ("test", data.y_test, row["test_loss"]),
    ):
        x = torch.from_numpy(inputs(run, part)).view(-1, 1, 8, 8)
        x = torch.nn.functional.conv2d(x, weight, bias, padding=1)
        x = torch.nn.functional.batch_norm(x, mean, var, gain, shift).relu()
        logits = torch.nn.functional.max_pool2d(x, 2).flatten(1) @ out.T + base
        assert float(loss) == pytest.approx(float(torch.nn.functional.cross_entropy(logits, y)), rel=1e-9)
        right = float((logits.argmax(1) == y).double().mean())
        assert part == "train" or float(row["test_accuracy"]) == pytest.approx(right, abs=1e-12)

    # gradients of mini-batches: two points a step, and one full local pass in each job
    jobs = [int(job["client"]) for job in read(tmp_path / "jobs.csv") if job["status"] == "applied"]
    batches = -(-sizes // B)
    assert len(jobs) == 9
    assert int(row["gradient_evaluations"]) == sum((2 * EPOCHS + 1) * batches[i] for i in jobs)
    parameters = summary(tmp_path)["parameters"]
    assert parameters == sum(value.numel() for value in kept.values()) - 6
    assert 0 <= float(row["finetuned_accuracy_mean"]) <= 1
    last = [one for one in read(tmp_path / "clients.csv") if one["round"] == "3"]
    assert [int(one["samples"]) for one in last] == sizes.tolist()
    each = [float(one["accuracy"]) for one in last]
    assert float(row["client_accuracy_mean"]) == pytest.approx(np.mean(each), rel=1e-12)
