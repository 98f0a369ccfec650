"""Which runs make one line: those that agree in everything but the seed."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass

from fedbench.config.grouping import differing, one_per_seed, split
from fedbench.errors import ConfigError
from fedbench.figures import names, style
from fedbench.figures.read.results import Run
from fedbench.figures.style import LineStyle
from fedbench.runs.stored import FINISHED


@dataclass(frozen=True)
class Series:
    """The runs of one line, how it looks, and the choices that set it apart."""

    choices: dict[str, object]
    style: LineStyle
    runs: tuple[Run, ...]
    repeated: int = 0  # further runs of the same seed, which would make n and the spread untrue; left out

    @property
    def label(self) -> str:
        """The line's name in the figure."""
        return self.style.label

    @property
    def seeds(self) -> list[Hashable]:
        """Seeds of its runs, in order."""
        return [run.seed for run in self.runs]

    @property
    def n(self) -> int:
        """Number of different seeds."""
        return len(set(map(str, self.seeds)))


_Found = tuple[list[str], dict[str, object], list[Run]]  # keys that name the line, its choices, its runs


def group(
    runs: Sequence[Run], by: Sequence[str] = ("algorithm",), along: Collection[str] = ()
) -> list[Series]:
    """Runs as lines, one per value of the keys `by`, in order of first appearance.

    Runs of a line that differ in any further choice (but for `along`, the keys on an axis) would make a
    mean over different experiments, so they are split by that choice too, and the label says its value.
    Raises ConfigError for a key that no run has.
    """
    return rows_of(runs, None, by, along)[""]


def rows_of(
    runs: Sequence[Run], key: str | None, by: Sequence[str] = ("algorithm",), along: Collection[str] = ()
) -> dict[str, list[Series]]:
    """Title -> lines, for each value of `key` (None: all runs, untitled). A line looks the same in all."""
    for name in (*by, *filter(None, [key])):
        if not any(name in run.choices for run in runs):
            known = sorted({choice for run in runs for choice in run.settings()})
            allowed = "must be a choice of these runs, such as algorithm"
            raise ConfigError("rows" if name == key else "by", name, allowed, known)
    keys = [key] if key else []
    parts = split(runs, keys, _choices)
    found = [
        (
            names.line([key], part[0].choices) if key else "",
            dict(zip([key] if key else [], value, strict=True)),
            one,
        )
        for value, part in parts.items()
        for one in _lines(part, by, along)
    ]
    labels = [_named(shown, members[0].choices) for _, _, (shown, _, members) in found]
    looks = dict(zip(dict.fromkeys(labels), style.apart(list(dict.fromkeys(labels))), strict=True))
    rows: dict[str, list[Series]] = {}
    for (title, row, (_, choices, members)), label in zip(found, labels, strict=True):
        once = one_per_seed(members, _choices, lambda run: run.status in FINISHED, along)
        line = Series({**row, **choices}, looks[label], tuple(once), len(members) - len(once))
        rows.setdefault(title, []).append(line)
    return rows


def _lines(runs: Sequence[Run], by: Sequence[str], along: Collection[str]) -> list[_Found]:
    first = split(runs, by, _choices)
    named = [key for rank, key in enumerate(by) if len({values[rank] for values in first}) > 1] or [by[0]]
    found: list[_Found] = []
    for values, members in first.items():
        further = [key for key in differing(map(_choices, members)) if key not in (*by, *along)]
        for more, parts in split(members, further, _choices).items():
            choices = {**dict(zip(by, values, strict=True)), **dict(zip(further, more, strict=True))}
            shown = [key for key in (*named, *further) if key in parts[0].choices]
            found.append((shown, choices, parts))
    return found


def _named(shown: Sequence[str], choices: Mapping[str, object]) -> tuple[str | None, str, str]:
    """The algorithm that a line stands for (None: for no one's), its method, and the line's name. Named
    variants of an algorithm are methods of their own."""
    algorithm = str(choices["algorithm"]) if "algorithm" in shown else None
    variant = [key for key in shown if names.is_variant(key, choices.get(key))]
    return algorithm, names.line(["algorithm", *variant], choices), names.line(shown, choices)


def _choices(run: Run) -> Mapping[str, object]:
    return run.choices
