"""Hydra's errors in one line: the key, the value, what is allowed, the nearest match."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import yaml
from hydra.core.config_loader import ConfigLoader
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from hydra.types import RunMode
from omegaconf.errors import ConfigAttributeError, ConfigKeyError, OmegaConfBaseException, ValidationError

from fedbench.config.config import GROUPS, Settings
from fedbench.config.options import REGISTERED, read_file, unknown_key
from fedbench.config.overrides import known_keys, parse
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
    message, chain = str(error), list(_chain(error))
    for cause in chain:
        if isinstance(cause, UserError):
            return cause
    if isinstance(error, OverrideParseException):
        text = shortened(error.override)
        allowed = "cannot be read; a value with special characters needs quotes"
        return UsageError(f"{text}: {allowed if '=' in error.override else 'must be written key=value'}")
    if isinstance(error, MissingConfigException):
        return _missing_option(error)
    if isinstance(error, RecursionError):
        return UsageError(
            "the configuration refers to itself in a circle (${...}, or a file among its own defaults)"
        )
    if isinstance(error, UnicodeDecodeError):
        return _not_utf8(overrides, loader)
    where = re.match(r"In '([^']+)':", message)
    said = [f"{key}={value}" for key, value in _said_in(where[1], loader)] if where else overrides
    for cause in chain:
        found: UserError | None = None
        if isinstance(cause, ValidationError):
            found = _wrong_type(cause, said)
        elif isinstance(cause, ConfigAttributeError | ConfigKeyError):
            found = _unknown_key(str(cause.full_key or cause.key), overrides, loader, config_name, said)
        if found is not None:
            if where and isinstance(found, ConfigError):
                return found.within(f"{where[1]}.yaml")
            return UsageError(f"{found} (in {where[1]}.yaml)") if where else found
    if found_key := re.match(r"Could not (?:override|delete from config\. ?) ?'([^']+)'", message):
        return _unknown_key(found_key[1], overrides, loader, config_name, overrides)
    if message.startswith("Config group override must be"):
        odd = next((text for text in overrides if not isinstance(parse([text])[0].value(), str)), "")
        return UsageError(f"{odd or message}: must be the name of an option")
    causes = [one_line(cause) for cause in chain if str(cause)]
    return UsageError("; ".join(dict.fromkeys(causes)) or type(error).__name__)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _not_utf8(overrides: Sequence[str], loader: ConfigLoader) -> UserError:
    """Hydra does not say which file it could not read."""
    places = [Path(source.path) for source in loader.get_sources() if source.scheme() == "file"]
    named = [f"{text.lstrip('+').replace('=', '/')}.yaml" for text in overrides]
    likely = [place / name for place in places for name in named if (place / name).is_file()]
    for file in [*likely, *(file for place in places for file in sorted(place.rglob("*.yaml")))]:
        try:
            read_file(file)
        except UserError as error:
            return error
    return UsageError("a configuration file is not UTF-8")


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


def _said_in(name: str, loader: ConfigLoader) -> list[tuple[str, object]]:
    """The top-level keys of the file `name`, and those of its sections, with their values."""
    places = [Path(source.path) for source in loader.get_sources() if source.scheme() == "file"]
    file = next((file for file in (place / f"{name}.yaml" for place in places) if file.is_file()), None)
    content = read_file(file) if file else {}
    sections = [(key, node) for key, node in content.items() if isinstance(node, dict)]
    return [*content.items(), *((f"{key}.{name}", node[name]) for key, node in sections for name in node)]


def _wrong_type(error: ValidationError, overrides: Sequence[str]) -> UserError:
    key, known = str(error.full_key or ""), dict(rules(Settings))
    value = re.search(r"Value '(.*?)'(?: of type| could not|$)", str(error).splitlines()[0])
    shown = _given(key, overrides) or (value[1] if value else "")
    below = next((text.lstrip("+~") for text in overrides if text.lstrip("+~").startswith(f"{key}.")), "")
    if key in known and below:  # that set something inside of a plain value
        return unknown_key(*below.partition("=")[::2], [*known, *GROUPS])
    if key in known:
        return ConfigError(key, shown, known[key].allowed)
    if any(name.startswith(key + ".") for name in known):
        return ConfigError(key, _given(key, overrides), f"is a section; write {key}.KEY=VALUE")
    return ConfigError(key, shown, one_line(error)) if key else UsageError(one_line(error))


def _given(key: str, overrides: Sequence[str]) -> str:
    pairs = (text.partition("=")[::2] for text in reversed(overrides))
    return next((value for name, value in pairs if name.lstrip("+~") == key), "")


def _unknown_key(
    key: str, overrides: Sequence[str], loader: ConfigLoader, config_name: str, said: Sequence[str]
) -> UserError:
    """Compose the choices of groups alone, and look there for what the key may have meant. `said`: where its
    value stands."""
    groups: list[str] = []
    with contextlib.suppress(HydraException):
        choices = [item for item in parse(overrides) if "." not in item.key_or_group]
        groups = [str(item.input_line) for item in choices if loader.get_group_options(item.key_or_group)]
    try:
        cfg = loader.load_configuration(config_name, groups, RunMode.MULTIRUN)
    except Exception as error:
        if groups != list(overrides):
            return explain(error, groups, loader, config_name)
        cfg = loader.load_configuration("config", [], RunMode.MULTIRUN)  # a group or the first file is odd
    group = key.split(".")[0]
    chosen = (cfg[group] or {}).get("name") if group in GROUPS else None
    hydra = key.startswith(("hydra.", "hydra/"))
    return unknown_key(key, _given(key, said), known_keys(cfg, hydra), chosen)
