"""`fedbench best` on invented runs: what selects, what ranks, what is kept apart, and tables for a paper.

Every expected number is written beside the runs that it is made of."""

from __future__ import annotations

import json
import re
import shutil
import statistics
from pathlib import Path
from typing import Any

import pytest
from run_files import Call, own_method

from fedbench.figures.lines import group
from fedbench.figures.plot import main as plot_command
from fedbench.figures.results import read

_OF_SUMMARY = ("final_", "best_", "status", "metric", "evaluated_every")


def write(name: str, result: float | None, seed: int = 0, **more: Any) -> None:
    """A run that has ended: its final test accuracy; `more`: keys of its configuration (with __ for a dot),
    or of its summary."""
    said = {key: more.pop(key) for key in [*more] if key.startswith(_OF_SUMMARY)}
    config = {"dataset": "mnist", "partition": "iid", "model": "cnn", "algorithm": "fedavg", "rounds": 2}
    config |= {"schedule": "sync", "delay": "none", "seed": seed}
    config |= {key.replace("__", "."): value for key, value in more.items()}
    place = Path(name)
    place.mkdir(parents=True)
    summary = {"status": "completed", "final_accuracy": result, "best_accuracy": result, "config": config}
    (place / "summary.json").write_text(json.dumps(summary | said))
    (place / "metrics.csv").write_text(f"round,test_accuracy\n0,0.1\n2,{'' if result is None else result}\n")


def rows(out: str) -> list[list[str]]:
    """The lines of the table, as words."""
    table = out.split("\n(")[0].split("\n\n")[0]
    return [line.split() for line in table.splitlines()]


def test_held_out_samples_select_and_the_test_set_ranks(fedbench: Call) -> None:
    """0.1 is the best of FedAvg on what is held out, 0.2 on the test set. SCAFFOLD's has 0.7 there, more than
    FedAvg's 0.6, and less on what is held out."""
    held = {"dataset__validation": 0.1}
    write("d/a", 0.6, algorithm__lr=0.1, final_validation_accuracy=0.9, **held)
    write("d/b", 0.8, algorithm__lr=0.2, final_validation_accuracy=0.5, **held)
    write("d/c", 0.7, algorithm="scaffold", algorithm__lr=0.1, final_validation_accuracy=0.65, **held)
    out = fedbench.done("best", "d")
    assert rows(out)[1:] == [
        ["scaffold", "0.1", "0.6500", "0.7000", "1"], ["fedavg", "0.1", "0.9000", "0.6000", "1"],
    ]  # fmt: skip
    assert "selected by the highest mean final validation accuracy, then ranked by the highest mean f" in out
    assert "held out: dataset.validation=0.1)" in out
    out = fedbench("best", "d", "--metric", "final_accuracy")[1]
    assert rows(out)[1] == ["fedavg", "0.2", "0.8000", "1"]
    assert "on the test set itself" in out


def test_what_selects_is_asked_for_where_only_some_hold_out(fedbench: Call) -> None:
    write("d/a", 0.6, algorithm__lr=0.1, final_validation_accuracy=0.9)
    write("d/b", 0.8, algorithm__lr=0.2)
    assert fedbench.refused("best", "d").startswith("fedbench: --metric=null: must be named")
    assert fedbench("best", "d", "--metric", "final_accuracy")[0] == 0


def test_the_smallest_perplexity_is_the_best(fedbench: Call) -> None:
    """And an accuracy of 0.0 is one."""
    for run, lr, value in (("a", 0.1, 30.0), ("b", 0.2, 4.5), ("c", 0.3, 900.0)):
        write(f"d/{run}", 0.0, algorithm__lr=lr, final_test_perplexity=value)
    table = rows(fedbench("best", "d", "--metric", "final_test_perplexity", "--by", "lr")[1])
    assert [row[:2] for row in table[1:]] == [["0.2", "4.5000"], ["0.1", "30.0000"], ["0.3", "900.0000"]]
    assert rows(fedbench("best", "d", "--metric", "best_accuracy")[1])[1][2] == "0.0000"


def test_what_is_no_accuracy_is_not_called_one(fedbench: Call) -> None:
    """In the header, the note and LaTeX; and tasks that measure different things are said to."""
    write("d/a", 0.6, metric="R2", final_test_loss=0.1)
    out = fedbench.done("best", "d")
    assert out.splitlines()[0].split() == ["algorithm", "final", "test", "R²", "n"]
    assert "(ranked by the highest mean final test R²; " in out
    assert "& final test R² &" in fedbench("best", "d", "--format", "latex")[1]
    write("d/b", 0.7, dataset="fmnist", final_test_loss=0.2)
    out = fedbench.done("best", "d")
    assert "final test score" in out.splitlines()[0]
    assert "(final test score: final test R² or final test accuracy, as a task has it)" in out
    assert "as a task has it" not in fedbench.done("best", "d", "--metric", "final_test_loss")


def test_what_a_stopped_sweep_has_not_computed_is_told(fedbench: Call) -> None:
    """Of four planned runs one has ended, one has stopped, and two have not begun: by `best`, and by `plot`,
    there of the runs that are asked for."""
    for method in ("fedavg", "scaffold"):
        write(f"d/{method}", 0.6, algorithm=method)
    config = json.loads((Path("d/scaffold/summary.json")).read_text())["config"]
    Path("d/scaffold/summary.json").unlink()
    Path("d/scaffold/config.yaml").write_text("\n".join(f"{key}: {value}" for key, value in config.items()))
    jobs = {name: {"algorithm": name} for name in ("fedavg", "scaffold", "fedprox", "feddyn")}
    Path("d/sweep.json").write_text(json.dumps({"swept": ["algorithm"], "jobs": jobs}))
    out = fedbench.done("best", "d")
    assert "\n(1 setting left out: a run failed, diverged or not ended)\n(2 planned runs without num" in out
    assert "\n(no result of scaffold, fedprox, feddyn)\n" in out
    for words, said in (
        ((), "2 planned runs without numbers yet. Of 2 runs: 1 stopped."),
        (("--where", "algorithm=scaffold,feddyn"), "1 planned run without numbers yet. Of 1 run: 1 stopped."),
    ):
        fedbench.done("plot", "d", "--out", "p", *words)
        assert said in Path("p.md").read_text()


def test_a_key_that_a_method_lacks_is_empty_and_one_without_a_value_is_null(fedbench: Call) -> None:
    write("d/a", 0.6, algorithm="padamfed", algorithm__beta=None)
    write("d/b", 0.5, algorithm="padamfed", algorithm__beta=0.5)
    write("d/c", 0.4)
    table = rows(fedbench.done("best", "d"))
    assert table[1:] == [["padamfed", "null", "0.6000", "1"], ["fedavg", "0.4000", "1"]]


def test_tasks_are_kept_apart(fedbench: Call) -> None:
    """Each with its own best: data sets, splits in order of their number, and runs of different rounds."""
    for n, (data, alpha, rounds, lr, value) in enumerate([
        ("mnist", 10.0, 2, 0.1, 0.9), ("mnist", 10.0, 2, 0.2, 0.8), ("mnist", 2.0, 2, 0.1, 0.5),
        ("mnist", 2.0, 2, 0.2, 0.6), ("mnist", 2.0, 9, 0.1, 0.95),
    ]):  # fmt: skip
        write(f"d/{n}", value, partition="dirichlet", partition__alpha=alpha, rounds=rounds,
              dataset=data, algorithm__lr=lr)  # fmt: skip
    out = fedbench("best", "d")[1]
    head, *table = rows(out)
    keys = ("rounds", "partition.alpha", "algorithm.lr")
    assert [[*(row[head.index(key)] for key in keys), row[-2]] for row in table] == [
        ["2", "2.0", "0.2", "0.6000"], ["2", "10.0", "0.1", "0.9000"], ["9", "2.0", "0.1", "0.9500"],
    ]  # fmt: skip
    assert [line for line in out.splitlines() if line.startswith("d/")] == ["d/3", "d/0", "d/4"]


def test_starved_runs_are_ranked_and_told(fedbench: Call) -> None:
    """By `best` and `report`: they have a final accuracy. A diverged run still leaves its setting out."""
    write("d/a", 0.7, status="starved")
    write("d/b", 0.8, 1, status="starved")
    write("d/c", 0.6, algorithm="scaffold")
    write("d/d", None, algorithm="fedexp", status="diverged", best_accuracy=0.9)
    for words in ((), ("--metric", "best_accuracy")):
        out = fedbench.done("best", "d", *words)
        assert [row[0] for row in rows(out)[1:]] == ["fedavg", "scaffold"]
        assert rows(out)[1][1:] == ["0.7500", "+-", "0.0707", "2"]
        assert "(2 of 3 runs starved: too few clients were left, so they have fewer rounds than asked" in out
    pytest.importorskip("plotly", reason="plotly is not installed (the extra `report` has it)")
    write("d/e", 0.9, algorithm="fedadam", status="failed")
    fedbench.done("report", "d")
    table = Path("d/report.html").read_text().partition('id="settings"')[2]
    assert table.index("0.7500") < table.index("0.9000")


def test_runs_that_repeat_a_seed_are_said_to_be_left_out(fedbench: Call) -> None:
    """Such as runs of code that was changed since, which no choice tells apart."""
    write("d/a", 0.6)
    write("d/b", 0.8)
    write("d/c", 0.7, 1)
    out = fedbench.done("best", "d")
    assert rows(out)[1][1:] == ["0.6500", "+-", "0.0707", "2"]
    assert "(1 further run left out, with a seed that the setting already has)" in out


def test_a_setting_without_the_metric_is_said_to_lack_it(fedbench: Call) -> None:
    write("d/a", 0.6, algorithm__lr=0.1, final_test_macro_f1=0.5)
    write("d/b", 0.8, algorithm__lr=0.2)
    write("d/c", None, algorithm__lr=0.3, status="diverged")
    out = fedbench("best", "d", "--metric", "final_test_macro_f1")[1]
    assert "(1 setting left out: no final_test_macro_f1 (eval.metrics))" in out
    assert "(1 setting left out: a run failed, diverged or not ended)" in out
    for words, says in (
        (["--metric", "final_test_auroc"], "d: no run has a final_test_auroc (eval.metrics)\n"),
        (["--metric", "accuracy"], "--metric=accuracy: must be one of "),
        (["--by", "algorithm.lrr"], "(did you mean 'algorithm.lr'?)\n"),
    ):
        code, _, err = fedbench("best", "d", *words)
        assert (code, says in err, err.count("\n")) == (2, True, 1)


def curves(name: str, seed: int, accuracies: list[float], **more: Any) -> None:
    """A run that is evaluated every second round; a round sends 3,000 bytes, computes 40 gradients and takes
    1.5 of virtual time. Its loss is 1 - accuracy."""
    more |= {"evaluated_every": 2, "final_test_loss": 1 - accuracies[-1]}
    write(name, accuracies[-1], seed, **more)
    lines = ["round,virtual_time,test_loss,test_accuracy,uplink_bytes,gradient_evaluations"]
    for at, value in enumerate(accuracies):
        lines.append(f"{2 * at},{3.0 * at},{1 - value},{value},{6000 * at},{80 * at}")
    Path(name, "metrics.csv").write_text("\n".join(lines) + "\n")


def words(line: str) -> list[str]:
    """The cells of a line of a table."""
    return [cell for cell in re.split(r" {2,}", line.strip()) if cell]


def test_what_it_costs_to_get_to_a_level(fedbench: Call) -> None:
    """FedAvg is at 0.7 in rounds 2 and 6, SCAFFOLD in round 4 with one seed of two: (2 + 6) / 2 = 4, with
    deviation sqrt(8); a round sends 3,000 bytes. In a paper's table SCAFFOLD cannot be the best, since a seed
    never gets there. By the loss, a level is reached from above."""
    curves("d/a", 0, [0.1, 0.7, 0.6, 0.8])
    curves("d/b", 1, [0.1, 0.5, 0.6, 0.75])
    curves("d/c", 0, [0.1, 0.5, 0.9], algorithm="scaffold")
    curves("d/e", 1, [0.1, 0.5, 0.65], algorithm="scaffold")
    out = fedbench.done("best", "d", "--to", "0.7")
    titles = ["rounds to 0.7", "uplink (kB) to 0.7", "gradient evaluations to 0.7", "virtual time to 0.7"]
    head, *lines = map(words, out.splitlines()[:3])
    assert head == ["algorithm", "final test accuracy", *titles, "reached 0.7", "n"]
    found = {line[0]: line[2:] for line in lines}
    assert found["fedavg"] == [
        "4.0 +- 2.8", "12.0 +- 8.5", "160.0 +- 113.1", "6.0 +- 4.2", "2 of 2", "2",
    ]  # fmt: skip
    only = "(1 of 2)"
    assert found["scaffold"] == [f"4.0 {only}", f"12.0 {only}", f"160.0 {only}", f"6.0 {only}", "1 of 2", "2"]
    assert "(costs: until the test accuracy is first at least 0.7, over the seeds that get there)" in out
    assert "(evaluated every 2 rounds, and reached in one of these)" in out
    shown = "--columns=rounds", "--percent", "--format", "markdown"
    assert fedbench("best", "d", "--to", "0.7", *shown)[1].splitlines() == [
        "| method | rounds to 70 % | n |", "| --- | --- | --- |",
        "| FedAvg | **4.0 ± 2.8** | 2 |", "| SCAFFOLD | 4.0 (1 of 2) | 2 |",
    ]  # fmt: skip
    by_loss = fedbench.done(
        "best", "d", "--to", "0.38", "--metric", "test_loss", "--columns", "rounds,reached"
    )
    cells = {words(line)[0]: words(line)[1:3] for line in by_loss.splitlines()[1:3]}
    assert cells == {"fedavg": ["4.0 +- 2.8", "2 of 2"], "scaffold": ["4.0 +- 0.0", "2 of 2"]}
    assert "(costs: until the test loss is first at most 0.38" in by_loss


def test_rounds_of_different_cohorts_are_not_compared_without_a_word(fedbench: Call) -> None:
    for clients in (1, 10):
        curves(f"d/{clients}", 0, [0.1, 0.9], clients__per_round=clients)
    said = "a round is of 1 or 10 clients (clients.per_round): rounds do not compare"
    assert said in fedbench.done("best", "d", "--to", "0.7")
    assert said in fedbench.done("best", "d", "--to", "0.7", "--by", "clients.per_round")
    assert said not in fedbench.done("best", "d/10", "--to", "0.7")
    assert said in fedbench.done("collect", "d", "--levels", "0.7")


def test_differences_are_paired_by_seed(fedbench: Call) -> None:
    """Seeds 0, 1, 2 have the differences 0.1, 0.3, 0.2, of FedAdam -0.1 in the one seed that both have.
    Student's interval of three is mean +- 4.3027 s / sqrt(3), s = 0.1. With perplexities less is better."""
    for seed, (one, other) in enumerate([(0.5, 0.6), (0.5, 0.8), (0.6, 0.8)]):
        write(f"d/a{seed}", one, seed, final_test_perplexity=one)
        write(f"d/b{seed}", other, seed, algorithm="scaffold", final_test_perplexity=other)
    write("d/c", 0.5, 2, algorithm="fedadam", final_test_perplexity=0.5)
    write("d/e", 0.1, 7, algorithm="fedadam", final_test_perplexity=0.1)
    out = fedbench.done("best", "d", "--against", "fedavg")
    head, *lines = map(words, out.splitlines()[:4])
    assert head[2:] == ["difference from FedAvg", "95 % interval", "better in", "n"]
    half = 4.302652729911275 * 0.1 / 3**0.5
    between = f"{0.2 - half:+.4f} to {0.2 + half:+.4f}"
    assert {line[0]: line[2:] for line in lines} == {
        "scaffold": ["+0.2000", between, "3 of 3", "3"], "fedavg": ["-", "-", "-", "3"],
        "fedadam": ["-0.1000", "-", "0 of 1", "2"],
    }  # fmt: skip
    assert "(differences are paired by seed; their interval is Student's, over seeds alone)" in out
    out = fedbench.done("best", "d", "--against", "fedavg", "--metric", "final_test_perplexity")
    assert {words(line)[0]: words(line)[4] for line in out.splitlines()[1:4]} == {
        "scaffold": "0 of 3", "fedavg": "-", "fedadam": "1 of 1",
    }  # fmt: skip
    assert fedbench.refused("best", "d", "--against", "fedavgg").endswith(
        "--against=fedavgg: must be one of scaffold, fedavg, fedadam (did you mean 'fedavg'?)\n"
    )


def test_every_column_of_metrics_csv_ranks(fedbench: Call) -> None:
    """Of a run whose summary does not have it, its rows do: the mean of the last `final_k`; of costs the last
    value. Less of a cost, a loss or a spread is better."""
    columns = "round,test_loss,test_accuracy,client_accuracy_worst,client_accuracy_std,uplink_bytes"
    for name, worst, std, bytes in (("a", 0.3, 0.2, 500), ("b", 0.4, 0.1, 1500)):
        write(f"d/{name}", 0.5, algorithm__lr=len(name) * worst, final_k=2)
        rows = [f"{at},1,0.5,{worst + at / 10},{std},{at * bytes}" for at in range(3)]
        Path(f"d/{name}/metrics.csv").write_text("\n".join([columns, *rows]) + "\n")
    for metric, number in (
        ("client_accuracy_worst", "0.5500"), ("final_client_accuracy_worst", "0.5500"),
        ("best_client_accuracy_worst", "0.6000"), ("client_accuracy_std", "0.1000"),
        ("uplink_bytes", "1.0000"),
    ):  # fmt: skip
        assert fedbench.done("best", "d", "--metric", metric).splitlines()[1].split()[2] == number, metric
    out = fedbench.done("best", "d", "--columns", "lr,client_accuracy_worst,uplink_bytes", "--percent")
    title = "final mean accuracy of the worst tenth of the clients (%)"
    assert words(out.splitlines()[0]) == ["algorithm", "algorithm.lr", title, "uplink (kB)", "n"]
    assert words(out.splitlines()[1]) == ["fedavg", "0.3", "45.00", "1.0000", "1"]
    digits = fedbench.done("best", "d", "--columns", "client_accuracy_worst", "--digits", "1")
    assert words(digits.splitlines()[1])[1] == "0.5"
    assert "(eval.train)" in fedbench.refused("best", "d", "--metric", "train_loss")
    for words_, said in (
        (("--to", "70"), "--to=70.0: must be a test accuracy between 0 and 1, such as 0.7"),
        (("--to", "0.7", "--metric", "uplink_bytes"), "--to=0.7: needs a metric that has levels"),
        (("--columns", "algorithm.lrr"), "--columns=algorithm.lrr: must be a key of these runs, "),
    ):
        assert said in fedbench.refused("best", "d", *words_)


def test_a_table_of_several_tasks_for_a_paper(fedbench: Call) -> None:
    """A column for each task: the best bold, what lies within its deviation underlined; titles, not names;
    any text as it is."""
    values = {
        ("padamfed", "mnist"): [0.8, 0.9], ("padamfed", "emn_ist%"): [0.2, 0.21],
        ("fedavg", "mnist"): [0.8, 0.84], ("fedavg", "emn_ist%"): [0.5, 0.52],
        ("my_own$&", "mnist"): [0.1, 0.12],
    }  # fmt: skip
    for (method, data), numbers in values.items():
        for seed, number in enumerate(numbers):
            write(f"d/{method}-{data.strip('%')}-{seed}", number, seed, algorithm=method, dataset=data)

    def cell(numbers: list[float], between: str) -> str:
        return f"{statistics.fmean(numbers):.4f} {between} {statistics.stdev(numbers):.4f}"

    code, out, err = fedbench("best", "d", "--format", "latex")
    assert code == 0
    assert "ranked by the highest mean final test accuracy" in err
    head, *lines = [line.removesuffix(r" \\").split(" & ") for line in out.splitlines() if " & " in line]
    body = {line[0]: dict(zip(head, line, strict=True)) for line in lines}
    assert out.startswith(r"\begin{tabular}{llll}")
    other, pm = r"emn\_ist\%", r"$\pm$"
    assert body["PAdaMFed"]["MNIST"] == rf"\textbf{{{cell(values['padamfed', 'mnist'], pm)}}}"
    underlined = rf"\underline{{{cell(values['fedavg', 'mnist'], pm)}}}"  # 0.85 - 0.82 < 0.07
    assert body["FedAvg"]["MNIST"] == underlined
    assert body["FedAvg"][other] == rf"\textbf{{{cell(values['fedavg', 'emn_ist%'], pm)}}}"
    assert body["PAdaMFed"][other] == cell(values["padamfed", "emn_ist%"], pm)
    mine = body[r"my\_own\$\&"]
    assert (mine["MNIST"], mine[other]) == (cell(values["my_own$&", "mnist"], pm), "-")
    markdown = fedbench("best", "d", "--format", "markdown")[1]
    assert markdown.count("\n") == 2 + 3
    assert f"**{cell(values['padamfed', 'mnist'], '±')}**" in markdown
    assert f"<u>{cell(values['fedavg', 'mnist'], '±')}</u>" in markdown


@pytest.fixture
def tuned() -> None:
    """A tuning: FedAvg's trials with one seed, of which 0.2 has the best test accuracy and 0.1 has won, and
    the winner's runs over two other seeds."""
    held = {"dataset__validation": 0.1, "final_validation_accuracy": 0.5}
    for run, lr, value in (("a", 0.1, 0.6), ("b", 0.2, 0.99)):
        write(f"t/trials/{run}", value, algorithm__lr=lr, **held)
    for seed, value in ((1, 0.7), (2, 0.8)):
        write(f"t/final/{seed}", value, seed, algorithm__lr=0.1, **held)
    Path("t/tune.json").write_text("{}")


def test_a_tuning_shows_its_winners(tuned: None, fedbench: Call) -> None:
    """From its own directory and from one above; the trials where they are asked for."""
    for place in ("t", "."):
        out = fedbench.done("best", place)
        assert rows(out)[1] == ["fedavg", "0.7500", "+-", "0.0707", "2"]
        assert "the winner of a tuning each)" in out
    assert "0.2" in rows(fedbench("best", "t/trials", "--metric", "final_accuracy")[1])[1]
    its = "this one is a tuning's, which has t/trials or t/final\n"
    assert fedbench.refused("collect", "t").endswith(its)
    assert plot_command(["t", "--out", "figure"]) == 0
    caption = json.loads(Path("figure.json").read_text())
    assert [line["n"] for line in caption["series"]] == [2]
    assert ", 0.1 of the training samples held out. " in caption["text"][0]


def test_what_a_tuning_has_searched_is_no_task(fedbench: Call) -> None:
    """The width of a network, which sets tasks apart elsewhere."""
    for run, width, value in (("a", 8, 0.5), ("b", 16, 0.75)):
        write(f"t/trials/{run}", value, model__width=width)
    assert len(rows(fedbench("best", "t/trials")[1])) == 1 + 2
    Path("t/tune.json").write_text(json.dumps({"searched": ["model.width"]}))
    assert rows(fedbench("best", "t/trials")[1])[1:] == [["fedavg", "16", "0.7500", "1"]]


def test_a_tuning_without_winners_says_where_its_search_is(fedbench: Call) -> None:
    write("t/trials/a", 0.5)
    Path("t/tune.json").write_text("{}")
    for command in ("best", "plot"):
        code, _, err = fedbench(command, "t")
        assert (code, err) == (2, "fedbench: t: no winner has run yet; the search is in t/trials\n")


def test_a_report_of_a_tuning_names_the_winners(tuned: None, fedbench: Call) -> None:
    """Their runs and no trial; where the trials are."""
    pytest.importorskip("plotly", reason="plotly is not installed (the extra `report` has it)")
    assert fedbench("report", "t")[0] == 0
    page = Path("t/report.html").read_text()
    table = page[page.index('id="settings"') :].partition("</table>")[0]
    assert "0.7500" in table
    assert "0.99" not in table
    assert "t: the winners of a search" in page
    assert "fedbench report t/trials" in page


def test_a_class_has_its_title_in_tables_and_legends(fedbench: Call) -> None:
    """Of a user's method, whose class no table or picture loads."""
    Path("mine.py").write_text(own_method("mine_v2", 'title = "My Method"'))
    words = ["rounds=1", "clients.total=4", "clients.per_round=2", "local.steps=1", "progress=none"]
    assert fedbench("imports=[mine.py]", "algorithm=mine_v2", *words, "hydra.run.dir=d/a")[0] == 0
    assert json.loads(Path("d/a/summary.json").read_text())["title"] == "My Method"
    assert "My Method & " in fedbench("best", "d", "--format", "latex")[1]
    assert plot_command(["d", "--out", "figure"]) == 0
    assert [line["label"] for line in json.loads(Path("figure.json").read_text())["series"]] == ["My Method"]
    shutil.copytree("d", "other")
    summary = Path("other/a/summary.json")
    summary.write_text(summary.read_text().replace("My Method", "Another"))
    mine, others = read(["d"]), read(["other"])
    assert [group(runs)[0].label for runs in (mine, others)] == ["My Method", "Another"]
