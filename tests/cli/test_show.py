"""`fedbench show METHOD`: every method has a page with its evidence."""

from __future__ import annotations

from pathlib import Path

import pytest
from run_files import Call

from fedbench.algorithms import get, names


def test_a_page_has_equations_costs_and_check(fedbench: Call) -> None:
    out = fedbench.done("show", "padamfed")
    for part in (
        "Problem-parameter-free federated learning",
        "theta <- theta - gamma (1/(S K)) sum_{S_t} u_i",
        "uplink      2d (+1d once)",
        "optimizers  sgd alone, as it steps along directions of length 1",
        "test_equations.py",
    ):
        assert part in out


@pytest.mark.parametrize(("name", "takes"), [("fedavg", True), ("feddyn", True), ("fafed", False)])
def test_a_page_says_which_optimizers_a_run_takes(fedbench: Call, name: str, takes: bool) -> None:
    _, out, _ = fedbench("show", name)
    assert ("optimizers  all" in out.splitlines()) == takes
    run = [f"algorithm={name}", "clients.per_round=20", "optimizer=adam", "--dry-run"]
    assert fedbench(*run)[0] == (0 if takes else 2)


def test_every_method_has_a_page(fedbench: Call) -> None:
    for name in names():
        code, out, _ = fedbench("show", name)
        assert (code, out.partition("\n")[0]) == (0, f"{name}: {get(name).paper}")
        assert all(line == line.rstrip() for line in out.splitlines()), name


def test_a_page_of_ones_own_method_says_what_its_class_says(fedbench: Call) -> None:
    """Not the paper, title and test of the method that it extends; its options and costs are those."""
    begin = "from fedbench.algorithms.scaffold import Scaffold\nfrom fedbench.method import register\n"
    Path("mine.py").write_text(f"{begin}@register('mine')\nclass Mine(Scaffold):\n    pass\n")
    Path("said.py").write_text(
        f"{begin}class Base(Scaffold):\n    paper, title = 'Mine, 2031', 'MINE'\n\n"
        "@register('said')\nclass Said(Base):\n    '''c is halved.'''\n"
    )
    out = fedbench.done("show", "mine", "imports=[mine.py]").splitlines()
    assert out[:2] == ["mine", ""]
    assert out[2].startswith("algorithm.lr=0.05: ")
    assert {"uplink      2d", "checked by  no test"} <= {*out}
    out = fedbench.done("show", "said", "imports=[said.py]").splitlines()
    assert out[:3] == ["said: Mine, 2031", "", "c is halved."]
    assert (get("said").title, get("mine").title, get("scaffold").title) == ("MINE", "", "SCAFFOLD")


@pytest.mark.parametrize("word", ["scaffold", "rounds=3", "imports=mine.py", "imports=[", "~imports", ""])
def test_a_second_word_names_your_own_code(fedbench: Call, word: str) -> None:
    """Any other word is refused in one line, as wrong input is."""
    assert fedbench.refused("show", "fedavg", word) == f"fedbench: show: {word}: must be imports=[FILE.py]\n"
