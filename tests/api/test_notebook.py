"""The Python page's example as a notebook: every paragraph is a cell, and all of them are executed."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "fedbench" / "README.md"


def cells() -> list[str]:
    found = re.search(r"<!-- notebook -->\n```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    assert found, "the page has a block of Python below <!-- notebook -->"
    return found[1].strip().split("\n\n")


@pytest.mark.slow
def test_the_example_as_a_notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("nbclient", "nbformat", "ipykernel"):
        pytest.importorskip(name, reason=f"{name} is not installed (the extra `dev` has it)")
    import nbformat
    from nbclient import NotebookClient

    monkeypatch.setenv("PYTHONPATH", f"{PAGE.parents[1]}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(text) for text in cells()])
    NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(tmp_path)}}).execute()
    shown = [
        {kind: text for output in cell.outputs for kind, text in output.get("data", {}).items()}
        for cell in notebook.cells
    ]
    assert "test_accuracy" in shown[1]["text/html"]  # run.metrics
    assert "algorithm.lr" in shown[2]["text/html"] or "final_accuracy" in shown[2]["text/html"]
    assert len(shown[3]["image/png"]) > 10_000
    assert len(list(tmp_path.glob("outputs/runs/*/summary.json"))) == 6
