"""Functions of tensors that are recorded at their first call and played from then on.

Under torch's transforms (vmap, gradients) most of a small step's time passes between its operations, where
Python decides what the next one is. A tape has the operations themselves, in their order, so it gives the
same bits, needs no compiler, and is made within milliseconds.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable, Iterable
from typing import Any

import torch
from torch import Tensor, fx

from fedbench.engine.tape_passes import add_constant, call_directly, keep_constants, memory
from fedbench.torch_internals import TorchDispatchMode, pytree

CALLS = 8
"""Calls with arguments of one form before they are recorded, which takes as long as some ten of them."""
MOST_FORMS = 16
"""Forms of arguments that a function is recorded for. Beyond, it is called."""
MOST_KEPT = 32
"""Functions whose tapes a process keeps for later runs of one objective."""
_UNKNOWN = {
    torch.Tag.data_dependent_output,
    torch.Tag.dynamic_output_shape,
    torch.Tag.nondeterministic_seeded,
}
"""Of operations with a result that Python may read, of a shape that follows from numbers, or random."""

Function = Callable[..., Any]


class Taped:
    """A function of nested tuples and dicts of tensors that is recorded once for each form of its arguments.

    It has to compute the same operations whatever the numbers are. Where it reads one, it is called each
    time. A function of tensors on a GPU is called, too: there whole steps become graphs.
    """

    def __init__(self, function: Function) -> None:
        self.function = function
        self._players: dict[Hashable, Function] = {}
        self._calls: dict[Hashable, int] = {}

    def __call__(self, *args: Any) -> Any:
        """The function's result."""
        tensors: list[Tensor] = []
        form: list[Hashable] = []
        _read(args, tensors, form)
        key = tuple(form)
        player = self._players.get(key)
        if player is not None:
            return player(tensors, args)
        calls = self._calls[key] = self._calls.get(key, 0) + 1
        if calls <= CALLS or len(self._players) >= MOST_FORMS or any(x.device.type != "cpu" for x in tensors):
            return self.function(*args)
        result, self._players[key] = _recorded(self.function, args)
        return result


class Tapes:
    """Functions of the programs of one objective, by what they depend on besides it and their arguments."""

    def __init__(self) -> None:
        self._kept: dict[Hashable, Taped] = {}

    def of(self, depends: Hashable, function: Function) -> Taped:
        """The function that is kept under `depends`, or else this one."""
        taped = self._kept.pop(depends) if depends in self._kept else Taped(function)
        self._kept[depends] = taped  # which is now the last one used
        while len(self._kept) > MOST_KEPT:
            del self._kept[next(iter(self._kept))]
        return taped


def _read(items: Iterable[Any], tensors: list[Tensor], form: list[Hashable]) -> None:
    """Find the tensors in nested tuples and dicts, and what an operation may depend on but for numbers."""
    for item in items:
        if isinstance(item, Tensor):
            tensors.append(item)
            form += (item.shape, item.stride(), item.dtype)
        elif isinstance(item, dict):
            form.append(tuple(item))
            _read(item.values(), tensors, form)
        elif isinstance(item, tuple):
            form.append(len(item))
            _read(item, tensors, form)
        else:
            form.append(item)


def _recorded(function: Function, args: tuple[Any, ...]) -> tuple[Any, Function]:
    """The function's result, and what gives it again from now on."""
    args = pytree.tree_map_only(Tensor, lambda x: x.view_as(x), args)  # each argument is a tensor of its own
    tensors: list[Tensor] = []
    _read(args, tensors, [])
    tape = _Tape(tensors)
    with tape:
        result = function(*args)
    return result, tape.player(result) or (lambda tensors, args: function(*args))


class _Tape(TorchDispatchMode):
    """Writes down the operations that are computed while it is active."""

    def __init__(self, tensors: list[Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.graph, self.constants = fx.Graph(), list[fx.Node]()
        self.known = True  # whether the operations are the same whatever the numbers are
        self._seen: dict[int, tuple[Tensor, fx.Node]] = {}  # tensors live on, so that their ids are theirs
        self._bases: dict[fx.Node, fx.Node] = {}  # what a view is a view of
        self._written = set[int]()
        for number, tensor in enumerate(tensors):
            self._add(tensor, self.graph.placeholder(f"x{number}"))

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # otherwise torch loads its compiler (1.5 s of CPU) only to keep it out of here

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        outputs = result if isinstance(result, tuple | list) else (result,)
        plain = all(isinstance(each, Tensor) and each.layout is torch.strided for each in outputs)
        if _unknown(func, args) or not plain:
            self.known = False
            return result
        base = None
        if func._schema.is_mutable:
            self._written |= {memory(output) for output in outputs}
        elif outputs and args and isinstance(args[0], Tensor) and memory(args[0]) == memory(outputs[0]):
            base = self._node(args[0])
            same = self._same(result, base) if isinstance(result, Tensor) else None
            if same is not None:
                self._seen[id(result)] = result, same
                return result
        node = self.graph.call_function(func, *pytree.tree_map_only(Tensor, self._node, (args, kwargs)))
        for number, output in enumerate(outputs):
            one = node if output is result else self.graph.call_function(operator.getitem, (node, number))
            if id(output) not in self._seen:  # else it was computed in place
                self._add(output, one)
                if base is not None:
                    self._bases[one] = base
        return result

    def _add(self, tensor: Tensor, node: fx.Node) -> None:
        node.meta["tensor"] = tensor
        self._seen[id(tensor)] = tensor, node

    def _node(self, tensor: Tensor) -> fx.Node:
        """What stands for a tensor. One that nothing has computed here is a constant."""
        if id(tensor) not in self._seen:
            self._add(tensor, add_constant(self.graph, self.constants, tensor))
        return self._seen[id(tensor)][1]

    def _same(self, view: Tensor, base: fx.Node | None) -> fx.Node | None:
        """What stands for a view already: it may be all of its base, or of what that is a view of."""
        while base is not None and _place(base.meta["tensor"]) != _place(view):
            base = self._bases.get(base)
        return base

    def player(self, result: Any) -> Function | None:
        """A function of the arguments' tensors that computes the result; None if there is none."""
        self.graph.output(pytree.tree_map_only(Tensor, self._node, result))
        if not self.known or self._written & {memory(node.meta["tensor"]) for node in self.constants}:
            return None
        theirs = {memory(each) for each in pytree.tree_leaves(result) if isinstance(each, Tensor)}
        keep_constants(self.graph, self.constants, self._written | theirs)
        self.graph.eliminate_dead_code()
        call_directly(self.graph)
        first = [node.meta["tensor"] for node in self.graph.nodes if node in self.constants]
        for node in self.graph.nodes:
            node.meta.clear()  # the tensors of this call
        play = fx.GraphModule({}, self.graph).forward
        return lambda tensors, args: play(*first, *tensors)


def _place(tensor: Tensor) -> tuple[Any, ...]:
    """Where a tensor's numbers are in its memory, and how they are written there."""
    there = tensor.shape, tensor.stride(), tensor.storage_offset()
    return *there, tensor.dtype, tensor.is_conj(), tensor.is_neg()


def _unknown(func: Any, args: Any) -> bool:
    """Whether the operation's result may be read by Python, or have another shape with other numbers."""
    if func is torch.ops.aten.index.Tensor:  # tagged, as its indices may be a mask
        return any(index is not None and index.dtype in (torch.bool, torch.uint8) for index in args[1])
    return bool(_UNKNOWN & {*func.tags})
