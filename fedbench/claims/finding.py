"""What a test of a claim finds. A test that lacks rows, seeds or grid points says so and does not guess."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import pandas as pd

from fedbench.claims.evidence import Evidence


@dataclass(frozen=True)
class Finding:
    """A test's outcome: `shown` (None: these rows cannot tell), our numbers, why it is not shown, the seeds
    behind it, and the number that matters most."""

    shown: bool | None
    numbers: str
    reason: str = ""
    seeds: tuple[int, ...] = ()
    brief: str = ""


class Untested(Exception):
    """Raised by a test that these rows cannot decide."""

    def __init__(self, reason: str, numbers: str = "", seeds: tuple[int, ...] = ()) -> None:
        """The parts of its finding."""
        super().__init__(reason)
        self.finding = Finding(None, numbers, reason, seeds)


class Test(ABC):
    """A predicate on the tables of a figure. Its parameters are fields, its words the class's docstring."""

    because: ClassVar[str]
    """Why a claim is shown that passes, in one clause."""

    def __call__(self, data: Evidence) -> Finding:
        """What the evidence says."""
        try:
            return self._judge(data)
        except Untested as why:
            return why.finding

    @abstractmethod
    def _judge(self, data: Evidence) -> Finding:
        """The same, where the evidence suffices. Raises Untested."""


def percent(value: float) -> str:
    """An accuracy as text."""
    return f"{100 * value:.2f}%"


def mean_std(scores: pd.Series) -> str:
    """Mean and, of several seeds, sample standard deviation."""
    return percent(scores.mean()) + (f" +- {percent(scores.std(ddof=1))}" if len(scores) > 1 else "")
