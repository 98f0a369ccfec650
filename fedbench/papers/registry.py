"""All papers with their figures and claims. A further paper is a file of this directory and its name here."""

from __future__ import annotations

from fedbench.errors import ConfigError
from fedbench.papers import across, adamasfl, fedproxvr, padamfed
from fedbench.papers.figure import Figure

PAPERS = (padamfed.PAPER, adamasfl.PAPER, fedproxvr.PAPER, across.PAPER)
FIGURES = {item.name: item for paper in PAPERS for item in paper.figures}
CLAIMS = tuple(claim for paper in PAPERS for claim in paper.claims)


def figure(name: str) -> Figure:
    """The figure of that name. Raises ConfigError."""
    if name not in FIGURES:
        raise ConfigError("figure", name, f"must be one of {', '.join(FIGURES)}", FIGURES)
    return FIGURES[name]
