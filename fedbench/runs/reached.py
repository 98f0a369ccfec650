"""What a run's test accuracy has reached: rounds to levels, and whether that is a reason to stop."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

LEVELS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
"""Test accuracies to which every run counts its rounds."""
COLUMN = "rounds_to_"
"""Before a level: the column of runs.csv that holds the rounds to it; empty where it was not reached."""


def rounds_to(curve: Iterable[tuple[int, float]], levels: Iterable[float] = LEVELS) -> dict[str, int | None]:
    """The first evaluated round at which the accuracy is at least a level, by the level (`0.9`); None: never.

    `curve`: (round, test accuracy) of every evaluation, in order.
    """
    points = list(curve)
    return {
        f"{level:g}": next((at for at, accuracy in points if accuracy >= level), None)
        for level in sorted(set(levels))
    }


def reason_to_stop(accuracies: Sequence[float], patience: int | None, target: float | None) -> str | None:
    """Why a run ends with its last evaluation, in the words of its key; None: it goes on.

    `accuracies`: of all its evaluations, that of the initial model first. `patience`: so many in a row none
    of which is better than the best before them.
    """
    if target is not None and accuracies[-1] >= target:
        return f"target={target:g}"
    if patience is not None and len(accuracies) > patience:
        best = max(range(len(accuracies)), key=accuracies.__getitem__)  # the first of equals
        if len(accuracies) - 1 - best >= patience:
            return f"patience={patience}"
    return None
