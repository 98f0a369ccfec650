"""Looking at figures before they are saved."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedbench.figures.draw.page import Page


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Page]:
    """`drawn(plot, *args)` calls a plotting function, which returns its laid-out page and writes nothing."""

    def draw(plot: Callable[..., Any], *args: Any, **more: Any) -> Page:
        pages: list[Page] = []

        def keep(page: Page, *_: Any) -> list[Path]:
            page.figure.draw_without_rendering()
            pages.append(page)
            return []

        with monkeypatch.context() as patch:
            patch.setattr(Page, "save", keep)
            plot(*args, **more)
        return pages[0]

    return draw
