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
from torch.overrides import TorchFunctionMode

from fedbench.engine.tape_passes import add_constant, call_directly, keep_constants, memory, write_over
from fedbench.torch_internals import Watch, pytree, written_by

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
_READS = {"numpy", "tolist", "__array__", "__dlpack__"}
"""Of a tensor, what hands its numbers to others than torch, who are not on the tape."""

Function = Callable[..., Any]


class Taped:
    """A function of nested tuples and dicts of tensors that is recorded once for each form of its arguments.

    It has to compute the same operations whatever the numbers are. Where it reads one, it is called each
    time. A function of tensors on a GPU is called, too: there whole steps become graphs.
    """

    def __init__(self, function: Function) -> None:
        self.function = function
        self.note: str | None = None
        """Why it is called each time all the same, once that is known."""
        self._players: dict[Hashable, Function] = {}
        self._calls: dict[Hashable, int] = {}

    def __call__(self, *args: Any) -> Any:
        """The function's result."""
        tensors: list[Tensor] = []
        form: list[Hashable] = []
        _read(args, tensors, form)
        key = tuple(form), tuple([(x.shape, x.stride(), x.dtype) for x in tensors])
        player = self._players.get(key)
        if player is not None:
            return player(tensors, args)
        calls = self._calls[key] = self._calls.get(key, 0) + 1
        if calls <= CALLS or any(x.device.type != "cpu" for x in tensors):
            return self.function(*args)
        if len(self._players) >= MOST_FORMS:
            self.note = f"its arguments have more than {MOST_FORMS} forms"
            return self.function(*args)
        result, player, note = _recorded(self.function, args)
        self._players[key] = player or (lambda tensors, args: self.function(*args))
        self.note = self.note or note
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
    """Find the tensors in nested tuples and dicts, and what else an operation may depend on."""
    for item in items:
        if isinstance(item, Tensor):
            tensors.append(item)
        elif isinstance(item, dict):
            form.append(tuple(item))
            _read(item.values(), tensors, form)
        elif isinstance(item, tuple):
            form.append(len(item))
            _read(item, tensors, form)
        else:
            form.append(item)


def _recorded(function: Function, args: tuple[Any, ...]) -> tuple[Any, Function | None, str | None]:
    """The function's result, what gives it again from now on, and why there is no such thing."""
    args = pytree.tree_map_only(Tensor, lambda x: x.view_as(x), args)  # each argument is a tensor of its own
    tensors: list[Tensor] = []
    _read(args, tensors, [])
    tape = _Tape(tensors)
    with _Reads(tape), tape:
        result = function(*args)
    return result, tape.player(result), tape.unknown


class _Tape(Watch):
    """Writes down the operations that are computed while it is active."""

    def __init__(self, tensors: list[Tensor]) -> None:
        super().__init__()
        self.graph, self.constants = fx.Graph(), list[fx.Node]()
        self.unknown: str | None = None  # why the operations may be others with other numbers
        self._seen: dict[int, tuple[Tensor, fx.Node]] = {}  # tensors live on, so that their ids are theirs
        self._places: dict[int, dict[tuple[Any, ...], fx.Node]] = {}  # by memory, of what is computed here
        self._bases: dict[fx.Node, fx.Node] = {}  # what a view is a view of
        self._written = set[int]()
        self._given = set(map(memory, tensors))  # the memory of arguments and constants
        for number, tensor in enumerate(tensors):
            self._add(tensor, self.graph.placeholder(f"x{number}"))

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        outputs = result if isinstance(result, tuple | list) else (result,)  # None: one not asked for
        self.unknown = self.unknown or _unknown(func, args, outputs)
        if self.unknown:
            return result
        base = None
        if written := written_by(func, args, kwargs):
            self._written |= set(map(memory, written))
        elif _shares_memory(args, outputs):
            base = self._node(args[0])
            same = self._same(result, base) if isinstance(result, Tensor) else None
            if same is not None:
                self._seen[id(result)] = result, same
                return result
        node = self.graph.call_function(func, *pytree.tree_map_only(Tensor, self._node, (args, kwargs)))
        for number, output in enumerate(outputs):
            if output is None or id(output) in self._seen:  # it was computed in place
                continue
            one = node if output is result else self.graph.call_function(operator.getitem, (node, number))
            self._add(output, one)
            self._find_again(output, one)
            if base is not None:
                self._bases[one] = base
        return result

    def _add(self, tensor: Tensor, node: fx.Node) -> None:
        node.meta["tensor"] = tensor
        self._seen[id(tensor)] = tensor, node

    def _find_again(self, tensor: Tensor, node: fx.Node) -> None:
        """Autograd may keep a result as another tensor in the same place."""
        if memory(tensor) and memory(tensor) not in self._given:
            self._places.setdefault(memory(tensor), {}).setdefault(_place(tensor), node)

    def _node(self, tensor: Tensor) -> fx.Node:
        """What stands for a tensor. One that nothing has computed here is a constant."""
        if id(tensor) not in self._seen:
            there = self._places.get(memory(tensor), {})
            if _place(tensor) in there:
                self._seen[id(tensor)] = tensor, there[_place(tensor)]
            else:
                self._add(tensor, add_constant(self.graph, self.constants, tensor))
                self._given.add(memory(tensor))
            if there and _place(tensor) not in there:
                self.unknown = self.unknown or "autograd keeps a part of what is computed here"
        return self._seen[id(tensor)][1]

    def _same(self, view: Tensor, base: fx.Node | None) -> fx.Node | None:
        """What stands for a view already: it may be all of its base, or of what that is a view of."""
        while base is not None and _place(base.meta["tensor"]) != _place(view):
            base = self._bases.get(base)
        return base

    def player(self, result: Any) -> Function | None:
        """A function of the arguments' tensors that computes the result; None if there is none."""
        self.graph.output(pytree.tree_map_only(Tensor, self._node, result))
        if self._written & {memory(node.meta["tensor"]) for node in self.constants}:
            self.unknown = self.unknown or "it changes in place what it has not computed"
        if self.unknown:
            return None
        theirs = {memory(each) for each in pytree.tree_leaves(result) if isinstance(each, Tensor)}
        keep_constants(self.graph, self.constants, self._written | theirs)
        self.graph.eliminate_dead_code()
        call_directly(self.graph)
        write_over(self.graph)
        first = [node.meta["tensor"].detach() for node in self.graph.nodes if node in self.constants]
        for node in self.graph.nodes:
            node.meta.clear()  # the tensors of this call
        play = fx.GraphModule({}, self.graph).forward

        def player(tensors: list[Tensor], args: Any) -> Any:
            with torch.no_grad():  # what autograd does is on the tape
                return play(*first, *tensors)

        return player


class _Reads(TorchFunctionMode):
    """Tells a tape what of torch is called that is no operation on tensors."""

    def __init__(self, tape: _Tape) -> None:
        super().__init__()
        self.tape = tape

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.__name__ in _READS:
            self.tape.unknown = self.tape.unknown or f"a tensor's {func.__name__} is read"
        return func(*args, **(kwargs or {}))


def _place(tensor: Tensor) -> tuple[Any, ...]:
    """Where a tensor's numbers are in its memory, and how they are written there."""
    there = tensor.shape, tensor.stride(), tensor.storage_offset()
    return *there, tensor.dtype, tensor.is_conj(), tensor.is_neg()


def _shares_memory(args: Any, outputs: Any) -> bool:
    """Whether the first result is a view of the first argument."""
    both = (*args[:1], *outputs[:1])
    return len(both) == 2 and all(isinstance(x, Tensor) for x in both) and memory(both[0]) == memory(both[1])


def _unknown(func: Any, args: Any, outputs: Any) -> str | None:
    """Whether the operation's result may be read by Python, have another shape with other numbers, or be
    random: what is said of it."""
    if func is torch.ops.aten.index.Tensor:  # tagged, as its indices may be a mask
        varies = any(index is not None and index.dtype in (torch.bool, torch.uint8) for index in args[1])
    else:
        varies = bool(_UNKNOWN & {*func.tags})
    plain = all(
        each is None or (isinstance(each, Tensor) and each.layout is torch.strided) for each in outputs
    )
    return f"{func} may compute something else with other numbers" if varies or not plain else None
