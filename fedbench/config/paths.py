"""Where the configuration files are."""

from __future__ import annotations

from pathlib import Path

from fedbench.errors import RunError


def conf_dir() -> Path:
    """The directory of the YAML files: inside the package where it was installed from a wheel, beside it
    in a checkout."""
    package = Path(__file__).resolve().parents[1]
    for candidate in (package / "conf", package.parent / "conf"):
        if (candidate / "config.yaml").is_file():
            return candidate
    raise RunError(f"no configuration files beside {package}: the installation is incomplete")
