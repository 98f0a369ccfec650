"""How much work a run's local steps are: operations, numbers written, bytes held, all counted."""

from __future__ import annotations

import weakref
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils._python_dispatch import TorchDispatchMode


@dataclass(frozen=True)
class ModelCost:
    """One gradient of a model: forward and backward pass."""

    operations: int  # tensor operations, whatever the batch size
    written: float  # numbers that the operations write for a sample
    shared: float  # numbers that they write once for the whole batch, the gradient among them
    convolutions: int
    held: float = 0.0  # bytes that exist at once for a sample
    held_shared: float = 0.0  # and for the whole batch, the gradient among them


@dataclass(frozen=True)
class Load:
    """The size of a run's local work."""

    cost: ModelCost
    d: int
    batch: int
    cohort: int  # clients trained together at most
    calls: int  # vectorised local steps in the whole run, if the cohort fits one chunk

    def among(self, processes: int) -> Load:
        """The load of one of several processes that divide every cohort."""
        return replace(self, cohort=-(-self.cohort // processes))


class _Counter(TorchDispatchMode):
    """Counts operations, the numbers that they write, and the most bytes of these that exist at once."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.operations = self.written = self.most = 0
        self._held: dict[int, int] = {}
        self._bytes = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # or torch loads its compiler (1.5 s of CPU) only to keep it out of here

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if not func.is_view:
            self.operations += 1
            outputs = result if isinstance(result, tuple | list) else (result,)
            made = [out for out in outputs if isinstance(out, Tensor)]
            self.written += sum(out.numel() for out in made)
            if not func._schema.is_mutable:
                self._hold(made)
        return result

    def _hold(self, made: list[Tensor]) -> None:
        for storage in (out.untyped_storage() for out in made):
            if id(storage) not in self._held:  # a storage keeps its Python object while it exists
                self._held[id(storage)] = storage.nbytes()
                self._bytes += storage.nbytes()
                weakref.finalize(storage, self._release, id(storage))
        self.most = max(self.most, self._bytes)

    def _release(self, storage: int) -> None:
        self._bytes -= self._held.pop(storage)


def measure_model(model: nn.Module, sample: Tensor) -> ModelCost:
    """Count one gradient at batches of 1 and 2 copies of `sample` (1, *shape)."""
    convolutions = sum(isinstance(module, nn.Conv2d) for module in model.modules())
    one, two = _count(model, sample), _count(model, torch.cat([sample, sample]))
    written = two.written - one.written
    held = two.most - one.most
    shared = max(one.written - written, 0), max(one.most - held, 0)
    return ModelCost(one.operations, written, shared[0], convolutions, held, shared[1])


def _count(model: nn.Module, x: Tensor) -> _Counter:
    counter = _Counter()
    with torch.enable_grad(), counter:
        labels = torch.zeros(len(x), dtype=torch.long, device=x.device)
        loss = cross_entropy(model(x), labels)
        torch.autograd.grad(loss, [p for p in model.parameters() if p.requires_grad], allow_unused=True)
    return counter
