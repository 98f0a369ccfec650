"""The only entry for the user's own code: modules that `imports` and `hooks` name are executed first."""

from __future__ import annotations

import importlib
import importlib.util
import logging
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from fedbench.config.identity import inputs
from fedbench.errors import ConfigError, failure
from fedbench.files import as_given

log = logging.getLogger(__name__)
executed: dict[str, dict[str, str]] = {}
"""The modules that this process has executed, with the hashes of their content."""


def load(config: Any) -> None:
    """Execute the modules that `imports` and `hooks` of a configuration name, each once per process. A name
    is a dotted module (importable from the current directory too) or the path of a .py file. Logs each one.
    Raises ConfigError."""
    for key in ("imports", "hooks"):
        execute(key, getattr(config, key))


def execute(key: str, names: Iterable[object]) -> None:
    """Execute the modules `names` as `load` does. `key`: `imports` or `hooks`, for messages."""
    for name in map(str, names):
        file = as_given(name).resolve() if name.endswith(".py") else None
        identifier = str(file or name)
        content = inputs({"imports": [name]})
        if identifier in executed:
            if executed[identifier] != content:
                allowed = "has changed since this process executed it: a new process is needed"
                raise ConfigError(key, name, allowed)
            continue
        if not (file.is_file() if file else _exists(name)):
            raise ConfigError(key, name, "must be a module importable from here, or a path to a .py file")
        log.info("%s: executing the code of %s", key, identifier)
        try:
            _execute(file) if file else importlib.import_module(name)
        except (Exception, SystemExit) as error:
            raise ConfigError(key, name, f"failed while it was executed: {failure(error)}") from error
        executed[identifier] = content


def _exists(name: str) -> bool:
    here = str(as_given("").resolve())
    if here not in sys.path:
        sys.path.append(here)
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def _execute(file: Path) -> None:
    name = file.stem if file.stem not in sys.modules else f"{file.stem}_of_imports"
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
