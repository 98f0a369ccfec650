"""Everything that uses torch's private interface, or knows the words of its messages. Without the pieces of
torch.func the public function is used, slower.

Gradients: `torch.func.grad_and_value` imports `torch._dynamo` on its first call (1.5 s of CPU time), only to
switch off something that is not on. This module takes the same steps without that, from its private pieces.
Outside all transforms, plain autograd suffices and is faster.

Programs: torch.compile's cache on disk helps only after dynamo has traced the program again (4 to 10 s).
Here a function is traced through vmap and its gradients (make_fx) and compiled ahead of time into one file,
AOTInductor's package for a CPU, which torch's C++ loader makes ready to run within milliseconds.
"""

from __future__ import annotations

import contextlib
import json
import logging
import sys
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from fedbench.errors import RunError

try:
    from torch._C._functorch import is_functorch_wrapped_tensor as is_transformed
    from torch._C._functorch import peek_interpreter_stack
    from torch._functorch.eager_transforms import (
        _create_differentiable,
        _undo_create_differentiable,
        _wrap_all_tensors,
        grad_increment_nesting,
    )

    _PIECES = True
except ImportError:
    _PIECES = False

    def is_transformed(tensor: Tensor) -> bool:
        """Whether the tensor is wrapped by torch.func. This torch cannot tell, so it may be."""
        return True


__all__ = [
    "BATCH_NORMS",
    "DROPOUTS",
    "NORMS",
    "Watch",
    "abandon_capture",
    "convolve",
    "grad_and_value",
    "in_transform",
    "is_out_of_memory",
    "is_transformed",
    "load",
    "lstm_cell",
    "lstm_cell_backward",
    "lstm_layer",
    "lstm_layer_backward",
    "lstm_layers_on",
    "pack",
    "pytree",
    "tensors_in",
    "trace",
    "version_of",
    "written_by",
]

Vectors = dict[str, Tensor]
Found = tuple[Vectors, tuple[Tensor, Vectors]]


def grad_and_value(function: Callable[[Vectors], tuple[Tensor, Vectors]], at: Vectors) -> Found:
    """torch.func.grad_and_value(function, has_aux=True)(at): (gradients, (value, auxiliary output))."""
    if not _PIECES:
        both: Found = torch.func.grad_and_value(function, has_aux=True)(at)
        return both
    if peek_interpreter_stack() is None:
        return _by_tape(function, at)
    with grad_increment_nesting() as level, torch.enable_grad():
        inputs = _wrap_all_tensors(at, level)
        _create_differentiable(inputs, level)
        value, aux = function(inputs)
        wrapped: Any = _pieces(value, inputs, create_graph=True), (value, aux)
        unwrapped: Found = _undo_create_differentiable(wrapped, level)
        return unwrapped


def in_transform() -> bool:
    """Whether vmap, grad or another transform of torch.func is under way, or may be."""
    return not _PIECES or peek_interpreter_stack() is not None


def _by_tape(function: Callable[[Vectors], tuple[Tensor, Vectors]], at: Vectors) -> Found:
    with torch.enable_grad():
        inputs = {name: x.detach().requires_grad_() for name, x in at.items()}
        value, aux = function(inputs)
        pieces = _pieces(value, inputs, create_graph=False)
    return pieces, (value.detach(), {name: x.detach() for name, x in aux.items()})


def _pieces(value: Tensor, inputs: Vectors, create_graph: bool) -> Vectors:
    """d value / d inputs, zero where it does not depend on them."""
    if not value.requires_grad:
        return {name: torch.zeros_like(x) for name, x in inputs.items()}
    at = list(inputs.values())
    pieces = torch.autograd.grad(
        value, at, create_graph=create_graph, allow_unused=True, materialize_grads=True
    )
    return dict(zip(inputs, pieces, strict=True))


Function = Callable[..., Any]
_ENTRY = "fedbench"  # of the package's metadata


@dataclass(frozen=True)
class _Shape:
    """How a call's arguments become the program's inputs, and its outputs the result."""

    held: list[int]  # indices of the held tensors, which are the first inputs
    leaves: list[tuple[str, int]]  # of the result: "argument" or "output", and its index
    structure: str


def pack(function: Function, args: Sequence[Any], held: Sequence[Tensor], file: Path) -> None:
    """Compile `function` for arguments like `args`, on a CPU, into `file`, which ends in `.pt2`.

    `held`: tensors that the function reads besides its arguments and that differ between processes. Anything
    else that it reads becomes part of the program. Raises whatever torch raises if it cannot compile, and
    RunError if the compiler links programs in a way that could crash the process that loads one.
    """
    import torch._inductor as inductor

    logging.getLogger("torch.utils.cpp_extension").setLevel(logging.ERROR)  # "No CUDA runtime" on a CPU
    args = pytree.tree_map_only(Tensor, _like, args)
    graph, shape = trace(function, args, held)
    tensors = (*(held[i] for i in shape.held), *tensors_in(args))
    program = torch.export.export(graph, tensors, strict=False)
    options = {"aot_inductor.metadata": {_ENTRY: json.dumps(asdict(shape))}}
    inductor.aoti_compile_and_package(program, package_path=str(file), inductor_configs=options)
    if sys.platform == "linux" and not _shares_the_standard_library(file):
        file.unlink()
        raise RunError("the C++ compiler has no shared standard library (libstdc++.so) to link programs with")


def _shares_the_standard_library(file: Path) -> bool:
    """Whether the code in the package names a shared C++ library. A static copy beside torch's mixes up their
    locales. The loader, which uses a regular expression, then ends in a segmentation fault (on an image for
    the H200 without libstdc++.so) or in std::bad_cast."""
    with zipfile.ZipFile(file) as package:
        code = [package.read(name) for name in package.namelist() if name.endswith(".so")]
    return all(b"libstdc++.so" in each or b"libc++.so" in each for each in code)


def load(file: Path, held: Sequence[Tensor]) -> Function:
    """The function in `file`, for these `held` tensors. Raises RunError, or what torch raises, if the file
    has no program that runs here."""
    program = torch._C._aoti.AOTIModelPackageLoader(str(file), "model", True, 1, -1)  # -1: the only device
    described = program.get_metadata().get(_ENTRY)
    if described is None:
        raise RunError(f"{file} is no program of fedbench")
    shape = _Shape(**json.loads(described))
    build = _builder(pytree.treespec_loads(shape.structure))
    first = [held[i] for i in shape.held]

    def call(*args: Any) -> Any:
        tensors = tensors_in(args)
        outputs = program.boxed_run([*first, *tensors])
        places = {"argument": tensors, "output": outputs}
        return build(iter([places[kind][number] for kind, number in shape.leaves]))

    return call


def _like(value: Tensor) -> Tensor:
    """A new tensor of the same form. make_fx would make one input of a tensor that is given twice, and a
    later call may give two different ones."""
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device)


def tensors_in(args: Any) -> list[Tensor]:
    """All tensors in nested tuples, lists and dicts, in the order of pytree (which is slower)."""
    tensors: list[Tensor] = []
    _find((args,), tensors)
    return tensors


def _find(items: Iterable[Any], tensors: list[Tensor]) -> None:
    for item in items:
        if isinstance(item, Tensor):
            tensors.append(item)
        elif isinstance(item, dict):
            _find(item.values(), tensors)
        elif isinstance(item, tuple | list):
            _find(item, tensors)


def _builder(structure: pytree.TreeSpec) -> Callable[[Iterator[Any]], Any]:
    """A function that builds the nested result from its leaves, faster than pytree's `tree_unflatten`."""
    children = [_builder(child) for child in structure.children()]
    if structure.is_leaf():
        return next
    if structure.type is dict:
        names = list(structure.context)
        return lambda leaves: {name: child(leaves) for name, child in zip(names, children, strict=True)}
    if structure.type is tuple:
        return lambda leaves: tuple(child(leaves) for child in children)
    return lambda leaves: pytree.tree_unflatten(
        [next(leaves) for _ in range(structure.num_leaves)], structure
    )


def trace(
    function: Function, args: Sequence[Any], held: Sequence[Tensor]
) -> tuple[torch.fx.GraphModule, _Shape]:
    """The function as a graph that takes tensors only, held ones first, and returns only what it computes."""
    from torch.fx.experimental.proxy_tensor import make_fx

    leaves, structure = pytree.tree_flatten(args)
    places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
    result: list[Any] = []

    def flat(*tensors: Tensor) -> list[Any]:
        filled = dict(zip(places, tensors, strict=True))
        given = [filled.get(i, leaf) for i, leaf in enumerate(leaves)]
        outputs, spec = pytree.tree_flatten(function(*pytree.tree_unflatten(given, structure)))
        result.append(spec)
        return outputs

    with patch.object(torch.compiler, "_is_compiling_flag", True):
        module = make_fx(flat, tracing_mode="fake", _allow_non_fake_inputs=True)(*tensors_in(args))
    taken = _lift(module, held)
    shape = _Shape(taken, _only_computed(module, len(taken)), pytree.treespec_dumps(result[-1]))
    module.graph.lint()
    module.recompile()
    return module, shape


def _lift(module: torch.fx.GraphModule, held: Sequence[Tensor]) -> list[int]:
    """Turn the graph's constants that are held tensors into inputs. Returns their indices, in input order."""
    graph, taken, lifted = module.graph, {}, set[str]()
    first = next(iter(graph.nodes))
    for node in graph.find_nodes(op="get_attr"):
        value = getattr(module, str(node.target))
        number = next((i for i, tensor in enumerate(held) if tensor is value), None)
        if number is None:
            continue
        if number not in taken:
            with graph.inserting_before(first):
                taken[number] = graph.placeholder(f"held_{number}")
        node.replace_all_uses_with(taken[number])
        graph.erase_node(node)
        lifted.add(str(node.target))
    for name in lifted:
        delattr(module, name)  # what a module holds would become another input
    return list(taken)


def _only_computed(module: torch.fx.GraphModule, held: int) -> list[tuple[str, int]]:
    """Let the graph return each value that it computes once. Returns where the result's leaves are found."""
    graph = module.graph
    inputs = {node: ("argument", i - held) for i, node in enumerate(graph.find_nodes(op="placeholder"))}
    computed: dict[torch.fx.Node, tuple[str, int]] = {}
    (output,) = graph.find_nodes(op="output")
    leaves = []
    for value in output.args[0]:
        if not isinstance(value, torch.fx.Node) or inputs.get(value, ("", 0))[1] < 0:
            raise RunError("a compiled function returns what it neither computes nor is given")
        if value not in inputs:
            computed.setdefault(value, ("output", len(computed)))
        leaves.append(inputs.get(value) or computed[value])
    output.args = (tuple(computed),)
    return leaves


def abandon_capture(pool: Any) -> None:
    """Give back the memory `pool` of a capture that CUDA has made invalid: torch then raises before it does.
    Later allocations would go on as if a capture were under way."""
    with contextlib.suppress(AttributeError, RuntimeError):  # another torch; or it was given back
        device = torch.cuda.current_device()
        torch._C._cuda_endAllocateToPool(device, pool)
        torch._C._cuda_releasePool(device, pool)


# ---- messages ----------------------------------------------------------------------------------------

_FULL = (
    "can't allocate memory",  # torch on a CPU
    "CUDA out of memory",  # the allocator, as a compiled program passes it on
    "CUDA error: out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
    "ALLOCATION_FAILED",  # cuDNN 9 names what it could not allocate
    "CUSOLVER_STATUS_ALLOC_FAILED",
)
"""Parts of the messages of RuntimeErrors that mean out of memory."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether `error` means that NumPy, torch or CUDA ran out of memory."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(sign in str(error) for sign in _FULL)


# ---- single private names -------------------------------------------------------------------------------

NORMS, BATCH_NORMS, DROPOUTS = (
    nn.modules.batchnorm._NormBase,
    nn.modules.batchnorm._BatchNorm,
    nn.modules.dropout._DropoutNd,
)
"""What all layers of a kind have as their base class."""


class Watch(TorchDispatchMode):
    """Sees every operation on tensors while it is entered."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # otherwise torch loads its compiler (1.5 s of CPU) only to keep it out of here


def written_by(func: Any, args: Any, kwargs: Any) -> list[Tensor]:
    """The tensors that an operation which a `Watch` sees changes in place."""
    declared = func._schema.arguments
    given = [*zip(declared, args, strict=False), *((a, kwargs[a.name]) for a in declared if a.name in kwargs)]
    changed = [value for argument, value in given if argument.alias_info and argument.alias_info.is_write]
    return [tensor for tensor in pytree.tree_leaves(changed) if isinstance(tensor, Tensor)]


def version_of(tensor: Tensor) -> int:
    """How often a tensor was changed in place."""
    return tensor._version


def convolve(layer: nn.Conv2d, x: Tensor, weight: Tensor) -> Tensor:
    """A layer's convolution with another `weight`."""
    out: Tensor = layer._conv_forward(x, weight, layer.bias)
    return out


def lstm_cell(*inputs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The fused kernel of a step of an LSTM on CUDA: h, c, and the gates after their nonlinearities."""
    h, c, gates = torch.ops.aten._thnn_fused_lstm_cell(*inputs)
    return h, c, gates


def lstm_cell_backward(*inputs: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Its gradient."""
    of_gates, of_memory, of_bias = torch.ops.aten._thnn_fused_lstm_cell_backward_impl(*inputs)
    return of_gates, of_memory, of_bias


_LAYER = {"reverse": False, "num_layers": 1, "has_biases": True, "bidirectional": False, "batch_first": False}
_LSTM = 2  # the mode, among kinds of layers


def lstm_layers_on(x: Tensor) -> bool:
    """Whether oneDNN has `lstm_layer` for the type and the device of `x`, and is switched on."""
    there = hasattr(torch.ops.aten, "mkldnn_rnn_layer") and torch.backends.mkldnn.is_available()
    return (
        there
        and torch._C._get_mkldnn_enabled()
        and x.device.type == "cpu"
        and x.dtype == torch.float32
        and 0 not in x.shape
    )


def lstm_layer(given: Sequence[Tensor], train: bool) -> tuple[Tensor, Tensor, Tensor]:
    """A layer of torch.nn.LSTM through time, from states 0, by oneDNN on a CPU. `given`: inputs (T, B, n),
    the weights (4H, n) and (4H, H), and a bias (4H,). Returns all states (T, B, H), the last memory (B, H),
    and bytes that the gradient needs, which are none unless `train`."""
    x, weight, recurrent, bias = (each.detach() for each in given)
    zero, more = x.new_zeros(x.shape[1], recurrent.shape[-1]), torch.zeros_like(bias)
    with torch.set_grad_enabled(train):  # else it keeps nothing
        states, _, memory, kept = torch.ops.aten.mkldnn_rnn_layer(
            x.contiguous(), weight, recurrent, bias, more, zero, zero,
            **_LAYER, batch_sizes=[], mode=_LSTM, hidden_size=recurrent.shape[-1], train=train,
        )  # fmt: skip
    return states, memory, kept if train else torch.empty(0, dtype=torch.uint8)


def lstm_layer_backward(
    grad: Tensor, given: Sequence[Tensor], results: Sequence[Tensor]
) -> tuple[Tensor, ...]:
    """The gradients of what `lstm_layer` was given, from that of all states and from its `results`."""
    (x, weight, recurrent, bias), (states, memory, kept) = given, results
    zero, more = x.new_zeros(x.shape[1], recurrent.shape[-1]), torch.zeros_like(bias)
    found = torch.ops.aten.mkldnn_rnn_layer_backward(
        x.contiguous(), weight, recurrent, bias, more, zero, zero, states, states[-1], memory,
        grad.contiguous(), None, None,
        **_LAYER, batch_sizes=[], mode=_LSTM, hidden_size=recurrent.shape[-1], train=True, workspace=kept,
    )  # fmt: skip
    return tuple(found[:4])
