"""Showing progress: a bar on a terminal, plain lines now and then elsewhere."""

from __future__ import annotations

import logging
import sys
import time

from tqdm import tqdm

log = logging.getLogger(__name__)
LINE_SECONDS = 30.0


class Progress:
    """Rounds done, the metric's value, rounds per second, time left. `mode`: auto | bar | lines | none."""

    def __init__(self, mode: str, label: str, total: int, done: int, metric: str = "accuracy") -> None:
        if mode == "auto":
            mode = "bar" if sys.stderr.isatty() else "lines"
        self.mode, self.label, self.total, self.first = mode, label, total, done
        self.metric = metric
        self.start = self.last = time.monotonic()
        self.accuracy: float | None = None
        self.bar = None
        if mode == "bar":
            self.bar = tqdm(
                total=total, initial=done, desc=label, unit="round", dynamic_ncols=True, leave=False
            )

    def update(self, done: int, accuracy: float | None) -> None:
        """`done` rounds exist now; `accuracy` if it was just measured."""
        if accuracy is not None:
            self.accuracy = accuracy
        if self.bar is not None:
            if accuracy is not None:
                self.bar.set_postfix({self.metric: f"{accuracy:.4f}"}, refresh=False)
            self.bar.update(done - self.bar.n)
        elif self.mode == "lines" and time.monotonic() - self.last > LINE_SECONDS:
            self.last = time.monotonic()
            rate = (done - self.first) / (self.last - self.start)
            left = (self.total - done) / rate if rate else float("inf")
            shown = "-" if self.accuracy is None else f"{self.accuracy:.4f}"
            log.info(
                "%s: round %d/%d, %s %s, %.2f rounds/s, %.0f s left",
                self.label, done, self.total, self.metric, shown, rate, left,
            )  # fmt: skip

    def close(self) -> None:
        """Leave the terminal clean."""
        if self.bar is not None:
            self.bar.close()
