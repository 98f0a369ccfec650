"""One page about a method, generated from its code: equations, hyper-parameters, costs, its test."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

from fedbench import fields
from fedbench.method.elsewhere import of_method
from fedbench.method.interface import Algorithm
from fedbench.method.table import cost_of, entry


def page(cls: type[Algorithm]) -> str:
    """The page of a method, as text. Sizes are in units of d, the number of parameters."""
    cost = cost_of(cls)
    row = entry(cls, cost)
    facts = {
        "uplink": row.uplink,
        "downlink": row.downlink,
        "kept": f"{row.client_state} at each client, {row.server_state} at the server besides theta",
        "gradients": f"{row.gradients} per job",
        "tuned": row.tuned,
        "schedules": row.schedules,
        "optimizers": "all" if cost.descends else f"sgd alone, as it {cls.own_step}",
        "checked by": cls.checked_by or "no test",
    }
    head = f"{cls.name}: {cls.paper}" if cls.paper else cls.name
    lines = [head, "", *((inspect.cleandoc(cls.__doc__), "") if cls.__doc__ else ())]
    lines += [*_options(cls), "", *(f"{title.ljust(12)}{fact}" for title, fact in facts.items())]
    lines += [f"{'elsewhere'.ljust(12)}{sentence}" for sentence in of_method(cls.name)]
    return "\n".join(lines)


def _options(cls: type[Algorithm]) -> Iterator[str]:
    """Yield `algorithm.KEY=DEFAULT: what is allowed (what it is)`, one line per hyper-parameter."""
    defaults = fields.defaults(cls)
    for name, rule in cls.options().items():
        default = {"None": "null", "True": "true", "False": "false"}.get(str(defaults[name]), defaults[name])
        yield f"algorithm.{name}={default}: {rule.words}" + (f" ({rule.meaning})" if rule.meaning else "")
