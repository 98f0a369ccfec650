"""The comparison tables as data: complete, and consistent with the step-size rules."""

from __future__ import annotations

import math

import pytest

from fedbench.papers.comparison import TABLES, frame, markdown
from fedbench.theory.setting import Counts
from fedbench.theory.stepsizes import RULES

ROWS = frame().set_index("algorithm")


def test_every_rule_has_a_row_and_needs_the_same():
    assert list(ROWS.index) == list(RULES)
    for name, rule in RULES.items():
        assert {*filter(None, ROWS.needs[name].split(", "))} == {*rule.needs}, name


def test_powers_follow_from_the_printed_rate():
    """T(epsilon): invert the AdaMasFL table's leading rate; read it off the PAdaMFed table's."""
    for row in ROWS.itertuples():
        assert row.epsilon_power == (-3 if r"\epsilon^3" in row.rate else -4)
        if "SKT" in row.rate or "(SK" in row.rate:
            assert (row.S_power, row.K_power) == (-1, -1)


@pytest.mark.parametrize("name", ["padamfed", "padamfed_vr"])
def test_server_step_of_the_parameter_free_methods_follows_their_rate(name):
    """The path gamma T is of the order of 1/rate: it grows like (S K T)^(1/4), with VR like (S K T)^(1/3)."""
    power = 1 / -ROWS.epsilon_power[name]
    one, more = Counts(S=2, K=3, T=1000, N=50), Counts(S=8, K=6, T=16_000, N=50)
    paths = [RULES[name].compute(n)["server_lr"][0] * n.T for n in (one, more)]
    growth = (8 * 6 * 16_000) / (2 * 3 * 1000)
    assert math.log(paths[1] / paths[0]) == pytest.approx(power * math.log(growth))


@pytest.mark.parametrize("table", TABLES)
def test_markdown_is_a_table(table):
    text = markdown(table)
    lines = [line for line in text.splitlines() if line.startswith("|")]
    assert len(lines) == (ROWS["table"] == table).sum() + 2
    assert {line.count("|") for line in lines} == {6}
    assert TABLES[table] in text
    assert "BDH: bounded data heterogeneity" in text
