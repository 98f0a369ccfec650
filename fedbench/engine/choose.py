"""Counts the work in a run's local steps and chooses device, engine and chunk. The choices depend on config,
hardware, what is already compiled and, on a CPU, how much memory is left; never on timing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fedbench.engine.compiled import Programs, compiler_missing
from fedbench.engine.executors import Executor, LocalProgram, LoopExecutor
from fedbench.engine.graph import GraphedSteps
from fedbench.engine.memory import available_memory, total_memory
from fedbench.engine.vectorised import CompileExecutor, VmapExecutor, step_depends
from fedbench.errors import ConfigError
from fedbench.method.cost import Counter
from fedbench.models.onednn import has_lstm
from fedbench.models.recurrent import Recurrent


@dataclass(frozen=True)
class ModelCost:
    """What one gradient of a model costs, forward and backward pass."""

    operations: int  # tensor operations, whatever the batch size
    written: float  # numbers that the operations write per sample
    shared: float  # numbers that they write once per batch, including the gradient
    convolutions: int
    evaluated: float = 0.0  # numbers that a forward pass writes for one sample
    alone: int = 0  # layers that are computed for one client after another, unless they are compiled
    read: int = 0  # numbers of a sample


@dataclass(frozen=True)
class Load:
    """The size of a run's local work."""

    cost: ModelCost
    d: int
    batch: int
    cohort: int  # clients whose results make an update, of one process
    calls: int  # vectorised local steps in the whole run, if the cohort fits one chunk
    indices: int = 0  # bytes of the numbers of the samples that the longest job sees
    vectors: float = 10.0  # of d numbers that a job holds besides a gradient, in the step that is recorded
    fixed: int = 0  # bytes that the run holds beside its chunks: server, clients' state, what is evaluated
    more: int = 0  # jobs of other versions that wait to be trained with a cohort's

    @property
    def together(self) -> int:
        """Most clients trained together."""
        return self.cohort + self.more


def measure_model(model: nn.Module, sample: Tensor, half: bool = False) -> ModelCost:
    """Count one gradient on batches of 1 and 2 copies of `sample` (1, *shape), to get costs per sample.
    `half`: products are computed in bfloat16."""
    convolutions = sum(isinstance(module, nn.Conv2d) for module in model.modules())
    alone = sum(m.layers for m in model.modules() if isinstance(m, Recurrent) and m.cell == "lstm")
    if alone and (half or not has_lstm(next(model.parameters(), sample))):
        alone = 0
    one, two = _count(model, sample), _count(model, torch.cat([sample, sample]))
    written = two.written - one.written
    with torch.no_grad(), Counter() as forward:
        model(sample)
    shared = max(one.written - written, 0)
    return ModelCost(one.operations, written, shared, convolutions, forward.written, alone, sample.numel())


def _count(model: nn.Module, x: Tensor) -> Counter:
    counter = Counter()
    with torch.enable_grad(), counter:
        out = model(x).flatten(0, -2)  # (B, T, classes) where each position has a label
        loss = cross_entropy(out, torch.zeros(len(out), dtype=torch.long, device=x.device))
        torch.autograd.grad(loss, [p for p in model.parameters() if p.requires_grad], allow_unused=True)
    return counter


@dataclass(frozen=True)
class EngineChoice:
    """How a run is computed: engine, clients per chunk, and where clients' state is kept (`memory`, which is
    the device's, `host` or `disk`). A resumed run keeps the choice."""

    engine: str
    chunk: int
    state: str = "memory"


@dataclass(frozen=True)
class CompiledStep:
    """What the session and the cache know about a run's compiled step."""

    runs: int = 1  # still to come with this step, including this one
    compiled: bool = False  # already, in this process or on disk
    untried: bool = False  # nothing has been compiled on this machine yet


CPU = torch.device("cpu")
THREADS = torch.get_num_threads()
"""CPU threads that this process was given: its cores, or OMP_NUM_THREADS."""
NOTHING_COMPILED = CompiledStep()
SAFETY = 1.25
"""Compiling must save this many times the seconds that it takes."""
GRAIN = 2**15
"""Numbers of a tensor below which torch gives them to a single thread (at::internal::GRAIN_SIZE)."""
CONVOLVED = 15_000
"""Numbers an operation, on average in a step with convolutions, from which clients go one at a time: vmap
makes grouped convolutions of several."""
TRIAL = 7.4
"""Seconds that torch takes, once on a machine, to find out what its compiler can do."""
CACHE = 2**22
"""Bytes that a core can keep in its cache, with its share of the last level."""
L2 = 2**20
"""Bytes of a core's own cache."""
MANY = 20
"""Vectors of a job (`Load.vectors`) from which a step is mostly passes over them."""
LEFT = 0.7
"""Share of the memory that is left which a run plans with. Freed memory is in pieces, and the kernel ends
processes where there is none."""
INDICES = 2**28
"""Bytes of a cohort's indices of samples that are not worth counting."""
EVALUATION = 2**31
"""Most bytes of what is evaluated at once on CUDA."""
DIFFERENTIATED = 1000
"""Most samples whose gradients an evaluation computes at once, if the configuration does not say."""
OWN_WORK = 2**22
"""Numbers written by a gradient that keeps a CPU's vector units busy by itself. Several such gradients in one
program are slower there, above all with convolutions and recurrences."""


def choose_device(name: str, key: str = "device") -> torch.device:
    """The device `name`; `auto`: CUDA if available, else the CPU. ConfigError if there is no such device."""
    if name == "cpu" or (name == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise ConfigError(key, name, "no CUDA device was found on this machine; use cpu or auto")
    device, there = torch.device("cuda" if name == "auto" else name), torch.cuda.device_count()
    if (device.index or 0) >= there:
        raise ConfigError(key, name, f"this machine has {there} CUDA device(s), numbered from cuda:0")
    return device


def client_bytes(load: Load, item_bytes: int) -> float:
    """Bytes that a client of a vectorised chunk needs. While its steps are recorded, all that they compute is
    there at once."""
    numbers = load.vectors * load.d + load.cost.shared + load.batch * load.cost.written
    return item_bytes * numbers + (load.indices if load.together * load.indices > INDICES else 0)


def choose_chunk(load: Load, device: torch.device, item_bytes: int, graphs: bool = False) -> int:
    """Clients per vectorised chunk: as many of the cohort as fit in half of the device's memory, and in what
    is left of it beside all else (LEFT). `graphs`: the steps also run as CUDA graphs, which need as much
    memory again."""
    client = client_bytes(load, item_bytes) * (2 if graphs else 1)
    wanted = (load.fixed + load.together * client) / LEFT
    total = total_memory(device)
    room = min(0.5 * total, LEFT * min(total, available_memory(device, wanted)) - load.fixed)
    return max(1, min(load.together, int(room / client)))


def planned_bytes(load: Load, chunk: int, item_bytes: int) -> int:
    """Bytes that a run takes for its local work in chunks of this size, beside its data."""
    return int(load.fixed + chunk * client_bytes(load, item_bytes))


def plain_chunk(load: Load, chunk: int, threads: int, device: torch.device, item_bytes: int) -> int:
    """Clients per chunk of a step that is not compiled, at most `chunk`. Together they share what torch needs
    to find its operations. Where one client's operations keep all CPU threads busy by themselves, that is
    little, and what several clients write would not stay in the cache. Layers that are computed for one
    client after another (`ModelCost.alone`) gain nothing either, and would copy what they keep.

    Of ten clients one and ten at once took (ms a step, B = 20, one thread of a quiet AMD EPYC) with LeNet-5
    on CIFAR-10 (25,300 numbers an operation) 28 and 36, cnn_small (20,600) 14.5 and 18.2, LeNet-5 on MNIST
    (19,000) 17.1 and 21.0; cnn_small with B = 12 (12,600) 10.9 and 10.9, with B = 8 (8,500) 9.2 and 7.9.

    If a step works on parameters more than on activations, a vector of the parameters of all clients of a
    chunk should stay in the cache, and in that of a core (L2) if the method passes over many vectors. Of
    ten clients 1, 5 and 10 at once took with the mlp (159,010 parameters) in FedAvg (10 vectors) 3.5, 2.9
    and 3.0, in SCAFFOLD (16) 4.3, 3.3 and 4.5; in PAdaMFed (20) 4.2, 5.9 and 6.4, in AdaMasFL (20) 3.9, 6.9
    and 8.5, in PAdaMFed-VR (28) 8.3, 10.6 and 10.3.
    """
    if device.type != "cpu":
        return chunk
    enough = CONVOLVED if load.cost.convolutions else GRAIN
    if load.cost.alone or _numbers_an_operation(load) >= enough * threads:
        return 1
    if threads != 1:
        return chunk
    passes = CACHE // L2 if load.vectors >= MANY else 1
    return _in_cache(load, chunk, load.together, passes * item_bytes * load.d)


def _in_cache(load: Load, chunk: int, jobs: int, client: int) -> int:
    """Clients per chunk, at most `chunk` and `jobs`, that stay in a core's cache, of `client` bytes each; any
    number if activations are more than parameters. Of these the one that divides the jobs best."""
    if load.batch * load.cost.written > load.d:
        return chunk
    most = max(1, min(CACHE // client, chunk))
    padded = {size: -(-jobs // size) * size for size in range(1, most + 1)}
    return min(padded, key=lambda size: (padded[size], -size))


def _numbers_an_operation(load: Load) -> float:
    """Numbers that an operation of one client's step writes, on average."""
    return (load.cost.shared + load.batch * load.cost.written) / max(load.cost.operations, 1)


def step_threads(load: Load, chunk: int, available: int = THREADS) -> int:
    """CPU threads for local steps of `chunk` clients at once: as many of those available as get GRAIN numbers
    each of the tensor that an operation writes on average. Beside other processes a thread that has nothing
    to do costs more than it saves: every operation waits for it."""
    return max(1, min(available, int(chunk * _numbers_an_operation(load) / GRAIN)))


def compiled_chunk(load: Load, chunk: int, threads: int, device: torch.device, item_bytes: int) -> int:
    """Like `plain_chunk`, for a compiled step. A single CPU thread gains little from many,
    and loses with convolutions, which would become grouped ones."""
    if device.type != "cpu" or threads != 1:
        return chunk
    if load.cost.convolutions:
        return 1
    client = 3 * item_bytes * load.d  # parameters before and after the step, and the gradient
    return _in_cache(load, chunk, load.cohort, client)


def wide_batch(cost: ModelCost, device: torch.device) -> float:
    """Batch size from which gradients at a model shared by all clients are not worth vectorising."""
    return OWN_WORK / max(cost.written, 1.0) if device.type == "cpu" else math.inf


def eval_batch(device: torch.device, model: ModelCost, numbers: int, item_bytes: int) -> int:
    """Samples, of `numbers` numbers each, evaluated at once if the configuration does not say. On a CPU, what
    convolutions write for them should fit a core's cache. On CUDA, as many as fit a part of the memory: few
    launches keep the device busy."""
    if device.type == "cpu":
        return 200 if model.convolutions else 1000
    part = min(EVALUATION, total_memory(device) / 16)
    return max(1000, int(part / (item_bytes * (model.evaluated + 3 * numbers))))


def choose_state(place: str, needed: float, device: torch.device) -> str:
    """Where to keep clients' state of `needed` bytes. `auto`: the first of the device's memory and the host's
    of which it needs at most half, also of what is left of it, else disk."""
    if place != "auto":
        return place
    for name, where in (("memory", device), ("host", CPU)):
        if needed <= 0.5 * min(total_memory(where), available_memory(where, 2 * needed)):
            return name
    return "disk"


def choose_engine(
    name: str, load: Load, device: torch.device, prospect: CompiledStep = NOTHING_COMPILED
) -> tuple[str, str | None]:
    """(engine, a line saying why it is not the one asked for or expected, or None)."""
    if name != "compile" and name != "auto":
        return name, None
    missing = compiler_missing(device)
    if name == "compile":
        return ("vmap", f"engine=compile: {missing}; using vmap") if missing else ("compile", None)
    seconds = compile_cost_seconds(load) + (TRIAL if prospect.untried else 0.0)
    cost = 0.0 if prospect.compiled else SAFETY * seconds
    if prospect.runs * expected_gain_seconds(load, device) <= cost:
        return "vmap", None
    return ("vmap", f"engine=auto would compile, but {missing}; using vmap") if missing else ("compile", None)


@dataclass(frozen=True)
class Sizes:
    """Of the local work of a chunk."""

    chunk: int  # clients
    width: int = 0  # samples of a batch
    longest: int = 0  # most steps of a job, for which graphs have room


def make_executor(
    engine: str,
    program: LocalProgram,
    sizes: Sizes,
    programs: Programs | None = None,
    wide: float = math.inf,
    cuda_graph: str = "off",
) -> Executor:
    """The executor of a chosen engine. `programs`: keeps compiled steps for later runs. `wide`: batch size
    from which `gradients` does not vectorise. `cuda_graph`: auto, off or unchecked."""
    if engine == "loop":
        return LoopExecutor(program)
    programs = Programs() if programs is None else programs
    if engine == "compile":
        return CompileExecutor(program, sizes.chunk, sizes.width, programs, wide)
    graphs = None
    if cuda_graph != "off":
        depends, check = step_depends(program, sizes.chunk, sizes.width), cuda_graph == "auto"
        graphs = GraphedSteps(programs.pools, sizes.chunk, check, sizes.longest, depends)
    return VmapExecutor(program, wide, graphs, programs.tapes)


def compile_cost_seconds(load: Load) -> float:
    """CPU seconds to compile a step, the C++ compiler's too, without the trial of the compiler. Where the
    table below was measured, logistic took 6.2, mlp 5.2, gru 5.7, cnn_small 7.2 and LeNet-5 7.8."""
    return 5.0 + 0.04 * load.cost.operations + 0.5 * load.cost.convolutions


def expected_gain_seconds(load: Load, device: torch.device) -> float:
    """Seconds of a CPU that compiling saves over recorded steps in the run. Milliseconds a step (B = 20, one
    thread of an AMD EPYC, torch 2.15) by this formula and measured:

        MNIST, ten clients    logistic 0.36 and 0.35; mlp 0.6 and 0.3; cnn_small 5.8 and 4.4; rnn 6.1 and 1.3
        digits, five          mlp 0.14 and 0.08
        CIFAR-10, ten         LeNet-5 6.1 and 4.6
        reviews, ten          gru 6.3 and 11; transformer 0 and -1
        FedAsync on MNIST     mlp 0.12 and 0.12; cnn_small 0.8 and 0.5

    On CUDA none have been measured, because vmap's local steps are launched as a graph there. Nothing is
    gained where operations keep a thread busy: resnet18 of width 8 (75,000 numbers an operation) took 1.34
    times a bare loop's time compiled, and 1.06 recorded; the transformer has 77,000. Nor with an LSTM's
    layers by oneDNN, which no program has: without them char_lstm took 2.3 times a bare loop's time."""
    cost = load.cost
    busy = _numbers_an_operation(load) >= (GRAIN if cost.convolutions else 2 * GRAIN)
    if device.type == "cuda" or busy or cost.alone:
        return 0.0
    samples = load.batch * (6e-10 * cost.written + 2e-9 * cost.read)
    return load.calls * (5e-6 * cost.operations + load.cohort * (samples + 5e-11 * cost.shared))


def vmap_seconds(load: Load) -> float:
    """What vmap's steps take in the whole run, in proportion: to compare runs."""
    written = load.cohort * (load.cost.shared + load.batch * load.cost.written)
    return load.calls * (4e-5 * load.cost.operations + 6e-10 * written)
