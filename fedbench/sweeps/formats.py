"""Tables of results as aligned text, as Markdown, or as LaTeX (booktabs), and a run's evaluations as a short
table."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

FORMATS = ("text", "markdown", "latex")
PLUS_MINUS = "+-"
"""Between a mean and its deviation, in the cells of every format."""
_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    **{letter: f"\\{letter}" for letter in "&%$#_{}"},
}
_MARKDOWN = {letter: f"\\{letter}" for letter in "\\`*_|<>"}
Place = tuple[int, int]
"""Row and column of a cell; row 0 has the titles."""


def aligned(lines: Sequence[Sequence[str]]) -> list[str]:
    """Lines of cells as text, in aligned columns."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]


def table(
    lines: Sequence[Sequence[str]],
    form: str = "text",
    bold: Collection[Place] = (),
    underlined: Collection[Place] = (),
) -> str:
    """Lines of cells, the first being titles, in one of FORMATS. Any text is shown as it is. As text, no cell
    is bold or underlined."""
    if form == "text":
        return "\n".join(aligned(lines))
    signs, plus_minus = (_MARKDOWN, "±") if form == "markdown" else (_LATEX, r"$\pm$")
    marks = {"markdown": ("**{}**", "<u>{}</u>"), "latex": (r"\textbf{{{}}}", r"\underline{{{}}}")}[form]

    def cell(text: str, place: Place) -> str:
        parts = ["".join(signs.get(letter, letter) for letter in part) for part in text.split(PLUS_MINUS)]
        shown = plus_minus.join(parts)
        for places, mark in zip((bold, underlined), marks, strict=True):
            shown = mark.format(shown) if place in places else shown
        return shown

    cells = [[cell(text, (row, at)) for at, text in enumerate(line)] for row, line in enumerate(lines)]
    if form == "markdown":
        rule = ["---"] * len(lines[0])
        return "\n".join(f"| {' | '.join(line)} |" for line in [cells[0], rule, *cells[1:]])
    top, *rows = [" & ".join(line) + r" \\" for line in cells]
    begin = [rf"\begin{{tabular}}{{{'l' * len(lines[0])}}}", r"\toprule", top, r"\midrule"]
    return "\n".join([*begin, *rows, r"\bottomrule", r"\end{tabular}"])


def evaluations(rows: Sequence[Mapping[str, str]]) -> str:
    """A table of the evaluations in metrics.csv, twelve of them at most, evenly spaced, with the first and
    the last: round, losses, and what else was measured on test or held-out samples."""
    last = len(rows) - 1
    shown = [rows[at] for at in sorted({round(n * last / 11) for n in range(12)})] if rows else []
    judging = ("train_", "test_", "validation_", "client_", "finetuned_")
    names = [name for name in (rows[0] if rows else ()) if name == "round" or name.startswith(judging)]
    names = [name for name in names if any(row[name] for row in shown)]
    cells = [[name.replace("_", " ") for name in names]]
    cells += [
        [row[name] if name == "round" else f"{float(row[name] or 'nan'):.4f}" for name in names]
        for row in shown
    ]
    more = [f"{len(shown)} of {len(rows)} evaluations; metrics.csv has all"] if len(shown) < len(rows) else []
    return "\n".join([*aligned(cells), *more])
