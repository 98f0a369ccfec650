"""Stopping and saving on signals, as people and cluster schedulers send them."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from threading import Thread
from types import FrameType
from typing import Any

_STOPS = (signal.SIGINT, signal.SIGTERM)
_HANGUPS = tuple(getattr(signal, name) for name in ("SIGHUP",) if hasattr(signal, name))
"""Stop a run too, unless they are ignored, as `nohup` asks for."""
_SAVES = tuple(getattr(signal, name) for name in ("SIGUSR1", "SIGUSR2") if hasattr(signal, name))
PARENT_SECONDS = 1.0  # between two looks for the parent


def ignore_saves() -> None:
    """Let SIGUSR1, which a cluster sends to all processes of a job, end none that has nothing to save."""
    for number in _SAVES[:1]:
        if signal.getsignal(number) == signal.SIG_DFL:
            signal.signal(number, signal.SIG_IGN)


def stop_with_parent(alive: Callable[[], bool] | None = None) -> None:
    """Send SIGTERM to this process once its parent is gone, so that it saves and stops: a worker of somebody
    who was killed, such as torchrun, computes for nobody. `alive`: whether the parent is there; None: whether
    this process has still the same one."""
    parent = os.getppid()
    there = alive or (lambda: os.getppid() == parent)

    def watch() -> None:
        while there():
            time.sleep(PARENT_SECONDS)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True, name="parent").start()


class Interrupted(KeyboardInterrupt):
    """The run was asked to stop, and has saved a checkpoint unless a second signal stopped it at once. Ends a
    whole sweep, like Ctrl-C."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class Signals:
    """Records SIGINT, SIGTERM, SIGHUP and SIGUSR1 for code that checks them between two steps.

    The first stop signal prints what it waits for; the second does not wait. A signal that already had a
    handler (submitit: SIGUSR1 or SIGUSR2 requeues the job) asks for a checkpoint; `relay` then passes it on.
    """

    def __init__(self, waits_for: Callable[[], str], raises: bool = True) -> None:
        """`waits_for`: describes what the first signal leaves under way ("": nothing to say). `raises`:
        whether the second one raises Interrupted in the main thread."""
        self.stop: signal.Signals | None = None
        self.at_once = self.save = False
        self._waits_for, self._raises = waits_for, raises
        self._others: dict[int, Callable[[int, FrameType | None], Any]] = {}
        self._relayed: list[int] = []
        self._saying = threading.Lock()

    @contextlib.contextmanager
    def installed(self) -> Iterator[Signals]:
        """Handle the signals inside the block (in the main thread; elsewhere they are left alone)."""
        if threading.current_thread() is not threading.main_thread():
            yield self
            return
        before = {number: signal.getsignal(number) for number in (*_STOPS, *_HANGUPS, *_SAVES)}
        ours = (signal.default_int_handler, signal.SIG_DFL, signal.SIG_IGN, None)
        self._others = {n: old for n, old in before.items() if old not in ours and callable(old)}
        hangups = [number for number in _HANGUPS if before[number] == signal.SIG_DFL]
        taken = [number for number in before if number in (*_STOPS, *hangups, *_SAVES[:1], *self._others)]
        for number in taken:
            signal.signal(number, self._note)
        try:
            with self._heard():
                yield self
        finally:
            for number in taken:
                signal.signal(number, before[number])

    @contextlib.contextmanager
    def _heard(self) -> Iterator[None]:
        """Say at once, from a thread, what a stop signal waits for. Python calls a handler only when the
        operation that the main thread is in has ended, which may take minutes."""
        reading, writing = os.pipe()
        os.set_blocking(writing, False)

        def listen() -> None:
            while (number := os.read(reading, 1)) not in (b"", b"\0"):
                if number[0] in (*_STOPS, *_HANGUPS) and number[0] not in self._others:
                    self._say()

        before, thread = signal.set_wakeup_fd(writing, warn_on_full_buffer=False), Thread(target=listen)
        thread.daemon = True
        thread.start()
        try:
            yield
        finally:
            signal.set_wakeup_fd(before)
            os.write(writing, b"\0")
            thread.join()
            os.close(reading)
            os.close(writing)

    def _say(self) -> None:
        """Print what the first stop signal waits for, once."""
        if self._saying.acquire(blocking=False) and (waits_for := self._waits_for()):
            line = f"fedbench: stopping: {waits_for}; a second Ctrl-C stops at once"
            with contextlib.suppress(RuntimeError, OSError):  # the signal may have interrupted a print
                print(f"\n{line}" if sys.stderr.isatty() else line, file=sys.stderr, flush=True)

    def relay(self) -> None:
        """Pass recorded signals to the handlers that had them before, which may end the process."""
        while self._relayed:
            number = self._relayed.pop(0)
            self._others[number](number, None)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if number in self._others:
            self._relayed.append(number)
        if number in self._others or number in _SAVES:
            self.save = True
        elif self.stop is None:
            self.stop = signal.Signals(number)
            self._say()
        else:
            self.at_once = True
            if self._raises:
                text = "stopped at once; the same command goes on from what is saved"
                raise Interrupted(text, 128 + number)
