"""Torch modules with nothing federated in them, and a registry that finds them by name."""

from fedbench.models.build import build, count_parameters, size
from fedbench.models.registry import names, register_model

__all__ = ["build", "count_parameters", "names", "register_model", "size"]
