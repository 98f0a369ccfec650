"""Every method names the test that checks it, and has a page made from its code."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest
import test_async_rederivations
import test_equations

from fedbench import algorithms
from fedbench.method.page import page

OURS = [cls.name for cls in algorithms.every() if cls.__module__.startswith("fedbench.")]
RUN_BY = {
    "test_equations": {case.name for case in test_equations.CASES.values()},
    "test_async_rederivations": {case[0] for case in test_async_rederivations.CASES.values()},
    "test_ringmaster": {"ringmaster_asgd"},
    "test_local": {"local"},
    "test_features": {"moon", "fedproto"},
}


@pytest.mark.parametrize("name", OURS)
def test_the_test_that_a_method_names_compares_it_with_its_paper(name: str) -> None:
    file, _, function = algorithms.get(name).checked_by.partition("::")
    path = Path(file)
    assert path.parent == Path("tests/algorithms")
    assert name in RUN_BY[path.stem], f"a case in {path.name}, or where the class's checked_by says otherwise"
    assert function.startswith("test_")
    assert callable(getattr(import_module(path.stem), function))


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
