"""Looking at figures before they are saved."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from fedbench.figures.drawing import draw
from fedbench.figures.lines import PlotOptions
from fedbench.figures.page import Drawing, Page


def laid_out(drawing: Drawing) -> Page:
    """The page of a drawing, as it is saved."""
    drawing.figure.draw_without_rendering()
    return drawing.page


@pytest.fixture
def drawn() -> Callable[..., Page]:
    """`drawn(paths, x=..., ...)`: the page of these runs with these options; `drawn(drawing)`: its page."""

    def page(what: Drawing | Sequence[Path], **options: Any) -> Page:
        return laid_out(what if isinstance(what, Drawing) else draw(what, PlotOptions(**options)))

    return page
