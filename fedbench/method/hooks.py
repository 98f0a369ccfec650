"""A method's hooks, as they are called once before a run to refuse what the run could not use.

Engines hand tensors on without copying them: the y of a client's first step may be the server's own theta. So
no hook may change in place what it was handed. What it made itself, gradients included, it may.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

from torch import Tensor

from fedbench.errors import ConfigError
from fedbench.method.generators import GlobalGenerators
from fedbench.method.interface import Algorithm, Client
from fedbench.method.record import Record, Vectors
from fedbench.torch_internals import version_of

SEEDED = "draw from a torch.Generator that is seeded from what the server keeps"


class Hooks:
    """The hooks of one method. Each call and check raises ConfigError, which names the hook."""

    def __init__(self, algorithm: Algorithm) -> None:
        self.algorithm, self._generators = algorithm, GlobalGenerators()

    def call(self, hook: str, *given: Any) -> Any:
        """What a hook returns, if it leaves what it was handed as it was and draws from no global
        generator."""
        names = list(inspect.signature(getattr(Algorithm, hook)).parameters)[1:]
        handed = [found for name, value in zip(names, given, strict=True) for found in _tensors(name, value)]
        before = [version_of(tensor) for _, tensor in handed]
        returned = getattr(self.algorithm, hook)(*given)
        for (name, tensor), version in zip(handed, before, strict=True):
            if version_of(tensor) != version:
                self._refuse(hook, f"changes {name} in place; return a new tensor")
        if whose := self._generators.drawn():
            why = f"draws from {whose} global generator, so the run could not be repeated"
            drawing = next(
                (f"use {name}.uniform or .normal" for name in names if name in ("client", "n")), SEEDED
            )
            self._refuse(hook, f"{why}; {drawing}")
        return returned

    def vectors(self, hook: str, *given: Any) -> Vectors:
        """What a hook returns, if that is a dict of tensors."""
        return self._vectors(hook, self.call(hook, *given))

    def local_final(self, *given: Any) -> tuple[Vectors, Vectors]:
        """The upload and what a client keeps."""
        hook, returned = "local_final", self.call("local_final", *given)
        if not isinstance(returned, tuple) or len(returned) != 2:
            allowed = "must return two dicts (upload, what the client keeps), and returns "
            self._refuse(hook, allowed + _kind(returned))
        upload, keep = (self._vectors(hook, part) for part in returned)
        return upload, keep

    def personal(self, server: Record, mine: Record) -> None:
        """Refuse what is no model like the server's."""
        returned = self.call("personal", server, mine)
        if not isinstance(returned, Tensor) or returned.shape != server.theta.shape:
            found = _form(returned) if isinstance(returned, Tensor) else _kind(returned)
            self._refuse("personal", f"must return a model like server.theta, and returns {found}")

    def holds(self, hook: str, vectors: Vectors, name: str, why: str = "") -> None:
        """Refuse vectors without `name`."""
        if name not in vectors:
            self._refuse(hook, f"must return {name!r}{why}, and returns {', '.join(vectors) or 'nothing'}")

    def averages(self, hook: str, uploads: Vectors) -> None:
        """Refuse uploads of which there is no weighted mean."""
        for name, value in uploads.items():
            if not value.is_floating_point():
                why = f"sends {name!r} as {_type(value)}, of which there is no mean"
                how = "send what is to be averaged, in the type of theta"
                self._refuse(hook, f"{why}; {how}, or see uploads one by one (stacks = True)")

    def sent_bytes(self, upload: Record) -> int | None:
        """How many bytes of an upload travel, if the method says so."""
        returned = self.call("sent_bytes", upload)
        if returned is not None and (type(returned) is not int or returned < 0):
            self._refuse("sent_bytes", f"must return bytes (an integer) or None, and returns {returned!r}")
        return returned

    def of_samples(self, losses: Any, samples: int) -> None:
        """Refuse a method's own loss that is not one number for each sample."""
        if not isinstance(losses, Tensor) or losses.shape != (samples,):
            found = _form(losses) if isinstance(losses, Tensor) else _kind(losses)
            self._refuse("loss", f"must return one number for each of {samples} samples, and returns {found}")

    def sends(self, uploads: Vectors) -> None:
        """Refuse names that a stack of uploads has beside them."""
        for name in {"weight", "client"} & uploads.keys():
            self._refuse("local_final", f"sends {name!r}, which is what `stacks` calls the uploads' {name}s")

    def addresses(self, down: Vectors, names: Sequence[str], clients: int) -> None:
        """Refuse addressed vectors without a row for each client."""
        for name in names:
            self.holds("broadcast", down, name)
            if down[name].shape[:1] != (clients,):
                shape = tuple(down[name].shape)
                self._refuse(
                    "broadcast", f"addresses {name!r} of shape {shape}, not ({clients}, ...): N rows"
                )

    def changes(self, hook: str, changed: Vectors, local: Vectors) -> None:
        """Refuse entries that the local state lacks, and vectors that are not like those there. Scalars may
        change their type, which does no harm."""
        for name in changed:
            if name not in local:
                self._refuse(hook, f"returns {name!r}, which local_init does not")
        vectors = {name: value for name, value in changed.items() if value.dim() > 0}
        self.replaces(hook, vectors, local, "local_init")

    def replaces(self, hook: str, vectors: Vectors, first: Vectors, by: str) -> None:
        """Refuse vectors whose shape or type is not that of the `first` ones, which the hook `by` made."""
        for name, value in vectors.items():
            if name in first and _form(value) != _form(first[name]):
                self._refuse(hook, f"returns {name!r} as {_form(value)}, and {by} as {_form(first[name])}")

    def _vectors(self, hook: str, returned: Any) -> Vectors:
        what = _kind(returned)
        if isinstance(returned, dict):
            wrong = [name for name, value in returned.items() if not isinstance(value, Tensor)]
            if not wrong:
                return returned
            what = f"{_kind(returned[wrong[0]])} as {wrong[0]!r}"
        self._refuse(hook, f"must return a dict of tensors, and returns {what}")

    def _refuse(self, hook: str, why: str) -> NoReturn:
        raise ConfigError("algorithm", self.algorithm.name, f"its {hook} {why}")


def _tensors(name: str, value: Any) -> Iterator[tuple[str, Tensor]]:
    """The tensors in what a hook is handed, as the hook names them."""
    if isinstance(value, Tensor):
        yield name, value
    elif isinstance(value, Record | Client):
        for part, inner in vars(value).items():
            yield from _tensors(f"{name}.{part}", inner)


def _type(value: Tensor) -> str:
    return str(value.dtype).removeprefix("torch.")


def _form(value: Tensor) -> str:
    return f"{_type(value)} of shape {tuple(value.shape)}"


def _kind(value: Any) -> str:
    name = type(value).__name__
    return "nothing" if value is None else f"a{'n' * (name[0] in 'aeiou')} {name}"
