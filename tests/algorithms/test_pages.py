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
    text, cls = page(name), algorithms.get(name)
    for words in (f"algorithm={name}", cls.checked_by, *(f"`algorithm.{key}` = " for key in cls.options())):
        assert words in text
    assert all(line == line.rstrip() for line in text.splitlines())


def test_the_page_of_a_method_with_a_theorem() -> None:
    text = page("padamfed")
    assert "`algorithm.lr` = null (a number > 0, or null (from the theorem))" in text
    assert "`algorithm.norm` = vector (one of vector, tensor): vector: one norm" in text
    assert "- uplink: 2d (+1d once)" in text
    assert "Schedules: sync, async." in text
    assert "theta <- theta - gamma (1/(S K)) sum_{S_t} u_i" in text
