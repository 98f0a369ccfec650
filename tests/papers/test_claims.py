"""Claims and their tests on synthetic tables whose verdicts are known by construction."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from fedbench.papers import CLAIMS, FIGURES, PAPERS
from fedbench.papers.claims import (
    CONSISTENT,
    OPPOSITE,
    UNKNOWN,
    YES,
    Claim,
    Evidence,
    Untested,
    curve,
    describe,
    exceeds,
    holm,
    judge,
    on_figure,
    rows_of,
    together,
    tuned,
)
from fedbench.papers.scores import Column, Range, Sooner, Width, widths
from fedbench.papers.tests import Above, Flat, Leads, Moves, Near, Slope


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


# ---- evidence and statistics ---------------------------------------------------------------------------


def test_a_paired_comparison_of_few_or_equal_differences():
    """Where all differences are equal no test is needed; only seeds that both have count. Its p is checked
    below, by the closed form of three seeds."""
    first = pd.Series([0.9, 0.8, 0.7])
    assert exceeds(first, first + 0.1)[2] == 1.0
    assert exceeds(first, first) == (3, 0.0, 0.5)
    assert exceeds(first, pd.Series([0.1], index=[7]))[0] == 0


def test_holms_correction():
    """Of 0.01, 0.04, 0.03: 3 times the least, then 2 times 0.03, then no less than that."""
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []


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


def student(t):
    """The one-sided p of Student's t with 2 degrees of freedom."""
    return 0.5 - t / (2 * np.sqrt(2 + t**2))


# ---- tests, each on tables by which its verdict is known ---------------------------------------------------

LR, M_C = "algorithm.lr", "schedule.concurrency"
IID, SKEWED = {"partition": "iid"}, {"partition": "dirichlet"}
SVRG = {"algorithm.estimator": "svrg"}


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


def settings(rows, **columns):
    return Evidence(tables={"settings": pd.DataFrame(rows).assign(**columns)})


LEVELS = runs(("a", (0.9, 0.8, 0.7), {}), ("b", (0.85, 0.75, 0.64), {}), ("c", (None, 0.6, 0.65), {}))
SEEDS = ("a", (0.9, 0.8, 0.7, 0.1, 0.1), {}), ("b", (0.88, 0.79, 0.67), {}), ("c", (0.5, 0.5), {})
LAST = two(0.9, 0.8).assign(final_accuracy=[0.7] * 3 + [0.75] * 3)
RANGES = runs(*swept("a", M_C, {10: 0.82, 20: 0.80}, 3), *swept("b", M_C, {10: 0.84, 20: 0.30}, 3))
WIDE = runs(
    *swept("a", LR, {0.001: 0.4, 0.01: 0.85, 0.1: 0.9, 1.0: 0.82, 10.0: 0.1}, 3),
    *swept("b", LR, {0.001: 0.1, 0.01: 0.5, 0.1: 0.48, 1.0: 0.47, 10.0: 0.46, 100.0: None}, 3),
)
CUT = runs(*swept("a", LR, dict.fromkeys((0.01, 0.1, 1.0), 0.9), 3),
           *swept("b", LR, {0.01: 0.1, 0.1: 0.2, 1.0: 0.9}, 3))  # fmt: skip
VR = runs(("fedproxvr", (0.84, 0.85, 0.845), SVRG))
SVRG_NEAR = Near("fedproxvr algorithm.estimator=svrg", 0.8412)
T = pd.concat([curves(two(0.5, 0.5)[seed : seed + 1], {"a": at}) for seed, at in enumerate((2, 9, 10))],
              ignore_index=True)  # fmt: skip
GOOD = {1e-3: 0.1, 3e-3: 0.82, 1e-2: 0.9, 3e-2: 0.9, 1e-1: 0.81, 1.0: 0.2}
STEPS = Above("a", 0.8, {}, LR, 3e-3, 1e-1)
MIXED = [("a", (0.7, 0.95, 0.9), {LR: 1e-2}), *swept("a", LR, {3e-2: 0.9, 1e-1: 0.81}, 3)]
BELOW = "a", (0.69, 0.7, 0.71), {LR: 1e-2}
K_OF_N = [{"setting": name, "algorithm": "a", "partition": split, "accuracy": score}
          for name, split, score in (("iid", "iid", 0.64), ("S=20", "iid", 0.66),
                                     ("skewed", "dirichlet", 0.9))]  # fmt: skip
PAIRS = [{"setting": name, "algorithm": method, "accuracy": mean, "low": low, "high": high}
         for name, method, mean, low, high in (
             ("iid", "a", 0.6, 0.5, 0.7), ("gru", "a", 0.9, 0.85, 0.95), ("iid", "b", 0.55, 0.5, 0.6),
             ("gru", "b", 0.8, 0.7, 0.84), ("lstm", "b", 0.1, 0.1, 0.1))]  # fmt: skip
FLAT = Evidence(runs(
    *swept("a", M_C, {10: 0.82, 20: 0.81, 50: 0.805}, 3),
    *swept("b", M_C, {10: 0.84, 20: 0.7, 50: 0.3}, 3),
    *swept("chance", M_C, {10: 0.1, 20: 0.1, 50: 0.1}, 3),
))  # fmt: skip
EACH = runs(("a", (0.80, 0.84, 0.80), {M_C: 10}), ("a", (0.84, 0.80, 0.83), {M_C: 20}))
MOVING = runs(("a", (0.5,), {"M": 10}), ("a", (0.5,), {"M": 20}), ("b", (0.5,), {"M": 10}))
TRACE = pd.DataFrame({
    "dir": ["0", "0", "0", "1", "1", "1", "2", "2"],
    "round": [0, 5, 10, 0, 10, 20, 0, 5],
    "virtual_time": [0.0, 20.0, 30.0, 0.0, 35.0, 40.0, 0.0, 1.0],
    "staleness": [0, 4, 2, 0, 9, 1, 0, 0],
    "uplink_bytes": [100, 200, 300, 0, 200, 400, 7, 107],
})  # fmt: skip
MOVES = Evidence(MOVING, TRACE)
A_ALONE = {"algorithm": "a"}
SAME = Moves("uplink_bytes", "algorithm", 0, where={"algorithm": "a|b"}, of_run="rate")
GROUPS = Evidence(tables={"t": pd.DataFrame(
    {"g": [1, 1, 2, 2], "x": [1, 2, 2, 1], "y": [5.0, 4.0, 3.0, 6.0], "z": [1.0, 1.0, 2.0, 2.0]}
)})  # fmt: skip


# a test, its evidence, the verdict, and what else its finding says
CASES = [
    # a leads where it is above each of the others
    (Leads("a", ("b",)), Evidence(LEVELS), YES,
     {"seeds": (0, 1, 2), "brief": "80.0% +- 10.0% (3); b 74.7% +- 10.5% (3)"}),
    (Leads("b", ("a",)), Evidence(LEVELS), OPPOSITE, {}),
    # differences to c are 0.9, 0.2, 0.05: mean 0.383, t = 1.47 < 2.92, so ahead and within noise
    (Leads("a", ("b", "c")), Evidence(LEVELS), UNKNOWN, {"reason": "level with c"}),
    (Leads("a", ("d",)), Evidence(LEVELS), UNKNOWN, {"reason": "no runs of d"}),
    # one seed shows nothing and two tell nothing
    *((Leads("a", ("b",)), Evidence(two(0.9, 0.8, seeds)), verdict, {})
      for seeds, verdict in ((1, CONSISTENT), (2, UNKNOWN), (3, YES))),
    *((Leads("b", ("a",)), Evidence(two(0.9, 0.8, seeds)), verdict, {})
      for seeds, verdict in ((1, UNKNOWN), (2, UNKNOWN), (3, OPPOSITE))),
    # beside the best evaluation the last ones are told: the order is the other one
    (Leads("a", ("b",), Column("best_accuracy")), Evidence(LAST), YES,
     {"numbers": "a 90.0% +- 0.0% (3), b 80.0% +- 0.0% (3);"
                 " last evaluations 70.0% +- 0.0% (3), 75.0% +- 0.0% (3)"}),
    # five seeds against three: differences 0.02, 0.01, 0.03, with the p of t = 2 sqrt(3); the seeds that only
    # one has, which say the opposite, do not count. Against a third method with two seeds nothing is shown
    (Leads("a", ("b",)), Evidence(runs(*SEEDS)), YES,
     {"p": student(2 * np.sqrt(3)), "brief": "52.0% +- 39.0% (5); b 78.0% +- 10.5% (3)"}),
    (Leads("a", ("b", "c")), Evidence(runs(*SEEDS)), UNKNOWN, {"reason": "2 seeds"}),
    # sooner at 95 % of the other's accuracy
    (Leads("a", ("b",), Sooner()), racing(0.9, 0.8, 3, 6), YES,
     {"numbers": "b 6 to 76.0% (ours 3)"}),
    (Leads("a", ("b",), Sooner("wall_seconds")),
     racing(0.9, 0.8, 3, 6), YES,
     {"numbers": "b 3 s to 76.0% (ours 2 s)"}),
    (Leads("a", ("b",), Sooner()), racing(0.9, 0.8, 6, 3), OPPOSITE, {}),
    (Leads("a", ("b",), Sooner()), racing(0.5, 0.8, 3, 6), OPPOSITE,
     {"numbers": "b 6 to 76.0% (ours never)"}),
    # a lower loss leads
    (Leads("a", ("b",), Column("train_loss")), racing(0.9, 0.8, 1, 1),
     YES, {"brief": "0.100 +- 0.000 (3); b 0.200 +- 0.000 (3)"}),
    # margins that grow, by 8 points, and there must be one: 30 and 10 points behind is no margin that grows
    (Leads("a", ("b",), where=SKEWED, than=IID), Evidence(margins(0.9, 0.88, 0.8, 0.7)), YES, {}),
    (Leads("a", ("b",), where=SKEWED, than=IID), Evidence(margins(0.9, 0.8, 0.8, 0.78)), OPPOSITE, {}),
    (Leads("a", ("b",), where=SKEWED, than=IID), Evidence(margins(0.6, 0.9, 0.7, 0.8)), OPPOSITE,
     {"reason": "behind b"}),
    # near the best of all (0.9) is at least 0.81; a flat curve below that is no range
    (Leads("a", ("b",), Width(LR)), Evidence(WIDE), YES,
     {"numbers": "a 2.000 +- 0.000 (3), b 0.000 +- 0.000 (3)"}),
    (Leads("a", ("d",), Width(LR)), Evidence(WIDE), UNKNOWN, {}),
    # b still rises at the end of its grid: its range may be the wider one
    (Leads("a", ("b",), Width(LR)), Evidence(CUT), UNKNOWN,
     {"reason": "the grid ends within the range of b"}),
    (Leads("a", ("b",), Range(M_C)), Evidence(RANGES), YES,
     {"brief": "2.0% +- 0.0% (3); b 54.0% +- 0.0% (3)"}),
    (Leads("b", ("a",), Range(M_C)), Evidence(RANGES), OPPOSITE, {}),
    # near a published number, of 0.84, 0.85, 0.845 (sd 0.005): the ends are 0.0062 and 0.0138 away, and 0.01
    (SVRG_NEAR, Evidence(VR), CONSISTENT,
     {"numbers": "FedProxVR svrg 84.5% +- 0.5% (3); last evaluations 84.5% +- 0.5% (3)",
      "p": student(0.0062 * np.sqrt(3) / 0.005), "reason": "inside, not shown (p = 0.08)",
      "brief": "84.5% +- 0.5% (3): inside, not shown (p = 0.08)"}),
    (Near("fedproxvr", 0.845), Evidence(VR), YES, {"p": student(2 * np.sqrt(3)), "reason": ""}),
    # higher is not lower, and lower must be shown: 0.045 and 0.002 below the end
    (Near("fedproxvr", 0.80), Evidence(VR), CONSISTENT, {"reason": "higher"}),
    (Near("fedproxvr", 0.9), Evidence(VR), OPPOSITE, {"reason": "lower", "p": student(9 * np.sqrt(3))}),
    (Near("fedproxvr", 0.857), Evidence(VR), UNKNOWN, {"reason": "lower"}),
    # few seeds
    (Near("fedproxvr", 0.84), Evidence(VR[:1]), CONSISTENT, {"reason": "1 seed"}),
    (Near("fedproxvr", 0.84), Evidence(VR[:2]), UNKNOWN, {"reason": "2 seeds"}),
    (Near("fedproxvr", 0.9), Evidence(VR[:1]), UNKNOWN, {}),
    # equal seeds need no deviation
    *((Near("a", value), Evidence(two(0.9, 0.8)), verdict, {})
      for value, verdict in ((0.895, YES), (0.88, CONSISTENT), (0.92, OPPOSITE))),
    # T = 2, 9, 10: mean 7, sd sqrt(19); within a tenth
    (Near("a", 7.0, "T", 0.1), Evidence(two(0.5, 0.5), T), CONSISTENT,
     {"p": student(0.7 * np.sqrt(3 / 19)), "brief": "7 +- 4 (3): inside, not shown (p = 0.40)"}),
    (Near("a", 7.0, "T", 3.0), Evidence(two(0.5, 0.5), T), YES, {"brief": "7 +- 4 (3)"}),
    (Near("a", 6.0, "T", 0.1), Evidence(two(0.5, 0.5), T), CONSISTENT, {"reason": "higher"}),
    (Near("a", 9.9, "T", 0.1), Evidence(two(0.5, 0.5), T), UNKNOWN, {"reason": "lower"}),
    (Near("a", 30.0, "T", 0.1), Evidence(two(0.5, 0.5), T), OPPOSITE, {"p": student(20 * np.sqrt(3 / 19))}),
    # above a level at every value of a range; at the level is not above
    (STEPS, Evidence(runs(*swept("a", LR, GOOD, 3))), YES,
     {"numbers": "in 4 of 4 values: 0.003: 82.0%, 0.01: 90.0%, 0.03: 90.0%, 0.1: 81.0%"}),
    (STEPS, Evidence(runs(*swept("a", LR, GOOD))), CONSISTENT, {}),
    # at one value 0.7, 0.95, 0.9: above by 0.05, which is not shown; far below at one of four, it is
    (STEPS, Evidence(runs(*swept("a", LR, {**GOOD, 1e-2: 0.0}, 3)[:2], *MIXED)), CONSISTENT,
     {"p": student(0.05 * np.sqrt(3 / 0.0175))}),
    (STEPS, Evidence(runs(*swept("a", LR, {3e-3: 0.9, 3e-2: 0.9, 1e-1: 0.9}, 3), BELOW)), OPPOSITE,
     {"p": 4 * student(0.1 * np.sqrt(3) / 0.01)}),
    (STEPS, Evidence(runs(*swept("a", LR, {**GOOD, 1e-2: 0.7}, 3))), OPPOSITE,
     {"brief": "in 3 of 4 values (3)"}),
    (STEPS, Evidence(runs(*swept("a", LR, {**GOOD, 1e-2: 0.8}))), UNKNOWN, {"brief": "in 3 of 4 values (1)"}),
    (STEPS, Evidence(runs(*swept("a", LR, {1e-3: 0.1, 3e-3: 0.9, 1e-2: 0.9, 3e-2: 0.9}))), UNKNOWN,
     {"reason": "algorithm.lr does not cover 0.003 to 0.1"}),
    # above a level in k of n settings, or all seeds of one above all of another's
    *((Above("a", level, IID), settings(K_OF_N, n=n), verdict, {"brief": f"in {k} of 2 settings ({n})"})
      for level, k, verdicts in ((0.60, 2, (CONSISTENT, UNKNOWN, YES)),
                                 (0.65, 1, (CONSISTENT, UNKNOWN, CONSISTENT)),
                                 (0.66, 0, (UNKNOWN, UNKNOWN, OPPOSITE)))
      for n, verdict in zip((1, 2, 3), verdicts, strict=True)),
    (Above("b", 0.8), settings(K_OF_N, n=2), UNKNOWN, {"reason": "no runs of b"}),
    (Above("a", 0.8), Evidence(), UNKNOWN, {"reason": "no table settings"}),
    (Above("a", other="b"), settings(PAIRS, n=3), OPPOSITE,
     {"numbers": "in 1 of 2 settings: iid 60.0% to 55.0%; gru 90.0% to 80.0%"}),
    (Above("a", other="b"), settings(PAIRS, n=2), UNKNOWN, {}),
    # flat, and not far below the best
    (Flat("a", M_C, 0.02), FLAT, YES, {}),
    (Flat("a", M_C, 0.01), FLAT, OPPOSITE,
     {"reason": "varies by 1.5% +- 0.0% (3)", "brief": "82.0% to 80.5% (3)"}),
    # the means move by one point, the seeds by 4, 4 and 3 (sd 1/sqrt(3)): shown against 2, not against 3
    (Flat("a", M_C, 0.02), Evidence(EACH), OPPOSITE, {"p": 2 * student(5.0)}),
    (Flat("a", M_C, 0.03), Evidence(EACH), UNKNOWN, {"reason": "varies by 3.7% +- 0.6% (3)"}),
    (Flat("a", M_C, 0.04), Evidence(EACH), CONSISTENT, {"p": student(1.0)}),
    (Flat("a", M_C, 0.06), Evidence(EACH), YES, {}),
    (Flat("chance", M_C, 0.02), FLAT, OPPOSITE, {"reason": "below 0.9 of the best method's 84.0%"}),
    # a column moves along a key: 30/10 and 40/20 a round; staleness without round 0; bytes a round, whatever
    # came before round 0
    (Moves("virtual_time", "M", -1, where=A_ALONE, of_run="rate"), MOVES, CONSISTENT, {"numbers": "3 to 2"}),
    (Moves("staleness", "M", 1, where=A_ALONE, of_run="max"), MOVES, CONSISTENT, {"numbers": "4 to 9"}),
    (Moves("staleness", "M", 1, where=A_ALONE), MOVES, CONSISTENT, {"numbers": "3 to 5"}),
    (Moves("staleness", "M", -1, where=A_ALONE), MOVES, UNKNOWN, {}),
    (Moves("staleness", "M", 1, where={"algorithm": "b"}), MOVES, UNKNOWN, {}),
    (SAME, MOVES, YES, {}),
    (SAME, Evidence(MOVING, TRACE.assign(uplink_bytes=TRACE["round"] * TRACE.index)), OPPOSITE, {}),
    (Moves("final_accuracy", "M", -1, where=A_ALONE),
     Evidence(MOVING.assign(final_accuracy=[0.7, 0.5, 0.1])), CONSISTENT, {"numbers": "0.7 to 0.5"}),
    # a column of a table, in every group
    (Moves("y", "x", -1, "t", each="g"), GROUPS, YES, {"numbers": "1: 5 to 4; 2: 6 to 3"}),
    (Moves("y", "x", 1, "t", each="g"), GROUPS, OPPOSITE, {}),
    (Moves("z", "x", 0, "t", each="g"), GROUPS, YES, {}),
    (Moves("y", "x", 0, "t", {"g": 1}), GROUPS, OPPOSITE, {}),
    (Moves("y", "x", 0, "u"), GROUPS, UNKNOWN, {"reason": "no table u"}),
]  # fmt: skip


@pytest.mark.parametrize(("test", "data", "verdict", "more"), CASES)
def test_a_verdict_is_what_the_tables_were_made_for(test, data, verdict, more):
    found = test(data)
    assert found.verdict == verdict, found
    for name, value in more.items():
        assert getattr(found, name) == (pytest.approx(value, rel=1e-6) if name == "p" else value)


def test_a_number_is_near_by_two_one_sided_tests_of_the_seeds():
    """FedAvg's five best accuracies in Table 1, 84.02 %: the mean is inside, p = 0.069 at the upper end, as
    scipy's tests of one sample have it."""
    scores = (0.8352194, 0.8470545, 0.8528168, 0.8410737, 0.8470286)
    found = Near("fedavg", 0.8402)(Evidence(runs(("fedavg", scores, {}))))
    high = stats.ttest_1samp(scores, 0.8502, alternative="less").pvalue
    assert found.p == pytest.approx(high, rel=1e-9)
    assert found.p == pytest.approx(0.0686, abs=1e-4)
    assert stats.ttest_1samp(scores, 0.8302, alternative="greater").pvalue < found.p
    assert (found.verdict, found.reason) == (CONSISTENT, "inside, not shown (p = 0.07)")


def test_any_of_the_others_that_is_ahead_is_the_opposite_after_bonferroni():
    """p of one test, and twice that of two: of differences 0.33, 0.5, 0.67, mean 0.5 and sd 0.17."""
    p = student(np.sqrt(3) * 0.5 / 0.17)
    table = runs(("a", (0.1, 0.1, 0.1), {}), ("b", (0.43, 0.6, 0.77), {}), ("c", (0.0, 0.0, 0.0), {}))
    assert Leads("a", ("b",))(Evidence(table)).p == pytest.approx(p, rel=1e-6)
    assert Leads("a", ("b", "c"))(Evidence(table)).p == pytest.approx(2 * p, rel=1e-6)


def test_what_is_said_of_all_values_rests_on_the_one_with_fewest_seeds():
    """Three seeds at two values and one or two at the third: as with one or two at all."""
    for seeds, verdict in ((1, CONSISTENT), (2, UNKNOWN), (3, YES)):
        few = [("a", (0.9,) * count, {LR: value}) for value, count in ((0.01, 3), (0.1, seeds), (1.0, 3))]
        table = runs(*few, ("a", (0.2,), {LR: 100.0}))  # outside the range
        found = Above("a", 0.8, {}, LR, 0.01, 1.0)(Evidence(table))
        assert (found.verdict, found.brief) == (verdict, f"in 3 of 3 values ({seeds})")
        found = Flat("a", LR, 0.02)(Evidence(runs(*few)))
        assert (found.verdict, found.brief) == (verdict, f"90.0% to 90.0% ({seeds})")
        scores = {0.01: 0.7, 0.1: 0.8, 1.0: 0.9}
        rises = runs(*(("a", (scores[more[LR]],) * len(each), more) for _, each, more in few))
        found = Moves("final_accuracy", LR, 1, where={"algorithm": "a"})(Evidence(rises))
        assert (found.verdict, found.numbers) == (verdict, "0.7 to 0.8 to 0.9")
        both = pd.concat([rises.assign(g=1), rises.assign(g=2, seed=rises.seed + 5)])  # of each group
        assert Moves("final_accuracy", LR, 1, "t", each="g")(Evidence(tables={"t": both})).verdict == verdict


def test_a_slope_is_consistent_where_its_interval_reaches_the_theorems_and_lies_below_zero():
    """The slopes are the figure's. Behind one are the runs at the most frequent value of the other count."""
    places = [(2, 5), (4, 5), (8, 5), (2, 10)]
    table = runs(*(("a", (0.5,), {"clients.per_round": S, "local.steps": K}) for S, K in places))
    lines = [{"algorithm": "a", "varied": "S", "slope": -0.3, "slope_half": 0.1, "n": 2}] * 3
    lines.append({"algorithm": "a", "varied": "K", "slope": np.nan, "slope_half": np.nan, "n": 1})

    def found(power, half=0.1, key="clients.per_round"):
        drawn = pd.DataFrame(lines).replace({"slope_half": {0.1: half}})
        return Slope("a", key, power)(Evidence(table, tables={"speedup": drawn}))

    for power, half, verdict, reason in (
        (-0.21, 0.1, CONSISTENT, "the interval holds it"),
        (-0.19, 0.1, CONSISTENT, "steeper"),
        (-0.39, 0.1, CONSISTENT, "the interval holds it"),
        (-0.41, 0.1, OPPOSITE, "flatter"),  # without slack
        (-0.25, 0.3, UNKNOWN, "no fall beyond noise"),
    ):
        assert (found(power, half).verdict, found(power, half).reason) == (verdict, reason)
    assert found(-0.25).numbers == "slope -0.300 +- 0.100 (theorem -0.250), 6 runs"
    assert found(-0.25).runs == ["0", "1", "2"]
    few = found(-0.25, key="local.steps")
    assert (few.verdict, few.reason) == (
        UNKNOWN,
        "fewer than three values of local.steps with gradient norms",
    )


# ---- claims ------------------------------------------------------------------------------------------------


def test_a_verdict_needs_the_claims_scale_and_rounds():
    table = runs(("padamfed", (0.9,) * 3, {}), ("fedavg", (0.8,) * 3, {}))
    claim = Claim("c", "words", "source", on_figure("fig", {"": Leads("padamfed", ("fedavg",))}), rounds=400)

    def found(rounds, scale):
        return judge(
            claim, claim.tests[0], Evidence(table, settings={"rounds": rounds}, made={"scale": scale})
        )

    assert found(400, "cpu").verdict == YES
    assert found(100, "cpu").reason == "needs 400 rounds, has 100"
    assert found(400, "smoke").reason == "needs scale cpu, this is smoke"
    assert found(400, "smoke").numbers == "PAdaMFed 90.0% +- 0.0% (3), FedAvg 80.0% +- 0.0% (3)"


def test_readings_together():
    for verdicts, verdict in (
        ([YES, YES], YES),
        ([YES, OPPOSITE], CONSISTENT),
        ([UNKNOWN, OPPOSITE], OPPOSITE),
        ([UNKNOWN, UNKNOWN], UNKNOWN),
        ([CONSISTENT, UNKNOWN], CONSISTENT),
    ):
        assert together(verdicts) == verdict


def test_every_claim_says_what_it_needs():
    """Names are unique, tests are in words, and without results nothing is decided; the first page's rows
    name claims and their readings."""
    names = [claim.name for claim in CLAIMS]
    assert len(set(names)) == len(names)
    for claim in CLAIMS:
        assert len({one.words for one in claim.tests}) == len(claim.tests)
        assert set(claim.figures) <= set(FIGURES)
        for tested in claim.tests:
            assert len(describe(tested.test)) > 40
            found = judge(claim, tested, Evidence())
            assert (found.verdict, bool(found.reason)) == (UNKNOWN, True)
    text = " ".join(claim.text for claim in CLAIMS)
    published = "84.02 84.12 84.21 93.52 94.06 93.75 983 895 965 995 970 958"
    assert all(number in text for number in published.split())
    known = {*names, *(f"{claim.name}/{one.words}" for claim in CLAIMS for one in claim.tests)}
    for paper in PAPERS:
        assert {name for row in paper.rows for name in row.claims} <= known
        assert {name.partition("/")[0] for row in paper.rows for name in row.claims} <= {
            claim.name for claim in paper.claims
        }


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
