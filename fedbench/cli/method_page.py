"""`fedbench show METHOD`: a method's page, made from its code, with where it is checked and its curve."""

from __future__ import annotations

import inspect
from collections.abc import Sequence

from fedbench.config.arguments import Parser

TASK = """\
On the quickstart's task (digits, 20 clients by Dirichlet(0.5), 5 a round, 10 local steps, mlp{needs}), with
the default step sizes, untuned: that it learns, not how it compares. Mean and std of {n} seeds."""


def main(argv: Sequence[str]) -> int:
    """`fedbench show METHOD`."""
    parser = Parser(prog="fedbench show", description="Show a method's page.")
    parser.add_argument("method", metavar="METHOD", help="a name of `fedbench list algorithms`")
    print(page(parser.parse_args(argv).method))
    return 0


def page(name: str) -> str:
    """The page as text. Raises ConfigError for a name that no method has."""
    from fedbench.algorithms import get  # torch and all methods
    from fedbench.fields import defaults, rules
    from fedbench.method.curve import NEEDS, curve, drawn
    from fedbench.method.table import entry

    cls = get(name)
    row = entry(cls)
    facts = {
        "uplink": row.uplink,
        "downlink": row.downlink,
        "kept": f"{row.client_state} at each client, {row.server_state} at the server beside theta",
        "gradients": f"{row.gradients} per job",
        "tuned": row.tuned,
        "schedules": row.schedules,
        "checked by": row.checked_by,
    }
    lines = [f"{name}: {row.paper}", "", inspect.cleandoc(cls.__doc__ or ""), ""]
    given = defaults(cls)
    for key, rule in rules(cls):
        value = str(given[key]).lower() if isinstance(given[key], bool | None) else given[key]
        lines.append(f"algorithm.{key}={'null' if value == 'none' else value}: {rule.allowed}")
    lines += ["", *(f"{title.ljust(12)}{fact}" for title, fact in facts.items())]
    points = curve(name)
    if points:
        needs = f"; {NEEDS[name]}" if name in NEEDS else ""
        lines += ["", TASK.format(needs=needs, n=points[-1].n), *drawn(points)]
    return "\n".join(lines)
