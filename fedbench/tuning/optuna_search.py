"""Optuna's search through its ask-and-tell interface; any version from 2.10 on."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Sequence
from typing import Any

from fedbench.compose.overrides import Value
from fedbench.errors import UsageError
from fedbench.tuning.selection import Selection, Tried
from fedbench.tuning.space import Point, Range, Space

BATCH = 4
"""Points asked for at once, whatever the number of processes, so that this number changes no search."""


class Optuna:
    """Optuna's tree-structured Parzen estimator with a fixed seed: it asks for the same points again."""

    def __init__(self, space: Space, trials: int, seed: int = 0) -> None:
        """`trials`: points in all. Raises UsageError where Optuna is not installed."""
        try:
            optuna: Any = importlib.import_module("optuna")
        except ImportError:
            raise UsageError(
                "tune: --search optuna: Optuna is not installed (pip install 'fedbench-runner[tune]')"
            ) from None
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self.space, self.left, self._states = space, trials, optuna.trial.TrialState
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that a setting is experimental
            sampler = optuna.samplers.TPESampler(seed=seed, constant_liar=True)
        self._study: Any = optuna.create_study(direction="maximize", sampler=sampler)
        self._open: list[tuple[Any, Point]] = []

    def more(self, selection: Selection | None) -> Sequence[Point]:
        """Tell what came of the last points, and ask for the next ones."""
        tried = {tuple(one.values.items()): one for one in selection.tried} if selection else {}
        for trial, point in self._open:
            self._tell(trial, tried.get(tuple(point.items())))
        count = min(BATCH, self.left)
        self.left -= count
        self._open = [self._ask() for _ in range(count)]
        return [point for _, point in self._open]

    def _ask(self) -> tuple[Any, Point]:
        trial = self._study.ask()
        return trial, {key: self._suggest(trial, key, values) for key, values in self.space.items()}

    def _suggest(self, trial: Any, key: str, values: Sequence[Value] | Range) -> Value:
        if not isinstance(values, Range):  # by rank, so that neighbours are neighbours
            return values[trial.suggest_int(key, 0, len(values) - 1)] if len(values) > 1 else values[0]
        if values.integer:
            return trial.suggest_int(key, int(values.low), int(values.high), log=values.log)
        return float(f"{trial.suggest_float(key, values.low, values.high, log=values.log):.4g}")

    def _tell(self, trial: Any, one: Tried | None) -> None:
        if one is None or not one.scores:
            self._study.tell(trial, state=self._states.FAIL)
        elif one.pruned is not None:
            trial.report(one.merit, one.pruned)
            self._study.tell(trial, state=self._states.PRUNED)
        else:
            self._study.tell(trial, one.merit)
