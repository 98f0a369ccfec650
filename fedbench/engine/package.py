"""A function of tensors as a compiled file: made without torch's dynamo, loaded without any compiler.

What torch.compile keeps on disk is of use only after dynamo has read the program again (4 to 10 s). Here the
function is traced through vmap and its gradients (make_fx) and compiled ahead of time (AOTInductor) into one
file, which torch's C++ loader runs after some milliseconds in any process.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from fedbench.errors import RunError

Function = Callable[..., Any]
_ENTRY = "fedbench"  # of the package's metadata


@dataclass(frozen=True)
class _Shape:
    """How a call's arguments become the program's inputs, and its outputs the result."""

    held: list[int]  # which of the held tensors come first
    leaves: list[tuple[str, int]]  # of the result: an "argument" or an "output", and its number
    structure: str


def pack(function: Function, args: Sequence[Any], held: Sequence[Tensor], file: Path) -> None:
    """Compile `function` for arguments like `args` into `file`, which ends in `.pt2`.

    `held`: tensors that the function reads beside its arguments and that another process has others of; all
    else that it reads becomes part of the program. Whatever torch raises where it cannot is passed on.
    """
    import torch._inductor as inductor

    logging.getLogger("torch.utils.cpp_extension").setLevel(logging.ERROR)  # "No CUDA runtime" on a CPU
    args = pytree.tree_map_only(Tensor, _like, args)
    graph, shape = _trace(function, args, held)
    tensors = (*(held[i] for i in shape.held), *_tensors(args))
    program = torch.export.export(graph, tensors, strict=False)
    options = {"aot_inductor.metadata": {_ENTRY: json.dumps(asdict(shape))}}
    inductor.aoti_compile_and_package(program, package_path=str(file), inductor_configs=options)


def load(file: Path, held: Sequence[Tensor], device: torch.device) -> Function:
    """The function in `file`. RunError or what torch raises where it is none that runs here."""
    index = -1 if device.index is None else device.index
    program = torch._C._aoti.AOTIModelPackageLoader(str(file), "model", True, 1, index)
    said = program.get_metadata().get(_ENTRY)
    if said is None:
        raise RunError(f"{file} is no program of fedbench")
    shape = _Shape(**json.loads(said))
    build = _builder(pytree.treespec_loads(shape.structure))
    first = [held[i] for i in shape.held]
    whole: Callable[[list[Tensor]], list[Tensor]] = _aligned if device.type == "cuda" else list

    def call(*args: Any) -> Any:
        tensors = whole(_tensors(args))
        outputs = program.boxed_run([*first, *tensors])
        places = {"argument": tensors, "output": outputs}
        return build(iter([places[kind][number] for kind, number in shape.leaves]))

    return call


def _aligned(tensors: list[Tensor]) -> list[Tensor]:
    """The tensors where a program on CUDA expects them, at multiples of 16 bytes; others as copies."""
    return [tensor.clone() if tensor.data_ptr() % 16 else tensor for tensor in tensors]


def _like(value: Tensor) -> Tensor:
    """A tensor of the same form that is no other argument: make_fx takes one given twice for one input, and
    at a later call they may be two."""
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device)


def _tensors(args: Any) -> list[Tensor]:
    """All tensors in nested tuples, lists and dicts, in pytree's order (which takes longer)."""
    found: list[Tensor] = []
    _find((args,), found)
    return found


def _find(items: Iterable[Any], found: list[Tensor]) -> None:
    for item in items:
        if isinstance(item, Tensor):
            found.append(item)
        elif isinstance(item, dict):
            _find(item.values(), found)
        elif isinstance(item, tuple | list):
            _find(item, found)


def _builder(structure: pytree.TreeSpec) -> Callable[[Iterator[Any]], Any]:
    """What makes the nested result of its leaves: pytree's `tree_unflatten`, which takes longer."""
    parts = [_builder(child) for child in structure.children()]
    if structure.is_leaf():
        return next
    if structure.type is dict:
        names = list(structure.context)
        return lambda leaves: {name: part(leaves) for name, part in zip(names, parts, strict=True)}
    if structure.type is tuple:
        return lambda leaves: tuple(part(leaves) for part in parts)
    return lambda leaves: pytree.tree_unflatten(
        [next(leaves) for _ in range(structure.num_leaves)], structure
    )


def _trace(
    function: Function, args: Sequence[Any], held: Sequence[Tensor]
) -> tuple[torch.fx.GraphModule, _Shape]:
    """The function as a graph of its tensors alone, held ones first, that returns what it computes."""
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
        module = make_fx(flat, tracing_mode="fake", _allow_non_fake_inputs=True)(*_tensors(args))
    taken = _lift(module, held)
    shape = _Shape(taken, _only_computed(module, len(taken)), pytree.treespec_dumps(result[-1]))
    module.graph.lint()
    module.recompile()
    return module, shape


def _lift(module: torch.fx.GraphModule, held: Sequence[Tensor]) -> list[int]:
    """Make inputs of the held tensors that the graph has as constants; which ones, in their order."""
    graph, taken = module.graph, {}
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
    return list(taken)


def _only_computed(module: torch.fx.GraphModule, held: int) -> list[tuple[str, int]]:
    """Let the graph return each thing that it computes once; where the leaves of the result are found."""
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
