"""The turns of several runs that are computed together.

Every run keeps its own loop, in a thread of its own. Threads take turns: one works until it asks for
something that all runs need (`Seat.ask`). When every run has asked, the main thread computes it for all of
them at once (fedbench.engine.joined), and the turns begin again. So nothing runs side by side, and everything
that is joined belongs to one thread.

A run has a fixed seat. The place of a run that has ended, or asks for something else, is filled with a copy
of another's work. So the numbers of a run depend neither on how far the others are nor on whether they end.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from typing import Any, cast

import torch

from fedbench.engine.executors import Executor
from fedbench.errors import first_line
from fedbench.torch_internals import is_out_of_memory

log = logging.getLogger(__name__)
_LIBC = ctypes.CDLL(None) if hasattr(os, "sched_setaffinity") else None  # of Linux


class Stopped(KeyboardInterrupt):
    """The group was left by its main thread, so its runs end where they are."""


class Request(ABC):
    """What a run asks for. Requests of the same form can be computed as one."""

    form: Hashable

    @abstractmethod
    def alone(self) -> Any:
        """Its result, computed by the run's own executor."""

    @abstractmethod
    def wide_executor(self, seats: int) -> Executor:
        """An executor for requests of its form, joined in `seats` seats."""

    @abstractmethod
    def join(self, requests: Sequence[Any], executor: Any) -> Sequence[Any]:
        """The results of requests of its form, one in each seat, computed as one by a wide executor."""


class Seat:
    """The place of a run in a group."""

    def __init__(self, number: int, meeting: Meeting) -> None:
        self.number, self.meeting = number, meeting
        self.numerics: Callable[[], None] = lambda: None
        """Sets what torch uses in the thread that calls it, as the run needs it."""

    @property
    def seats(self) -> int:
        """How many runs the group has, those included that have ended or were never started."""
        return self.meeting.seats

    def ask(self, request: Request) -> Any:
        """Wait until all runs have asked, and return the request's result or raise its error."""
        return self.meeting.ask(self, request)


class Meeting:
    """The threads of a group of runs, and what they compute together."""

    def __init__(self, seats: int) -> None:
        """`seats`: how many runs the group has."""
        self.seats, self.most = seats, seats
        self.note: str | None = None
        """Why fewer runs than planned are computed together, or None."""
        self._members: list[_Member] = []
        self._main, self._left = threading.Semaphore(0), False
        self._executors: dict[Hashable, Executor] = {}
        self._ready = False

    def add(self, number: int, call: Callable[[Seat], None]) -> None:
        """A run with the seat `number`, which `call` computes in a thread of its own. It handles its errors
        itself; KeyboardInterrupts are raised by `run` when all have ended."""
        self._members.append(_Member(Seat(number, self), call, self._main))

    def run(
        self,
        turn: Callable[[int, Callable[[], None]], None] = lambda number, go: go(),
        between: Callable[[list[Seat]], None] = lambda seats: None,
    ) -> None:
        """Compute all runs to their ends, in the order of their seats. `turn`: gets a seat's number and a
        function that lets its thread go on. `between`: called between two turns, with the seats of the runs
        that are still under way. If this thread is interrupted, all runs end at once."""
        under_way = sorted(self._members, key=lambda member: member.seat.number)
        try:
            while under_way:
                for member in under_way:
                    turn(member.seat.number, member.go_on)
                under_way = [member for member in under_way if not member.ended]
                between([member.seat for member in under_way])
                self._answer(under_way)
        finally:
            self._left = True
            for member in under_way:
                member.finish()
        for stop in (member.stop for member in self._members if member.stop is not None):
            raise stop

    def ask(self, seat: Seat, request: Request) -> Any:
        """See `Seat.ask`."""
        member = next(member for member in self._members if member.seat is seat)
        if not self._left:
            member.wait(request)
        if self._left:
            raise Stopped
        answer, member.request, member.answer = member.answer, None, None
        if isinstance(answer, BaseException):
            raise answer
        return answer

    # ---- what is asked for -------------------------------------------------------------------------

    def _answer(self, members: Sequence[_Member]) -> None:
        if members and not self._ready:
            members[0].seat.numerics()  # torch counts threads for each thread
            self._ready = True
        forms: dict[Hashable, dict[int, _Member]] = {}
        for member in members:
            assert member.request is not None
            forms.setdefault(member.request.form, {})[member.seat.number] = member
        for alike in forms.values():
            self._of_one_form(alike, range(self.seats))

    def _of_one_form(self, members: dict[int, _Member], seats: range) -> None:
        """Answer the members whose seats are among `seats`; all their requests have the same form."""
        there = {number: members[number] for number in seats if number in members}
        if not there:
            return
        if len(seats) > self.most and self.most > 1:
            for start in range(seats.start, seats.stop, self.most):
                self._of_one_form(members, range(start, min(start + self.most, seats.stop)))
            return
        requests = {number: cast(Request, member.request) for number, member in there.items()}
        answers: Sequence[Any] | None = None
        if len(seats) > 1 and self.most > 1:
            try:
                answers = self._together(requests, seats)
            except Exception as error:
                self._give_way(error, len(seats))
        if answers is not None:
            for member, answer in zip(there.values(), answers, strict=True):
                member.answer = answer
        elif self.most > 1 and len(seats) > self.most:
            self._of_one_form(members, seats)
        else:
            for number, member in there.items():
                member.answer = _or_error(requests[number].alone)

    def _together(self, requests: dict[int, Request], seats: range) -> list[Any]:
        first = next(iter(requests.values()))
        key = first.form, len(seats)
        executor = self._executors.get(key)
        if executor is None:
            executor = self._executors[key] = first.wide_executor(len(seats))
        filled = [requests.get(number, first) for number in seats]
        answers = first.join(filled, executor)
        if self.note is None and executor.note is not None:
            self.note = executor.note
        return [answers[number - seats.start] for number in requests]

    def _give_way(self, error: Exception, together: int) -> None:
        """After an error in joined requests: fewer together if memory ran out, else every run for itself."""
        self._executors.clear()
        if is_out_of_memory(error):
            self.most = together // 2
            then = f"{self.most} together" if self.most > 1 else "each by itself"
            self.note = f"out of memory with {together} runs together; they go on {then}"
            if torch.cuda.is_initialized():
                torch.cuda.empty_cache()
        else:
            self.most = 1
            line = first_line(error, named=True)[:200]
            self.note = f"the steps of several runs cannot be joined ({line}); each goes on by itself"
        log.warning(self.note)


class _Member:
    """A run's thread. It works only between `go_on` of the main thread and its own next `wait`."""

    def __init__(self, seat: Seat, call: Callable[[Seat], None], main: threading.Semaphore) -> None:
        self.seat, self.call, self._main = seat, call, main
        self.request: Request | None = None
        self.answer: Any = None
        self.stop: KeyboardInterrupt | None = None
        self.ended = self._working = False
        self._turn = threading.Semaphore(0)
        self._thread = threading.Thread(target=self._work, name=f"run {seat.number}", daemon=True)

    def go_on(self) -> None:
        """Main thread: let it work until it waits or ends."""
        self._working = True
        if self._thread.ident is None:
            self._thread.start()
        _follow(self._thread)
        self._turn.release()
        self._main.acquire()
        self._working = False

    def finish(self) -> None:
        """Main thread: wait until it has ended, which it does when it asks next."""
        if self._thread.ident is None:
            return
        if self._working:
            self._main.acquire()
        while not self.ended:
            self.go_on()
        self._thread.join()

    def wait(self, request: Request) -> None:
        """Its own thread: leave a request, and wait for the next turn."""
        self.request = request
        self._main.release()
        self._turn.acquire()

    def _work(self) -> None:
        self._turn.acquire()
        try:
            self.call(self.seat)
        except KeyboardInterrupt as stop:
            self.stop = stop
        finally:
            self.ended = True
            self._main.release()


def _follow(thread: threading.Thread) -> None:
    """Have `thread` work on the core of this one, which waits for it. The kernel may place it on the core of
    another group's process, which then waits too, while this core is idle. Threads that it starts would stay
    on that core as well, so where torch has several, or CUDA its own, it is left alone."""
    if _LIBC is None or torch.get_num_threads() > 1 or torch.cuda.is_initialized():
        return
    with contextlib.suppress(OSError):  # the core was taken away meanwhile
        os.sched_setaffinity(cast(int, thread.native_id), {_LIBC.sched_getcpu()})


def _or_error(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except Exception as error:  # raised in the thread of the run
        return error
