"""Composing a configuration from Python, as the command line does, for scripts, tests and notebooks."""

from __future__ import annotations

from collections.abc import Sequence

from omegaconf import DictConfig

from fedbench.compose.composer import compose


def compose_config(overrides: Sequence[str] = ()) -> DictConfig:
    """The configuration of one run, `fedbench OVERRIDES...`; not yet validated. Leaves Hydra as it was."""
    return compose(overrides).job
