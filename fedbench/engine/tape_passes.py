"""What makes a tape shorter and leaves its bits alone: what follows from constants is computed once, and
operations are called in the way that costs least.

Nodes of tensors know, as `meta["tensor"]`, the tensor that they had when the tape was recorded. All of these
are alive, so two of them are in the same memory if and only if they are in each call.
"""

from __future__ import annotations

import itertools
import operator
from types import BuiltinFunctionType, MethodDescriptorType
from typing import Any

import torch
from torch import Tensor, fx

from fedbench.torch_internals import Watch, pytree

MOST_FIXED = 2**16
"""Most numbers in a constant that is computed once, besides what is part of another."""
_OF_FORM = {
    torch.ops.aten.zeros_like.default,
    torch.ops.aten.ones_like.default,
    torch.ops.aten.new_zeros.default,
    torch.ops.aten.new_ones.default,
}
"""Operations on the form of a tensor, whatever its numbers are."""

_WRITE = {torch.add, torch.sub, torch.mul, torch.div, torch.neg, torch.where}
"""What can write over its input."""


def memory(tensor: Tensor) -> int:
    """The memory that a tensor is in; 0: in none, as it is empty."""
    return tensor.untyped_storage().data_ptr()


def add_constant(graph: fx.Graph, constants: list[fx.Node], tensor: Tensor) -> fx.Node:
    """Another first input of the graph, for a tensor that is the same in each call."""
    with graph.inserting_before():
        node = graph.placeholder(f"constant{len(constants)}")
    node.meta["tensor"] = tensor
    constants.append(node)
    return node


def keep_constants(graph: fx.Graph, constants: list[fx.Node], changing: set[int]) -> None:
    """Compute what follows from constants once, and add it to them. `changing`: the memory that is written
    in place, or that belongs to the caller afterwards."""
    fixed = {memory(node.meta["tensor"]) for node in constants}
    for node in list(graph.nodes):
        tensor = node.meta.get("tensor")
        if node.op != "call_function" or tensor is None or memory(tensor) in changing:
            continue
        small = tensor.numel() <= MOST_FIXED or memory(tensor) in fixed
        if small and (node.target in _OF_FORM or all(each in constants for each in node.all_input_nodes)):
            node.replace_all_uses_with(add_constant(graph, constants, tensor))
            graph.erase_node(node)


class _Asked(Watch):
    """Notes what is asked for, and gives `result` for it, or a view, which autograd wants to be new."""

    def __init__(self, result: Tensor | None) -> None:
        super().__init__()
        self.result, self.all = result, list[tuple[Any, Any]]()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.all.append((func, (args, kwargs or {})))
        return func(*args, **(kwargs or {})) if func.is_view else self.result


def call_directly(graph: fx.Graph) -> None:
    """Call operations by torch's functions and tensors' methods that ask for the very same: they need half
    the time to find it."""
    for node in graph.nodes:
        if node.op != "call_function" or node.target is operator.getitem:
            continue
        if "tensor" not in node.meta and not node.target.is_view:  # it has several results
            continue
        name = node.target.overloadpacket.__name__
        function = getattr(torch, name, None) or getattr(Tensor, name, None)
        if not isinstance(function, BuiltinFunctionType | MethodDescriptorType):
            continue
        given = fx.node.map_arg((node.args, node.kwargs), lambda each: each.meta["tensor"])
        try:
            with torch.no_grad(), _Asked(node.meta.get("tensor")) as asked:  # as they are played
                function(*given[0], **given[1])
        except (TypeError, RuntimeError):
            continue  # it takes other arguments
        if len(asked.all) == 1 and asked.all[0][0] is node.target and _alike(asked.all[0][1], given):
            node.target = function


def write_over(graph: fx.Graph) -> None:
    """Have sums, products and their like write over an input that nothing needs afterwards: vectors of a
    model's size then stay in the cache. The graph has been called directly."""
    place = {node: memory(node.meta["tensor"]) for node in graph.nodes if "tensor" in node.meta}
    kept = {place[node] for node in graph.nodes if node.op == "placeholder"}
    last = {place[each]: node for node in graph.nodes for each in node.all_input_nodes if each in place}
    now = {each: each for each in place.values()}  # where what was in a memory lies after this
    for node in graph.nodes:
        if node.target not in _WRITE or node.kwargs:
            continue
        given = [each for each in node.all_input_nodes if each in place]
        for each in reversed(given):
            there = now[place[each]]
            beside = any(now[place[x]] == there and not _same_place(x, each) for x in given)
            if there not in kept and last[there] is node and not beside and _same_form(node, each):
                node.kwargs = {"out": each}
                now[place[node]], last[there] = there, last.get(place[node], node)
                break


def _same_place(some: fx.Node, other: fx.Node) -> bool:
    a, b = some.meta["tensor"], other.meta["tensor"]
    return bool(a.data_ptr() == b.data_ptr() and a.shape == b.shape and a.stride() == b.stride())


def _same_form(some: fx.Node, other: fx.Node) -> bool:
    """Whether one tensor can have the place of another, which fills its memory."""
    a, b = some.meta["tensor"], other.meta["tensor"]
    whole = b.numel() * b.element_size() == b.untyped_storage().nbytes()
    return bool(
        whole and a.dtype == b.dtype and a.shape == b.shape and a.is_contiguous() and b.is_contiguous()
    )


def _alike(some: Any, others: Any) -> bool:
    pairs = list(itertools.zip_longest(pytree.tree_leaves(some), pytree.tree_leaves(others)))
    return all(a is b if isinstance(a, Tensor) else a == b for a, b in pairs)
