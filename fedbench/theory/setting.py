"""What a step-size rule reads (counts, constants of the problem) and what it returns (values)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from fedbench.errors import UserError


@dataclass(frozen=True)
class Counts:
    """What a theorem, a broadcast and a server step may depend on."""

    S: int  # arrivals per server update (clients per round)
    N: int  # clients
    K: int | None  # local steps; None if clients make different numbers of steps
    T: int  # planned server updates (rounds)
    t: int = 0  # index of this server update, from 0
    made: int = 0  # server updates before it that somebody took part in: t, where no round was empty
    staleness_mean: float = 0.0  # over this update's arrivals, in server versions
    staleness_max: int = 0
    draws: Any = field(default=None, compare=False, repr=False)  # the server's, of this hook

    def uniform(self, *shape: int) -> Any:
        """Numbers in [0, 1) (a tensor), drawn by the address (seed, round, hook), the same in a resumed run.
        Every call in a hook gives others."""
        return self.draws.uniform(*shape)

    def normal(self, *shape: int) -> Any:
        """Numbers from N(0, 1), drawn like those of `uniform`."""
        return self.draws.normal(*shape)


# Power of s with which a constant grows when the loss is multiplied by s.
SCALING = {"L": 1, "Delta": 1, "sigma2": 2, "sigma_h2": 2, "G0": 2, "G": 1, "tau_max": 0, "loss_floor": 1}
Values = dict[str, tuple[float, str]]
"""What a rule returns: name -> number and its relation to the theorem. "=": the theorem's value; "<=": a
bound, the largest value allowed; "~": known up to a constant only, which is taken as 1. Names: lr (eta),
server_lr (gamma, in the algorithm's own convention), beta (weight of the new gradient in the momentum),
lr_max (cap of an adaptive local step), product (eta gamma)."""


class VoidRule(UserError):
    """A published rule that leaves no step size for the counts and constants at hand."""


def numbers(values: Values) -> dict[str, float]:
    """The numbers of a rule, without their relations."""
    return {name: value for name, (value, _) in values.items()}


@dataclass(frozen=True)
class Constants:
    """The known constants of the problem (None: unknown). A rule that needs an unknown one is refused.

    L: smoothness. Delta: f(theta^0) - f*. sigma2: variance of a stochastic gradient. sigma_h2: gradient
    dissimilarity between clients. G0: mean squared norm of the clients' gradients at theta^0. G: bound on
    the clients' gradient norms. tau_max: largest staleness, in updates. loss_floor: lower bound of the loss.
    """

    L: float | None = None
    Delta: float | None = None
    sigma2: float | None = None
    sigma_h2: float | None = None
    G0: float | None = None
    G: float | None = None
    tau_max: float | None = None
    loss_floor: float | None = None

    def known(self) -> dict[str, float]:
        """Return the constants that are given."""
        return {name: getattr(self, name) for name in SCALING if getattr(self, name) is not None}

    def scaled(self, factor: float) -> Constants:
        """Return the constants of the same problem with its loss multiplied by `factor` > 0."""
        return Constants(**{name: value * factor ** SCALING[name] for name, value in self.known().items()})
