"""Claims and their tests on synthetic tables whose verdicts are known by construction."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from scipy.stats import linregress

from fedbench.papers import CLAIMS, PAPERS
from fedbench.papers.claims import (
    CONSISTENT,
    MADE,
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
    read,
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


# ---- who leads -------------------------------------------------------------------------------------------


def test_a_method_leads_where_it_is_above_each_of_the_others():
    table = runs(
        ("padamfed", (0.9, 0.8, 0.7), {}),
        ("fedavg", (0.85, 0.75, 0.64), {}),
        ("scaffold", (None, 0.6, 0.65), {}),
    )
    found = Leads("padamfed", ("fedavg",))(Evidence(table))
    assert (found.verdict, found.seeds, found.p) == (YES, (0, 1, 2), pytest.approx(0.0019, abs=1e-4))
    assert found.brief == "80.0% +- 10.0% (3); FedAvg 74.7% +- 10.5% (3)"
    assert Leads("fedavg", ("padamfed",))(Evidence(table)).verdict == OPPOSITE
    # differences 0.9, 0.2, 0.05: mean 0.383, t = 1.47 < 2.92, so ahead and within noise
    wide = Leads("padamfed", ("fedavg", "scaffold"))(Evidence(table))
    assert (wide.verdict, wide.reason) == (UNKNOWN, "level with SCAFFOLD")
    assert Leads("padamfed", ("mime",))(Evidence(table)).reason == "no runs of mime"


def test_beside_the_best_evaluation_the_last_ones_are_told():
    """Best 0.9 and 0.8, last 0.7 and 0.75: the order is the other one."""
    table = runs(("a", (0.9,) * 3, {}), ("b", (0.8,) * 3, {})).assign(final_accuracy=[0.7] * 3 + [0.75] * 3)
    found = Leads("a", ("b",), Column("best_accuracy"))(Evidence(table))
    assert found.verdict == YES
    assert found.brief.endswith("(last evaluations 70.0% +- 0.0% (3); 75.0% +- 0.0% (3))")


@pytest.mark.parametrize(("seeds", "verdict"), [(1, CONSISTENT), (2, UNKNOWN), (3, YES)])
def test_one_seed_shows_nothing_and_two_tell_nothing(seeds, verdict):
    table = runs(("padamfed", (0.9,) * seeds, {}), ("fedavg", (0.8,) * seeds, {}))
    assert Leads("padamfed", ("fedavg",))(Evidence(table)).verdict == verdict
    against = Leads("fedavg", ("padamfed",))(Evidence(table))
    assert against.verdict == (OPPOSITE if seeds == 3 else UNKNOWN)


def test_any_of_the_others_that_is_ahead_is_the_opposite_after_bonferroni():
    """p of one test, and twice that of two."""
    t = np.sqrt(3) * 0.5 / 0.17  # of differences 0.33, 0.5, 0.67: mean 0.5, sd 0.17
    p = 0.5 - t / (2 * np.sqrt(2 + t**2))
    table = runs(("a", (0.1, 0.1, 0.1), {}), ("b", (0.43, 0.6, 0.77), {}), ("c", (0.0, 0.0, 0.0), {}))
    assert Leads("a", ("b",))(Evidence(table)).p == pytest.approx(p, rel=1e-6)
    assert Leads("a", ("b", "c"))(Evidence(table)).p == pytest.approx(2 * p, rel=1e-6)


@pytest.mark.parametrize(("clock", "unit"), [("round", ""), ("wall_seconds", " s")])
def test_a_method_may_be_sooner(clock, unit):
    table = runs(("padamfed", (0.9, 0.9, 0.9), {}), ("fedavg", (0.8, 0.8, 0.8), {}))
    early, late = {"padamfed": 3, "fedavg": 6}, {"padamfed": 6, "fedavg": 3}
    found = Leads("padamfed", ("fedavg",), Sooner(clock))(Evidence(table, curves(table, early)))
    when = (6, 3) if clock == "round" else (3, 2)
    assert (found.verdict, found.numbers) == (YES, f"FedAvg {when[0]}{unit} to 76.0% (ours {when[1]}{unit})")
    assert (
        Leads("padamfed", ("fedavg",), Sooner(clock))(Evidence(table, curves(table, late))).verdict
        == OPPOSITE
    )
    never = runs(("padamfed", (0.5, 0.5, 0.5), {}), ("fedavg", (0.8, 0.8, 0.8), {}))
    found = Leads("padamfed", ("fedavg",), Sooner(clock))(Evidence(never, curves(never, early)))
    assert found.verdict == OPPOSITE
    assert found.numbers.endswith("(ours never)")


def test_a_lower_loss_leads():
    table = runs(("a", (0.9, 0.9, 0.9), {}), ("b", (0.8, 0.8, 0.8), {}))
    data = Evidence(table, curves(table, {"a": 1, "b": 1}))
    found = Leads("a", ("b",), Column("train_loss"))(data)
    assert (found.verdict, found.brief) == (YES, "0.100 +- 0.000 (3); b 0.200 +- 0.000 (3)")


def test_margins_that_grow():
    """By 8 points over FedAvg, and there must be one: 30 and 10 points behind is no margin that grows."""
    iid, skewed = {"partition": "iid"}, {"partition": "dirichlet"}

    def found(*scores):
        a, b, c, d = ([score - 0.01 * seed for seed in range(3)] for score in scores)
        table = runs(("padamfed", a, iid), ("fedavg", b, iid), ("padamfed", c, skewed), ("fedavg", d, skewed))
        return Leads("padamfed", ("fedavg",), where=skewed, than=iid)(Evidence(table))

    assert found(0.9, 0.88, 0.8, 0.7).verdict == YES
    assert found(0.9, 0.8, 0.8, 0.78).verdict == OPPOSITE
    behind = found(0.6, 0.9, 0.7, 0.8)
    assert (behind.verdict, behind.reason) == (OPPOSITE, "behind FedAvg")


def test_the_widest_range():
    """Near the best of all (0.9): at least 0.81; a flat curve below that is none."""
    key = "algorithm.lr"
    table = runs(
        *swept("padamfed", key, {0.001: 0.4, 0.01: 0.85, 0.1: 0.9, 1.0: 0.82, 10.0: 0.1}, 3),
        *swept("fedavg", key, {0.001: 0.1, 0.01: 0.5, 0.1: 0.48, 1.0: 0.47, 10.0: 0.46, 100.0: None}, 3),
    )
    near = Leads("padamfed", ("fedavg",), Width(key))(Evidence(table))
    assert (near.verdict, near.brief) == (YES, "2.000 +- 0.000 (3); FedAvg 0.000 +- 0.000 (3)")
    assert Leads("padamfed", ("mime",), Width(key))(Evidence(table)).verdict == UNKNOWN


def test_a_range_that_the_grid_cuts_off_is_a_lower_bound():
    """The other still rises at the end of its grid: no wider range is shown."""
    key = "algorithm.server_lr"
    table = runs(
        *swept("a", key, {0.01: 0.9, 0.1: 0.9, 1.0: 0.9}, 3),
        *swept("b", key, {0.01: 0.1, 0.1: 0.2, 1.0: 0.9}, 3),
    )
    found = Leads("a", ("b",), Width(key))(Evidence(table))
    assert (found.verdict, found.reason) == (CONSISTENT, "the grid ends within the range of b")


def test_the_smallest_range():
    key = "schedule.concurrency"
    table = runs(*swept("a", key, {10: 0.82, 20: 0.80}, 3), *swept("b", key, {10: 0.84, 20: 0.30}, 3))
    found = Leads("a", ("b",), Range(key))(Evidence(table))
    assert (found.verdict, found.brief) == (YES, "2.0% +- 0.0% (3); b 54.0% +- 0.0% (3)")
    assert Leads("b", ("a",), Range(key))(Evidence(table)).verdict == OPPOSITE


# ---- unequal numbers of seeds ----------------------------------------------------------------------------


def test_methods_with_unequal_numbers_of_seeds_are_compared_on_those_that_both_have():
    """Five against three: differences 0.02, 0.01, 0.03, with the p of t = 2 sqrt(3); the seeds that only one
    has, which say the opposite, do not count. Against a third method with two seeds nothing is shown."""
    rows = ("a", (0.9, 0.8, 0.7, 0.1, 0.1), {}), ("b", (0.88, 0.79, 0.67), {}), ("c", (0.5, 0.5), {})
    found, t = Leads("a", ("b",))(Evidence(runs(*rows))), 2 * np.sqrt(3)
    assert (found.verdict, found.p) == (YES, pytest.approx(0.5 - t / (2 * np.sqrt(2 + t**2)), rel=1e-6))
    assert found.brief == "52.0% +- 39.0% (5); b 78.0% +- 10.5% (3)"
    found = Leads("a", ("b", "c"))(Evidence(runs(*rows)))
    assert (found.verdict, found.reason, found.p) == (UNKNOWN, "2 seeds", None)


def test_what_is_said_of_all_values_rests_on_the_one_with_fewest_seeds():
    """Three seeds at two values and one or two at the third: as with one or two at all."""
    key = "algorithm.lr"
    for seeds, verdict in ((1, CONSISTENT), (2, UNKNOWN), (3, YES)):
        few = [("a", (0.9,) * count, {key: value}) for value, count in ((0.01, 3), (0.1, seeds), (1.0, 3))]
        table = runs(*few, ("a", (0.2,), {key: 100.0}))  # outside the range
        found = Above("a", 0.8, {}, key, 0.01, 1.0)(Evidence(table))
        assert (found.verdict, found.brief) == (verdict, f"in 3 of 3 values ({seeds})")
        found = Flat("a", key, 0.02)(Evidence(runs(*few)))
        assert (found.verdict, found.brief) == (verdict, f"90.0% to 90.0% ({seeds})")
        scores = {0.01: 0.7, 0.1: 0.8, 1.0: 0.9}
        rises = runs(*(("a", (scores[more[key]],) * len(each), more) for _, each, more in few))
        found = Moves("final_accuracy", key, 1, where={"algorithm": "a"})(Evidence(rises))
        assert (found.verdict, found.numbers) == (verdict, "0.7 to 0.8 to 0.9")
        both = pd.concat([rises.assign(g=1), rises.assign(g=2, seed=rises.seed + 5)])  # of each group
        assert Moves("final_accuracy", key, 1, "t", each="g")(Evidence(tables={"t": both})).verdict == verdict


# ---- numbers, levels, directions ---------------------------------------------------------------------------


def test_near_a_published_number():
    """Higher is not lower; a third state is that of few seeds."""
    where = {"algorithm.estimator": "svrg"}
    table = runs(("fedproxvr", (0.84, 0.85, 0.845), where))
    for value, verdict, reason in ((0.8412, YES, ""), (0.80, CONSISTENT, "higher"), (0.9, OPPOSITE, "lower")):
        found = Near("fedproxvr algorithm.estimator=svrg", value)(Evidence(table))
        assert (found.verdict, found.reason) == (verdict, reason)
    assert found.numbers == "FedProxVR svrg 84.5% +- 0.5% (3); last evaluations 84.5% +- 0.5% (3)"
    for seeds, value, verdict in ((1, 0.84, CONSISTENT), (2, 0.84, UNKNOWN), (1, 0.9, UNKNOWN)):
        assert Near("fedproxvr", value)(Evidence(table[:seeds])).verdict == verdict
    data = Evidence(table, curves(table, {"fedproxvr": 9}))
    assert Near("fedproxvr", 9.5, "T", 0.1)(data).verdict == YES  # 9, within 10 % of 9.5
    assert Near("fedproxvr", 10.1, "T", 0.1)(data).reason == "lower"


def test_near_a_round_is_near_at_the_median():
    """T = 2, 9, 10: the median is 9, the mean 7."""
    table = runs(("a", (0.5, 0.5, 0.5), {}))
    parts = [curves(table[seed : seed + 1], {"a": at}) for seed, at in enumerate((2, 9, 10))]
    data = Evidence(table, pd.concat(parts, ignore_index=True))
    found = Near("a", 9.0, "T", 0.1)(data)
    assert (found.verdict, found.brief) == (YES, "9 (3)")
    assert Near("a", 7.0, "T", 0.1)(data).reason == "higher"


def test_above_a_level_at_every_value_of_a_range():
    key, test = "algorithm.lr", Above("padamfed", 0.8, {}, "algorithm.lr", 3e-3, 1e-1)
    good = {1e-3: 0.1, 3e-3: 0.82, 1e-2: 0.9, 3e-2: 0.9, 1e-1: 0.81, 1.0: 0.2}
    found = test(Evidence(runs(*swept("padamfed", key, good, 3))))
    assert found.verdict == YES
    assert found.numbers == "in 4 of 4 values: 0.003: 82.0%, 0.01: 90.0%, 0.03: 90.0%, 0.1: 81.0%"
    assert test(Evidence(runs(*swept("padamfed", key, good)))).verdict == CONSISTENT
    below = test(Evidence(runs(*swept("padamfed", key, {**good, 1e-2: 0.7}, 3))))
    assert (below.verdict, below.brief) == (OPPOSITE, "in 3 of 4 values (3)")
    at = test(Evidence(runs(*swept("padamfed", key, {**good, 1e-2: 0.8}))))  # not above
    assert (at.verdict, at.brief) == (UNKNOWN, "in 3 of 4 values (1)")
    del good[1e-1]
    found = test(Evidence(runs(*swept("padamfed", key, good))))
    assert found.reason == "algorithm.lr does not cover 0.003 to 0.1"


def test_above_a_level_in_k_of_n_settings():
    columns = ["setting", "algorithm", "partition", "accuracy", "n"]
    rows = [("iid", "a", "iid", 0.64, 2), ("S=20", "a", "iid", 0.66, 2), ("skewed", "a", "dirichlet", 0.9, 2)]
    data = Evidence(tables={"settings": pd.DataFrame(rows, columns=columns)})
    for level, brief, verdict in (
        (0.60, "in 2 of 2 settings (2)", CONSISTENT),
        (0.65, "in 1 of 2 settings (2)", CONSISTENT),
        (0.66, "in 0 of 2 settings (2)", UNKNOWN),
    ):
        found = Above("a", level, {"partition": "iid"})(data)
        assert (found.verdict, found.brief) == (verdict, brief)
    assert Above("b", 0.8)(data).reason == "no runs of b"
    assert Above("a", 0.8)(Evidence()).reason == "no table settings"


def test_all_seeds_of_one_above_all_of_another_in_k_of_n_settings():
    columns = ["setting", "algorithm", "accuracy", "low", "high", "n"]
    rows = [("iid", "a", 0.6, 0.5, 0.7, 3), ("gru", "a", 0.9, 0.85, 0.95, 3),
            ("iid", "b", 0.55, 0.5, 0.6, 3), ("gru", "b", 0.8, 0.7, 0.84, 3),
            ("lstm", "b", 0.1, 0.1, 0.1, 3)]  # fmt: skip
    table = pd.DataFrame(rows, columns=columns)
    found = Above("a", other="b")(Evidence(tables={"settings": table}))
    assert found.numbers == "in 1 of 2 settings: iid 60.0% to 55.0%; gru 90.0% to 80.0%"
    assert Above("a", other="b")(Evidence(tables={"settings": table.assign(n=2)})).verdict == UNKNOWN


def test_flat():
    key = "schedule.concurrency"
    table = runs(
        *swept("a", key, {10: 0.82, 20: 0.81, 50: 0.805}, 3),
        *swept("b", key, {10: 0.84, 20: 0.7, 50: 0.3}, 3),
        *swept("chance", key, {10: 0.1, 20: 0.1, 50: 0.1}, 3),
    )
    data = Evidence(table)
    assert Flat("a", key, 0.02)(data).verdict == YES
    found = Flat("a", key, 0.01)(data)
    assert (found.verdict, found.reason, found.brief) == (OPPOSITE, "varies by 1.5%", "82.0% to 80.5% (3)")
    assert Flat("chance", key, 0.02)(data).reason == "below 0.9 of the best method's 84.0%"


def gradient_norms(power):
    rows, further = [], []
    for S, K in [(2, 5), (4, 5), (8, 5), (16, 5), (2, 10), (2, 20)]:
        rows.append(("padamfed", (0.5,), {"clients.per_round": S, "local.steps": K}))
        further.append(7.0 * S**power * K**-1.0)
    table = runs(*rows)
    parts = [
        # the round after the last step is no part of the theorem's mean: a wild value there changes nothing
        pd.DataFrame({"dir": name, "round": [0, 1, 2], "grad_norm": [1.5 * norm, 0.5 * norm, 1e6]})
        for name, norm in zip(table.dir, further, strict=True)
    ]
    return Evidence(table, pd.concat(parts, ignore_index=True))


def test_a_slope_along_one_count_holds_the_others_fixed():
    found = Slope("padamfed", "clients.per_round", -0.25)(gradient_norms(-0.26))
    assert (found.verdict, found.reason) == (CONSISTENT, "steeper")
    assert found.numbers == "slope -0.260 +- 0.000 (theorem -0.250), 4 runs"
    assert Slope("padamfed", "local.steps", -0.25)(gradient_norms(-0.25)).numbers.startswith("slope -1.000")
    for power, verdict, reason in ((-0.24, OPPOSITE, "flatter"), (0.1, UNKNOWN, "no fall beyond noise")):
        found = Slope("padamfed", "clients.per_round", -0.25)(gradient_norms(power))
        assert (found.verdict, found.reason) == (verdict, reason)  # without slack
    assert Slope("padamfed", "clients.per_round", -0.25)(Evidence()).verdict == UNKNOWN


def test_a_slope_is_consistent_where_its_interval_reaches_the_theorems_and_lies_below_zero():
    """log2 of the norms over log2 S = 1..4. Slope and standard error are SciPy's, t(2) is 4.3027."""
    S = np.array([2, 4, 8, 16])

    def found(logs, power):
        table = runs(*(("padamfed", (0.5,), {"clients.per_round": count}) for count in S))
        parts = [pd.DataFrame({"dir": name, "round": [0, 1], "grad_norm": [2.0**log, 1e6]})
                 for name, log in zip(table.dir, logs, strict=True)]  # fmt: skip
        return Slope("padamfed", "clients.per_round", power)(Evidence(table, pd.concat(parts)))

    logs = (3.0, 2.1, 0.9, 0.0)
    line = linregress(np.log2(S), logs)
    low, high = (line.slope + side * 4.302653 * line.stderr for side in (-1, 1))
    assert -1.3 < low < line.slope < high < -0.7
    for power, verdict, reason in (
        (low + 1e-4, CONSISTENT, "the interval holds it"),
        (low - 1e-4, OPPOSITE, "flatter"),
        (high - 1e-4, CONSISTENT, "the interval holds it"),
        (high + 1e-4, CONSISTENT, "steeper"),
    ):
        assert (found(logs, power).verdict, found(logs, power).reason) == (verdict, reason)
    assert found(logs, -1.0).brief.startswith(f"{line.slope:.3f} +- {high - line.slope:.3f}: ")
    noise = (1.0, 0.0, 0.0, 0.0)  # -0.3 +- 0.745: it falls, and the interval holds 0
    for power in (-0.25, -0.5):
        assert (found(noise, power).verdict, found(noise, power).reason) == (UNKNOWN, "no fall beyond noise")


def test_a_column_moves_along_a_key():
    table = runs(("a", (0.5,), {"M": 10}), ("a", (0.5,), {"M": 20}), ("b", (0.5,), {"M": 10}))
    rounds = pd.DataFrame(
        {
            "dir": ["0", "0", "0", "1", "1", "1", "2", "2"],
            "round": [0, 5, 10, 0, 10, 20, 0, 5],
            "virtual_time": [0.0, 20.0, 30.0, 0.0, 35.0, 40.0, 0.0, 1.0],
            "staleness": [0, 4, 2, 0, 9, 1, 0, 0],
            "uplink_bytes": [100, 200, 300, 0, 200, 400, 7, 107],
        }
    )
    data, mine = Evidence(table, rounds), {"algorithm": "a"}
    rate = Moves("virtual_time", "M", -1, where=mine, of_run="rate")(data)
    assert (rate.verdict, rate.numbers) == (CONSISTENT, "3 to 2")  # 30/10 and 40/20, of one seed
    assert Moves("staleness", "M", 1, where=mine, of_run="max")(data).numbers == "4 to 9"
    assert Moves("staleness", "M", 1, where=mine)(data).numbers == "3 to 5"  # not round 0
    assert Moves("staleness", "M", -1, where=mine)(data).verdict == UNKNOWN
    assert Moves("staleness", "M", 1, where={"algorithm": "b"})(data).verdict == UNKNOWN
    same = Moves("uplink_bytes", "algorithm", 0, where={"algorithm": "a|b"}, of_run="rate")
    assert same(data).verdict == YES  # 20 bytes a round, whatever came before round 0
    other = rounds.assign(uplink_bytes=rounds["round"] * rounds.index)
    assert same(Evidence(table, other)).verdict == OPPOSITE
    final = table.assign(final_accuracy=[0.7, 0.5, 0.1])
    assert Moves("final_accuracy", "M", -1, where=mine)(Evidence(final)).numbers == "0.7 to 0.5"


def test_a_column_of_a_table_moves_in_every_group():
    rows = pd.DataFrame(
        {"g": [1, 1, 2, 2], "x": [1, 2, 2, 1], "y": [5.0, 4.0, 3.0, 6.0], "z": [1.0, 1.0, 2.0, 2.0]}
    )
    data = Evidence(tables={"t": rows})
    found = Moves("y", "x", -1, "t", each="g")(data)
    assert (found.verdict, found.numbers) == (YES, "1: 5 to 4; 2: 6 to 3")
    assert Moves("y", "x", 1, "t", each="g")(data).verdict == OPPOSITE
    assert Moves("z", "x", 0, "t", each="g")(data).verdict == YES
    assert Moves("y", "x", 0, "t", {"g": 1})(data).verdict == OPPOSITE
    assert Moves("y", "x", 0, "u")(data).reason == "no table u"


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


def test_evidence_is_read_from_the_kept_tables(tmp_path):
    """Two stages of one figure: what was tuned, and by which data."""
    assert read(tmp_path) is None
    table = runs(("a", [0.9] * 3, {}), ("b", [0.8] * 3, {}), ("a", [0.7] * 3, {}), ("b", [0.8] * 3, {}))
    stages = ["final"] * 6 + ["final-free"] * 6
    table = table.assign(dir=[f"{one}/{run}" for one, run in zip(stages, table.dir, strict=True)])
    table.to_csv(tmp_path / "runs.csv", index_label="run")
    rounds = curves(table.assign(run=table.index), {"a": 5, "b": 2})
    rounds[["run", "round", "test_accuracy"]].to_csv(tmp_path / "rounds.csv", index=False)
    pd.DataFrame({"x": [0.1]}).to_csv(tmp_path / "accuracy.csv", index=False)
    table[:1].to_csv(tmp_path / "tuning.csv", index=False)
    for validation in (None, 0.1):
        made = {
            "scale": "cpu",
            "command": "a command",
            "files": ["accuracy.csv", "gone.csv"],
            "shared": {"dataset": "emnist", "rounds": 400, "local.steps": None},
            "validation": validation,
        }
        (tmp_path / MADE).write_text(json.dumps(made))
        data = read(tmp_path)
        assert data.tuned_on_test == (validation is None)
    assert (len(data.runs), len(data.rounds), list(data.tables)) == (12, 132, ["accuracy"])
    assert data.rounds.groupby("dir").seed.unique().map(list).to_dict() == {
        row.dir: [row.seed] for row in table.itertuples()
    }
    assert data.settings == {"dataset": "emnist", "rounds": 400}
    assert Leads("a", ("b",), where={"stage": "final"})(data).verdict == YES
    assert Leads("a", ("b",), where={"stage": "final-free"})(data).verdict == OPPOSITE


def test_every_claim_says_what_it_needs():
    """Names are unique, tests are in words, and without results nothing is decided; the first page's rows
    name claims and their readings."""
    names = [claim.name for claim in CLAIMS]
    assert len(set(names)) == len(names)
    for claim in CLAIMS:
        assert len({one.words for one in claim.tests}) == len(claim.tests)
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
