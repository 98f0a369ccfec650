"""How far a run, or a group of runs, is: a bar on a terminal, elsewhere a line now and then."""

from __future__ import annotations

import sys

from tqdm import tqdm

LINE_SECONDS = 30.0


class Progress:
    """Shows rounds done, their pace, the time left and the metric's value."""

    def __init__(self, mode: str, label: str, total: int, done: int, metric: str) -> None:
        """`mode`: bar; lines, every LINE_SECONDS at most; none; auto: a bar on a terminal, else lines."""
        self.metric, bar = metric, mode == "bar" or (mode == "auto" and sys.stderr.isatty())
        how = {} if bar else {"mininterval": LINE_SECONDS, "delay": LINE_SECONDS, "ncols": 80}
        self.bar = tqdm(
            desc=label, total=total, initial=done, disable=mode == "none", unit=" rounds", leave=False,
            dynamic_ncols=bar, **how,
        )  # fmt: skip

    def compiling(self) -> None:
        """Say that the first round waits for a compiler."""
        self.bar.set_postfix_str("compiling ...")

    def update(self, done: int, accuracy: float | None) -> None:
        """`done`: rounds done so far; `accuracy`: if just measured, else None."""
        if accuracy is not None:
            self.bar.set_postfix_str(f"{self.metric} {accuracy:.4f}", refresh=False)
        self.bar.update(done - self.bar.n)

    def close(self) -> None:
        """Leave the terminal clean."""
        self.bar.close()
