"""A method's hyper-parameters: declared as fields, read from the configuration, completed by its theorem."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

from fedbench import fields
from fedbench.errors import ConfigError
from fedbench.fields import AVERAGE, Rule
from fedbench.theory.setting import Counts

THEOREM = "from the theorem"
"""What null means for a hyper-parameter that `theorem` gives: `lr = positive(None, null=THEOREM)`."""

MEAN = "average: 1, the clients' mean model"
MEAN_OF_STEPS = "of the mean direction of one local step; average: eta K, the clients' mean model"
"""Help of a `server_lr = server_rate(...)` of convention D and of convention G."""

_PLAIN = (str, int, float, bool, type(None))


def silent(line: str) -> None:
    """Ignore a warning about a clamped value: the default of `resolve`."""


@dataclass
class Configured:
    """The part of a method that handles its configuration. `Algorithm`'s hooks are its pseudo-code.

    Numbers arrive in `h` of every hook, so that changing them recompiles nothing; choices and switches stay
    on `self`, where a method may branch on them in Python.
    """

    name: ClassVar[str] = ""  # the name in `algorithm=`, set by `register`
    convention: ClassVar[Literal["D", "G"]] = "D"
    """What server_lr multiplies: the mean displacement (D: 1 gives the mean of the clients' models) or the
    mean gradient-sized direction (G: eta K gives it)."""
    no_average: ClassVar[str] = "this method declares a plain number"
    """Why `server_lr=average` is refused, if the method declares a plain number."""

    def theorem(self, n: Counts) -> dict[str, float]:
        """Values of the hyper-parameters whose null means THEOREM."""
        return {}

    def check(self) -> None:
        """Raise ConfigError if the hyper-parameters do not fit together."""

    @classmethod
    def create(cls, values: Mapping[str, Any]) -> Self:
        """Build from config values. Raises ConfigError for an unknown key or a value that is not allowed."""
        for key, rule in cls.options().items():
            if (key, values.get(key)) == ("server_lr", AVERAGE) and AVERAGE not in rule.options:
                raise ConfigError(f"algorithm.{key}", AVERAGE, f"{rule.allowed}: {cls.no_average}")
            if rule.kind == "number" and rule.null is None and key in values and values[key] is None:
                raise ConfigError(f"algorithm.{key}", None, f"{rule.allowed}; no theorem gives it")
        made = fields.read(cls, values, "algorithm", f"algorithm={cls.name}")
        made.check()
        return made

    @classmethod
    def options(cls) -> dict[str, Rule]:
        """The declared hyper-parameters by name, those of a base first."""
        declared: dict[str, Any] = fields.options_of(cls)
        names = (field.name for field in dataclasses.fields(cls))
        return {name: declared[name] for name in names if name in declared}

    @classmethod
    def numbers(cls) -> list[str]:
        """The hyper-parameters that arrive in `h`."""
        return [name for name, rule in cls.options().items() if rule.kind == "number"]

    @classmethod
    def theorem_keys(cls) -> list[str]:
        """The hyper-parameters for which the theorem gives values."""
        return [name for name, rule in cls.options().items() if rule.null == THEOREM]

    @property
    def averages(self) -> bool:
        """Whether the server's step is the one at which the server takes the mean of the clients' models."""
        return getattr(self, "server_lr", None) == AVERAGE

    def from_theorem(self) -> list[str]:
        """The hyper-parameters whose values the theorem gives in this run."""
        return [name for name in self.theorem_keys() if getattr(self, name) is None]

    def off(self) -> list[str]:
        """The numbers that are null and not the theorem's. They are not in `h`; a method may branch on it."""
        missing = [name for name in self.numbers() if getattr(self, name) is None]
        return [name for name in missing if name not in self.theorem_keys()]

    def choices(self) -> dict[str, Any]:
        """The hyper-parameters that stay on `self`, with their values."""
        return {name: getattr(self, name) for name in self.options() if name not in self.numbers()}

    def resolve(self, n: Counts, warn: Callable[[str], None] = silent) -> dict[str, float]:
        """The numbers of `h`: as given, else the theorem's (beta at most 1), without those that are off.
        server_lr=average is 1 (convention D) or eta K (G), with the eta before any `lr_schedule`.
        Raises ConfigError if the theorem is needed and clients make different numbers of steps."""
        values = {name: getattr(self, name) for name in self.numbers()}
        missing = self.from_theorem()
        if missing and n.K is None:
            text = "null takes the theorem's value, which needs equal steps for all clients (local.steps)"
            raise ConfigError(f"algorithm.{missing[0]}", None, text)
        given = self.theorem(n) if missing and n.T > 0 else dict.fromkeys(missing, 0.0)
        for key in missing:
            values[key] = given[key]
            if key == "beta" and given[key] > 1.0:
                warn(f"algorithm.{key} from the theorem is {given[key]:.4g} > 1 and was clamped to 1")
                values[key] = 1.0
        if self.averages and self.convention == "D":
            values["server_lr"] = 1.0
        elif self.averages:
            if n.K is None:
                text = "must be a number: clients make unequal steps, so no one step is their models' mean"
                raise ConfigError("algorithm.server_lr", AVERAGE, f"{text} (local.steps makes them equal)")
            values["server_lr"] = values["lr"] * n.K
        return {name: value for name, value in values.items() if value is not None}

    def without_numbers(self) -> Self:
        """A copy for a run's local programs, in which using a number from `self`, not from `h`, fails."""
        bare = copy.copy(self)
        for name in set(self.numbers()) - set(self.off()):
            setattr(bare, name, ReadFromH(name))
        return bare

    @property
    def key(self) -> Hashable | None:
        """What its compiled programs depend on besides shapes: class, choices, `bind`'s results, what is off.

        None if that cannot be compared: the programs are then not shared between runs.
        """
        fixed = {name: value for name, value in vars(self).items() if name not in self.numbers()}
        if not all(map(_plain, fixed.values())):
            return None
        return type(self), tuple(sorted(fixed.items())), tuple(self.off())


@dataclass
class ReadFromH:
    """Stands in for a number on `self`. Arithmetic on it fails with an error that names this class."""

    name: str

    def __bool__(self) -> bool:
        raise TypeError(f"numbers arrive in h: read h.{self.name}, not self.{self.name}")

    __float__ = __int__ = __index__ = __bool__


def _plain(value: Any) -> bool:
    return all(map(_plain, value)) if isinstance(value, tuple) else isinstance(value, _PLAIN)
