"""`fedbench show METHOD`: a method's page, made from its code, with where it is checked and its curve."""

from __future__ import annotations

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
    from fedbench.method.curve import NEEDS, curve, drawn
    from fedbench.method.page import page as page_of

    text = page_of(get(name))
    points = curve(name)
    if points:
        needs = f"; {NEEDS[name]}" if name in NEEDS else ""
        text = "\n".join([text, "", TASK.format(needs=needs, n=points[-1].n), *drawn(points)])
    return text
