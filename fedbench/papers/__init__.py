"""The reproduced papers, each a file with its figures, tables and claims, and the code that makes them.

To add a paper, put a file into this directory and its name into `PAPERS`.
"""

from __future__ import annotations

from fedbench.papers import across, adamasfl, fedproxvr, padamfed, peers

PAPERS = (padamfed.PAPER, adamasfl.PAPER, fedproxvr.PAPER, across.PAPER, peers.PAPER)
FIGURES = {item.name: item for paper in PAPERS for item in paper.figures}
CLAIMS = tuple(claim for paper in PAPERS for claim in paper.claims)
