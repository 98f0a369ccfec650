"""Errors that a user can mend: one line that names the key, the value and what is allowed."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

OWN_CODE = ", or your own: imports=[FILE.py] registers it, --config-dir DIR has its file of options"
"""After the names of methods and of models."""


class UserError(Exception):
    """An error whose message is a whole, single line for the user. `exit_code` ends the process."""

    exit_code = 1


class ConfigError(UserError):
    """Bad input. The line reads `key=value: what is allowed (did you mean ...?)`; exit code 2."""

    exit_code = 2

    def __init__(self, key: str, value: object, allowed: str, options: Iterable[object] = ()) -> None:
        """`allowed` says what would be accepted; `options` are searched for the nearest match to `value`."""
        self.key, self.value, self.allowed, self.options = key, value, allowed, tuple(options)
        near = nearest(value, self.options)
        hint = f" (did you mean '{near}'?)" if near else ""
        super().__init__(f"{shortened(key)}={shortened(word(value))}: {allowed}{hint}")

    def within(self, where: str) -> ConfigError:
        """The same, saying in which file the value stands."""
        return ConfigError(self.key, self.value, f"{self.allowed} (in {where})", self.options)


class UsageError(UserError):
    """Bad input that is no key=value pair; exit code 2."""

    exit_code = 2


class DataError(UserError):
    """Data that cannot be read or fetched; exit code 2, because the input has to change."""

    exit_code = 2


class RunError(UserError):
    """A run that could not go on (a full disk, a directory in use); exit code 1."""


class SaidElsewhere(UserError):
    """Another process of the same run has failed and says why; this one ends without a line."""

    def __init__(self, line: str, exit_code: int) -> None:
        super().__init__(line)
        self.exit_code = exit_code


def word(value: object) -> str:
    """A value as a configuration writes it: null, true, false, or its text."""
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def shortened(value: object, limit: int = 200) -> str:
    """The text of a value, its middle left out where it is too long for a line."""
    text = str(value)
    return text if len(text) <= limit else f"{text[: limit // 2]}...{text[-limit // 4 :]}"


def nearest(value: object, options: Iterable[object]) -> str | None:
    """Return the option most like `value`, or None where nothing is close."""
    if len(str(value)) > 100:
        return None
    matches = difflib.get_close_matches(str(value), [str(option) for option in options], n=1, cutoff=0.5)
    return matches[0] if matches else None
