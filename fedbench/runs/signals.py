"""Stopping and saving on signals, as people and cluster schedulers send them."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType


class Interrupted(KeyboardInterrupt):
    """The run was asked to stop and has saved a checkpoint. Ends a whole sweep, like Ctrl-C."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class Signals:
    """Notes SIGINT, SIGTERM and SIGUSR1; the run looks at them between updates.

    A second SIGINT does not wait for the update to finish.
    """

    def __init__(self) -> None:
        self.stop: signal.Signals | None = None
        self.save = False

    @contextlib.contextmanager
    def installed(self) -> Iterator[Signals]:
        """Handle the signals inside the block (in the main thread; elsewhere they are left alone)."""
        if threading.current_thread() is not threading.main_thread():
            yield self
            return
        numbers = [signal.SIGINT, signal.SIGTERM]
        numbers += [signal.SIGUSR1] if hasattr(signal, "SIGUSR1") else []
        old = {number: signal.signal(number, self._note) for number in numbers}
        try:
            yield self
        finally:
            for number, handler in old.items():
                signal.signal(number, handler)

    @property
    def exit_code(self) -> int:
        """130 after SIGINT, 143 after SIGTERM."""
        assert self.stop is not None
        return 128 + int(self.stop)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if hasattr(signal, "SIGUSR1") and number == signal.SIGUSR1:
            self.save = True
        elif self.stop is not None:
            raise KeyboardInterrupt
        else:
            self.stop = signal.Signals(number)
