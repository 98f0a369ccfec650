"""`fedbench show METHOD`: every method has a page with its evidence, and the kept curves are whole."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path

import pytest

from fedbench.algorithms import get, names
from fedbench.method import curve

Call = Callable[..., tuple[int, str, str]]


def test_a_page_has_equations_costs_check_and_curve(fedbench: Call) -> None:
    code, out, err = fedbench("show", "padamfed")
    assert (code, err) == (0, "")
    for part in (
        "Problem-parameter-free federated learning",
        "theta <- theta - gamma (1/(S K)) sum_{S_t} u_i",
        "uplink      2d (+1d once)",
        "optimizers  sgd alone, as it steps along directions of length 1",
        "test_padamfed.py",
        "rounds 0 to 60",
    ):
        assert part in out
    lines = out.splitlines()
    assert all(len(line) <= 120 for line in lines)
    assert lines == [line.rstrip() for line in lines]


@pytest.mark.parametrize(("name", "takes"), [("fedavg", True), ("feddyn", True), ("fafed", False)])
def test_a_page_says_which_optimizers_a_run_takes(fedbench: Call, name: str, takes: bool) -> None:
    _, out, _ = fedbench("show", name)
    assert ("optimizers  all" in out.splitlines()) == takes
    run = [f"algorithm={name}", "clients.per_round=20", "optimizer=adam", "--dry-run"]
    assert fedbench(*run)[0] == (0 if takes else 2)


@pytest.mark.parametrize("name", names())
def test_every_method_has_a_page(fedbench: Call, name: str) -> None:
    code, out, _ = fedbench("show", name)
    assert code == 0
    assert out.startswith(f"{name}: {get(name).paper}\n")
    assert "rounds 0 to 60, height 0 to 1" in out


def test_an_unknown_method_is_one_line(fedbench: Call) -> None:
    code, out, err = fedbench("show", "fedagv")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("fedbench: algorithm=fedagv: must be one of ")
    assert err.endswith("(did you mean 'fedavg', 'fedavgm' or 'fedavg_m'?)\n")


def test_without_the_measurements_there_is_still_a_page(
    fedbench: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(curve, "CURVES", tmp_path / "none.csv")
    code, out, _ = fedbench("show", "fedavg")
    assert code == 0
    assert "rounds" not in out


def test_the_kept_curves_are_of_all_methods_and_whole() -> None:
    """scripts/method_curves writes them: 3 seeds, every fourth round to 60, methods that learn."""
    with curve.CURVES.open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert list(rows[0]) == ["algorithm", "round", "test_accuracy_mean", "test_accuracy_std", "n"]
    assert sorted({row["algorithm"] for row in rows}) == sorted(names())
    for name in names():
        points = curve.curve(name)
        assert [point.round for point in points] == list(range(0, 61, 4))
        assert {point.n for point in points} == {3}
        assert all(0 <= point.mean <= 1 and 0 <= point.std <= 0.6 for point in points)
        assert points[-1].mean > points[0].mean + 0.1, f"{name} does not learn"


def test_a_sparkline_is_as_high_as_its_numbers() -> None:
    assert curve.sparkline([0.0, 0.124, 0.126, 0.5, 0.999, 1.0]) == "▁▁▂▅██"
