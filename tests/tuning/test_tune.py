"""A tuning from start to end, on the embedded digits: its files, going on after a stop, what is said."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd
import pytest
from option_helpers import needs_torchmetrics

from fedbench.cli import main
from fedbench.runs.server_loop import ServerLoop
from fedbench.runs.signals import Interrupted

WORDS = [
    "algorithm=fedavg,padamfed", "algorithm.lr=1e-9,0.1,1", "seed=0,1,2", "rounds=9", "model.init=zeros",
    "clients.total=4", "clients.per_round=2", "local.steps=2", "engine=vmap", "progress=none",
    "hydra/launcher=basic",
]  # fmt: skip


def tune(place: Path, *more: str) -> int:
    return main(["tune", *WORDS, f"hydra.sweep.dir={place}", *more])


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A grid search of two methods with one extension."""
    place = tmp_path_factory.mktemp("tuned")
    assert tune(place, "--extend", "1") == 0
    return place


def test_the_tables_say_what_was_tried_and_what_the_winners_reached(done: Path) -> None:
    """Checked against the runs themselves: the first seed's validation selects, the others' mean on the test
    set is the result."""
    trials, results = pd.read_csv(done / "trials.csv"), pd.read_csv(done / "results.csv")
    runs, final = pd.read_csv(done / "trials" / "runs.csv"), pd.read_csv(done / "final" / "runs.csv")
    assert set(runs.seed) == {0}
    for method, part in trials.groupby("algorithm"):
        mine = runs[runs.algorithm == method].set_index("algorithm.lr").final_validation_accuracy
        assert dict(zip(part["algorithm.lr"], part["mean"], strict=True)) == pytest.approx(dict(mine))
        (row,) = results[results.algorithm == method].to_dict("records")
        assert row["algorithm.lr"] == mine.idxmax()
        won = final[(final.algorithm == method) & (final["algorithm.lr"] == row["algorithm.lr"])]
        assert sorted(won.seed) == [1, 2]
        assert row["final_accuracy"] == pytest.approx(won.final_accuracy.mean())
        assert row["std"] == pytest.approx(won.final_accuracy.std())
        assert (row["n"], row["trials"]) == (2, len(part))
        assert row["best_accuracy"] == pytest.approx(won.best_accuracy.mean())
        assert (row["diverged"], row["failed"]) == (0, 0)
    points = pd.read_csv(done / "tuning-lr.csv").set_index(["algorithm", "algorithm.lr"])
    expected = trials.set_index(["algorithm", "algorithm.lr"])["mean"]
    assert points.final_validation_accuracy_mean.to_dict() == pytest.approx(expected.to_dict())
    for name in ("tuning-lr.png", "tuning-lr.pdf", "tuning-lr.md"):
        assert (done / name).stat().st_size > 0
    assert set(trials.metric) == {"validation accuracy"}
    caption = (done / "tuning-lr.md").read_text()
    assert "A point is the best trial at that value" in caption
    winners = "test set with seeds 1, 2: n = 2, since seed 0 selected; trained without the held-out 0.1"
    assert winners in caption


def test_a_finished_trial_keeps_what_its_tables_need(done: Path) -> None:
    """No checkpoint with all clients' state; a winner keeps its own."""
    assert not list((done / "trials").rglob("checkpoint.pt"))
    assert len(list((done / "trials").rglob("summary.json"))) == len(pd.read_csv(done / "trials/runs.csv"))
    assert len(list((done / "final").rglob("checkpoint.pt"))) == len(pd.read_csv(done / "final/runs.csv"))


def test_the_winners_run_again_each_with_its_own_values(
    done: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Longer, with other seeds and on all training samples, in one command; the tuning then shows both. What
    a winner has chosen cannot be given."""
    before = pd.read_csv(done / "results.csv")
    assert main(["tune", str(done), "rounds=12", "seed=5,6", "dataset.validation=0"]) == 0
    (place,) = done.glob("final-*")
    runs = pd.read_csv(place / "runs.csv")
    assert len(runs) == 2 * len(before)
    assert set(runs.seed) == {5, 6}
    rounds = pd.read_csv(place / "rounds.csv")
    assert set(rounds.groupby("dir")["round"].max()) == {12}
    results = pd.read_csv(place / "results.csv").set_index("algorithm")
    for row in before.to_dict("records"):
        mine, again = runs[runs.algorithm == row["algorithm"]], results.loc[row["algorithm"]]
        assert set(mine["algorithm.lr"]) == {row["algorithm.lr"]} == {again["algorithm.lr"]}
        assert (again.final_accuracy, again.n) == (pytest.approx(mine.final_accuracy.mean()), 2)
    assert (set(results.held_out), set(before.held_out)) == ({0}, {0.1})
    capsys.readouterr()
    words = ["rounds=12", "seed=5,6", "dataset.validation=0", "threads=1", "hydra/launcher=processes"]
    assert main(["tune", str(done), *words, "hydra.launcher.processes=2", "--dry-run"]) == 0  # is there
    assert capsys.readouterr().out.startswith(f"{len(runs)} runs in {place}, {len(runs)} finished")
    assert main(["best", str(done)]) == 0
    head, *table = capsys.readouterr().out.split("\n(")[0].splitlines()
    assert [name in head for name in ("rounds", "dataset.validation", "algorithm.lr")] == [True] * 3
    assert len(table) == 2 * len(before)
    for words, said in (
        (["algorithm.lr=1"], "every winner has a value of its own here"),
        (["rounds=1,2"], "only the seed may have several"),
    ):
        assert main(["tune", str(done), *words]) == 2
        assert said in capsys.readouterr().err
    assert main(["tune", str(done / "final"), "rounds=3"]) == 2


def test_a_search_goes_on_past_an_edge_and_flags_one_that_remains(done: Path) -> None:
    """FedAvg's best of three is at their end, 1; the next in ratio is 10. An edge that is left is named."""
    trials = pd.read_csv(done / "trials.csv")
    assert 10.0 in set(trials[trials.algorithm == "fedavg"]["algorithm.lr"])
    results = pd.read_csv(done / "results.csv")
    for row in results.to_dict("records"):
        rates = trials[trials.algorithm == row["algorithm"]]["algorithm.lr"]
        at_end = row["algorithm.lr"] in (rates.min(), rates.max())
        assert bool(re.fullmatch(r"algorithm.lr:(low|high)", str(row["edge"]))) == at_end


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (
            ["algorithm.lr=1e-9,1e-8"],
            "algorithm.lr is at the EDGE end of what was tried; "
            "a wider grid or --extend in another directory",
        ),
        (
            ["algorithm.lr=interval(0.001,0.002)", "--search", "random", "--trials", "2"],
            "algorithm.lr is at the EDGE end of what was tried; a wider interval",
        ),
        (
            ["algorithm=fedavgm", "algorithm.lr=0.1", "algorithm.momentum=0.1,0.2"],
            "algorithm.momentum is at the EDGE end of what was tried; a wider grid",
        ),
    ],
)
def test_what_may_find_better_is_what_the_search_can_do(
    words: list[str], line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An interval is not extended, nor are the values of a key that is no step size."""
    assert tune(tmp_path, "seed=0", "algorithm=fedavg", "--extend", "0", *words) == 0
    out = re.sub("the (low|high) end", "the EDGE end", capsys.readouterr().out)
    assert f"{line} may find better\n" in out


@pytest.mark.parametrize("words", [["algorithm.mu=0,100"], ["local.steps=1,2", "--keys", "steps"]])
def test_an_end_of_what_is_allowed_is_no_edge(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No mu is below 0 and no number of steps below 1: where they win, no wider grid may find better."""
    common = ["seed=0", "algorithm=fedprox", "algorithm.lr=1", "local.batch_size=10", "--extend", "0"]
    assert tune(tmp_path, *common, *words) == 0
    key = words[0].partition("=")[0]
    (winner,) = pd.read_csv(tmp_path / "results.csv")[key]
    said = f"{key} is at the" in capsys.readouterr().out
    assert (winner, said) in {(0, False), (1, False), (2, True), (100, True)}


def test_the_same_command_computes_nothing_again(
    done: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """All runs are there; the tables are the same bytes."""
    before = [(done / f"{name}.csv").read_bytes() for name in ("trials", "results")]
    monkeypatch.setattr(ServerLoop, "update", lambda self: pytest.fail("computed again"))
    assert tune(done, "--extend", "1") == 0
    assert [(done / f"{name}.csv").read_bytes() for name in ("trials", "results")] == before
    out = capsys.readouterr().out
    assert "the highest mean final validation accuracy" in out
    assert "selected by: dataset.validation=0.1 of every client's training samples" in out
    assert "winners: measured on the test set with seeds 1, 2" in out
    assert "fedavg: grid search, 3 trials over algorithm.lr 1e-09, 0.1, 1" in out


def test_tunings_with_other_options_do_not_share_a_directory(
    done: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By default each has its own, with its winner alone. A given one with winners refuses another tuning."""
    monkeypatch.chdir(tmp_path)
    words = [word for word in WORDS if not word.startswith("algorithm")]
    for key in ("lr", "server_lr"):
        assert main(["tune", *words, "algorithm=fedavg", "--keys", key, "--extend", "0"]) == 0
    places = sorted(Path("outputs/tune/seed").iterdir())
    assert len(places) == 2
    for place in places:
        (row,) = pd.read_csv(place / "results.csv").to_dict("records")
        won = pd.read_csv(place / "final" / "runs.csv")
        assert (list(won.seed), row["final_accuracy"]) == ([1, 2], pytest.approx(won.final_accuracy.mean()))
    before = (done / "results.csv").read_bytes()
    capsys.readouterr()
    for more, said in (
        (["--extend", "0"], "--extend 0: must be --extend 1 in"),
        (["--extend", "1", "--keys", "lr,steps"], "--keys lr,steps: must be no --keys in"),
        (["--extend", "1", "--small", "--dry-run"], "--small: must be no --small in"),
    ):
        assert tune(done, *more) == 2
        assert said in capsys.readouterr().err
    assert (done / "results.csv").read_bytes() == before


def test_the_fewest_rounds_to_a_target_win(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Checked against the runs themselves, of 9 rounds: what never gets there counts 18. Trials keep their
    checkpoints if the user says so."""
    words = ["algorithm=fedavg", "algorithm.lr=1e-9,0.1", "target=0.8", "dataset.validation=0"]
    assert tune(tmp_path / "t", *words, "--extend", "0", "checkpoint.keep=true") == 0
    assert len(list((tmp_path / "t/trials").rglob("checkpoint.pt"))) == 2
    trials = pd.read_csv(tmp_path / "t" / "trials.csv").set_index("algorithm.lr")
    runs = pd.read_csv(tmp_path / "t" / "trials" / "runs.csv").set_index("algorithm.lr")["rounds_to_0.8"]
    assert trials.rounds_to_target.to_dict() == runs.fillna(18).to_dict()
    assert trials.reached.to_dict() == runs.notna().astype(int).to_dict()
    (row,) = pd.read_csv(tmp_path / "t" / "results.csv").to_dict("records")
    final = pd.read_csv(tmp_path / "t" / "final" / "runs.csv")
    assert (row["algorithm.lr"], row["reached"]) == (runs.idxmin(), final["rounds_to_0.8"].count())
    assert row["rounds_to_target"] == final["rounds_to_0.8"].fillna(18).mean()
    out = capsys.readouterr().out
    assert "rule: the fewest mean rounds to the target test accuracy" in out
    assert "selected by: the test set, which makes the results optimistic" in out


@pytest.mark.slow
def test_a_stopped_search_goes_on_to_the_same_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopped in the middle of a run; then as if it had never been."""
    options = ("--extend", "1", "algorithm=fedavg", "checkpoint.seconds=0")
    assert tune(tmp_path / "whole", *options) == 0
    update, count = ServerLoop.update, 0

    def interrupted(self: ServerLoop) -> None:
        nonlocal count
        count += 1
        if count == 13:
            raise Interrupted("stopped", 130)
        update(self)

    monkeypatch.setattr(ServerLoop, "update", interrupted)
    assert tune(tmp_path / "cut", *options) == 130
    monkeypatch.setattr(ServerLoop, "update", update)
    assert tune(tmp_path / "cut", *options) == 0
    for name in ("trials.csv", "results.csv"):
        assert (tmp_path / "cut" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_trials_that_fail_are_said_and_the_others_are_the_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 1, with the tables written."""
    update = ServerLoop.update

    def broken(self: ServerLoop) -> None:
        if self.hyper["lr"] == 0.1:
            raise RuntimeError("broken")
        update(self)

    monkeypatch.setattr(ServerLoop, "update", broken)
    assert tune(tmp_path, "--extend", "0", "algorithm=fedavg", "seed=0") == 1
    assert "1 of 3 runs failed" in capsys.readouterr().err
    trials = pd.read_csv(tmp_path / "trials.csv")
    assert list(trials.failed) == [0, 1, 0]
    assert list(pd.read_csv(tmp_path / "results.csv")["algorithm.lr"]) == [1.0]


def test_where_all_diverge_there_is_no_winner(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 1 and a line; where one of two diverged, the other wins, and the picture says it."""
    words = ["model=mlp", "model.init=default", "rounds=3", "seed=0", "--extend", "0"]
    assert tune(tmp_path / "all", *words, "algorithm.lr=1e200,1e250", "algorithm=fedavg") == 1
    line = "fedbench: all 2 configurations of fedavg diverged: smaller step sizes are needed\n"
    assert capsys.readouterr().err == line
    trials = pd.read_csv(tmp_path / "all" / "trials.csv")
    assert list(trials.diverged) == [1, 1]
    assert trials.role.isna().all()
    assert not (tmp_path / "all" / "results.csv").exists()
    assert not (tmp_path / "all" / "final").exists()
    assert tune(tmp_path / "one", *words, "algorithm.lr=0.1,1e200", "algorithm=fedavg") == 0
    (row,) = pd.read_csv(tmp_path / "one" / "results.csv").to_dict("records")
    assert row["algorithm.lr"] == 0.1
    assert "diverged" in (tmp_path / "one" / "tuning-lr.md").read_text()


def test_winners_run_again_where_another_method_has_none(tmp_path: Path) -> None:
    """FedAvg diverges. PAdaMFed, the second, has its row."""
    words = ["model=mlp", "model.init=default", "rounds=3", "seed=0", "--extend", "0"]
    assert tune(tmp_path, *words, "algorithm.lr=1e7,1e8") == 1
    assert main(["tune", str(tmp_path), "rounds=4"]) == 0
    (place,) = tmp_path.glob("final-*")
    (row,) = pd.read_csv(place / "results.csv").to_dict("records")
    (run,) = pd.read_csv(place / "runs.csv").to_dict("records")
    assert (row["algorithm"], row["final_accuracy"]) == ("padamfed", pytest.approx(run["final_accuracy"]))


def test_a_dry_run_says_what_would_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Six trials of one seed and two winners over the two other seeds; nothing is written."""
    assert tune(tmp_path / "t", "--dry-run") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-9] == f"6 runs in {tmp_path / 't' / 'trials'}, 0 finished"
    assert all(line.endswith(": to run") for line in lines[-7:-1])
    assert lines[-1] == f"then 4 runs of the winners in {tmp_path / 't' / 'final'}"
    assert not (tmp_path / "t").exists()
    for words in (["--dry-run"], []):
        assert tune(tmp_path / "t", *words, "algorithm.lr=-1,1") == 2
        assert "algorithm.lr=-1" in capsys.readouterr().err
        assert not (tmp_path / "t").exists()


@needs_torchmetrics
def test_another_metric_selects(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By the lowest perplexity on what is held out; what the winner reached is its accuracy all the same."""
    words = ["--metric", "perplexity", "algorithm=fedavg", "--extend", "0", "seed=0,1"]
    assert tune(tmp_path / "t", "eval.metrics=[perplexity]", *words) == 0
    assert "the lowest mean final validation perplexity over" in capsys.readouterr().out
    trials, runs = pd.read_csv(tmp_path / "t/trials.csv"), pd.read_csv(tmp_path / "t/trials/runs.csv")
    by_rate = runs.set_index("algorithm.lr").final_validation_perplexity
    found = trials.set_index("algorithm.lr")
    assert found["mean"].to_dict() == pytest.approx(by_rate.to_dict())
    assert found.role.to_dict()[by_rate.idxmin()] == "winner"
    (row,) = pd.read_csv(tmp_path / "t/results.csv").to_dict("records")
    assert 0 < row["final_accuracy"] <= 1
    assert tune(tmp_path / "u", *words) == 2
    assert "eval.metrics must name this metric" in capsys.readouterr().err


def test_a_column_of_metrics_csv_selects(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By the least deviation between clients, in the direction of which the accuracy does not decide."""
    words = ["--metric", "client_accuracy_std", "algorithm=fedavg", "--extend", "0", "seed=0,1"]
    assert tune(tmp_path / "t", "eval.clients=true", *words) == 0
    assert "the lowest mean final client_accuracy_std over" in capsys.readouterr().out
    trials, runs = pd.read_csv(tmp_path / "t/trials.csv"), pd.read_csv(tmp_path / "t/trials/runs.csv")
    by_rate = runs.set_index("algorithm.lr").final_client_accuracy_std
    assert trials.set_index("algorithm.lr").role.to_dict()[by_rate.idxmin()] == "winner"
    (row,) = pd.read_csv(tmp_path / "t/results.csv").to_dict("records")
    (final,) = pd.read_csv(tmp_path / "t/final/runs.csv").to_dict("records")
    assert row["final_client_accuracy_std"] == final["final_client_accuracy_std"]
    assert tune(tmp_path / "u", *words) == 2
    assert "--metric client_accuracy_std: asks for eval.clients" in capsys.readouterr().err
    assert tune(tmp_path / "u", "--metric", "client_accuracy_wors") == 2
    assert "(did you mean 'client_accuracy_worst'?)" in capsys.readouterr().err
