"""Hydra's errors in one line: the key, the value, what is allowed, the nearest match."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import yaml
from hydra.core.config_loader import ConfigLoader
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from hydra.types import RunMode
from omegaconf.errors import OmegaConfBaseException, ValidationError

from fedbench.compose import inside
from fedbench.compose.overrides import known_keys, parse
from fedbench.config.config import GROUPS, Settings
from fedbench.config.options import REGISTERED, read_file
from fedbench.config.suggest import unknown_key
from fedbench.errors import OWN_CODE, ConfigError, UsageError, UserError, shortened
from fedbench.fields import rules

HYDRA_ERRORS = (HydraException, OmegaConfBaseException, yaml.YAMLError, RecursionError)
"""What composing raises for a reason; ValueError and TypeError come from a few odd overrides."""


def one_line(text: object) -> str:
    """The lines of a message joined, without the pointers to Hydra's pages."""
    lines = [line.strip() for line in str(text).splitlines()]
    kept = [line for line in lines if line and not line.startswith(("See https", "full_key", "object_type"))]
    return "; ".join(kept)


def line_of(error: BaseException) -> str:
    """One line that says what went wrong, for any error."""
    if isinstance(error, UserError):
        return str(error)
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, OSError):
        cause = cause.__cause__
    if cause is not None and cause.strerror:
        return f"{cause.filename or 'writing failed'}: {cause.strerror}"
    if isinstance(error, HYDRA_ERRORS):
        return one_line(error)
    return f"internal error: {type(error).__name__}: {one_line(error)}"


def explain(
    error: BaseException, overrides: Sequence[str], loader: ConfigLoader, config_name: str
) -> UserError:
    """The error of composing `overrides` as one that a user can mend; exit code 2."""
    if isinstance(error, UserError):
        return error
    if isinstance(error, OverrideParseException):
        return _grammar(error)
    if isinstance(error, MissingConfigException):
        return _missing_option(error)
    if isinstance(error, RecursionError):
        return UsageError(
            "the configuration refers to itself in a circle (${...}, or a file among its own defaults)"
        )
    if isinstance(error, UnicodeDecodeError):
        return _not_utf8(overrides, loader, config_name)
    message = str(error)
    validation = next((e for e in _chain(error) if isinstance(e, ValidationError)), None)
    if validation is not None:
        return _wrong_type(validation, overrides, message)
    found = re.match(r"Could not (?:override|delete from config\. ?) ?'([^']+)'", message)
    if found:
        return _unknown_key(found[1], overrides, loader, config_name)
    found = re.match(r"Could not append to config\. An item is already at '([^']+)'", message)
    if found:
        given = _given(found[1], overrides)
        return ConfigError(
            f"+{found[1]}", given, f"the key exists, so write {found[1]}={given} without the +"
        )
    if message.startswith("Config group override must be"):
        odd = next((text for text in overrides if not isinstance(parse([text])[0].value(), str)), "")
        return UsageError(f"{odd or message}: must be the name of an option")
    found = re.match(r"(?:Ambiguous value for argument|Sweep parameters) '([^']+)'", message)
    if found:
        key, _, value = found[1].partition("=")
        return ConfigError(key, value, f"several values need --multirun (a list is written {key}=[a,b])")
    causes = [one_line(cause) for cause in _chain(error) if str(cause)]
    return UsageError("; ".join(dict.fromkeys(causes)) or type(error).__name__)


def _not_utf8(overrides: Sequence[str], loader: ConfigLoader, config_name: str) -> UserError:
    """Hydra does not say which file it could not read."""
    places = [Path(p.removeprefix("file://")) for p in inside.directories(loader, config_name, overrides)]
    named = [f"{text.lstrip('+').replace('=', '/')}.yaml" for text in overrides]
    likely = [place / name for place in places for name in named if (place / name).is_file()]
    for file in [*likely, *(file for place in places for file in sorted(place.rglob("*.yaml")))]:
        try:
            read_file(file)
        except UserError as error:
            return error
    return UsageError("a configuration file is not UTF-8")


def _chain(error: BaseException | None) -> Iterable[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _grammar(error: OverrideParseException) -> UserError:
    if "=" not in error.override:
        return UsageError(f"{shortened(error.override)}: must be written key=value")
    return UsageError(
        f"{shortened(error.override)}: cannot be read; a value with special characters needs quotes"
    )


def _missing_option(error: MissingConfigException) -> UserError:
    group, _, choice = (error.missing_cfg_file or "").rpartition("/")
    where = re.match(r"In '([^']+)': Could not find", str(error))
    ours = where is None or where[1] in ("config", "hydra/config")
    origin = f" (in {where[1]}.yaml)" if where and not ours else ""
    if not group or error.options is None:
        return UsageError(one_line(str(error).split("Search path:")[0].split("Config search path:")[0]))
    own = OWN_CODE if group in REGISTERED else ""
    options = ", ".join(error.options)
    return ConfigError(group, choice, f"must be one of {options}{own}{origin}", error.options)


def _wrong_type(error: ValidationError, overrides: Sequence[str], message: str) -> UserError:
    key = str(error.full_key or "")
    allowed = next((rule.allowed for name, rule in rules(Settings) if name == key), None)
    value = re.search(r"Value '(.*)' of type|Value '(.*)' could not|Value '(.*)'", str(error).splitlines()[0])
    shown = next((group for group in value.groups() if group is not None), "") if value else ""
    where = re.match(r"In '([^']+)':", message)
    origin = f" (in {where[1]}.yaml)" if where else ""
    below = next((text.lstrip("+~") for text in overrides if text.lstrip("+~").startswith(f"{key}.")), "")
    if allowed and below:  # that set something inside of a plain value
        return unknown_key(*below.partition("=")[::2], [*(name for name, _ in rules(Settings)), *GROUPS])
    if key and allowed:
        return ConfigError(key, _given(key, overrides) or shown, allowed + origin)
    if any(name.startswith(key + ".") for name, _ in rules(Settings)):
        return ConfigError(key, _given(key, overrides), f"is a section; write {key}.KEY=VALUE{origin}")
    if key:
        return ConfigError(key, _given(key, overrides) or shown, one_line(error) + origin)
    return UsageError(one_line(error) + origin)


def _given(key: str, overrides: Sequence[str]) -> str:
    for text in reversed(overrides):
        name, _, value = text.partition("=")
        if name.lstrip("+~") == key:
            return value
    return ""


def _unknown_key(key: str, overrides: Sequence[str], loader: ConfigLoader, config_name: str) -> UserError:
    """Compose the choices of groups alone, and look there for what the key may have meant."""
    choices = [item for item in parse(overrides) if "." not in item.key_or_group]
    groups = [str(item.input_line) for item in choices if loader.get_group_options(item.key_or_group)]
    try:
        cfg = loader.load_configuration(config_name, groups, RunMode.MULTIRUN)
    except Exception as error:
        if groups != list(overrides):
            return explain(error, groups, loader, config_name)
        cfg = loader.load_configuration(config_name, [], RunMode.MULTIRUN)  # it is a group that is odd
    group = key.split(".")[0]
    chosen = cfg[group].get("name") if group in GROUPS else None
    hydra = key.startswith(("hydra.", "hydra/"))
    return unknown_key(key, _given(key, overrides), known_keys(cfg, hydra), chosen)
