"""Words, files of options and files of runs that make no sense: refused in one line that names them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

Call = Callable[..., tuple[int, str, str]]
CAN = "cannot be set; of Hydra's keys these can: "
SMALL = ("rounds=2", "clients.total=4", "clients.per_round=2", "local.steps=1", "progress=none", "threads=1")


@pytest.mark.parametrize(
    ("word", "line"),
    [
        ("local=null", "local=null: is a section; write local.KEY=VALUE"),
        ("eval=null", "eval=null: is a section; write eval.KEY=VALUE"),
        ("~seed", "~seed: a key cannot be taken away; seed=VALUE sets it"),
        ("~local", "~local: a key cannot be taken away; local=VALUE sets it"),
        ("~local.steps", "~local.steps: a key cannot be taken away; local.steps=VALUE sets it"),
        ("~algorithm.lr", "~algorithm.lr: a key cannot be taken away; algorithm.lr=VALUE sets it"),
        ("+hydra.run.dri=x", f"hydra.run.dri=x: {CAN}hydra.run.dir (did you mean 'hydra.run.dir'?)"),
        ("++hydra.sweep.subdri=x", f"hydra.sweep.subdri=x: {CAN}hydra.sweep.dir, hydra.sweep.subdir (did"),
        ("+hydra.foo=1", f"hydra.foo=1: {CAN}hydra.mode, hydra.searchpath, hydra.verbose, hydra.launcher, "),
        ("+hydra.job.chdri=true", f"hydra.job.chdri=true: {CAN}hydra.job.chdir (did you mean 'hydra.job.chd"),
        ("+hydra.job.env_set.A=b", f"hydra.job.env_set.A=b: {CAN}hydra.run.dir, hydra.sweep.dir, "),
        ("+hydra.callbacks.a.b=c", f"hydra.callbacks.a.b=c: {CAN}hydra.run.dir, hydra.sweep.dir, "),
        ("hydra.output_subdir=null", f"hydra.output_subdir=null: {CAN}hydra.mode, "),
        ("hydra.job_logging.root.level=DEBUG1", f"hydra.job_logging.root.level=DEBUG1: {CAN}hydra.run.dir, "),
    ],
)
@pytest.mark.parametrize("more", [(), ("-m", "algorithm=fedavg,fedprox")], ids=["run", "sweep"])
def test_a_word_without_a_meaning(
    runs: object, fedbench: Call, tmp_path: Path, word: str, line: str, more: tuple[str, ...]
) -> None:
    code, out, err = fedbench(*more, "rounds=3", word)
    assert (code, out) == (2, "")
    assert err.startswith(f"fedbench: {line}")
    assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "word", ["++hydra.run.dir=here", "~logger", "hydra.verbose=true", "hydra/job_logging=stdout"]
)
def test_what_can_be_set_is_taken(runs: object, fedbench: Call, word: str) -> None:
    assert fedbench("rounds=3", word)[0] == 0


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("local: 3", "local=3: is a section; write local.KEY=VALUE (in experiment/mine.yaml)"),
        ("local:", "local=null: is a section; write local.KEY=VALUE"),
        ("imports: 5", "imports=5: must be a list such as [a, b]"),
        ("seed: {a: 1}", "seed.a=1: no such key"),
        ("eval: text", "eval=text: is a section"),
        ("hydra: {run: {dri: x}}", "hydra.run.dri="),
    ],
)
def test_a_file_of_an_experiment_with_a_wrong_type(
    runs: object, fedbench: Call, tmp_path: Path, text: str, line: str
) -> None:
    (tmp_path / "c" / "experiment").mkdir(parents=True)
    (tmp_path / "c" / "experiment" / "mine.yaml").write_text(f"# @package _global_\n{text}\n")
    code, _, err = fedbench("--config-dir", "c", "experiment=mine")
    assert (code, err.count("\n")) == (2, 1)
    assert err.startswith(f"fedbench: {line}")
    assert not (tmp_path / "outputs").exists()


DAMAGE = {
    "header": ("round", "rund", "no column round"),
    "round": ("\n1,", "\nabc,", "column 'round': invalid literal for int() with base 10: 'abc'"),
    "number": ("\n0,0.0,", "\n0,x,", "column 'virtual_time': could not convert string to float: 'x'"),
}


def test_a_damaged_table_of_a_run_is_named(
    fedbench: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By every command that reads it; and one row less is another run to `replay`."""
    monkeypatch.chdir(tmp_path)
    assert fedbench(*SMALL, "-m", "seed=0,1", "hydra.sweep.dir=s", "hydra/launcher=basic")[0] == 0
    file = next(Path("s").glob("*seed_1*/metrics.csv"))
    whole = file.read_text()
    for was, now, line in DAMAGE.values():
        assert was in whole
        file.write_text(whole.replace(was, now, 1))
        for command in (["collect", "s"], ["plot", str(file.parent)], ["replay", str(file.parent)]):
            for table in ("runs.csv", "rounds.csv"):
                Path("s", table).unlink(missing_ok=True)
            code, _, err = fedbench(*command)
            assert code in (1, 2), command
            assert f"{file}: {line}" in err.splitlines()[-1], (command, err)
    file.write_text("\n".join(whole.splitlines()[:-1]) + "\n")
    code, out, _ = fedbench("replay", str(file.parent))
    assert code == 1
    assert "metrics.csv had 2 rows, has 3" in out
