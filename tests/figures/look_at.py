"""What stands where on a page: its texts, which of them overlap, which leave it, and its caption."""

from __future__ import annotations

from typing import Any

from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from fedbench.figures import style
from fedbench.figures.page import Drawing, Page


def laid_out(drawing: Drawing) -> Page:
    """The page of a drawing, as it is saved."""
    drawing.figure.draw_without_rendering()
    return drawing.page


def texts(page: Page) -> list[tuple[str, Bbox]]:
    """All visible texts with their boxes in pixels; tick labels where their tick is within the limits."""
    figure, ticks, shown = page.figure, set(), []
    for ax in figure.findobj(Axes):
        for axis in (ax.xaxis, ax.yaxis):
            low, high = sorted(axis.get_view_interval())
            margin = 1e-9 * (high - low)
            for tick in [*axis.get_major_ticks(), *axis.get_minor_ticks()]:
                inside = low - margin <= tick.get_loc() <= high + margin
                for label in (tick.label1, tick.label2):
                    ticks.add(label)
                    if inside and label.get_visible() and label.get_text():
                        shown.append(label)
    others = [text for text in figure.findobj(Text) if text not in ticks]
    shown += [text for text in others if text.get_visible() and text.get_text()]
    return [(text.get_text(), text.get_window_extent()) for text in dict.fromkeys(shown)]


def caption_of(page: Page) -> str:
    """The caption below the figure, as one line."""
    (said,) = (text for text in page.figure.texts if text.get_gid() == "caption")
    return said.get_text().replace("\n", " ")


def marked(ax: Axes, gid: str, name: str | None = None) -> list[Any]:
    """The lines with this id, of one algorithm if it is named."""
    found = [line for line in ax.lines if line.get_gid() == gid]
    own = style.ALGORITHMS[name].colour if name else None
    return [line for line in found if own is None or to_hex(line.get_color()).upper() == own]


def overlaps(page: Page) -> list[tuple[str, str]]:
    """Pairs of texts whose boxes share more than a pixel's width of area."""
    found, boxes = [], texts(page)
    for i, (first, a) in enumerate(boxes):
        for second, b in boxes[i + 1 :]:
            wide, high = min(a.x1, b.x1) - max(a.x0, b.x0), min(a.y1, b.y1) - max(a.y0, b.y0)
            if wide > 1.0 and high > 1.0:
                found.append((first, second))
    return found


def outside(page: Page) -> list[str]:
    """Texts that leave the page."""
    box = page.figure.bbox
    return [
        text
        for text, b in texts(page)
        if b.x0 < box.x0 - 1 or b.y0 < box.y0 - 1 or b.x1 > box.x1 + 1 or b.y1 > box.y1 + 1
    ]
