"""The global generators of torch, NumPy and Python. No checkpoint has their states, and no seed of a run sets
them, so what draws from one cannot be repeated."""

from __future__ import annotations

import random
from collections.abc import Hashable

import numpy as np
import torch


class GlobalGenerators:
    """Looks whether code that has run in between has drawn from a global generator, or seeded one."""

    def __init__(self) -> None:
        self._states = _states()

    def drawn(self) -> str | None:
        """`torch's`, `NumPy's` or `Python's`: whose state has changed since the last look; None: no one's."""
        before, self._states = self._states, _states()
        return next((whose for whose, state in self._states.items() if state != before[whose]), None)


def _states() -> dict[str, Hashable]:
    kind, words, *rest = np.random.get_state()  # noqa: NPY002  (the one that others draw from)
    numpy = kind, np.asarray(words).tobytes(), *rest
    return {
        "torch's": torch.get_rng_state().numpy().tobytes(),
        "NumPy's": numpy,
        "Python's": random.getstate(),
    }
