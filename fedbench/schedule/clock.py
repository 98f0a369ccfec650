"""Virtual time in whole ticks, so that times that are equal by hand are equal here, in any unit of time."""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction

import numpy as np

from fedbench.schedule.trace import Floats

DRAW = 1 << 53  # draws in [0, 1) are multiples of 1 / DRAW


class Clock:
    """Times as the simulation compares and adds them: integers, `unit` of them in a unit of virtual time.

    Where all durations are given, every time is a sum of decimal numbers: 0.1 three times and 0.3 are one
    instant, which floats would make two. Where durations are drawn, times never tie by the numbers given,
    and floats are kept (`unit` 1, as for whole numbers, which floats add exactly).
    """

    def __init__(
        self, durations: Iterable[float] | None, others: Iterable[float], rate: float | None, failing: bool
    ) -> None:
        """`durations`: all that occur, None where they are drawn; `others`: further times that are added to
        them or compared with them; `rate`: of launches; `failing`: jobs may end after a drawn part."""
        self.exact, self.unit = False, 1
        self.rate = None if rate is None else Fraction(repr(_decimal(rate)))
        self._known: dict[float, float] = {}
        if durations is None:
            return
        given = {_decimal(value) for value in durations}
        fractions = [Fraction(repr(value)) for value in given | {_decimal(value) for value in others}]
        unit = math.lcm(*(value.denominator for value in fractions), self.rate.numerator if self.rate else 1)
        if unit == 1 and (not failing or len(given) == 1):
            return
        self.exact, self.unit = True, unit * (DRAW if failing else 1)

    def ticks(self, time: float) -> float:
        """A given time or duration, in ticks."""
        if not self.exact:
            return time
        if time not in self._known:
            self._known[time] = round(Fraction(repr(_decimal(time))) * self.unit)
        return self._known[time]

    def many(self, times: Floats) -> np.ndarray:
        """The same for an array; of Python's integers, which do not overflow, where they are ticks."""
        if not self.exact:
            return times
        values, index = np.unique(times, return_inverse=True)
        return np.array([self.ticks(value) for value in values.tolist()], dtype=object)[index]

    def part(self, work: float, duration: float) -> float:
        """The ticks of a drawn part `work` of a duration in ticks."""
        return int(work * DRAW) * int(duration) // DRAW if self.exact else work * duration

    def launch(self, number: int) -> float:
        """The time of a launch, from 1 on, at the given rate, in ticks."""
        assert self.rate is not None
        if self.exact:
            return int(number * self.unit / self.rate)
        return number / float(self.rate)


def _decimal(value: float) -> float:
    """A number without the noise of a product: 0.1 * 3 is 0.3."""
    short = float(f"{value:.15g}")
    return short if abs(short - value) <= 2 * math.ulp(value) else value
