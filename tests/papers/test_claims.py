"""Claims and their tests on synthetic tables whose verdicts are known by construction."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from fedbench.papers import CLAIMS
from fedbench.papers.claims import (
    MADE,
    Claim,
    Evidence,
    curve,
    describe,
    exceeds,
    judge,
    ledger,
    read,
    rounds_to,
    rows_of,
    slope,
    tuned,
)
from fedbench.papers.comparisons import (
    AboveOnRange,
    Beats,
    Faster,
    Flat,
    FlatterThan,
    MarginGrows,
    Value,
    WidestRange,
)
from fedbench.papers.trends import Ahead, Reaches, SameTraffic, Slope, TableTrend, Trend


def runs(*rows, **columns):
    """A runs.csv: rows of (algorithm, accuracies of seeds 0, 1, ..., further columns)."""
    table = []
    for algorithm, accuracies, further in rows:
        for seed, accuracy in enumerate(accuracies):
            status = "diverged" if accuracy is None else "completed"
            table.append(
                {"dir": str(len(table)), "algorithm": algorithm, "seed": seed, "status": status}
                | {"final_accuracy": accuracy, **columns, **further}
            )
    return pd.DataFrame(table)


def curves(table, reach, horizon=10):
    """A rounds.csv: accuracy jumps from 0 to the run's final one in round reach[algorithm] of `horizon`."""
    parts = []
    for run in table.to_dict("records"):
        at = np.arange(horizon + 1)
        jump = np.where(at >= reach[run["algorithm"]], run["final_accuracy"], 0.0)
        parts.append(pd.DataFrame({**run, "round": at, "test_accuracy": jump}))
    return pd.concat(parts, ignore_index=True)


def test_paired_comparison_uses_the_students_interval():
    first, second = pd.Series([0.9, 0.8, 0.7]), pd.Series([0.88, 0.79, 0.67])
    assert exceeds(first, second) == (True, pytest.approx(0.02))  # sd 0.01, t = 3.46 > 2.92
    assert exceeds(second, first)[0] is False
    assert exceeds(first, pd.Series([0.88, 0.79, 0.70]))[0] is False  # t = 1.73
    # three differences, t = 1.5 sqrt(3) = 2.60: below t(2) = 2.92 at 95 %, above t(3) = 2.35 and 1.89 at 90 %
    assert exceeds(pd.Series([0.5, 1.5, 2.5]), pd.Series([0.0, 0.0, 0.0]))[0] is False
    assert exceeds(first[:1], second[:1])[0] is None
    assert exceeds(first, pd.Series([0.1], index=[7]))[0] is None


def test_tuned_takes_the_best_mean_and_leaves_theorem_rows_alone():
    table = runs(
        ("fedavg", (0.7, 0.9), {"algorithm.lr": 0.1}),
        ("fedavg", (0.95, 0.5), {"algorithm.lr": 1.0}),
        ("padamfed", (0.6, 0.6), {"algorithm.lr": None}),
        ("padamfed", (0.9, 0.9), {"algorithm.lr": 0.1}),
    )
    assert set(tuned(rows_of(table, "fedavg", {}))["algorithm.lr"]) == {0.1}
    assert list(tuned(rows_of(table, "padamfed", {})).final_accuracy) == [0.6, 0.6]
    assert rows_of(table, "fedavg", {"partition": "iid"}).empty


def test_beats():
    table = runs(("padamfed", (0.9, 0.8), {}), ("fedavg", (0.85, 0.75), {}), ("scaffold", (None, 0.6), {}))
    found = Beats("padamfed", ("fedavg", "scaffold"))(Evidence(table))
    # scaffold: (0.9, 0.2) apart, mean 0.55, t = 1.6 < 6.3: a diverged run counts as 0, but two seeds are few
    assert (found.shown, found.reason, found.seeds) == (False, "not above scaffold (within noise)", (0, 1))
    assert found.numbers == "padamfed 85.00% +- 7.07%, fedavg 80.00% +- 7.07%, scaffold 30.00% +- 42.43%"
    assert found.brief == "85.00% +- 7.07%; fedavg 80.00% +- 7.07%"
    assert Beats("padamfed", ("fedavg",))(Evidence(table)).shown is True
    assert Beats("fedavg", ("padamfed",))(Evidence(table)).reason == "not above padamfed (higher)"
    assert Beats("padamfed", ("fedavg",))(Evidence(table[table.seed == 0])).shown is None
    absent = Beats("padamfed", ("mime",))(Evidence(table))
    assert (absent.shown, absent.reason) == (None, "no runs of mime")


def test_filters():
    table = runs(("fedavg", (0.5,), {"partition": "iid"}), ("fedavg", (0.4,), {"partition": "dirichlet"}))
    assert list(rows_of(table, "fedavg", {"partition": "iid"}).final_accuracy) == [0.5]
    assert list(rows_of(table, "fedavg", {"partition": "!iid"}).final_accuracy) == [0.4]
    assert list(rows_of(table, "fedavg partition=iid", {}).final_accuracy) == [0.5]
    assert rows_of(table.assign(status="failed"), "fedavg", {}).empty


def test_a_diverged_run_counts_as_nothing_whatever_its_row_says():
    table = runs(("fedavg", (0.9, 0.7), {})).assign(status=["diverged", "completed"])
    assert list(rows_of(table, "fedavg", {}).final_accuracy) == [0.0, 0.7]


def test_the_first_round_at_a_level_counts_and_never_is_infinite():
    """At 0.5 from round 4 on; seed 1 never gets there."""
    table = runs(("fedavg", (0.5, 0.4), {}))
    found = rounds_to(curves(table, {"fedavg": 4}), table, 0.5)
    assert found.to_dict() == {0: 4.0, 1: np.inf}


def test_a_curve_has_the_best_of_the_other_choices_at_each_value():
    points = [(0.7, 0.1, 1.0), (0.8, 0.1, 2.0), (0.6, 1.0, 1.0), (0.5, 1.0, 2.0)]
    table = runs(
        *(("a", (score, score), {"algorithm.lr": lr, "algorithm.beta": beta}) for score, lr, beta in points)
    )
    assert curve(rows_of(table, "a", {}), "algorithm.lr").to_dict() == pytest.approx({0.1: 0.8, 1.0: 0.6})


def test_faster():
    table = runs(("padamfed", (0.9, 0.9), {}), ("fedavg", (0.8, 0.8), {}))
    early, late = {"padamfed": 3, "fedavg": 6}, {"padamfed": 6, "fedavg": 3}
    found = Faster("padamfed", ("fedavg",))(Evidence(table, curves(table, early)))
    assert (found.shown, found.numbers) == (True, "76.00%: padamfed 3, fedavg 6 rounds")
    assert Faster("padamfed", ("fedavg",))(Evidence(table, curves(table, late))).shown is False
    worse = runs(("padamfed", (0.5, 0.5), {}), ("fedavg", (0.8, 0.8), {}))  # never gets there
    found = Faster("padamfed", ("fedavg",))(Evidence(worse, curves(worse, early)))
    assert (found.shown, found.numbers) == (False, "76.00%: padamfed inf, fedavg 6 rounds")
    assert Faster("padamfed", ("fedavg",))(Evidence(table)).reason == "no rounds.csv"


def test_margin_grows():
    iid, skewed = {"partition": "iid"}, {"partition": "dirichlet"}
    table = runs(
        ("padamfed", (0.9, 0.9), iid), ("fedavg", (0.88, 0.88), iid), ("scaffold", (0.1, 0.1), iid),
        ("padamfed", (0.8, 0.8), skewed), ("fedavg", (0.2, 0.2), skewed), ("scaffold", (0.7, 0.7), skewed),
    )  # fmt: skip
    found = MarginGrows("padamfed", ("fedavg", "scaffold"), iid, skewed)(Evidence(table))
    assert found.shown is True
    assert "+2.00 points over fedavg" in found.numbers
    assert "+10.00 points over scaffold" in found.numbers
    assert MarginGrows("padamfed", ("fedavg", "scaffold"), skewed, iid)(Evidence(table)).shown is False


def test_a_method_that_is_behind_has_no_margin_that_grows():
    iid, skewed = {"partition": "iid"}, {"partition": "dirichlet"}
    table = runs(
        ("padamfed", (0.6, 0.6), iid), ("fedavg", (0.9, 0.9), iid),
        ("padamfed", (0.7, 0.7), skewed), ("fedavg", (0.8, 0.8), skewed),
    )  # fmt: skip
    found = MarginGrows("padamfed", ("fedavg",), iid, {"partition": "!iid"})(Evidence(table))
    assert (found.shown, found.reason) == (False, "there is no margin")
    assert found.numbers == (
        "partition=iid: -30.00 points over fedavg; partition!=iid: -10.00 points over fedavg"
    )


def swept(algorithm, key, scores):
    return [(algorithm, (score,), {key: value}) for value, score in scores.items()]


def test_above_on_range():
    key, test = "algorithm.lr", AboveOnRange("padamfed", "algorithm.lr", 3e-3, 1e-1, 0.8)
    good = {1e-3: 0.1, 3e-3: 0.82, 1e-2: 0.9, 3e-2: 0.9, 1e-1: 0.81, 1.0: 0.2}
    found = test(Evidence(runs(*swept("padamfed", key, good))))
    assert (found.shown, found.numbers) == (True, "0.003: 82.00%, 0.01: 90.00%, 0.03: 90.00%, 0.1: 81.00%")
    found = test(Evidence(runs(*swept("padamfed", key, {**good, 1e-2: 0.8}))))
    assert (found.shown, found.reason) == (False, "at or below 0.8 at 0.01")
    assert test(Evidence(runs(*swept("padamfed", key, {**good, 1e-2: None})))).shown is False
    del good[1e-1]
    assert (
        test(Evidence(runs(*swept("padamfed", key, good)))).reason
        == "algorithm.lr does not cover 0.003 to 0.1"
    )
    assert test(Evidence()).shown is None


def test_widest_range():
    key = "algorithm.lr"
    table = runs(
        *swept("padamfed", key, {0.001: 0.4, 0.01: 0.85, 0.1: 0.9, 1.0: 0.82}),
        *swept("fedavg", key, {0.001: 0.1, 0.01: 0.5, 0.1: 0.88, 1.0: None}),
        *swept("scaffold", key, {0.001: 0.82, 0.01: 0.5, 0.1: 0.88, 1.0: 0.83}),
    )
    found = WidestRange("padamfed", ("fedavg", "scaffold"), key)(Evidence(table))
    assert found.shown is True
    assert found.numbers.endswith("above 81.00%: padamfed 2.00, fedavg 0.00, scaffold 1.00")
    found = WidestRange("scaffold", ("padamfed",), key)(Evidence(table))
    assert (found.shown, found.reason) == (False, "not wider than padamfed")
    assert WidestRange("padamfed", ("mime",), key)(Evidence(table)).shown is None
    twins = runs(*(row for name in "ab" for row in swept(name, key, {0.01: 0.8, 0.1: 0.9, 1.0: 0.1})))
    assert WidestRange("a", ("b",), key)(Evidence(twins)).reason == "not wider than b"


def test_flat():
    key = "schedule.concurrency"
    table = runs(
        *swept("adamasfl", key, {10: 0.82, 20: 0.81, 50: 0.805}),
        *swept("fedbuff", key, {10: 0.84, 20: 0.7, 50: 0.3}),
        *swept("chance", key, {10: 0.1, 20: 0.1, 50: 0.1}),
    )
    data = Evidence(table)
    assert Flat("adamasfl", key, 0.02)(data).numbers == "10: 82.00%, 20: 81.00%, 50: 80.50%; range 1.50%"
    assert Flat("adamasfl", key, 0.02)(data).shown is True
    assert Flat("adamasfl", key, 0.01)(data).reason == "varies by 1.50%"
    assert Flat("chance", key, 0.02)(data).reason == "falls below 0.9 of the best method's 84.00%"
    assert FlatterThan("adamasfl", ("fedbuff",), key)(data).shown is True
    assert FlatterThan("adamasfl", ("fedbuff", "chance"), key)(data).reason == "chance vary no more"
    assert FlatterThan("adamasfl", ("mime",), key)(data).shown is None


def test_least_squares_slope():
    x = np.array([1.0, 2.0, 4.0, 8.0])
    assert slope(x, 3 * x**-0.25) == (pytest.approx(-0.25), pytest.approx(0.0, abs=1e-12))
    # by hand: log2 x = 0..3, log2 y = (1, 0, 0, 0): slope -0.3, residuals .3, -.4, -.1, .2, t(2) = 4.3027
    value, half = slope(x, [2.0, 1.0, 1.0, 1.0])
    assert value == pytest.approx(-0.3)
    assert half == pytest.approx(4.302653 * np.sqrt(0.3 / 2 / 5), rel=1e-6)


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


def test_slope_along_one_count_holds_the_others_fixed():
    found = Slope("padamfed", "clients.per_round", -0.25)(gradient_norms(-0.25))
    assert (found.shown, found.numbers) == (True, "slope -0.250 +- 0.000 (theorem -0.250), 4 runs")
    assert Slope("padamfed", "local.steps", -0.25)(gradient_norms(-0.25)).numbers.startswith("slope -1.000")
    assert (
        Slope("padamfed", "clients.per_round", -0.25)(gradient_norms(-0.1)).reason
        == "flatter than the theorem's"
    )
    assert Slope("padamfed", "clients.per_round", -0.25)(gradient_norms(0.1)).reason == "no fall beyond noise"
    assert Slope("padamfed", "clients.per_round", -0.25)(Evidence()).shown is None


def test_trend_and_traffic():
    table = runs(("a", (0.5,), {"M": 10}), ("a", (0.5,), {"M": 20}), ("b", (0.5,), {"M": 10}))
    rounds = pd.DataFrame(
        {
            "dir": ["0", "0", "0", "1", "1", "1", "2", "2"],
            "round": [0, 5, 10, 0, 10, 20, 0, 5],
            "virtual_time": [0.0, 20.0, 30.0, 0.0, 35.0, 40.0, 0.0, 1.0],
            "staleness_max": [0, 4, 2, 0, 9, 1, 0, 0],
            "uplink_bytes": [100, 200, 300, 0, 0, 0, 7, 107],
            "downlink_bytes": [0, 25, 50, 0, 0, 0, 0, 25],
        }
    )
    data = Evidence(table, rounds)
    found = Trend("a", "virtual_time", "M", -1, per_round=True)(data)
    assert (found.shown, found.numbers) == (True, "10: 3, 20: 2")
    assert Trend("a", "staleness_max", "M", 1, of_run="max")(data).numbers == "10: 4, 20: 9"
    assert Trend("a", "staleness_max", "M", 1, of_run="mean")(data).numbers == "10: 3, 20: 5"  # not round 0
    assert Trend("a", "staleness_max", "M", 1)(data).shown is False
    assert Trend("b", "staleness_max", "M", 1)(data).shown is None
    assert SameTraffic("a", "b")(data).shown is True  # 20 and 5 bytes per round, whatever came before round 0
    assert (
        SameTraffic("a", "b")(
            Evidence(table, rounds.assign(uplink_bytes=rounds["round"] * rounds.index))
        ).shown
        is False
    )
    assert SameTraffic("a", "c")(data).shown is None


def test_value_and_table_trend():
    table = runs(("fedproxvr", (0.84, 0.85), {"algorithm.estimator": "svrg"}))
    found = Value("fedproxvr algorithm.estimator=svrg", 0.8412)(Evidence(table))
    assert found.shown is True
    assert found.numbers.startswith("84.50% +- 0.71%")
    assert Value("fedproxvr algorithm.estimator=svrg", 0.80)(Evidence(table)).shown is False
    assert Value("fedproxvr algorithm.estimator=sarah", 0.84)(Evidence(table)).shown is None
    rows = pd.DataFrame(
        {"g": [1, 1, 2, 2], "x": [1, 2, 2, 1], "y": [5.0, 4.0, 3.0, 6.0], "z": [1.0, 1.0, 2.0, 2.0]}
    )
    data = Evidence(tables={"t": rows})
    assert TableTrend("t", "y", "x", -1, "g")(data).numbers == "g=1: 5 to 4; g=2: 6 to 3"
    assert TableTrend("t", "y", "x", -1, "g")(data).shown is True
    assert TableTrend("t", "y", "x", 1, "g")(data).shown is False
    assert TableTrend("t", "z", "x", 0, "g")(data).shown is True
    assert TableTrend("t", "y", "x", 0, "g", {"g": 1})(data).shown is False
    assert TableTrend("u", "y", "x", 0, "g")(data).shown is None


def test_verdicts_depend_on_scale_and_rounds():
    table = runs(("padamfed", (0.9, 0.9), {}), ("fedavg", (0.8, 0.8), {}))
    claim = Claim("c", "words", "source", "fig", Beats("padamfed", ("fedavg",)), scale="cpu", rounds=400)
    row = judge(
        claim, Evidence(table, settings={"rounds": 400, "clients.total": 100}, scale="cpu", command="do it")
    )
    assert (row["verdict"], row["seeds"], row["command"]) == ("shown", "0 1", "do it")
    assert row["settings"] == "rounds=400, clients.total=100"
    row = judge(claim, Evidence(table, settings={"rounds": 100}, scale="cpu"))
    assert (row["verdict"], row["reason"]) == ("untested", "needs 400 rounds, these are 100")
    row = judge(claim, Evidence(table, settings={"rounds": 400}, scale="smoke"))
    assert (row["verdict"], row["reason"]) == ("untested", "needs scale cpu, this is smoke")
    assert row["numbers"] == "padamfed 90.00% +- 0.00%, fedavg 80.00% +- 0.00%"
    because = "above each of the others at 95 %; 1 failed runs left out"
    lost = pd.concat([table, table[:1].assign(status="failed")])
    assert judge(claim, Evidence(lost, settings={"rounds": 400}))["reason"] == because


def test_evidence_is_read_from_the_kept_tables(tmp_path):
    """Two stages of one figure: tuned baselines with a swept rate, and ours without one (theorem)."""
    fixed = {"partition": "iid", "schedule": "sync", "error": ""}
    table = runs(
        *swept("fedavg", "algorithm.lr", {0.1: 0.7, 1.0: None}), ("padamfed", (0.9, 0.8), {}), **fixed
    )
    assert read(tmp_path) is None
    table.to_csv(tmp_path / "runs.csv", index=False)
    curves(table, {"fedavg": 5, "padamfed": 2}).to_csv(tmp_path / "rounds.csv", index=False)
    pd.DataFrame({"x": [0.1]}).to_csv(tmp_path / "accuracy.csv", index=False)
    table[:1].to_csv(tmp_path / "tuning.csv", index=False)
    shared = {"dataset": "emnist", "model": "rnn", "rounds": 400, "eval.every": 10, "local.steps": None}
    made = {"scale": "cpu", "command": "a command", "files": ["accuracy.csv", "gone.csv"], "shared": shared}
    (tmp_path / MADE).write_text(json.dumps(made))
    data = read(tmp_path)
    assert len(data.runs) == 4
    assert len(data.rounds) == 44
    assert data.runs.dir.is_unique
    assert list(rows_of(data.runs, "fedavg", {}).final_accuracy) == [0.7, 0.0]
    assert Beats("padamfed", ("fedavg",))(data).numbers == "padamfed 85.00% +- 7.07%, fedavg 70.00%"
    assert data.settings == {"dataset": "emnist", "model": "rnn", "rounds": 400}
    assert list(data.tables) == ["accuracy"]
    assert (data.scale, data.command) == ("cpu", "a command")


def test_a_claim_may_be_about_one_stage_of_the_runs(tmp_path):
    """The order of two methods in the paper's rows is the reverse of that where they are tuned freely."""
    (tmp_path / MADE).write_text(json.dumps({"scale": "cpu", "command": "", "shared": {}}))
    table = runs(("a", [0.9, 0.9], {}), ("b", [0.8, 0.8], {}), ("a", [0.7, 0.7], {}), ("b", [0.8, 0.8], {}))
    stages = ["final"] * 4 + ["final-free"] * 4
    table.assign(dir=[f"{one}/{run}" for one, run in zip(stages, table.dir, strict=True)]).to_csv(
        tmp_path / "runs.csv", index=False
    )
    data = read(tmp_path)
    assert Beats("a", ("b",), {"stage": "final"})(data).shown is True
    assert Beats("a", ("b",), {"stage": "final-free"})(data).shown is False


def test_every_claim_has_a_row_without_any_figure_and_a_test_in_words():
    rows = ledger({}, CLAIMS)
    assert " ".join(rows.columns) == (
        "claim text source figure published verdict brief numbers reason seeds settings test command"
    )
    assert set(rows.verdict) == {"untested"}
    assert (rows.reason != "").all()
    assert rows.claim.is_unique
    assert rows.test.str.len().min() > 40
    assert describe(Beats("a", ("b",))).endswith("[method=a, others=('b',)]")


def test_the_issues_examples_are_among_the_claims():
    text = " ".join(claim.text for claim in CLAIMS)
    for words in (
        "exceeds 0.8 for step sizes from 3e-3 to 1e-1",
        "exceeds 0.7",
        "M_c grows",
        "linear speed-up",
    ):
        assert words in text
    for accuracy in ("84.02", "84.12", "84.21", "93.52", "94.06", "93.75"):
        assert accuracy in text


def test_a_level_is_reached_in_a_setting_of_the_table_or_in_none():
    table = pd.DataFrame(
        [
            ("iid", "padamfed", "vector", "iid", 0.64, 0.79),
            ("S=20", "padamfed", "vector", "iid", 0.66, 0.83),
            ("iid", "padamfed", "tensor", "iid", 0.88, None),
            ("Dirichlet(1)", "padamfed", "vector", "dirichlet", 0.9, None),
        ],
        columns=["setting", "algorithm", "algorithm.norm", "partition", "accuracy", "without_noise"],
    )
    data = Evidence(tables={"settings": table})
    iid = {"partition": "iid"}
    vector = Reaches("settings", "padamfed algorithm.norm=vector", 0.8, iid)(data)
    assert (vector.shown, vector.reason) == (False, "in none of 2 settings")
    assert vector.numbers == "iid 64.00%; S=20 66.00%; without noise 83.00% at best"
    assert vector.brief == "66.00% at best; without noise 83.00% at best"
    tensor = Reaches("settings", "padamfed algorithm.norm=tensor", 0.8, iid)(data)
    assert (tensor.shown, tensor.brief) == (True, "88.00% at best")
    one = Reaches("settings", "padamfed algorithm.norm=vector", 0.65, iid)(data)
    assert (one.shown, one.reason) == (True, "")  # in S=20 alone
    assert (
        Reaches("settings", "padamfed algorithm.norm=vector", 0.66, iid)(data).shown is False
    )  # at, not above
    assert Reaches("settings", "fedavg", 0.8)(data).reason == "no rows of fedavg in table settings"
    assert Reaches("other", "fedavg", 0.8)(data).shown is None


def test_a_method_is_ahead_of_another_in_a_setting_or_in_none():
    """By all seeds of one setting that both have; a mean alone does not count."""

    def rows(setting, algorithm, low, high, n=2):
        return (setting, algorithm, "iid", (low + high) / 2, low, high, n)

    def found(*table):
        columns = ["setting", "algorithm", "partition", "accuracy", "low", "high", "n"]
        data = Evidence(tables={"settings": pd.DataFrame(table, columns=columns)})
        return Ahead("settings", "padamfed_vr", "padamfed", {"partition": "iid"})(data)

    plain = [rows("iid", "padamfed", 0.6, 0.7), rows("cell gru", "padamfed", 0.7, 0.8)]
    within = [rows("iid", "padamfed_vr", 0.5, 0.6), rows("cell gru", "padamfed_vr", 0.79, 0.9)]
    behind = found(*plain, *within)
    assert (behind.shown, behind.reason) == (False, "in none of 2 settings")
    assert behind.numbers == "iid 55.00% to 65.00%; cell gru 84.50% to 75.00%"
    above = found(*plain, within[0], rows("cell gru", "padamfed_vr", 0.81, 0.9))
    assert (above.shown, above.brief) == (True, "in 1 of 2 settings; cell gru 85.50% to 75.00%")
    assert found(*plain, rows("B=128", "padamfed_vr", 0.9, 0.95)).shown is None
    assert found(*plain).reason == "no rows of padamfed_vr in table settings"
    assert found(*plain, rows("iid", "padamfed_vr", 0.9, 0.9, n=1)).reason == "fewer than two seeds"
