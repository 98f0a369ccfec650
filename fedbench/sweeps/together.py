"""Which runs of a sweep are computed together, and computing such a group in one process.

Runs of one kind have the same step: they differ in seeds, partitions, schedules and the methods' numbers.
Groups follow from the list of jobs and are written down before the first one starts, so a command that goes
on has the same groups. Configurations are composed, signals handled and files of Hydra written in the main
thread or in turn (fedbench.engine.turns), so nothing in a group runs side by side.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hydra.core.hydra_config import HydraConfig

from fedbench.config.config import flat
from fedbench.config.identity import digest
from fedbench.errors import counted
from fedbench.files import write_text
from fedbench.runs.signals import Signals

if TYPE_CHECKING:
    from fedbench.runs.run import Run, Together

FILE = "together.json"
OF_A_RUN = 2**22
"""On a CPU, most bytes of a run's step where runs gain from a joined one: it leaves a core's cache and vector
units idle while the host prepares the next operation. Where clients make unequal steps, rows that have ended
count twice: a joined step computes them, and a run alone leaves them out (fedbench.engine.unequal)."""
OF_A_GROUP = 2**25
"""On a CPU, most bytes of a joined step: beyond, its operations wait for memory."""
OF_A_DEVICE = 0.5
"""On CUDA, the share of the device's memory that joined steps of all its processes may take."""
ON_A_DEVICE = 8
"""Most processes on a GPU: each has a group, as the host's work of one group leaves the GPU idle."""
COMPILED_MORE = 1 / 3
"""Share of what compiling saves that joining does not: measured 0.22 on digits with an mlp, 0.37 on MNIST
with a logistic model."""
_FREE = ("partition", "schedule", "delay", "participation", "lr_schedule", "server_lr_schedule", "checkpoint")
_FREE_KEYS = ("seed", "rounds", "target", "patience", "progress", "resume", "trace", "clients.total")

log = logging.getLogger(__name__)


# ---- which runs ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Kind:
    """What runs have in common that can be computed together: all but seeds, numbers and who works when."""

    key: str
    bytes: float  # of a run's part in a joined step
    room: float  # bytes for a group, of all processes of a device
    gain: float = 0.0  # seconds that a run with compiled steps takes less than one with joined steps
    cost: float = math.inf  # seconds to compile the steps; 0: they are compiled

    def most(self, sharing: int) -> int:
        """Runs of a group that fit, if `sharing` processes share the room."""
        return max(1, int(self.room / sharing // self.bytes))


def kind_of(run: Run) -> Kind | None:
    """The kind of a run; None: it has to be computed alone."""
    from fedbench.engine import choose
    from fedbench.engine.compiled import compiler_missing
    from fedbench.engine.memory import total_memory

    problem, there = run.problem, run.placement
    config, load, item = run.config, there.load, problem.dtype.itemsize
    if config.engine not in ("auto", "vmap") or problem.method.key is None or config.logger:
        return None  # loggers belong to a process
    if not run.session.shares_objective(config) or config.dataset.noise:
        return None
    if there.choice.chunk < min(load.cohort, config.chunk or load.cohort):
        return None  # a run alone fills the memory
    if not isinstance(problem.batch, int) and len(set(problem.division.sizes.tolist())) > 1:
        return None  # a batch is as wide as the largest client's, so every run has steps of its own shape
    key = digest(
        [
            {key: value for key, value in flat(config).items() if not is_free(key, value)},
            problem.equal_steps,
            # where epochs say how many steps there are, they follow from the sizes of clients
            [] if problem.steps_or_epochs[0] is not None else [config.clients.total, repr(config.partition)],
        ]
    )
    if there.device.type == "cpu":
        size = item * there.choice.chunk * (3 * load.d + load.batch * load.cost.written)
        ended = 0.0 if problem.equal_steps else problem.steps.max() / problem.steps.mean() - 1
        gains = size * (1 + 2 * ended) <= OF_A_RUN
        compiles = config.engine == "auto" and not compiler_missing(there.device)
        gain = COMPILED_MORE * choose.expected_gain_seconds(load, there.device) if compiles else 0.0
        known = compiles and gains and _takes_compiled_steps(run)
        cost = 0.0 if known else choose.compile_cost_seconds(load)
        return Kind(key, size, OF_A_GROUP if gains else 0.0, gain, cost)
    step = there.choice.chunk * (16 * load.d + load.cost.shared + load.batch * load.cost.written)
    size = (2 if there.graphs != "off" else 1) * item * step + there.state_bytes
    return Kind(key, size, OF_A_DEVICE * total_memory(there.device))


def _takes_compiled_steps(run: Run) -> bool:
    """Whether the run alone would take compiled steps, for instance as an earlier sweep has compiled them."""
    from fedbench.engine.compiled import CompileCache, place

    if run.placement.choice.state == "disk" or CompileCache(place(), run.placement.device).is_empty:
        return False
    return run.prepare().choice.engine == "compile"


def is_free(key: str, value: object) -> bool:
    """Whether runs with the same step may differ in a key."""
    group = key.split(".")[0]
    number = group == "algorithm" and isinstance(value, int | float) and not isinstance(value, bool)
    return number or group in _FREE or key in _FREE_KEYS


@dataclass(frozen=True)
class Group:
    """Jobs of a launcher that one process computes together: their indices and seats."""

    jobs: tuple[int, ...]
    places: tuple[int, ...]
    seats: int  # more than there are jobs if some of the group have ended before

    def without(self, ended: Callable[[int], bool]) -> Group:
        """The group without jobs that have ended; their seats stay empty."""
        left = [(job, seat) for job, seat in zip(self.jobs, self.places, strict=True) if not ended(job)]
        return Group(tuple(job for job, _ in left), tuple(seat for _, seat in left), self.seats)


def sizes(kinds: Sequence[Kind | None], together: str | int, processes: int, devices: int) -> dict[str, int]:
    """How many groups the jobs of each kind make: enough for them to fit, and for all processes to have their
    share of the jobs, with a group more where that helps. `devices`: devices that the processes share; 0: a
    CPU."""
    count: dict[str, int] = {}
    for kind in filter(None, kinds):
        count[kind.key] = count.get(kind.key, 0) + 1
    sharing = max(1, -(-processes // devices)) if devices else 1
    found = {}
    for kind in filter(None, kinds):
        jobs = count[kind.key]
        most = kind.most(sharing) if together == "auto" else int(together)
        if together == "auto" and jobs * kind.gain > kind.cost:
            most = 1
        share = round(processes * jobs / len(kinds))
        found[kind.key] = min(jobs, max(math.ceil(jobs / most), share, 1))

    def longest(number: Mapping[str, int]) -> int:
        """Most jobs of a process, if each takes the largest group that is left."""
        pieces = [size for key, jobs in count.items() for size in _pieces(jobs, number[key])]
        loads = [0] * processes
        for size in sorted([*pieces, *[1] * kinds.count(None)], reverse=True):
            loads[loads.index(min(loads))] += size
        return max(loads)

    while together == "auto" and found:
        largest = max(found, key=lambda key: count[key] / found[key])
        more = found | {largest: min(count[largest], found[largest] + 1)}
        if longest(more) >= longest(found):
            break
        found = more
    return found


def _pieces(jobs: int, groups: int) -> list[int]:
    """The sizes of so many groups of jobs."""
    return [jobs * (i + 1) // groups - jobs * i // groups for i in range(groups)]


def groups(
    kinds: Sequence[Kind | None], together: str | int, processes: int, devices: int = 0
) -> list[Group]:
    """The jobs in groups of equal kinds, the largest first; see `sizes`."""
    members: dict[str, list[int]] = {}
    found: list[list[int]] = []
    for job, kind in enumerate(kinds):
        if kind is None:
            found.append([job])
        else:
            members.setdefault(kind.key, []).append(job)
    number = sizes(kinds, together, processes, devices)
    for key, jobs in members.items():
        left = iter(jobs)
        found += [list(itertools.islice(left, size)) for size in _pieces(len(jobs), number[key])]
    order = sorted(found, key=lambda each: (-len(each), each))
    return [Group(tuple(each), tuple(range(len(each))), len(each)) for each in order]


class Seating:
    """The file of a sweep's directory that says which runs are computed together: run -> group, seat, seats.
    Runs that have a place keep it, as their numbers depend on it in the last digit. A run that must now be
    computed alone loses its place beside others."""

    def __init__(self, directory: Path, together: str | int) -> None:
        self.file, self.together = directory / FILE, together
        self.places: dict[str, tuple[str, int, int]] = {}
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            content = json.loads(self.file.read_text())
            if content["together"] == together:
                self.places = {name: tuple(place) for name, place in content["runs"].items()}

    def of(
        self, names: Sequence[str], kinds: Sequence[Kind | None], processes: int, devices: int = 0
    ) -> list[Group]:
        """The groups of the jobs with these names. New ones are written down."""
        alone = {name for name, kind in zip(names, kinds, strict=True) if kind is None}
        kept = {name: place for name, place in self.places.items() if name not in alone or place[2] == 1}
        new = [job for job, name in enumerate(names) if name not in kept]
        for group in groups([kinds[job] for job in new], self.together, processes, devices):
            own = [names[new[job]] for job in group.jobs]
            called = digest(own)
            self.places |= {name: (called, seat, group.seats) for seat, name in enumerate(own)}
        if new:
            content = {"together": self.together, "runs": self.places}
            write_text(self.file, json.dumps(content, indent=1) + "\n")
        found: dict[str, list[tuple[int, int, int]]] = {}
        for job, name in enumerate(names):
            called, seat, seats = self.places[name]
            found.setdefault(called, []).append((job, seat, seats))
        each = (tuple(zip(*members, strict=True)) for members in found.values())
        return [Group(jobs, places, seats[0]) for jobs, places, seats in each]


# ---- computing a group -----------------------------------------------------------------------------------

place: ContextVar[Together | None] = ContextVar("place", default=None)
"""The place in a group of the run that the present thread computes."""


class _Globals:
    """What a job of Hydra sets for the whole process: its configuration and where log lines go."""

    LOGGERS = ("", "fedbench.traceback")

    def __init__(self) -> None:
        self.cfg = HydraConfig.instance().cfg
        loggers = {name: logging.getLogger(name) for name in self.LOGGERS}
        self.handlers = {name: (logger.level, [*logger.handlers]) for name, logger in loggers.items()}

    def use(self) -> None:
        HydraConfig.instance().cfg = self.cfg
        for name, (level, handlers) in self.handlers.items():
            logger = logging.getLogger(name)
            logger.handlers[:] = handlers
            if logger.level != level:
                logger.setLevel(level)  # which forgets what every logger of the process has looked up


def compute(seats: int, calls: Mapping[int, Callable[[], None]]) -> None:
    """Call each of `calls` (by its seat) in a thread of its own, as a run of one group. In each, `place` is
    the run's. Raises Interrupted after a signal."""
    from fedbench.engine.turns import Meeting, Seat
    from fedbench.runs.run import Together

    meeting, places = Meeting(seats), dict[int, Together]()
    states: dict[int, _Globals] = {}

    def member(call: Callable[[], None]) -> Callable[[Seat], None]:
        def go(seat: Seat) -> None:
            places[seat.number] = Together(seat)
            place.set(places[seat.number])
            call()

        return go

    def turn(seat: int, go_on: Callable[[], None]) -> None:
        ours = _Globals()
        if seat in states:
            states[seat].use()
        try:
            go_on()
        finally:
            states[seat] = _Globals()
            ours.use()

    def waits_for() -> str:
        return f"waits for {counted(len(places), 'run')} to end a round and save it"

    signals = Signals(waits_for)

    def between(under_way: list[Seat]) -> None:
        for number in set(places) - {seat.number for seat in under_way}:
            del places[number]
        if signals.save:
            signals.save = False
            for each in places.values():
                each.signals.save = True
        elif not any(each.signals.save for each in places.values()):
            signals.relay()
        for each in places.values():
            each.signals.stop = signals.stop

    for seat, call in calls.items():
        meeting.add(seat, member(call))
    with signals.installed():
        meeting.run(turn, between)
    signals.relay()
