"""Composing a configuration from Python, as the command line does, for scripts, tests and notebooks."""

from __future__ import annotations

from collections.abc import Sequence

from fedbench.compose.composer import compose
from fedbench.config.config import Config


def compose_config(overrides: Sequence[str] = ()) -> Config:
    """What one run `fedbench OVERRIDES...` is, checked. Leaves Hydra as it was. Raises UserError."""
    return compose(overrides).config
