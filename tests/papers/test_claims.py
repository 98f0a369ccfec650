"""Claims as numbers, on tables whose numbers by seed and words are known by construction."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from fedbench.papers import CLAIMS, FIGURES, PAPERS
from fedbench.papers.claims import (
    AGREES,
    DISAGREES,
    MIXED,
    TOO_FEW,
    Claim,
    Reading,
    Way,
    counts,
    on_figure,
    ways,
    word_of,
)
from fedbench.papers.evidence import Evidence, Untested, curve, rows_of, tuned
from fedbench.papers.measures import Above, Flat, InSettings, Leads, Moves, Near, Slope
from fedbench.papers.scores import Column, Range, Sooner, Width, widths


def runs(*rows, **columns):
    """A runs.csv: rows of (algorithm, accuracies of seeds 0, 1, ..., further columns)."""
    table = []
    for algorithm, accuracies, further in rows:
        for seed, accuracy in enumerate(accuracies):
            status = "diverged" if accuracy is None else "completed"
            table.append(
                {"dir": str(len(table)), "algorithm": algorithm, "seed": seed, "status": status}
                | {"final_accuracy": accuracy, "best_accuracy": accuracy, **columns, **further}
            )
    return pd.DataFrame(table)


def curves(table, reach, horizon=10):
    """A rounds.csv: accuracy jumps from 0 to the run's final one in round reach[algorithm] of `horizon`."""
    parts = []
    for run in table.to_dict("records"):
        at = np.arange(horizon + 1)
        jump = np.where(at >= reach[run["algorithm"]], run["final_accuracy"], 0.0)
        own = {**run, "round": at, "test_accuracy": jump, "wall_seconds": 0.5 * at, "train_loss": 1.0 - jump}
        parts.append(pd.DataFrame(own))
    return pd.concat(parts, ignore_index=True)


def swept(algorithm, key, scores, seeds=1):
    return [(algorithm, (score,) * seeds, {key: value}) for value, score in scores.items()]


# ---- evidence ------------------------------------------------------------------------------------------


def test_tuned_takes_the_best_mean_and_leaves_theorem_rows_alone():
    table = runs(
        ("fedavg", (0.7, 0.9), {"algorithm.lr": 0.1}),
        ("fedavg", (0.95, 0.5), {"algorithm.lr": 1.0}),
        ("padamfed", (0.6, 0.6), {"algorithm.lr": None}),
        ("padamfed", (0.9, 0.9), {"algorithm.lr": 0.1}),
    )
    assert set(tuned(rows_of(table, "fedavg", {}))["algorithm.lr"]) == {0.1}
    assert list(tuned(rows_of(table, "padamfed", {})).final_accuracy) == [0.6, 0.6]


def test_filters():
    table = runs(("fedavg", (0.5,), {"partition": "iid"}), ("fedavg", (0.4,), {"partition": "dirichlet"}))
    for method, where, accuracy in (
        ("fedavg", {"partition": "iid"}, 0.5),
        ("fedavg", {"partition": "!iid"}, 0.4),
        ("fedavg partition=iid", {}, 0.5),
    ):
        assert list(rows_of(table, method, where).final_accuracy) == [accuracy]
    numbers = table.assign(**{"algorithm.mu": [1.0, 0.0]})
    assert list(rows_of(numbers, "fedavg algorithm.mu=1", {}).final_accuracy) == [0.5]
    for absent in (table.assign(status="failed"), table[:0], pd.DataFrame()):
        with pytest.raises(Untested, match=r"no runs of fedavg"):
            rows_of(absent, "fedavg", {})


def test_a_diverged_run_counts_as_nothing_whatever_its_row_says():
    table = runs(("fedavg", (0.9, 0.7), {})).assign(status=["diverged", "completed"])
    assert list(rows_of(table, "fedavg", {}).final_accuracy) == [0.0, 0.7]


def test_a_curve_has_the_best_of_the_other_choices_at_each_value():
    points = [(0.7, 0.1, 1.0), (0.8, 0.1, 2.0), (0.6, 1.0, 1.0), (0.5, 1.0, 2.0)]
    table = runs(
        *(("a", (score, score), {"algorithm.lr": lr, "algorithm.beta": beta}) for score, lr, beta in points)
    )
    assert curve(rows_of(table, "a", {}), "algorithm.lr").to_dict() == pytest.approx({0.1: 0.8, 1.0: 0.6})


# ---- measures, each on tables by which its numbers are known -------------------------------------------

LR, M_C = "algorithm.lr", "schedule.concurrency"
IID, SKEWED = {"partition": "iid"}, {"partition": "dirichlet"}
SVRG = {"algorithm.estimator": "svrg"}


def by(measure, data):
    """The ways of a claim that is measured like this."""
    return ways(Claim("c", "words", "source", (Reading("", "fig", measure),)), {"fig": data})


def two(first, second, seeds=3):
    """Methods a and b with one accuracy each."""
    return runs(("a", (first,) * seeds, {}), ("b", (second,) * seeds, {}))


def margins(*scores):
    """a and b on iid data, then on skewed data."""
    a, b, c, d = ([score - 0.01 * seed for seed in range(3)] for score in scores)
    return runs(("a", a, IID), ("b", b, IID), ("a", c, SKEWED), ("b", d, SKEWED))


def racing(first, second, *reached):
    """The same; their accuracies jump up in the rounds `reached`."""
    table = two(first, second)
    return Evidence(table, curves(table, dict(zip("ab", reached, strict=True))))


def best_in(*rounds):
    """Method a's curves, a seed each, that have their best in these rounds of ten."""
    table = two(0.5, 0.5)
    return pd.concat([curves(table[seed : seed + 1], {"a": at}) for seed, at in enumerate(rounds)],
                     ignore_index=True)  # fmt: skip


LEVELS = runs(("a", (0.9, 0.8, 0.7), {}), ("b", (0.85, 0.75, 0.64), {}), ("c", (None, 0.6, 0.75), {}))
LAST = two(0.9, 0.8).assign(final_accuracy=[0.7] * 3 + [0.75] * 3)
RANGES = runs(*swept("a", M_C, {10: 0.82, 20: 0.80}, 3), *swept("b", M_C, {10: 0.84, 20: 0.30}, 3))
WIDE = runs(
    *swept("a", LR, {0.001: 0.4, 0.01: 0.85, 0.1: 0.9, 1.0: 0.82, 10.0: 0.1}, 3),
    *swept("b", LR, {0.001: 0.1, 0.01: 0.5, 0.1: 0.48, 1.0: 0.47, 10.0: 0.46, 100.0: None}, 3),
)
CUT = runs(*swept("a", LR, dict.fromkeys((0.01, 0.1, 1.0), 0.9), 3),
           *swept("b", LR, {0.01: 0.1, 0.1: 0.2, 1.0: 0.9}, 3))  # fmt: skip
SPLIT = runs(("a", (0.9,) * 3, {}), ("b", (0.8, 0.8, 0.5), {}))
VR = runs(("fedproxvr", (0.84, 0.85, 0.845), SVRG))
LONG, SHORT = ({"rounds": rounds} for rounds in (1000, 10))
GOOD = {1e-3: 0.1, 3e-3: 0.82, 1e-2: 0.9, 3e-2: 0.9, 1e-1: 0.81, 1.0: 0.2}
STEPS = Above("a", 0.8, {}, LR, 3e-3, 1e-1)
ONE_LOW = [("a", (0.7, 0.95, 0.9), {LR: 1e-2}), *swept("a", LR, {3e-3: 0.9, 3e-2: 0.9, 1e-1: 0.81}, 3)]
FLAT = Evidence(runs(
    *swept("a", M_C, {10: 0.82, 20: 0.81, 50: 0.805}, 3),
    *swept("b", M_C, {10: 0.84, 20: 0.7, 50: 0.3}, 3),
    *swept("chance", M_C, {10: 0.1, 20: 0.1, 50: 0.1}, 3),
))  # fmt: skip
EACH = runs(("a", (0.80, 0.84, 0.80), {M_C: 10}), ("a", (0.84, 0.80, 0.83), {M_C: 20}))
MOVING = runs(("a", (0.5,) * 3, {"M": 10}), ("a", (0.5,) * 3, {"M": 20}))
TRACE = pd.DataFrame([
    {"dir": str(run), "round": rounds, "virtual_time": time + run % 3, "staleness": late,
     "uplink_bytes": 20 * rounds + 7 * run}
    for run in range(6)
    for rounds, time, late in (((0, 0, 0), (5, 20, 4), (10, 30, 2)) if run < 3
                               else ((0, 0, 0), (10, 35, 9), (20, 40, 1)))
])  # fmt: skip
MOVES = Evidence(MOVING, TRACE)
SAME = Moves("uplink_bytes", "M", 0, of_run="rate")
GROUPS = Evidence(tables={"t": pd.DataFrame(
    {"g": [1, 1, 2, 2], "x": [1, 2, 2, 1], "y": [5.0, 4.0, 3.0, 6.0], "z": [1.0, 1.0, 2.0, 2.0]}
)})  # fmt: skip


# a measure, its evidence, the word, and what else its numbers say
CASES = [
    # a leads where it is above each of the others in every seed: leads of 0.05, 0.05, 0.06
    (Leads("a", ("b",)), Evidence(LEVELS), AGREES,
     {"margin": [0.05, 0.05, 0.06], "ours": "80.0% +- 10.0% (3)", "other": "b 74.7% +- 10.5% (3)",
      "holds": "3 of 3"}),
    (Leads("b", ("a",)), Evidence(LEVELS), DISAGREES, {"holds": "0 of 3", "detail": "behind a"}),
    # c is above it with seed 2 alone; the best of the others by its mean is b
    (Leads("a", ("b", "c")), Evidence(LEVELS), MIXED,
     {"margin": [0.05, 0.05, -0.05], "gap": [0.05, 0.05, 0.06], "holds": "2 of 3"}),
    # in every seed some other is ahead, but not the same one
    (Leads("a", ("b", "c")), Evidence(runs(("a", (0.5,) * 3, {}), ("b", (0.6, 0.4, 0.4), {}),
                                           ("c", (0.4, 0.6, 0.6), {}))), DISAGREES, {}),
    (Leads("a", ("b",)), Evidence(two(0.8, 0.8)), MIXED, {"holds": "0 of 3", "detail": ""}),
    # the nearest of the others by its mean lead over its own seeds: b by 0.05 in four, c by 0.06 in three
    (Leads("a", ("b", "c")), Evidence(runs(("a", (0.9,) * 4, {}), ("b", (0.85,) * 4, {}),
                                           ("c", (0.84,) * 3, {}))), AGREES,
     {"other": "b 85.0% +- 0.0% (4)", "margin": [0.05] * 3}),
    (Leads("a", ("d",)), Evidence(LEVELS), TOO_FEW, {"detail": "no runs of d"}),
    *((Leads(*names), Evidence(two(0.9, 0.8, seeds)), TOO_FEW, {"holds": f"{holds} of {seeds}"})
      for names, all_ in ((("a", ("b",)), 1), (("b", ("a",)), 0))
      for seeds in (1, 2) for holds in (all_ * seeds,)),
    # seeds that one of them lacks do not count
    (Leads("a", ("b",)), Evidence(runs(("a", (0.9, 0.8, 0.7, 0.1), {}), ("b", (0.8, 0.8, 0.6), {}))), MIXED,
     {"margin": [0.1, 0.0, 0.1]}),
    # beside the best evaluation the last ones are told: the order is the other one
    (Leads("a", ("b",), Column("best_accuracy")), Evidence(LAST), AGREES,
     {"detail": "last evaluations 70.0% +- 0.0% (3), 75.0% +- 0.0% (3)"}),
    # of two settings of a the better one counts, which is said, except where the theorem gives one of them
    (Leads("a", ("b",)), Evidence(runs(*swept("a", LR, {0.1: 0.9, 1.0: 0.7}, 3), ("b", (0.8,) * 3, {}))),
     AGREES, {"chosen": "a: the best of 2 settings, by the same seeds"}),
    (Leads("a", ("b",)), Evidence(runs(("a", (0.7,) * 3, {}), ("a", (0.9,) * 3, {LR: 0.1}),
                                       ("b", (0.8,) * 3, {LR: 0.1}))), DISAGREES, {"chosen": ""}),
    (Near("a", 0.9, "final_accuracy"), Evidence(runs(*swept("a", LR, {0.1: 0.9, 1.0: 0.7}, 3))), AGREES,
     {"chosen": "a: the best of 2 settings, by the same seeds", "detail": "+0.0 points (near: 1.0)"}),
    # sooner at 95 % of the other's accuracy
    (Leads("a", ("b",), Sooner()), racing(0.9, 0.8, 3, 6), AGREES,
     {"other": "b 6 rounds to 76.0% (median)", "ours": "3 rounds", "margin": [3, 3, 3]}),
    (Leads("a", ("b",), Sooner("wall_seconds")), racing(0.9, 0.8, 3, 6), AGREES,
     {"other": "b 3 s to 76.0% (median)", "ours": "2 s"}),
    (Leads("a", ("b",), Sooner()), racing(0.9, 0.8, 6, 3), DISAGREES, {}),
    (Leads("a", ("b",), Sooner()), racing(0.5, 0.8, 3, 6), DISAGREES,
     {"other": "b 6 rounds to 76.0% (median)", "ours": "never"}),
    # never is later than in the last round of ten; a rival's seed that stays below its mean has that round
    (Leads("a", ("b",), Sooner()), racing(0.5, 0.8, 3, 10), DISAGREES,
     {"margin": [-0.1] * 3, "detail": "behind b; never counts as 10 rounds"}),
    (Leads("a", ("b",), Sooner()), Evidence(SPLIT, curves(SPLIT, {"a": 3, "b": 6})), AGREES,
     {"margin": [3, 3, 7]}),
    # a lower loss leads
    (Leads("a", ("b",), Column("train_loss")), racing(0.9, 0.8, 1, 1), AGREES,
     {"ours": "0.100 +- 0.000 (3)", "other": "b 0.200 +- 0.000 (3)"}),
    # margins that grow, by 8 points, and there must be one: 30 and 10 points behind is no margin that grows
    (Leads("a", ("b",), where=SKEWED, than=IID), Evidence(margins(0.9, 0.88, 0.8, 0.7)), AGREES,
     {"margin": [0.08] * 3}),
    (Leads("a", ("b",), where=SKEWED, than=IID), Evidence(margins(0.9, 0.8, 0.8, 0.78)), DISAGREES, {}),
    (Leads("a", ("b",), where=SKEWED, than=IID), Evidence(margins(0.6, 0.9, 0.7, 0.8)), DISAGREES,
     {"detail": "behind b"}),
    # near the best of all (0.9) is at least 0.81; a flat curve below that is no range
    (Leads("a", ("b",), Width(LR)), Evidence(WIDE), AGREES,
     {"ours": "2.000 +- 0.000 decades (3)", "other": "b 0.000 +- 0.000 decades (3)"}),
    # b still rises at the end of its grid: its range may be wider than is known, so nothing can agree
    (Leads("a", ("b",), Width(LR)), Evidence(CUT), MIXED,
     {"limit": "the grid ends within the range of b", "holds": "3 of 3"}),
    (Leads("b", ("a",), Width(LR)), Evidence(CUT), DISAGREES, {}),
    (Leads("a", ("b",), Width(LR)), Evidence(CUT.assign(**{LR: 0.01 / CUT[LR]})), MIXED,
     {"limit": "the grid ends within the range of b"}),
    (Leads("a", ("b",), Range(M_C)), Evidence(RANGES), AGREES,
     {"ours": "2.0% +- 0.0% (3)", "other": "b 54.0% +- 0.0% (3)"}),
    (Leads("b", ("a",), Range(M_C)), Evidence(RANGES), DISAGREES, {}),
    # near a published number, of 0.84, 0.85, 0.845, whose sd is 0.005: within a point in every seed
    (Near("fedproxvr algorithm.estimator=svrg", 0.8412), Evidence(VR), AGREES,
     {"ours": "84.5% +- 0.5% (3)", "other": "84.12%", "margin": [0.0088, 0.0012, 0.0062],
      "detail": "+0.4 points (near: 1.0); last evaluations 84.5% +- 0.5% (3)"}),
    (Near("fedproxvr", 0.857), Evidence(VR), MIXED, {"holds": "1 of 3", "margin": [-0.007, 0.003, -0.002]}),
    (Near("fedproxvr", 0.80), Evidence(VR), DISAGREES,
     {"detail": "+4.5 points (near: 1.0); last evaluations 84.5% +- 0.5% (3)"}),
    (Near("fedproxvr", 0.9), Evidence(VR), DISAGREES, {}),
    # two standard deviations if these are more: of 0.8, 0.9, 0.85, whose sd is 0.05, a tenth
    (Near("a", 0.86), Evidence(runs(("a", (0.8, 0.9, 0.85), {}))), AGREES, {"margin": [0.04, 0.06, 0.09]}),
    (Near("fedproxvr", 0.84), Evidence(VR[:2]), TOO_FEW, {"holds": "2 of 2"}),
    (Near("a", 0.86), Evidence(runs(("a", (0.8,), {}))), TOO_FEW,
     {"margin": [-0.05], "detail": "-6.0 points (near: 1.0); last evaluations 80.0% (1)"}),
    # T = 2, 9, 10; within a tenth. Where no run is longer than the upper end, nothing can agree
    (Near("a", 7.0, "T"), Evidence(two(0.5, 0.5), best_in(2, 9, 10), LONG), DISAGREES,
     {"ours": "7 +- 4 (3)", "other": "7", "margin": [0.7 - 5, 0.7 - 2, 0.7 - 3]}),
    (Near("a", 9.5, "T"), Evidence(two(0.5, 0.5), best_in(2, 9, 10), LONG), MIXED, {"holds": "2 of 3"}),
    (Near("a", 9.5, "T"), Evidence(two(0.5, 0.5), best_in(9, 10, 10), SHORT), MIXED,
     {"holds": "3 of 3", "limit": "no run is longer than 10, so a larger T could not be seen"}),
    # above a level at every value of a range; at the level is not above
    (STEPS, Evidence(runs(*swept("a", LR, GOOD, 3))), AGREES,
     {"ours": "in 4 of 4 values (3)", "margin": [0.01] * 3,
      "detail": "0.003: 82.0%, 0.01: 90.0%, 0.03: 90.0%, 0.1: 81.0%"}),
    (STEPS, Evidence(runs(*swept("a", LR, GOOD))), TOO_FEW, {"holds": "1 of 1"}),
    (STEPS, Evidence(runs(*ONE_LOW)), MIXED, {"ours": "in 4 of 4 values (3)", "margin": [-0.1, 0.01, 0.01]}),
    (STEPS, Evidence(runs(*swept("a", LR, {**GOOD, 1e-2: 0.7}, 3))), DISAGREES,
     {"ours": "in 3 of 4 values (3)"}),
    (STEPS, Evidence(runs(*swept("a", LR, {1e-3: 0.1, 3e-3: 0.9, 1e-2: 0.9, 3e-2: 0.9}))), TOO_FEW,
     {"detail": "algorithm.lr does not cover 0.003 to 0.1"}),
    # a tenth beyond an end still is the end: three values, and two outside
    (STEPS, Evidence(runs(*swept("a", LR, {0.0026: 0.1, 0.0032: 0.9, 0.01: 0.9, 0.095: 0.9, 0.12: 0.1}, 3))),
     AGREES, {"ours": "in 3 of 3 values (3)"}),
    *((STEPS, Evidence(runs(*swept("a", LR, dict.fromkeys(grid, 0.9), 3))), TOO_FEW,
       {"detail": "algorithm.lr does not cover 0.003 to 0.1"})
      for grid in ((4e-3, 1e-2, 1e-1), (3e-3, 1e-2, 8e-2), (3e-3, 1e-1))),
    # flat, and not far below the best
    (Flat("a", M_C, 0.02), FLAT, AGREES, {"ours": "80.5% to 82.0% (3)", "margin": [0.005] * 3}),
    (Flat("a", M_C, 0.01), FLAT, DISAGREES, {}),
    # the means move by one point, the seeds by 4, 4 and 3
    (Flat("a", M_C, 0.02), Evidence(EACH), DISAGREES, {"margin": [-0.02, -0.02, -0.01]}),
    (Flat("a", M_C, 0.035), Evidence(EACH), MIXED, {"holds": "1 of 3"}),
    (Flat("a", M_C, 0.05), Evidence(EACH), AGREES, {}),
    (Flat("chance", M_C, 0.02), FLAT, DISAGREES, {}),
    # 0.75 is below 0.9 of 0.84, which b has at one value alone
    (Flat("a", M_C, 0.02), Evidence(runs(*swept("a", M_C, {10: 0.757, 20: 0.75}, 3),
                                         *swept("b", M_C, {10: 0.84, 20: 0.3}, 3))), DISAGREES,
     {"margin": [0.75 - 0.9 * 0.84] * 3}),
    # a column moves along a key: 30/10 and 40/20 a round; staleness without round 0; bytes a round, whatever
    # came before round 0
    (Moves("virtual_time", "M", -1, of_run="rate"), MOVES, AGREES, {"ours": "3 to 2", "margin": [1.0] * 3}),
    (Moves("staleness", "M", 1, of_run="max"), MOVES, AGREES, {"ours": "4 to 9"}),
    (Moves("staleness", "M", 1), MOVES, AGREES, {"ours": "3 to 5"}),
    (Moves("staleness", "M", -1), MOVES, DISAGREES, {}),
    (SAME, MOVES, AGREES, {"holds": "exact"}),
    (SAME, Evidence(MOVING, TRACE.assign(uplink_bytes=TRACE["round"] * TRACE.dir.map(int))), DISAGREES, {}),
    (Moves("final_accuracy", "M", -1), Evidence(MOVING.assign(final_accuracy=[0.7, 0.7, 0.7, 0.6, 0.6, 0.8])),
     MIXED, {"margin": [0.1, 0.1, -0.1]}),
    # a column of a table, in every group: nothing in it is random
    (Moves("y", "x", -1, "t", each="g"), GROUPS, AGREES, {"ours": "1: 5 to 4; 2: 6 to 3", "margin": [1.0]}),
    (Moves("y", "x", 1, "t", each="g"), GROUPS, DISAGREES, {}),
    (Moves("z", "x", 0, "t", each="g"), GROUPS, AGREES, {}),
    (Moves("y", "x", 0, "t", {"g": 1}), GROUPS, DISAGREES, {}),
    # rows of one value count as their mean; a seed that lacks one of the values does not count
    (Moves("y", "x", 1, "t"), Evidence(tables={"t": pd.DataFrame({"x": [1, 1, 2], "y": [3.0, 3.0, 4.0]})}),
     AGREES, {"margin": [1.0]}),
    (Moves("final_accuracy", "M", 1),
     Evidence(runs(*(("a", (accuracy,) * seeds, {"M": M})
                     for M, accuracy, seeds in ((10, 0.1, 4), (20, 0.2, 4), (50, 0.3, 3))))), AGREES,
     {"margin": [0.1] * 3}),
    (Moves("y", "x", 0, "u"), GROUPS, TOO_FEW, {"detail": "no table u"}),
]  # fmt: skip


@pytest.mark.parametrize(("measure", "data", "word", "more"), CASES)
def test_a_word_is_what_the_tables_were_made_for(measure, data, word, more):
    (found,) = by(measure, data)
    assert found.word == word, found
    for name, value in more.items():
        said = getattr(found, name)
        assert (list(said) == pytest.approx(value)) if isinstance(value, list) else said == value, name


def test_each_setting_is_a_way_of_its_own():
    """A method above a level, or above another one with the same seed, where both were run. Runs of one
    client, which have no noise, are no setting."""
    keys = {"clients.total": 100, "clients.per_round": 10, "local.steps": 5, "local.batch_size": 32, **IID}
    more = {**keys, "clients.per_round": 20}
    table = runs(("a", (0.9, 0.8, 0.7), keys), ("a", (0.9, 0.9, 0.9), more),
                 ("a", (0.1, 0.1, 0.1), {"clients.total": 1}),
                 ("b", (0.8, 0.85, 0.6), keys))  # fmt: skip
    found = {one.words: one for one in InSettings("a", 0.75)(Evidence(table))}
    assert {words: one.word for words, one in found.items()} == {
        "iid, S=10, K=5, B=32": MIXED, "iid, S=20, K=5, B=32": AGREES,
    }  # fmt: skip
    (one,) = InSettings("a", other="b")(Evidence(table))
    assert (one.words, one.word, list(one.margin)) == (
        "iid, S=10, K=5, B=32", MIXED, pytest.approx([0.1, -0.05, 0.1]),
    )  # fmt: skip
    assert (one.other, one.runs) == ("b 75.0% +- 13.2% (3)", [*map(str, (0, 1, 2, 9, 10, 11))])


def test_a_slope_is_near_the_theorems_or_steeper_in_each_seed():
    """Norms a S^p of the evaluated rounds before the last, each seed with its own level and p; runs at
    another K stand apart. Near: within a hundredth, or two standard deviations."""

    def found(*powers, key="clients.per_round"):
        rows, rounds = [], []
        for seed, power in enumerate(powers):
            for S, K in ((2, 5), (4, 5), (8, 5), (2, 10)):
                name, norm = f"{seed}-{S}-{K}", (1 + seed) * S**power
                rows.append({"dir": name, "algorithm": "a", "seed": seed, "status": "completed",
                             "final_accuracy": 0.5, "rounds": 10,
                             "clients.per_round": S, "local.steps": K})  # fmt: skip
                rounds += [
                    {"dir": name, "round": at, "objective_grad_norm": g}
                    for at, g in ((0, norm), (5, norm), (9, 7))
                ]
        return by(Slope("a", key, -0.25), Evidence(pd.DataFrame(rows), pd.DataFrame(rounds)))[0]

    one = found(-0.25, -0.245, -0.255)
    assert (one.word, one.ours, len(one.runs)) == (AGREES, "slope -0.250 +- 0.005 (3)", 9)
    assert list(one.gap) == pytest.approx([0.0, 0.005, -0.005])
    assert found(-0.3, -0.3, -0.3).word == AGREES  # steeper: the theorem is a bound from above
    assert found(-0.22, -0.22, -0.22).word == DISAGREES
    assert found(-0.245, -0.25, -0.22).word == AGREES  # 2 sd are 0.032
    assert found(-0.242, -0.222, -0.232).word == MIXED  # 2 sd are 0.02
    assert (found(-0.25).ours, found(-0.25, -0.2).holds) == ("slope -0.250 (1)", "2 of 2")  # 2 sd are 0.07
    assert (
        found(-0.25, key="local.steps").detail == "fewer than three values of local.steps with gradient norms"
    )


def test_the_interval_of_a_difference_is_students():
    """Of paired differences, as scipy has it of one sample; it decides nothing."""
    gap = pd.Series([0.05, 0.02, 0.09])
    low, high = stats.t.interval(0.95, 2, gap.mean(), stats.sem(gap))
    assert Way(margin=gap, gap=gap).interval == pytest.approx((gap.mean(), low, high))
    assert low < 0
    assert Way(margin=gap, gap=gap).word == AGREES
    assert np.isnan(Way().interval).all()


# ---- claims ------------------------------------------------------------------------------------------------


def way(*margin, ours=False, cut=""):
    return Way(margin=pd.Series(margin), reading=Reading(ours=ours), cut=cut)


def test_ways_together():
    """All have the word, or they are mixed; a way with too few seeds leaves open what the others agree on.
    Ours are not counted."""
    yes, no, some, few = way(1.0, 1.0, 1.0), way(-1.0, -1.0, -1.0), way(1.0, -1.0, 1.0), way(1.0, 1.0)
    for found, word in (
        ([yes, yes], AGREES), ([no, no], DISAGREES), ([yes, no], MIXED), ([some, yes], MIXED),
        ([some], MIXED),
        ([few], TOO_FEW), ([yes, few], TOO_FEW), ([no, few], TOO_FEW), ([yes, no, few], MIXED),
        ([some, few], MIXED), ([no, way(1.0, 1.0, 1.0, ours=True)], DISAGREES), ([], TOO_FEW),
        ([yes, way(1.0, 1.0, 1.0, cut="a smaller network")], TOO_FEW),
    ):  # fmt: skip
        assert word_of(found) == word
    assert counts([AGREES, MIXED, AGREES]) == "2 agrees, 1 mixed"


def test_a_setting_that_was_cut_has_numbers_and_no_word():
    table = runs(("padamfed", (0.9,) * 3, {}), ("fedavg", (0.8,) * 3, {}))
    reading = on_figure("fig", {"": Leads("padamfed", ("fedavg",))})
    claim = Claim("c", "words", "source", reading, rounds=400)

    def found(rounds, scale, claim=claim):
        (one,) = ways(claim, {"fig": Evidence(table, settings={"rounds": rounds}, made={"scale": scale})})
        assert (one.ours, one.other) == ("90.0% +- 0.0% (3)", "FedAvg 80.0% +- 0.0% (3)")
        return one.word, one.cut

    assert found(400, "cpu") == (AGREES, "")
    assert found(100, "cpu") == (TOO_FEW, "100 rounds in place of 400")
    assert found(400, "smoke") == (TOO_FEW, "scale smoke, which only tries the code")
    of_peers = replace(claim, kind="peers")
    assert found(400, "cpu", of_peers) == (TOO_FEW, "scale cpu: not all that the source ran")
    assert found(400, "paper", of_peers) == (AGREES, "")
    small = replace(claim, numbers=(replace(reading[0], cut="a smaller CNN"),))
    assert (found(400, "cpu", small)[1], found(400, "paper", small)[1]) == ("a smaller CNN", "")
    (absent,) = ways(claim, {})
    assert (absent.word, absent.detail) == (TOO_FEW, "not made yet")


def test_every_claim_says_what_it_needs():
    """Names are unique and plain, and without results nothing is decided; headlines name claims and
    figures."""
    names = [claim.name for claim in CLAIMS]
    assert len(set(names)) == len(names)
    assert all(set(name) <= set("abcdefghijklmnopqrstuvwxyzSARHVGFdTA0123456789-_") for name in names)
    for claim in CLAIMS:
        assert len({one.words for one in claim.numbers}) == len(claim.numbers)
        assert set(claim.figures) <= set(FIGURES)
        for one in ways(claim, dict.fromkeys(claim.figures, Evidence())):
            assert (one.word, bool(one.detail)) == (TOO_FEW, True)
    text = " ".join(claim.text for claim in CLAIMS)
    published = "84.02 84.12 84.21 93.52 94.06 93.75 983 895 965 995 970 958"
    assert all(number in text for number in published.split())
    for paper in PAPERS:
        assert {*paper.first} <= {claim.name for claim in paper.claims}
        assert {shows.partition(" ")[0] for shows in paper.first.values()} <= set(FIGURES)


def test_widths_are_decades_between_neighbouring_grid_points():
    """Best 0.9, so near is 0.81: PAdaMFed's 0.01 to 1 is two decades, and its 0.0001 is beyond a gap;
    FedAvg's range is one point. Above 0.7: 0.01 to 1, and FedAvg's 0.1 to 1. With a norm per tensor nothing
    is near."""
    key, places = "algorithm.lr", (0.0001, 0.001, 0.01, 0.1, 1.0)

    def line(algorithm, scores, seeds=2, **more):
        pairs = zip(places, scores, strict=True)
        return [(algorithm, (score,) * seeds, {key: place, **more}) for place, score in pairs]

    table = runs(
        *line("padamfed", (0.82, 0.5, 0.85, 0.9, 0.83), **{"algorithm.norm": "vector"}),
        *line("padamfed", (0.1, 0.2, 0.6, 0.6, 0.6), 3, **{"algorithm.norm": "tensor"}),
        *line("fedavg", (0.3, 0.4, 0.5, 0.85, 0.75)),
        partition="iid",
    )
    found = widths(table, key, "partition", {"iid": 0.7}).set_index(["method", "norm"])
    near, above = found["decades at 0.9 of the best"], found["decades above 0.7"]
    assert near.to_dict() == {("PAdaMFed", "vector"): 2, ("PAdaMFed", "tensor"): 0, ("FedAvg", ""): 0}
    assert above.to_dict() == {("PAdaMFed", "vector"): 2, ("PAdaMFed", "tensor"): 0, ("FedAvg", ""): 1}
    assert found.n.tolist() == [2, 3, 2]
    assert set(found.grid) == {"0.0001 to 1"}
