"""One page about a method, made from its code: equations, hyper-parameters, costs, where it is checked."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

from fedbench import fields
from fedbench.method.interface import Algorithm
from fedbench.method.registry import registered
from fedbench.method.table import entry


def page(name: str) -> str:
    """The page of a registered method, as Markdown."""
    cls = registered[name]
    row = entry(cls)
    costs = {
        "uplink": row.uplink,
        "downlink": row.downlink,
        "kept by a client": row.client_state,
        "kept by the server": row.server_state,
        "gradients": row.gradients,
    }
    needs = f"The problem decides on good values of {row.problem_dependent}."
    parts = [
        f"# {cls.title or cls.__name__}: `algorithm={name}`",
        (inspect.getdoc(cls) or "").strip(),
        "## Hyper-parameters",
        "\n".join(_options(cls)) or "None.",
        needs if cls.problem_dependent else "",
        "## Cost",
        "Per client and round; d is the number of parameters, and gradients are of mini-batches.",
        "\n".join(f"- {what}: {size}" for what, size in costs.items()),
        f"Schedules: {row.schedules}.",
        f"Checked against its paper by `{cls.checked_by}`." if cls.checked_by else "",
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


def _options(cls: type[Algorithm]) -> Iterator[str]:
    defaults = fields.defaults(cls)
    for name, rule in cls.options().items():
        default = defaults[name]
        word = {"None": "null", "True": "true", "False": "false"}.get(str(default), str(default))
        words = f"- `algorithm.{name}` = {word} ({rule.allowed.removeprefix('must be ')})"
        yield f"{words}: {rule.help}" if rule.help else words
