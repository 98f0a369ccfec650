"""CSV files about clients: durations of jobs, windows of time, presence in rounds."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Sequence

from fedbench.errors import ConfigError
from fedbench.files import as_given

Rows = list[list[tuple[float, ...]]]
"""Of each client in turn, its rows."""


def lines_of(key: str, path: str) -> list[tuple[int, dict[str, str]]]:
    """The rows of a CSV, each with its line. Raises ConfigError, of the option `key`."""
    try:
        with as_given(path).open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file)
            return [(reader.line_num, row) for row in reader]  # empty lines are no rows
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ConfigError(key, path, f"cannot be read: {error}") from None


def whole(text: str) -> int:
    """A whole number as people write it; Python's int() takes 1_0 for 10. Raises ValueError and TypeError."""
    if not re.fullmatch(r"\s*[+-]?[0-9]{1,20}\s*", text):
        raise ValueError(text)
    return int(text)


def by_client(
    key: str, path: str, columns: Sequence[str], clients: int, names: Sequence[str] | None
) -> Rows | None:
    """Of each of N = `clients` clients the `columns` of its rows, numbers >= 0 (an empty `to`: infinity).

    A column `client` has the clients' numbers, or a column `name` their names, as users.csv of a run says
    them; other names are left out. `names`: those of the clients, empty if they have none; None: not known
    yet, and None is returned where they are needed. Raises ConfigError, of the option `key`, also for a
    client without a row.
    """
    lines = lines_of(key, path)
    by = "client" if not lines or "client" in lines[0][1] else "name"
    found: dict[int | str, list[tuple[float, ...]]] = {}
    for line, row in lines:
        try:
            who = whole(row["client"]) if by == "client" else row["name"].strip()
            values = tuple(_number(row[column], column == "to") for column in columns)
            if by == "client" and not 0 <= int(who) < clients:
                raise ValueError(who)
        except (AttributeError, KeyError, TypeError, ValueError):
            words = f"client (a number from 0 to {clients - 1}) or name, {', '.join(columns)} (numbers >= 0)"
            raise ConfigError(key, path, f"line {line} must have the columns {words}") from None
        found.setdefault(who, []).append(values)
    if by == "name" and names is None:
        return None
    if by == "name" and not names:
        allowed = "has names, which clients have with partition=natural only; a column client has numbers"
        raise ConfigError(key, path, allowed)
    everyone: Sequence[int | str] = range(clients) if by == "client" else names or ()
    absent = [str(who) for who in everyone if who not in found]
    if absent:
        more = f" and {len(absent) - 1} more" if absent[1:] else ""
        raise ConfigError(key, path, f"must have a row for every client, has none for {absent[0]}{more}")
    return [found[who] for who in everyone]


def _number(text: str, may_lack: bool) -> float:
    """A number as people write it. `may_lack`: an empty cell is infinity. Raises ValueError and TypeError."""
    if may_lack and not text.strip():
        return math.inf
    value = float(text)
    if "_" in text or not 0 <= value < math.inf:
        raise ValueError(text)
    return value


def windows(path: str, clients: int, names: Sequence[str] | None, period: float | None) -> Rows | None:
    """Of each client the windows [from, to) in which it can start jobs, in order and apart from each other.
    `names` and None: as in `by_client`. Raises ConfigError."""
    key = "schedule.available"
    rows = by_client(key, path, ("from", "to"), clients, names)
    merged: Rows = []
    for part in rows or ():
        apart: list[tuple[float, ...]] = []
        for begin, end in sorted(part):
            if not begin < end <= (period or math.inf):
                last = f" <= schedule.period={period:g}" if period else ""
                raise ConfigError(key, path, f"must have from < to{last}, has {begin:g}, {end:g}")
            if apart and begin <= apart[-1][1]:
                begin, end = apart[-1][0], max(end, apart.pop()[1])
            apart.append((begin, end))
        merged.append(apart)
    return merged if rows is not None else None
