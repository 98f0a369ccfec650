"""Models evaluated together: what a plain loop over them gives."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from fedbench.engine.evaluate import TOGETHER, Evaluator, Models, Several
from fedbench.engine.objective import DeviceData, Objective
from fedbench.method import Vectors
from fedbench.models.layers import BatchNorm2d, MaxPool2x2

N = 53


class Choosy(nn.Module):
    """A layer that looks at its input, which vmap refuses."""

    def forward(self, x: Tensor) -> Tensor:
        return 2 * x if float(x.mean()) > 0 else x


def network(kind: str) -> nn.Module:
    if kind == "layer":
        return nn.Sequential(nn.Flatten(), nn.Linear(64, 7), nn.LayerNorm(7), nn.ReLU(), nn.Linear(7, 4))
    between: dict[str, nn.Module] = {
        "group": nn.GroupNorm(2, 6),
        "batch": BatchNorm2d(6),
        "choosy": nn.Sequential(nn.GroupNorm(2, 6), Choosy()),
        "convolution": nn.Conv2d(6, 6, 1),
    }
    last = nn.Flatten(), nn.Linear(54, 4)
    return nn.Sequential(nn.Conv2d(1, 6, 3), between[kind], nn.ReLU(), MaxPool2x2(), *last)


def problem(kind: str, models: int, batch: int) -> tuple[Evaluator, list[Vectors]]:
    """An evaluator, and the values of models that differ in the second module."""
    torch.manual_seed(0)
    module = network(kind)
    x, y = torch.randn(N, 1, 8, 8), torch.randint(4, (N,))
    evaluator = Evaluator(Objective(module, DeviceData(x, y, lambda x: x)), x, y, lambda x: x, batch)
    values = {name: value.detach() for name, value in module.state_dict().items()}
    own = [name for name in values if name.startswith("2." if kind == "layer" else "1.")]
    assert own
    return evaluator, [
        {**values, **{name: values[name] + torch.rand_like(values[name]) for name in own}}
        for _ in range(models)
    ]


def by_hand(evaluator: Evaluator, values: list[Vectors], index: Tensor) -> tuple[Tensor, Tensor]:
    losses, right = [], []
    for each in values:
        module = copy.deepcopy(evaluator.model)
        module.load_state_dict(each)
        with torch.no_grad():
            out = module.eval()(evaluator.x[index])
        losses.append(nn.functional.cross_entropy(out, evaluator.y[index], reduction="none"))
        right.append(out.argmax(1) == evaluator.y[index])
    return torch.stack(losses), torch.stack(right)


@pytest.mark.parametrize("batch", [8, 200])
@pytest.mark.parametrize("count", [1, 3, TOGETHER + 2])
@pytest.mark.parametrize("kind", ["layer", "group", "batch", "choosy", "convolution"])
def test_equals_a_loop_over_the_models(kind: str, count: int, batch: int) -> None:
    evaluator, values = problem(kind, count, batch)
    several, index = Several(evaluator), torch.arange(0, N, 2).flip(0)
    losses, marks = several.per_sample(Models.of(values), index)
    expected, right = by_hand(evaluator, values, index)
    torch.testing.assert_close(losses, expected)
    assert torch.equal(marks, right)
    assert several.vectorised == (kind != "choosy" or count == 1)


def test_models_that_are_the_same_are_evaluated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    evaluator, values = problem("group", 1, 200)
    calls = []
    marked = evaluator.marked
    monkeypatch.setattr(evaluator, "marked", lambda *given: calls.append(0) or marked(*given))
    models = Models.of([values[0], {name: value.clone() for name, value in values[0].items()}])
    losses, _ = Several(evaluator).per_sample(models, torch.arange(N))
    assert len(calls) == 1
    assert torch.equal(losses, losses[:1].expand(2, N))


def test_only_what_differs_is_kept_for_each_model() -> None:
    _, values = problem("batch", 3, 8)
    models = Models.of(iter(values))
    assert models.own.keys() == {"1.weight", "1.bias", "1.running_mean", "1.running_var"}
    for position, each in enumerate(values):
        one = models.one(position)
        assert one.keys() == each.keys()
        assert all(torch.equal(one[name], each[name]) for name in each)


def test_memory_that_does_not_suffice_is_not_taken_for_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    evaluator, values = problem("group", 3, 8)
    several = Several(evaluator)

    def full(at: Tensor) -> tuple[Tensor, Tensor]:
        raise torch.OutOfMemoryError

    monkeypatch.setattr(evaluator, "samples", full)
    with pytest.raises(torch.OutOfMemoryError):
        several.per_sample(Models.of(values), torch.arange(N))
    assert several.vectorised
