"""A finished run with many options together, recomputed from its own files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from run_files import inputs, model, read, summary
from torch import Tensor

from fedbench.api import compose_config
from fedbench.engine.batches import BatchPlanner, ClientIndex
from fedbench.rng import Stream
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


def logits(x: Tensor, kept: list[Tensor], training: bool = False) -> Tensor:
    """Of the network by torch's own layers, from the values of model.pt; its statistics move in training."""
    weight, bias, gain, shift, mean, var, out, base = kept
    x = torch.nn.functional.conv2d(x.view(-1, 1, 8, 8), weight, bias, padding=1)
    x = torch.nn.functional.batch_norm(x, mean, var, gain, shift, training).relu()
    return torch.nn.functional.max_pool2d(x, 2).flatten(1) @ out.T + base


def by_label_of_tuned(run: Run, kept: dict[str, Tensor], client: np.ndarray, i: int) -> np.ndarray:
    """The accuracy on the test samples of each label after two steps of client i from the run's model."""
    steps, copy, data = np.full(N, 2), [value.clone() for value in kept.values()], run.problem.dataset
    planner = BatchPlanner(ClientIndex(client, N), seed=0, batch=B, steps=steps)
    drawn = planner.draw(Stream.FINETUNE, planner.jobs(np.array([i]), np.array([3])))
    x, x_test = (torch.from_numpy(inputs(run, part)) for part in ("train", "test"))
    moving = [value for place, value in enumerate(copy) if place not in (4, 5)]
    for index, count in zip(drawn.index[:, 0], drawn.known.count[:, 0], strict=True):
        samples = index[:count]
        assert (client[samples] == i).all()
        for value in moving:
            value.requires_grad_()
        loss = torch.nn.functional.cross_entropy(logits(x[samples], copy, True), data.y_train[samples])
        loss = loss + 0.01 / 2 * sum(value.square().sum() for value in moving)
        for value, slope in zip(moving, torch.autograd.grad(loss, moving), strict=True):
            value.requires_grad_(False).sub_(slope, alpha=0.02)
    right = (logits(x_test, copy).argmax(1) == data.y_test).numpy()
    return np.array([right[data.y_test.numpy() == label].mean() for label in range(3)])


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
    assert not torch.equal([*kept.values()][5], torch.ones(3, dtype=torch.float64))
    for part, y, loss in (
        ("train", data.y_train, row["train_loss"]),
        ("test", data.y_test, row["test_loss"]),
    ):
        z = logits(torch.from_numpy(inputs(run, part)), [*kept.values()])
        assert float(loss) == pytest.approx(float(torch.nn.functional.cross_entropy(z, y)), rel=1e-9)
        right = float((z.argmax(1) == y).double().mean())
        assert part == "train" or float(row["test_accuracy"]) == pytest.approx(right, abs=1e-12)

    # gradients of mini-batches: two points a step, and one full local pass in each job
    jobs = [int(job["client"]) for job in read(tmp_path / "jobs.csv") if job["status"] == "applied"]
    batches = -(-sizes // B)
    assert len(jobs) == 9
    assert int(row["gradient_evaluations"]) == sum((2 * EPOCHS + 1) * batches[i] for i in jobs)
    parameters = summary(tmp_path)["parameters"]
    assert parameters == sum(value.numel() for value in kept.values()) - 6
    last = [one for one in read(tmp_path / "clients.csv") if one["round"] == "3"]
    assert [int(one["samples"]) for one in last] == sizes.tolist()

    # each client's copy makes two steps of SGD on its own mini-batches; its mixture of labels weighs the test
    mixture = np.array([np.bincount(data.y_train[client == i], minlength=3) / sizes[i] for i in range(N)])
    tuned = [mixture[i] @ by_label_of_tuned(run, kept, client, i) for i in range(N)]
    assert [float(one["finetuned_accuracy"]) for one in last] == pytest.approx(tuned, rel=1e-12)
    assert float(row["finetuned_accuracy_mean"]) == pytest.approx(np.mean(tuned), rel=1e-12)
    assert float(row["finetuned_accuracy_worst"]) == pytest.approx(min(tuned), rel=1e-12)
    each = [float(one["accuracy"]) for one in last]
    assert max(abs(np.subtract(each, tuned))) > 0.01
    assert float(row["client_accuracy_mean"]) == pytest.approx(np.mean(each), rel=1e-12)
