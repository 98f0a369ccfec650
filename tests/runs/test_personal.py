"""The clients' own models against a plain loop: each alone, over the test set, weighted by its labels."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pytest
import torch

from fedbench.api import compose_config
from fedbench.runs.evaluation import PersonalEvaluator
from fedbench.runs.run import Run

N = 12
MODELS = [
    ["model=mlp", "model.hidden=[8]", "model.norm=layer"],
    ["model=cnn", "model.norm=batch"],
]


@pytest.mark.parametrize("partition", [["shards"], ["dirichlet", "partition.alpha=0.5"]])
@pytest.mark.parametrize("model", MODELS)
def test_equals_a_plain_loop(model: list[str], partition: list[str], tmp_path: Path) -> None:
    words = ["dataset=digits", "algorithm=fedbn", "algorithm.lr=0.2", f"partition={partition[0]}"]
    words += [f"clients.total={N}", "clients.per_round=5", "rounds=2", "local.steps=3", "threads=1"]
    plan = Run(compose_config([*words, *partition[1:], *model, "engine=vmap", "eval.batch_size=20"]))
    plan.prepare(directory=tmp_path)
    walk, evaluator = plan.loop, plan.evaluator
    walk.start()
    walk.update()
    walk.update()  # some clients have not worked yet
    measure = PersonalEvaluator.of_mixtures(plan)
    loss, accuracy = measure.test(walk)

    norm = walk.trainer.store.tensors["norm"]  # type: ignore[attr-defined]
    losses, right = [], []
    y = plan.dataset.y_test
    labels = y.numpy()
    for i in range(N):
        module = copy.deepcopy(evaluator.model)
        theta = walk.theta.clone()
        theta[walk.algorithm._norm] = norm[i]  # type: ignore[attr-defined]
        statistics = {
            name: walk.trainer.store.tensors[f"statistics:{name}"][i]  # type: ignore[attr-defined]
            for name in walk.statistics
        }
        module.load_state_dict({**evaluator.layout.unflatten(theta), **statistics}, strict=False)
        with torch.no_grad():
            out = module(evaluator.to_input(plan.dataset.x_test)).double()
        mine = plan.dataset.y_train.numpy()[plan.assignment == i]
        share = np.array([(mine == label).mean() / (labels == label).sum() for label in labels])
        each = torch.nn.functional.cross_entropy(out, y, reduction="none").numpy()
        losses.append((share * each).sum())
        right.append((share * (out.argmax(1) == y).numpy()).sum())
    assert loss == pytest.approx(np.mean(losses), rel=1e-5)
    np.testing.assert_allclose(accuracy, right, rtol=1e-12)
    assert len(set(accuracy)) > 1
