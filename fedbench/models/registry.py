"""Finds models by name, those of this package and those that a user's module registers, and builds them."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import math
import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar, cast

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from fedbench.errors import OWN_CODE, ConfigError, unknown_option
from fedbench.fields import (
    REGISTERED,
    Choice,
    choice,
    is_own,
    options_of,
    read,
    registered,
)
from fedbench.models.layers import NORM_TYPES
from fedbench.own_options import check_declared, options_of_function
from fedbench.rng import Stream, make_key
from fedbench.torch_internals import BATCH_NORMS, DROPOUTS

VOCABULARY = "vocabulary"


@dataclass(frozen=True)
class Model(ABC):
    """A model's options as fields (`fedbench.fields`), and the method that builds it from them."""

    init: str = choice(
        "default",
        ("default", "zeros", "glorot", "he"),
        help="zeros: all parameters but the gains of norm layers; glorot: of all weights, uniform; he: of "
        "convolutions, normal, fan out",
    )

    vocabulary: int | None = None  # the data's, if samples are token sequences; not an option
    positions: bool = False  # whether the data have a label at every position; not an option
    reads_tokens: ClassVar[bool] = False
    labels_positions: ClassVar[bool] = False  # if `positions`, outputs are (B, T, classes)

    @abstractmethod
    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        """The module that maps (B, *shape) to outputs (B, classes): logits, or the targets of a regression.

        If `reads_tokens`, samples are (T,) int64 below `self.vocabulary`; 0 is padding.
        """


Factory = Callable[..., nn.Module]
R = TypeVar("R", bound=Factory | type[Model])


def register_model(name: str) -> Callable[[R], R]:
    """Decorator: register a `Model`, or a plain function or module class, under `model=<name>`.

    A function (or module class) is called as `factory(shape, classes, **options)`. `shape` is that of one
    sample; the options are its further parameters, each by its name, keys under `model` in the config; the
    annotations int, float, bool and str say what is allowed. If it has a parameter `vocabulary`, it reads
    token sequences and gets the size of the data's vocabulary.

    Raises ValueError if the name is that of one of fedbench's own, and TypeError for a field of a `Model`
    that is no option.
    """

    def enter(made: R) -> R:
        is_model = isinstance(made, type) and issubclass(made, Model)
        cls = cast(type[Model], made) if is_model else _of_factory(name, cast(Factory, made))
        if not is_own(made):
            _load_package()
            if (known := registered("model").get(name)) and is_own(known):
                raise ValueError(f"{name} is a model of fedbench's own: yours needs another name")
            if is_model:
                check_declared(cls, (Model,))
        REGISTERED["model", name] = cls
        return made

    return enter


@dataclass(frozen=True)
class _Made(Model):
    """A model whose options are the parameters of a function."""

    factory: ClassVar[Factory]

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        named = {name: getattr(self, name) for name in options_of(type(self)) if name != "init"}
        if self.reads_tokens:
            named[VOCABULARY] = self.vocabulary
        return type(self).factory(shape, classes, **named)


def _of_factory(name: str, factory: Factory) -> type[Model]:
    parameters = list(inspect.signature(factory).parameters.values())
    given = [*(p.name for p in parameters[:2]), VOCABULARY]
    made = dataclasses.make_dataclass(
        name, options_of_function(name, factory, given), bases=(_Made,), frozen=True
    )
    made.__module__, made.__doc__ = factory.__module__, inspect.getdoc(factory)
    made.factory = staticmethod(factory)  # type: ignore[attr-defined]
    made.reads_tokens = any(p.name == VOCABULARY for p in parameters)  # type: ignore[attr-defined]
    return made


def names() -> list[str]:
    """All registered names, sorted."""
    _load_package()
    return sorted(registered("model"))


def get(name: str) -> type[Model]:
    """The class registered under `name`; ConfigError with the nearest match otherwise."""
    if ("model", name) not in REGISTERED:
        _load_package()
    if ("model", name) not in REGISTERED:
        raise unknown_option("model", name, names(), OWN_CODE)
    return cast(type[Model], REGISTERED["model", name])


def _load_package() -> None:
    import fedbench.models as package

    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"fedbench.models.{module.name}")


# torch's layers that draw from global randomness, count batches in an integer buffer, lack a vmap rule, or
# have no parameters yet. Others that cannot run here are found by what they do (fedbench.runs.own_models).
_UNSUITABLE: dict[type, str] = {
    DROPOUTS: "use fedbench.models.layers.Dropout",
    BATCH_NORMS: "use fedbench.models.layers.BatchNorm2d or a group or layer norm",
    nn.RNNBase: "use fedbench.models.recurrent.Recurrent",
    nn.modules.lazy.LazyModuleMixin: "give the sizes of its inputs",
}


def image_shape(model: str, shape: tuple[int, ...], least: int = 1) -> tuple[int, int, int]:
    """Return (C, H, W); ConfigError if samples are not images of at least `least` x `least` pixels."""
    if len(shape) != 3:
        raise ConfigError("model", model, f"needs images (channels, height, width); samples are {shape}")
    channels, height, width = shape
    if min(height, width) < least:
        allowed = f"needs images of at least {least}x{least} pixels; these are {height}x{width}"
        raise ConfigError("model", model, allowed)
    return channels, height, width


def refuse_unsuitable(name: str, model: nn.Module) -> None:
    """Raise ConfigError if a (user's) model holds a torch layer that no engine here can run reproducibly."""
    for where, module in model.named_modules():
        if isinstance(module, nn.Embedding | nn.EmbeddingBag) and module.max_norm is not None:
            layer = f"max_norm of torch.nn.{type(module).__name__} (at '{where}')"
            raise ConfigError(
                "model", name, f"{layer} does not work here; it changes weights beside the steps"
            )
        drops_nothing = isinstance(module, DROPOUTS) and module.p == 0  # as in TransformerEncoderLayer
        for kind, instead in _UNSUITABLE.items():
            if isinstance(module, kind) and not drops_nothing:
                layer = f"torch.nn.{type(module).__name__} (at '{where}')"
                raise ConfigError("model", name, f"{layer} does not work here; {instead}")


def build(
    chosen: Choice,
    shape: tuple[int, ...],
    classes: int,
    seed: int,
    vocabulary: int | None = None,
    positions: bool = False,
) -> nn.Module:
    """Return the chosen model on the CPU in float32: (B, *shape) to outputs (B, classes).

    The initial parameters follow `model.init` (by default torch's or the model's own). They come from a
    generator seeded by (seed, Stream.MODEL). torch's global generators are left as they were.
    `vocabulary`: its size if samples are token sequences. `positions`: these have a label at every position.
    Raises ConfigError for an unknown model or option, a value out of range, or samples that do not fit.
    """
    options = _for_data(chosen, vocabulary, positions)
    low, high = make_key(seed, Stream.MODEL)
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        torch.default_generator.manual_seed(high << 32 | low)  # torch.manual_seed would reseed CUDA too
        model = options.build(tuple(shape), classes)
        refuse_unsuitable(chosen.name, model)
        start_as(model, options.init)
    return model


class _NoDraws(TorchFunctionMode):
    """Initial values are not drawn: on the meta device there are none, but torch would load its compiler for
    them (1.5 s of CPU)."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return args[0] if func in (Tensor.normal_, Tensor.uniform_) else func(*args, **(kwargs or {}))


def size(
    chosen: Choice,
    shape: tuple[int, ...],
    classes: int,
    vocabulary: int | None = None,
    positions: bool = False,
) -> float | None:
    """Number of parameters of the chosen model, without allocating it: None if unknown, inf on overflow.

    Raises ConfigError as `build` does.
    """
    options = _for_data(chosen, vocabulary, positions)
    try:
        with torch.random.fork_rng(devices=[]), torch.device("meta"), _NoDraws():
            return float(count_parameters(options.build(tuple(shape), classes)))
    except ConfigError:
        raise
    except RuntimeError as error:
        return math.inf if "overflow" in str(error) else None
    except Exception:  # a user's own model may not support the meta device
        return None


def _for_data(chosen: Choice, vocabulary: int | None, positions: bool) -> Model:
    """The options of the chosen model. Raises ConfigError if it cannot read such samples and labels."""
    options = read(get(chosen.name), chosen.options, "model", f"model={chosen.name}")
    if options.reads_tokens != (vocabulary is not None):
        allowed = "needs images or features; samples are token sequences (embedding_rnn reads them)"
        if options.reads_tokens:
            allowed = "needs token sequences; samples are images or features"
        raise ConfigError("model", chosen.name, allowed)
    if positions and not options.labels_positions:
        fit = [name for name in names() if get(name).labels_positions]
        allowed = f"these data have a label at every position; must be one of {', '.join(fit)}"
        raise ConfigError("model", chosen.name, allowed)
    return dataclasses.replace(options, vocabulary=vocabulary, positions=positions)


def count_parameters(model: nn.Module) -> int:
    """Number of trainable scalars; tied parameters count once."""
    return sum(p.numel() for p in model.parameters() if p.requires_grad)


@torch.no_grad()
def start_as(model: nn.Module, init: str) -> None:
    """Set a model's initial parameters in place as `model.init` says; `default` leaves them as they are."""
    for module in model.modules():
        for key, parameter in module.named_parameters(recurse=False):
            if init == "zeros" and not (isinstance(module, NORM_TYPES) and key == "weight"):
                parameter.zero_()
            elif init == "glorot" and parameter.dim() > 1:
                nn.init.xavier_uniform_(parameter)
            elif init == "he" and parameter.dim() == 4:
                nn.init.kaiming_normal_(parameter, mode="fan_out", nonlinearity="relu")
