"""The comparison tables as data: complete, consistent with the step-size rules, readable back."""

from __future__ import annotations

import math

import pandas as pd
import pytest

from fedbench.errors import ConfigError
from fedbench.theory import comparison
from fedbench.theory.stepsizes import RULES, Constants, Counts, prescribe


def test_every_rule_has_a_row_and_needs_the_same():
    rows = {row.algorithm: row for row in comparison.ROWS}
    assert len(rows) == len(comparison.ROWS) == len(RULES) == 14
    for name, rule in RULES.items():
        assert set(rows[name].needs) == set(rule.needs), name


def test_powers_follow_from_the_printed_rate():
    """T(epsilon): invert the AdaMasFL table's leading rate; read it off the PAdaMFed table's."""
    for row in comparison.ROWS:
        variance_reduced_rate = r"\epsilon^3" in row.rate
        assert row.epsilon_power == (-3 if variance_reduced_rate else -4)
        if "SKT" in row.rate or "(SK" in row.rate:
            assert (row.S_power, row.K_power) == (-1, -1)


@pytest.mark.parametrize("name", ["padamfed", "padamfed_vr"])
def test_server_step_of_the_parameter_free_methods_follows_their_rate(name):
    """The path gamma T is of the order of 1/rate: it grows like (S K T)^(1/4), with VR like (S K T)^(1/3)."""
    power = 1 / -next(row.epsilon_power for row in comparison.ROWS if row.algorithm == name)
    one, more = Counts(S=2, K=3, T=1000, N=50), Counts(S=8, K=6, T=16_000, N=50)
    paths = [prescribe(name, n, Constants()).values["server_lr"] * n.T for n in (one, more)]
    growth = (8 * 6 * 16_000) / (2 * 3 * 1000)
    assert math.log(paths[1] / paths[0]) == pytest.approx(power * math.log(growth))


def test_csv_reads_back(tmp_path):
    path = tmp_path / "comparison.csv"
    comparison.write_csv(path)
    back = pd.read_csv(path, keep_default_na=False)
    pd.testing.assert_frame_equal(back, comparison.frame(), check_dtype=False)


@pytest.mark.parametrize("table", list(comparison.TABLES))
def test_markdown_is_a_table(table):
    text = comparison.markdown(table)
    lines = [line for line in text.splitlines() if line.startswith("|")]
    assert len(lines) == len(comparison.frame(table)) + 2
    assert {line.count("|") for line in lines} == {6}
    assert comparison.TABLES[table] in text
    assert "BDH: bounded data heterogeneity" in text


def test_unknown_table():
    with pytest.raises(ConfigError, match="did you mean 'padamfed'"):
        comparison.frame("padamfd")
