"""Which runs belong together: those that agree in every choice but the seed. One rule for figures and tables.

Configurations are flat (dotted keys, `config.flat`). A row of a table may have only some of the keys.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from typing import TypeVar

from fedbench.config.config import GROUPS, HOW, MEASURED, SEED, role

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)


def settings(config: Mapping[str, object]) -> dict[str, object]:
    """The choices that define an experiment: all but the seed and how the run was computed and measured."""
    return {key: value for key, value in config.items() if role(key) not in (SEED, MEASURED, HOW)}


def plain(value: object) -> Hashable:
    """A value that can be compared and hashed: 1.0 is 1, a list is its text."""
    return value if type(value) is str or isinstance(value, Hashable) else str(value)


def in_order(values: Iterable[K]) -> list[K]:
    """Numbers by size, then everything else in order of first appearance; of tuples, part by part."""
    given = list(dict.fromkeys(values))
    ranks: dict[Hashable, int] = {}

    def place(value: Hashable) -> tuple[bool, float]:
        number = isinstance(value, int | float) and not isinstance(value, bool)
        return (False, float(value)) if number else (True, ranks.setdefault(value, len(ranks)))  # type: ignore[arg-type]

    def key(value: Hashable) -> list[tuple[bool, float]]:
        return [place(part) for part in (value if isinstance(value, tuple) else (value,))]

    return sorted(given, key=key)


def differing(configs: Iterable[Mapping[str, object]], swept: Sequence[str] = ()) -> list[str]:
    """The keys in which these runs are different experiments, chosen options first.

    A key of an option (`algorithm.lr`) counts only if runs with the same option (`algorithm`) differ in it:
    FedAvg and SCAFFOLD are expected to have different rates. A key that a run lacks is not a difference.
    `swept`: keys that a sweep varies, which count even if they only say how a run starts or is measured.
    """
    found: dict[tuple[str, Hashable], set[Hashable]] = {}
    for config in configs:
        asked = {key: config[key] for key in swept if key in config}
        for key, value in {**settings(config), **asked}.items():
            group = key.split(".")[0]
            option = plain(config.get(group)) if group in GROUPS and group != key else None
            found.setdefault((key, option), set()).add(plain(value))
    keys = dict.fromkeys(key for (key, _), values in found.items() if len(values) > 1)
    return sorted(keys, key=lambda key: key not in GROUPS)


def split(
    runs: Sequence[T], keys: Sequence[str], config: Callable[[T], Mapping[str, object]]
) -> dict[tuple[Hashable, ...], list[T]]:
    """Group runs by values of `keys`, in order of first appearance. `config` gives a run's flat choices."""
    groups: dict[tuple[Hashable, ...], list[T]] = {}
    for run in runs:
        choices = config(run)
        groups.setdefault(tuple(plain(choices.get(key)) for key in keys), []).append(run)
    return groups


def one_per_seed(
    runs: Sequence[T],
    config: Callable[[T], Mapping[str, object]],
    finished: Callable[[T], bool],
    along: Collection[str],
) -> list[T]:
    """Keep one run per seed (and per values of the keys `along`): the first `finished` one, else the first.
    The runs agree in all other keys. Runs without a seed all stay.

    Otherwise, a seed that was run twice (in a search and at its end, or in two sweeps) would count twice.
    """
    chosen: dict[Hashable, T] = {}
    for rank, run in enumerate(runs):
        choices = config(run)
        seed = choices.get("seed")
        place = (None, rank) if seed is None else (seed, *(plain(choices.get(key)) for key in along))
        before = chosen.get(place)
        if before is None or (finished(run) and not finished(before)):
            chosen[place] = run
    return list(chosen.values())
