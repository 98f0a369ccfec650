"""`stored_model`, where it was before."""

from fedbench.runs.initial import stored_model

__all__ = ["stored_model"]
