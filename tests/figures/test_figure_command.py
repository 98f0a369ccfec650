"""`fedbench plot`: what it writes, what it refuses, and that it needs no torch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from make_results import comparison, exact, rows, write_run

from fedbench.errors import UserError
from fedbench.figures.plot import main


def test_options_reach_the_figure(tmp_path: Path) -> None:
    """The last part of a key is enough where it is one key's; a name may have a dot."""
    for lr in (0.1, 1.0):
        config = {"algorithm.lr": lr, "dataset.path": "a", "init.path": "b"}
        write_run(tmp_path / str(lr), rows(0.8, 1.0, 0), config=config)
    out, table = tmp_path / "out" / "lr_0.1", tmp_path / "out" / "lr_0.1.csv"
    assert main([str(tmp_path), "--x", "lr", "--width", "two", "--no-caption", "--out", str(out)]) == 0
    assert table.read_text().count("\n") == 3
    assert "algorithm.lr" in table.read_text().splitlines()[0]
    words = [str(tmp_path), "--x", "updates", "--where", "algorithm.lr=1", "--out", f"{out}.PNG"]
    assert main(words) == 0
    assert "round" in table.read_text().splitlines()[0]
    with pytest.raises(UserError, match=r"x=path: may be dataset.path or init.path"):
        main([str(tmp_path), "--x", "path", "--out", str(out)])


def test_of_several_directories_the_first_takes_the_figure_and_that_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By default accuracy against rounds, as five files."""
    one, two = (comparison(tmp_path / name, ["fedavg"], seeds=1) for name in "ab")
    assert main([str(one), str(two)]) == 0
    shown = capsys.readouterr()
    files = [one / f"test_accuracy_vs_round.{end}" for end in ("png", "pdf", "csv", "json", "md")]
    assert shown.out.split() == list(map(str, files))
    assert shown.err == f"written to {one}, the first of 2 directories; see --out\n"
    assert main([str(one), str(two), "--out", str(tmp_path / "f")]) == 0
    assert capsys.readouterr().err == ""


def test_keys_may_be_their_last_part_alone(tmp_path: Path) -> None:
    for rate in (0.1, 0.5):
        more = {"algorithm.lr": rate, "algorithm.beta": 0.9}
        write_run(tmp_path / f"s/{rate}", exact([0.1, rate]), config=more)
    made = []
    for by, where, lines in (("algorithm.lr", "algorithm.beta", "algorithm.beta"), ("lr", "beta", "beta")):
        words = ["--by", by, "--where", f"{where}=0.9", "--rows", lines, "--out", str(tmp_path / "f")]
        assert main([str(tmp_path / "s"), *words]) == 0
        made.append((tmp_path / "f.csv").read_text() + (tmp_path / "f.json").read_text())
    assert made[0] == made[1]
    assert "algorithm.lr" in made[0]


@pytest.mark.parametrize("content", ["", "round,test_accuracy\n5\n"])
def test_a_metrics_file_without_rows_is_named_and_not_its_column(tmp_path: Path, content: str) -> None:
    write_run(tmp_path / "run", rows(0.8, 1.0, 0))
    (tmp_path / "run" / "metrics.csv").write_text(content)
    with pytest.raises(UserError, match=r"run: its metrics.csv has no whole row$"):
        main([str(tmp_path / "run")])


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("", "plot: at least one directory is needed"),
        ("nowhere", "nowhere: no such directory"),
        ("--partition nowhere", "nowhere: not a run directory"),
        ("--trace nowhere", "nowhere: no jobs.csv here (trace=true writes it)"),
        ("S --partition S", "--partition and --trace take one directory"),
        ("S --y accuracy", "y=accuracy: must be a column of metrics.csv: "),
        ("S --y train_loss", "y=train_loss: this column is empty in all runs; eval.train=true writes it"),
        ("S --x algorithm.lrr", "x=algorithm.lrr: must be a column of metrics.csv or a choice of these runs"),
        ("S --x partition", "x=partition, y=final_accuracy: no run has numbers of both"),
        ("S --x algorithm.lr --y nothing", "y=nothing: must be one of final_accuracy, "),
        ("S --by algoritm", "by=algoritm: must be a choice of these runs, such as algorithm (did you mean"),
        ("S --where algorithm", "plot: --where algorithm: must be KEY=VALUE"),
        ("S --where algorithm=x", "where algorithm=x: no run has it; there are fedavg"),
        ("S --width three", "plot: argument --width: invalid choice: 'three'"),
        ("S --spread sd", "plot: argument --spread: invalid choice: 'sd'"),
        ("S --out S/metrics.png", "metrics is a file of a run or a sweep"),
        ("S --out S", "must be a file name, such as accuracy.png"),
        ("S --out S/a.svg", "must end in .png or .pdf, or in neither"),
    ],
)
def test_bad_input_is_one_line_with_exit_code_2_and_writes_nothing(
    tmp_path: Path, words: str, says: str
) -> None:
    write_run(tmp_path / "s", exact([0.1, 0.5]), config={"algorithm.lr": 0.1})
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(UserError) as caught:
        main([word.replace("S", str(tmp_path / "s")) for word in words.split()])
    assert caught.value.exit_code == 2
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.slow  # another process
def test_plots_need_no_torch(tmp_path: Path) -> None:
    sweep = comparison(tmp_path, ["fedavg"], seeds=1)
    code = (
        "import sys; from fedbench.figures.plot import main; main(sys.argv[1:]); "
        "assert not {'torch', 'matplotlib.pyplot'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code, str(sweep)], check=True, capture_output=True)
