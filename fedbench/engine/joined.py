"""Several runs computed together: the chunks of their clients are joined to one, which one program computes.

Every run keeps its own loop, in a thread of its own. Threads take turns: one works until it asks for
something that all runs need (`Seat.ask`). When every run has asked, the main thread computes it for all of
them at once, and the turns begin again. So nothing runs side by side, and everything that is joined belongs
to one thread.

A run has a fixed seat, and a joined chunk always has room for all seats, at `width` clients each. The place
of a run that has ended, or asks for something else, is filled with a copy of another's work. So the numbers
of a run depend neither on how far the others are nor on whether they end.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from functools import cached_property
from typing import Any, cast

import torch
from torch import Tensor

from fedbench.engine.batches import BatchIndices, to_device
from fedbench.engine.executors import Executor, Facts, Given, Result, Work, pad
from fedbench.engine.graph import GraphedSteps
from fedbench.engine.vectorised import VmapExecutor, packs_of
from fedbench.errors import first_line
from fedbench.method import Vectors
from fedbench.torch_internals import is_out_of_memory

log = logging.getLogger(__name__)
_LIBC = ctypes.CDLL(None) if hasattr(os, "sched_setaffinity") else None  # of Linux


class Stopped(KeyboardInterrupt):
    """The group was left by its main thread, so its runs end where they are."""


# ---- turns -----------------------------------------------------------------------------------------------


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

    def executor(self, own: Executor, width: int) -> Executor:
        """An executor that works together with those of the other seats, if `own` can be joined. `width`:
        clients in a full chunk."""
        alone = type(own) is not VmapExecutor or own.program.algorithm.key is None
        return own if alone else JoinedExecutor(cast(VmapExecutor, own), self, width)

    def ask(self, task: Task) -> Any:
        """Wait until all runs have asked, and return the task's result or raise its error."""
        return self.meeting.ask(self, task)


class Meeting:
    """The threads of a group of runs, and what they compute together."""

    def __init__(self, seats: int) -> None:
        """`seats`: how many runs the group has."""
        self.seats, self.most = seats, seats
        self.note: str | None = None
        """Why fewer runs than planned are computed together, or None."""
        self._members: list[_Member] = []
        self._main, self._left = threading.Semaphore(0), False
        self._executors: dict[Hashable, VmapExecutor] = {}
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

    def ask(self, seat: Seat, task: Task) -> Any:
        """See `Seat.ask`."""
        member = next(member for member in self._members if member.seat is seat)
        if not self._left:
            member.wait(task)
        if self._left:
            raise Stopped
        answer, member.task, member.answer = member.answer, None, None
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
            assert member.task is not None
            forms.setdefault(member.task.form, {})[member.seat.number] = member
        for alike in forms.values():
            self._of_one_form(alike, range(self.seats))

    def _of_one_form(self, members: dict[int, _Member], seats: range) -> None:
        """Answer the members whose seats are among `seats`; all their tasks have the same form."""
        there = {number: members[number] for number in seats if number in members}
        if not there:
            return
        if len(seats) > self.most and self.most > 1:
            for start in range(seats.start, seats.stop, self.most):
                self._of_one_form(members, range(start, min(start + self.most, seats.stop)))
            return
        tasks = {number: cast(Task, member.task) for number, member in there.items()}
        answers: Sequence[Any] | None = None
        if len(seats) > 1 and self.most > 1:
            try:
                answers = self._together(tasks, seats)
            except Exception as error:
                self._give_way(error, len(seats))
        if answers is not None:
            for member, answer in zip(there.values(), answers, strict=True):
                member.answer = answer
        elif self.most > 1 and len(seats) > self.most:
            self._of_one_form(members, seats)
        else:
            for number, member in there.items():
                member.answer = _or_error(tasks[number].alone)

    def _together(self, tasks: dict[int, Task], seats: range) -> list[Any]:
        first = next(iter(tasks.values()))
        key = first.form, len(seats)
        executor = self._executors.get(key)
        if executor is None:
            executor = self._executors[key] = first.wide_executor(len(seats))
        filled = [tasks.get(number, first) for number in seats]
        answers = first.join(filled, executor)
        if self.note is None and executor.note is not None:
            self.note = executor.note
        return [answers[number - seats.start] for number in tasks]

    def _give_way(self, error: Exception, together: int) -> None:
        """After an error in a joined task: fewer together if memory ran out, else every run for itself."""
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
        self.task: Task | None = None
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

    def wait(self, task: Task) -> None:
        """Its own thread: leave a task, and wait for the next turn."""
        self.task = task
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


# ---- what can be joined ----------------------------------------------------------------------------------


class Task(ABC):
    """Work of one run on a chunk of clients, that can be joined with others of the same form."""

    own: VmapExecutor
    width: int
    form: Hashable

    @abstractmethod
    def alone(self) -> Any:
        """Its result, computed by the run's own executor."""

    @abstractmethod
    def join(self, tasks: Sequence[Task], executor: VmapExecutor) -> Sequence[Any]:
        """The results of several tasks of its form, computed as one."""

    def wide_executor(self, seats: int) -> VmapExecutor:
        """An executor for this task joined with others in `seats` seats."""
        own = self.own.graphs
        graphs = None
        if own is not None:
            program = "joined", own.program
            graphs = GraphedSteps(own.pools, seats * self.width, own.check, own.longest, program)
        return VmapExecutor(self.own.program, self.own.wide, graphs, self.own.tapes)


class JoinedExecutor(Executor):
    """A run's executor in a group: what it computes waits for the other runs and is computed with theirs."""

    name = "vmap"

    def __init__(self, own: VmapExecutor, seat: Seat, width: int) -> None:
        """`own`: computes the run alone. `width`: clients in a full chunk."""
        super().__init__(own.program)
        self.own, self.seat, self.width = own, seat, width

    @property
    def note(self) -> str | None:
        """Why the runs are not computed together as planned, or None."""
        return self.seat.meeting.note or self.own.note

    @cached_property
    def depends(self) -> Hashable:
        """What its steps depend on besides the shapes of what they read, in this process."""
        return id(self.program.objective), self.program.depends

    def run(self, work: Work) -> Result:
        """Run the chunk's local work."""
        result: Result = self.seat.ask(Chunk(self, work))
        return result

    def gradients(self, theta: Tensor, statistics: Vectors, batches: BatchIndices, weights: Tensor) -> Tensor:
        """Sum over k of weights[k, c] * gradient at `theta` on batch (k, c): (C, d)."""
        if batches.index.shape[-1] >= self.own.wide:
            return self.own.gradients(theta, statistics, batches, weights)
        total: Tensor = self.seat.ask(Gradients(self, theta, statistics, batches, weights))
        return total


class Chunk(Task):
    """Local work of a chunk."""

    def __init__(self, executor: JoinedExecutor, work: Work) -> None:
        self.own, self.width, self.work = executor.own, executor.width, work
        batches, given = work.batches, work.given
        # without masks all clients of a form make the same number of steps
        steps = None if executor.program.masked else len(batches)
        drawn = batches.index.shape[2], _rows(batches.keys, 2)
        vectors = tuple(_form(each) for each in (given.mine, work.statistics))
        shared = tuple(_form(each, 0) for each in (given.down, given.h))
        self.form = (
            "run",
            executor.depends,
            self.width,
            steps,
            drawn,
            vectors,
            shared,
            given.facts.full_grad is None,
        )

    def alone(self) -> Result:
        return self.own.run(self.work)

    def join(self, tasks: Sequence[Task], executor: VmapExecutor) -> Sequence[Result]:
        chunks = [cast(Chunk, task).work for task in tasks]
        padded = [work.padded(self.width - len(work.batches.steps)) for work in chunks]
        uploads, keeps, statistics = executor.run(joined(padded, self.width))
        results = []
        for seat, work in enumerate(chunks):
            rows = slice(seat * self.width, seat * self.width + len(work.batches.steps))
            parts = ({name: x[rows] for name, x in each.items()} for each in (uploads, keeps, statistics))
            results.append(cast(Result, tuple(parts)))
        return results


class Gradients(Task):
    """Sums of gradients of a chunk's clients, all at the same point (see `Executor.gradients`)."""

    def __init__(
        self,
        executor: JoinedExecutor,
        theta: Tensor,
        statistics: Vectors,
        batches: BatchIndices,
        weights: Tensor,
    ) -> None:
        self.own, self.width = executor.own, executor.width
        self.theta, self.statistics, self.batches, self.weights = theta, statistics, batches, weights
        drawn = batches.index.shape[2], _rows(batches.keys, 2)
        self.form = "gradients", executor.depends, self.width, drawn, theta.shape, _form(statistics)

    def alone(self) -> Tensor:
        return self.own.gradients(self.theta, self.statistics, self.batches, self.weights)

    def join(self, tasks: Sequence[Task], executor: VmapExecutor) -> Sequence[Tensor]:
        given, width = [cast(Gradients, task) for task in tasks], self.width
        more = [width - task.weights.shape[1] for task in given]
        batches = join_batches([task.batches.padded(n) for task, n in zip(given, more, strict=True)])
        rows = [pad(task.statistics, n) for task, n in zip(given, more, strict=True)]
        statistics = _rows_of(rows)
        theta = repeated([task.theta for task in given], width)
        packs = [packs_of(task.weights, width) for task in given]
        longest = max(len(weights) for *_, weights in packs)
        every = [_lengthened(pack, longest, seat * width) for seat, pack in enumerate(packs)]
        at = to_device(tuple(torch.cat(parts, 1) for parts in zip(*every, strict=True)), theta.device)
        total = executor.packed(theta, statistics, batches, *at)
        return [total[i * width : i * width + task.weights.shape[1]] for i, task in enumerate(given)]


Packs = tuple[Tensor, Tensor, Tensor]
"""Clients, batches and weights (calls, width) of gradients, on the host."""


def _lengthened(packs: Packs, calls: int, first: int) -> Packs:
    """Packs for more calls, whose weights are 0, with `first` added to the clients."""
    c, k, w = packs
    more = calls - len(w)
    again = [torch.cat([x, x[:1].expand(more, -1)]) for x in (c + first, k)]
    return again[0], again[1], torch.cat([w, torch.zeros_like(w[:1]).expand(more, -1)])


def joined(works: Sequence[Work], width: int) -> Work:
    """The work of several runs, each for a chunk of `width` clients, as that of one chunk. What is sent down
    and the numbers h get the axis of clients."""
    down, mine, facts, h = zip(*(work.given for work in works), strict=True)
    *numbers, full = zip(*facts, strict=True)
    steps, samples, draw = map(torch.cat, numbers)
    every = Facts(steps, samples, draw, None if full[0] is None else torch.cat(full))
    given = Given(_shared(down, width), _rows_of(mine), every, _shared(h, width))
    statistics = _rows_of([work.statistics for work in works])
    return Work(given, statistics, join_batches([work.batches for work in works]), joined=True)


def _rows_of(every: Sequence[Vectors]) -> Vectors:
    return {name: torch.cat([vectors[name] for vectors in every]) for name in every[0]}


def _shared(every: Sequence[Vectors], width: int) -> Vectors:
    return {name: repeated([vectors[name] for vectors in every], width) for name in every[0]}


def repeated(values: Sequence[Tensor], width: int) -> Tensor:
    """One tensor for each run -> (runs * width, ...), each repeated `width` times."""
    stacked = torch.stack(tuple(values))
    return stacked.unsqueeze(1).expand(-1, width, *stacked.shape[1:]).reshape(-1, *stacked.shape[1:])


def join_batches(every: Sequence[BatchIndices]) -> BatchIndices:
    """The mini-batches of several chunks as those of one, which always says how many samples count: those of
    one run may be whole and another's not. Where there are fewer steps the last one is repeated, without
    samples."""
    length = max(len(batches) for batches in every)

    def longer(value: Tensor, last: bool = True) -> Tensor:
        more = length - len(value)
        if not more:
            return value
        rest = value[-1:] if last else torch.zeros_like(value[-1:])
        return torch.cat([value, rest.expand(more, *value.shape[1:])])

    first = every[0]
    index = torch.cat([longer(batches.index) for batches in every], 1)
    counts = (index.new_full(index.shape[:2], index.shape[2]) if count is None else count
              for index, count in ((batches.index, batches.count) for batches in every))  # fmt: skip
    count, keys = torch.cat([longer(each, last=False) for each in counts], 1), None
    if first.keys is not None:
        keys = torch.cat([longer(cast(Tensor, batches.keys)) for batches in every], 1)
    return BatchIndices(index, count, torch.cat([batches.steps for batches in every]), keys, first.known)


def _form(vectors: Vectors, first: int = 1) -> Hashable:
    """Names, types and shapes without the first axes."""
    return tuple((name, x.dtype, x.shape[first:]) for name, x in vectors.items())


def _rows(value: Tensor | None, first: int) -> Hashable:
    return None if value is None else value.shape[first:]
