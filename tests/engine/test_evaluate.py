"""The test set in one piece, by index, and kept as the model's input or not: the same numbers."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from fedbench.engine import evaluate
from fedbench.engine.evaluate import Evaluator
from fedbench.engine.objective import DeviceData, Objective


@pytest.mark.parametrize("n", [1, 7, 20, 23])
def test_whole_is_every_sample_by_index(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    x, y = torch.randint(256, (n, 1, 3, 3), dtype=torch.uint8), torch.randint(4, (n,))

    def to_input(x: torch.Tensor) -> torch.Tensor:
        asked.append(len(x))
        return (x.float() / 255 - 0.3) / 0.7

    model = nn.Sequential(nn.Flatten(), nn.Linear(9, 4))
    objective = Objective(model, DeviceData(x, y, to_input))
    theta = objective.layout.flatten(dict(model.named_parameters())).detach()
    with torch.no_grad():
        out = model((x.float() / 255 - 0.3) / 0.7)
    found = []
    for small in (evaluate.SMALL, 0):
        monkeypatch.setattr(evaluate, "SMALL", small)
        asked: list[int] = []
        evaluator = Evaluator(objective, x, y, to_input, batch=5)
        index = torch.arange(n).flip(0)
        whole = [evaluator.whole(theta, {}) for _ in range(2)]
        losses, marks = evaluator.per_sample(theta, {}, index)
        torch.testing.assert_close(losses.flip(0), whole[0][0])
        assert torch.equal(marks.flip(0), out.argmax(1) == y)
        torch.testing.assert_close(whole[1][0], nn.functional.cross_entropy(out, y, reduction="none"))
        assert sum(asked) == (n if small else 3 * n)  # made once where they are kept
        found.append(whole[1][0])
    torch.testing.assert_close(*found)  # where rows lie in memory may choose another kernel
