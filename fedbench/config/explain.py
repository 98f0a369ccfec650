"""Errors in one line: those of Hydra's composing, and any other error that ends a command."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from hydra.core.config_loader import ConfigLoader
from hydra.core.object_type import ObjectType
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf import DictConfig
from omegaconf.errors import ConfigAttributeError, ConfigKeyError, OmegaConfBaseException

from fedbench.config.options import REGISTERED, read_file
from fedbench.errors import (
    OWN_CODE,
    ConfigError,
    UsageError,
    UserError,
    chain,
    needs,
    shortened,
    unknown_option,
    users_line,
)
from fedbench.fields import unknown_key

_EXTRAS = {
    "hydra/launcher=joblib": "joblib",
}
"""Options from third-party packages, and our extra that installs the package."""
HYDRA_ERRORS = (HydraException, OmegaConfBaseException, yaml.YAMLError, RecursionError)
"""What composing raises for bad input. A few odd overrides also raise ValueError or TypeError."""


def one_line(text: object) -> str:
    """The lines of a message joined, without the pointers to Hydra's pages."""
    lines = [line.strip() for line in str(text).splitlines()]
    pointers = ("See https", "full_key", "object_type", "reference_type")
    kept = [line for line in lines if line and not line.startswith(pointers)]
    return "; ".join(kept)


def line_of(error: BaseException) -> str:
    """One line that says what went wrong, for any error."""
    if isinstance(error, UserError):
        return str(error)
    for cause in chain(error):
        if isinstance(cause, OSError) and cause.strerror:
            return f"{cause.filename or 'writing failed'}: {cause.strerror}"
    if isinstance(error, HYDRA_ERRORS):
        return one_line(error)
    message = f"{type(error).__name__}: {shortened(one_line(error), 300)}"
    where = users_line(error)
    if where is None:
        return f"internal error: {message}"
    if "data-dependent control flow" in message:
        message = "a branch depends on the value of a tensor: use torch.where, or engine=loop"
    return f"{where}: {message}"


def explain(error: BaseException, overrides: Sequence[str], loader: Any) -> UserError:
    """Turn an error of composing `overrides` with a `kept.Loader` into one that the user can fix, with exit
    code 2."""
    causes = list(chain(error))
    for cause in causes:
        if isinstance(cause, UserError):
            return cause
    if isinstance(error, OverrideParseException):
        text = shortened(error.override)
        said = (str(cause) for cause in causes if type(cause) in (ValueError, TypeError))  # by a function
        allowed = next(said, "cannot be read; a value with special characters needs quotes")
        return UsageError(f"{text}: {allowed if '=' in error.override else 'must be written key=value'}")
    if isinstance(error, MissingConfigException):
        return _missing_option(error, loader)
    if isinstance(error, RecursionError):
        return UsageError(
            "the configuration refers to itself in a circle (${...}, or a file among its own defaults)"
        )
    if isinstance(error, ValueError) and not isinstance(error, OmegaConfBaseException):
        unreadable = _unreadable(overrides, loader)
        if unreadable is not None:
            return unreadable
    for cause in causes:
        if isinstance(cause, ConfigAttributeError | ConfigKeyError) and cause.full_key:
            name = str(cause.full_key)
            parent = name.rpartition(".")[0]
            there = cause.parent_node if isinstance(cause.parent_node, DictConfig) else ()
            known = [".".join(filter(None, [parent, str(key)])) for key in there]
            return unknown_key(name, given(name, overrides), known)
    message = one_line(next((cause for cause in reversed(causes) if str(cause)), type(error).__name__))
    key = next((str(c.full_key) for c in causes if isinstance(c, OmegaConfBaseException) and c.full_key), "")
    word = f"{key}={value}" if (value := given(key, overrides)) else key
    where = re.match(r"In '([^']+)':", str(error))
    return UsageError(f"{word}: {message}" if word else message + (f" (in {where[1]}.yaml)" if where else ""))


def nested_options(loader: ConfigLoader, group: str) -> list[str]:
    """The names of a group's options on the search path, those in its directories as `directory/name`."""
    names = loader.get_group_options(group)
    for below in loader.get_group_options(group, ObjectType.GROUP):
        names += [f"{below}/{name}" for name in nested_options(loader, f"{group}/{below}")]
    return sorted(set(names))


def given(key: str, overrides: Sequence[str]) -> str:
    """The value that the last override of a key gives; "" if there is none."""
    pairs = (text.lstrip("+~").partition("=")[::2] for text in reversed(overrides))
    return next((value for name, value in pairs if name == key), "")


def _unreadable(overrides: Sequence[str], loader: Any) -> UserError | None:
    """The error of the first file that cannot be read; Hydra does not say which one it was."""
    places: list[Path] = loader.places
    named = [f"{text.lstrip('+').replace('=', '/')}.yaml" for text in overrides]
    likely = [place / name for place in places for name in named if (place / name).is_file()]
    for file in [*likely, *(file for place in places for file in sorted(place.rglob("*.yaml")))]:
        try:
            read_file(file)
        except UserError as error:
            return error
    return None


def _missing_option(error: MissingConfigException, loader: ConfigLoader) -> UserError:
    group, _, choice = (error.missing_cfg_file or "").rpartition("/")
    where = re.match(r"In '([^']+)': Could not find", str(error))
    ours = where is None or where[1] in ("config", "hydra/config")
    origin = f" (in {where[1]}.yaml)" if where and not ours else ""
    if not group or error.options is None:
        return UsageError(one_line(str(error).split("Search path:")[0].split("Config search path:")[0]))
    if (extra := _EXTRAS.get(f"{group}={choice}")) is not None:
        return UsageError(f"{group}={choice}: {needs(f'hydra-{extra}-launcher', extra)}")
    own, names = OWN_CODE if group in REGISTERED else "", list(error.options)
    top, _, below = group.partition("/")
    if top != "hydra":  # experiment=padamfed/fig1: a directory of a group is no group
        group, choice = top, f"{below}/{choice}" if below else choice
        names = nested_options(loader, top)
        if inside := [name for name in names if name.startswith(f"{choice.rstrip('/')}/")]:
            return ConfigError(group, choice, f"is a directory; must be one of {', '.join(inside)}")
    return unknown_option(group, choice, names, own + origin)
