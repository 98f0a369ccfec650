"""Every method names the test that checks it, and has a page made from its code."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from fedbench import algorithms
from fedbench.method.page import page

ROOT = Path(__file__).parents[2]
OURS = [cls.name for cls in algorithms.every() if cls.__module__.startswith("fedbench.")]
NAMED = {algorithms.get(name).checked_by for name in OURS}


@pytest.mark.parametrize("named", sorted(NAMED))
def test_the_named_test_exists(named: str) -> None:
    """That it runs the methods that name it is asserted after its last case (conftest)."""
    file, _, function = named.partition("::")
    found = ast.parse((ROOT / file).read_text()).body
    assert function.startswith("test_")
    assert function in [node.name for node in found if isinstance(node, ast.FunctionDef)]


@pytest.mark.parametrize("name", OURS)
def test_a_page_says_all_there_is_to_know(name: str) -> None:
    cls = algorithms.get(name)
    text = page(cls)
    for words in (
        f"{name}: {cls.paper}\n",
        cls.checked_by,
        *(f"\nalgorithm.{key}=" for key in cls.options()),
    ):
        assert words in text
    assert all(line == line.rstrip() for line in text.splitlines())


def test_the_page_of_a_method_with_a_theorem() -> None:
    text = page(algorithms.get("padamfed"))
    assert "\nalgorithm.lr=null: a number > 0 (null: from the theorem)\n" in text
    assert "\nalgorithm.norm=vector: one of vector, tensor (vector: one norm over q; " in text
    assert "\nalgorithm.momentum=true: true or false (false: beta = 1)\n" in text
    assert "\nuplink      2d (+1d once)\n" in text
