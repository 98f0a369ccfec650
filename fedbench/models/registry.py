"""Finding models by name: those of this package, and those that a user's module registers."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar, cast

from torch import nn

from fedbench.errors import OWN_CODE, ConfigError
from fedbench.fields import Choice, choice, options_of, options_of_function, read

VOCABULARY = "vocabulary"


@dataclass(frozen=True)
class Model(ABC):
    """The options of a model as fields (`fedbench.fields`), and how it is made of them."""

    init: str = choice(
        "default", ("default", "zeros"), help="zeros: all parameters but the gains of norm layers"
    )

    vocabulary: int | None = None  # of the data, where samples are token sequences: no option
    reads_tokens: ClassVar[bool] = False

    @abstractmethod
    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        """The module that maps (B, *shape) to outputs (B, classes): logits, or the targets of a regression.

        Where `reads_tokens`, samples are (T,) int64 below `self.vocabulary`, 0 being padding.
        """


Factory = Callable[..., nn.Module]
R = TypeVar("R", bound=Factory | type[Model])
_REGISTRY: dict[str, type[Model]] = {}


def register_model(name: str) -> Callable[[R], R]:
    """Decorator: enter a `Model`, or a plain function or module class, under `model=<name>`.

    A function (or module class) is called as `factory(shape, classes, **options)`: `shape` is that of one
    sample, options are its further parameters, keys under `model` in the config. One with a parameter
    `vocabulary` reads token sequences, and is given the data's there.
    """

    def enter(made: R) -> R:
        is_model = isinstance(made, type) and issubclass(made, Model)
        _REGISTRY[name] = cast(type[Model], made) if is_model else _of_factory(name, cast(Factory, made))
        return made

    return enter


@dataclass(frozen=True)
class _Made(Model):
    """A model whose options are the parameters of a function."""

    factory: ClassVar[Factory]
    open_ended: ClassVar[bool]  # the function takes any further option
    further: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        names = [item.name for item in options_of(type(self)) if item.name != "init"]
        named = {name: getattr(self, name) for name in names}
        if self.reads_tokens:
            named[VOCABULARY] = self.vocabulary
        return type(self).factory(shape, classes, **named, **self.further)


def _of_factory(name: str, factory: Factory) -> type[Model]:
    parameters = list(inspect.signature(factory).parameters.values())
    given = [*(p.name for p in parameters[:2]), VOCABULARY]
    made = dataclasses.make_dataclass(
        name, options_of_function(name, factory, given), bases=(_Made,), frozen=True
    )
    made.__module__, made.__doc__ = factory.__module__, inspect.getdoc(factory)
    made.factory = staticmethod(factory)  # type: ignore[attr-defined]
    made.reads_tokens = any(p.name == VOCABULARY for p in parameters)  # type: ignore[attr-defined]
    made.open_ended = any(p.kind is p.VAR_KEYWORD for p in parameters)  # type: ignore[attr-defined]
    return made


def names() -> list[str]:
    """All registered names, sorted."""
    _load_package()
    return sorted(_REGISTRY)


def get(name: str) -> type[Model]:
    """The class registered under `name`; ConfigError with the nearest match otherwise."""
    if name not in _REGISTRY:
        _load_package()
    if name not in _REGISTRY:
        raise ConfigError("model", name, f"must be one of {', '.join(names())}{OWN_CODE}", names())
    return _REGISTRY[name]


def read_model(chosen: Choice) -> Model:
    """The options of the chosen model, checked. Raises ConfigError."""
    cls = get(chosen.name)
    given, further = dict(chosen.options), {}
    if issubclass(cls, _Made) and cls.open_ended:
        known = {item.name for item in options_of(cls)}
        further = {key: given.pop(key) for key in list(given) if key not in known}
    made = read(cls, given, "model", f"model={chosen.name}")
    return dataclasses.replace(made, further=further) if isinstance(made, _Made) else made


def _load_package() -> None:
    import fedbench.models as package

    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"fedbench.models.{module.name}")
