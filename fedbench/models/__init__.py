"""Torch modules with nothing federated in them, and a registry that finds them by name."""

from fedbench.models.registry import build, count_parameters, names, register_model, size

__all__ = ["build", "count_parameters", "names", "register_model", "size"]
