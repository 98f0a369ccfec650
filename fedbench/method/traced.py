"""What of an algorithm a compiled local step holds fixed: all that `local_step` reads from `self`.

Numbers arrive in `h`, so runs that differ in them share a compiled step. A method that reads one from
`self` instead is found in its source, and does not share.
"""

from __future__ import annotations

import ast
import inspect
import textwrap

from fedbench.method.interface import Algorithm

_SIMPLE = (str, int, float, bool, type(None))


def traced(algorithm: Algorithm) -> tuple | None:
    """Equal for two algorithms whose compiled local step is the same; None where that cannot be told."""
    read = _read_by_steps(type(algorithm))
    own = vars(algorithm)
    if read is None:  # it hands `self` on, so all that is there may count
        read = frozenset(own)
    fixed = {name: own[name] for name in read if name in own}
    if not all(isinstance(value, _SIMPLE) for value in fixed.values()):
        return None
    return type(algorithm), tuple(sorted(fixed.items()))


def _read_by_steps(cls: type[Algorithm]) -> frozenset[str] | None:
    """Attributes of `self` that local_step and the methods called from it read; None: it uses `self` bare."""
    todo, read = ["local_step"], set()
    while todo:
        name = todo.pop()
        if name in read:
            continue
        read.add(name)
        for owner in cls.__mro__[:-1]:  # all definitions, since super() may reach any
            names = _attributes(vars(owner).get(name))
            if names is None:
                return None
            todo += names
    return frozenset(read)


def _attributes(member: object) -> list[str] | None:
    """The names that a method or property reads from its first parameter; None where that is used bare."""
    function = member.fget if isinstance(member, property) else member
    if not inspect.isfunction(function):  # a constant, or a static method, which gets no `self`
        return []
    try:
        definition = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    except (OSError, SyntaxError):
        return None
    me = next(iter(inspect.signature(function).parameters), "")
    nodes = list(ast.walk(definition))
    read = [node.attr for node in nodes if isinstance(node, ast.Attribute) and _is_name(node.value, me)]
    return read if len(read) == sum(_is_name(node, me) for node in nodes) else None


def _is_name(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name
