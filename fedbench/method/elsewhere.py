"""What other suites compute under the name of a method or a partition: elsewhere.csv.

A row is a behaviour that was seen in a run of that version. `fedbench show` and conf/other_suites.md read it.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

TABLE = Path(__file__).with_name("elsewhere.csv")
KINDS = {"method": "Methods", "partition": "Partitions and data"}


@dataclass(frozen=True)
class Elsewhere:
    """One behaviour of another suite, beside fedbench's."""

    kind: str  # one of KINDS
    name: str  # in fedbench: algorithm=NAME, partition=NAME
    suite: str  # distribution and version
    theirs: str  # what it is called there
    does: str
    example: str  # the input of both numbers
    seen: str  # there
    here: str
    keys: str  # what gives the same in fedbench
    source: str  # the file of the suite's package

    @property
    def line(self) -> str:
        """The row in one sentence."""
        return (
            f"{self.suite}, {self.theirs}: {self.does} ({self.example}: {self.seen} there, {self.here} here)"
        )


def rows() -> tuple[Elsewhere, ...]:
    """All rows, in the order of the file."""
    with TABLE.open(newline="", encoding="utf-8") as file:
        return tuple(Elsewhere(**row) for row in csv.DictReader(file))


def of_method(name: str) -> list[str]:
    """What other suites compute under a method's name, a sentence each."""
    return [row.line for row in rows() if row.kind == "method" and row.name == name]


def markdown() -> str:
    """The tables of conf/other_suites.md."""
    parts = []
    for kind, title in KINDS.items():
        head = [
            "fedbench",
            "elsewhere",
            "what it computes there",
            "example",
            "there",
            "here",
            "the same here",
        ]
        lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
        for row in rows():
            if row.kind == kind:
                there = f"{row.suite}: {row.theirs} (`{row.source}`)"
                cells = [f"`{row.name}`", there, row.does, row.example, row.seen, row.here, row.keys]
                lines.append("| " + " | ".join(cells) + " |")
        parts.append(f"## {title}\n\n" + "\n".join(lines) + "\n")
    return "\n".join(parts)
