"""All methods, one file each; importing this package registers them.

Conventions of their docstrings, and of the names of their vectors:

    theta^t   the global model (d,), t = 0..T counts server updates; theta^v is the one that a client was sent
    y, x, w   a client's local model; f or q a gradient on the current mini-batch, F(.; xi) its loss
    S, N, K   arrivals per update, clients, local steps; S_t the clients of round t, n_i client i's samples
    eta = lr, gamma = server_lr, beta: weight of the new gradient in a momentum, in the papers' letters

The server's step is scaled in one of two ways, which each docstring names:

    convention D   theta <- theta + gamma (mean displacement y_i - theta): gamma = 1 is plain averaging
    convention G   theta <- theta - gamma (mean gradient-sized direction): gamma = eta K is plain averaging

server_lr=average is that gamma (in every round, where lr_schedule changes eta): the server takes the mean of
the clients' models, or where some are late, moves by their mean displacement.

"Travels" counts the vectors of length d that one client receives and sends per round; scalars are free.
Where a method sends a sum of its steps besides the model, the sum is kept in a vector of its own, because in
float32 the difference of two models loses digits. Where the paper divides theta - y by eta, so do we.
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import cast

from fedbench.errors import OWN_CODE, unknown_option
from fedbench.fields import REGISTERED, registered
from fedbench.method import Algorithm

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")


def names() -> list[str]:
    """The sorted names of all methods, including those of the user's modules that are imported."""
    return sorted(registered("algorithm"))


def every() -> list[type[Algorithm]]:
    """All methods, by name."""
    return [registered("algorithm")[name] for name in names()]


def get(name: str) -> type[Algorithm]:
    """Return the class registered under `name`. Raises ConfigError with the nearest match otherwise."""
    if ("algorithm", name) not in REGISTERED:
        raise unknown_option("algorithm", name, names(), OWN_CODE)
    return cast(type[Algorithm], REGISTERED["algorithm", name])
