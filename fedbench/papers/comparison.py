"""The comparison tables of PAdaMFed and AdaMasFL: rates, assumptions, step-size rules, needs.

comparison.yaml has them as printed, and says what its fields are.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from fedbench.papers.figure import markdown as as_markdown

_SAID: dict[str, Any] = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
TABLES: dict[str, str] = _SAID["tables"]
"""Name of a table -> its source."""


def frame() -> pd.DataFrame:
    """One row per method: the fields of comparison.yaml, lists joined by ", ", and the table's `source`."""
    data = pd.DataFrame(_SAID["rows"]).fillna({"note": ""})
    joined = {name: data[name].str.join(", ") for name in ("assumptions", "needs")}
    return data.assign(**joined, source=data["table"].map(TABLES))


def markdown(table: str) -> str:
    """Return one table as GitHub Markdown with its source, the abbreviations used and the notes under it."""
    data = frame().query("table == @table")
    shown = {
        "Method": data.method + " (" + data.citation + ")",
        "Rate": "$" + data.rate + "$",
        "Further assumptions": data.assumptions.replace("", "none"),
        "Step sizes": "$" + data.step_sizes + "$",
        "Needs": data.needs.replace("", "nothing"),
    }
    # a bar would end the cell; \Vert is the same sign
    cells = {name: column.str.replace(r"\|", r"\Vert ", regex=False) for name, column in shown.items()}
    used = {name for text in data.assumptions for name in text.split(", ")}
    lines = [as_markdown(pd.DataFrame(cells)), f"Source: {TABLES[table]}.", ""]
    lines += [f"- {name}: {meaning}." for name, meaning in _SAID["assumptions"].items() if name in used]
    lines += [f"- {row.method}: {row.note}." for row in data[data.note != ""].itertuples()]
    return "\n".join(lines) + "\n"
