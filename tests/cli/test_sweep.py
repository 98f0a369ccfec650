"""Sweeps through the command line, over runs that cost nothing."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from hydra.core.hydra_config import HydraConfig
from hydra.core.plugins import Plugins
from hydra.core.utils import run_job
from omegaconf import OmegaConf
from run_files import Call, read

from fedbench.config.compose import composing
from fedbench.errors import RunError
from fedbench.sweeps.job import prepared


def only_sweep(root: Path) -> Path:
    (table,) = root.glob("outputs/sweeps/*/*/runs.csv")
    return table.parent


IDENTITY = ["dir", "dataset", "partition", "model", "algorithm", "schedule", "seed"]
OUTCOME = ["status", "final_accuracy", "best_accuracy", "error", "commit"]
OUTCOME += [f"rounds_to_{level}" for level in ("0.5", "0.6", "0.7", "0.8", "0.9", "0.95", "0.99")]


def test_a_sweep_leaves_two_tidy_tables_and_is_done_once(runs, fedbench: Call, tmp_path: Path) -> None:
    command = [
        "--multirun",
        "algorithm=fedavg,scaffold",
        "algorithm.lr=0.1,1e-3",
        "seed=range(2)",
        "rounds=7",
    ]
    out = fedbench.done(*command)
    assert "8 runs, in outputs/sweeps/" in out
    assert "another process" not in out
    directory = only_sweep(tmp_path)
    rows = read(directory / "runs.csv")
    assert list(rows[0]) == [*IDENTITY, "algorithm.lr", *OUTCOME]
    grid = [(a, lr, s) for a in ("fedavg", "scaffold") for lr in ("0.1", "0.001") for s in ("0", "1")]
    assert [(row["algorithm"], row["algorithm.lr"], row["seed"]) for row in rows] == grid
    assert all(row["status"] == "completed" and row["error"] == "" for row in rows)
    assert {row["seed"]: row["final_accuracy"] for row in rows} == {"0": "0.5", "1": "0.51"}
    assert all((directory / row["dir"] / "metrics.csv").is_file() for row in rows)
    rounds = read(directory / "rounds.csv")
    assert list(rounds[0]) == [*IDENTITY, "algorithm.lr", "round", "test_accuracy"]
    assert len(rounds) == 16
    assert len(runs.planned) == 4 + 8  # one of each kind is checked first
    assert [config.seed for config in runs.planned[:4]] == [0] * 4
    before = {file: file.read_bytes() for file in directory.glob("r*s.csv")}
    out = fedbench.done(*reversed(command[1:]), "--multirun", "engine=loop")
    assert "8 of them finished before" in out
    assert len(runs.done) == 8
    assert len(runs.planned) == 4 + 8  # what has finished needs no check
    assert only_sweep(tmp_path) == directory
    assert fedbench.done("collect", str(directory)) == f"{directory}/runs.csv\n{directory}/rounds.csv\n"
    assert before == {file: file.read_bytes() for file in directory.glob("r*s.csv")}


def test_a_launcher_that_gives_up_is_one_line(runs, fedbench: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """As submitit's for SLURM does on a machine without it."""

    def give_up(*_: object, **__: object) -> None:
        raise RuntimeError('Could not detect "srun",\nare you indeed on a cluster?')

    basic = "hydra._internal.core_plugins.basic_launcher.BasicLauncher"
    monkeypatch.setattr(Plugins.instance().class_name_to_class[basic], "launch", give_up)
    code, _, err = fedbench("--multirun", "seed=0,1", "hydra/launcher=basic", "hydra.sweep.dir=there")
    assert (code, err.count("\n")) == (1, 1)
    says = 'hydra/launcher=basic: Could not detect "srun",; are you indeed on a cluster?'
    assert f"2 of 2 runs failed: {says} (see there/runs.csv)" in err


def test_runs_that_another_process_has_are_waited_for(runs, fedbench: Call, tmp_path: Path) -> None:
    """One is ended there, one left unfinished and one failed there, which are run here; in a directory of the
    user's too."""
    for place in ("hydra.sweep.dir=ours", "hydra.sweep.subdir=job${hydra.job.num}"):
        runs.done.clear()
        runs.held = [16, 17, 18]
        out = fedbench.done("--multirun", "seed=1,16,17,18,2", place)
        assert "waiting for another process that computes " in out
        assert [cfg.seed for cfg in runs.done] == [1, 16, 17, 18, 2, 17, 18]
        (table,) = tmp_path.glob("ours/runs.csv" if "ours" in place else "outputs/sweeps/*/*/runs.csv")
        assert [(row["seed"], row["status"]) for row in read(table)] == [
            (seed, "completed") for seed in ("1", "16", "17", "18", "2")
        ]
    assert sorted(path.name for path in table.parent.glob("job*")) == [f"job{n}" for n in range(5)]


@pytest.mark.parametrize("launcher", ["basic", "processes"])
def test_what_another_process_has_ended_meanwhile_is_not_visited(
    launcher: str, runs, fedbench: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends seed 2 while seed 1 is computed here."""
    assert fedbench("-m", "seed=1,2,3", "hydra.sweep.dir=other")[0] == 0
    (ended,) = Path("other").glob("seed_2*")
    runs.done.clear()
    go = type(runs).go

    def beside(self, config, directory: Path):
        if config.seed == 1:
            shutil.copytree(ended, directory.parent / ended.name)
        return go(self, config, directory)

    monkeypatch.setattr(type(runs), "go", beside)
    code, _, _ = fedbench("-m", "seed=1,2,3", "hydra.sweep.dir=ours", f"hydra/launcher={launcher}")
    assert (code, [cfg.seed for cfg in runs.done]) == (0, [1, 3])
    assert [row["status"] for row in read(Path("ours/runs.csv"))] == ["completed"] * 3


def test_failures_and_divergence_are_rows_and_stop_nothing(runs, fedbench: Call, tmp_path: Path) -> None:
    command = ("--multirun", "seed=0,13,14,1")
    code, out, err = fedbench(*command)
    assert code == 1
    assert err.count("\n") == 1
    assert "1 of 4 runs failed: the disk is full (see outputs/sweeps/" in err
    directory = only_sweep(tmp_path)
    rows = {row["seed"]: row for row in read(directory / "runs.csv")}
    assert [row["status"] for row in rows.values()] == ["completed", "failed", "diverged", "completed"]
    assert rows["13"]["error"] == "the disk is full"
    assert rows["13"]["final_accuracy"] == rows["14"]["final_accuracy"] == ""
    assert "RunError" in (directory / rows["13"]["dir"] / "run.log").read_text()
    assert "fedavg" in out
    assert "1 failed, 1 diverged" in out
    assert fedbench(*command)[0] == 1
    assert [cfg.seed for cfg in runs.done] == [0, 13, 14, 1, 13]


@pytest.mark.parametrize("launcher", ["processes", "basic"])
def test_resume_false_computes_every_run_once_and_a_failure_takes_no_result_away(
    launcher: str, runs, fedbench: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sweep says what failed and ends with 1; the run that was there is still finished."""
    command = ("-m", "seed=0,1", f"hydra/launcher={launcher}")
    assert fedbench(*command)[0] == 0
    assert fedbench(*command, "resume=false")[0] == 0
    assert [config.seed for config in runs.done] == [0, 1, 0, 1]
    go = type(runs).go

    def fails(self, config, directory: Path):
        if config.seed == 1:
            raise RunError("the disk is full")
        return go(self, config, directory)

    with monkeypatch.context() as patch:
        patch.setattr(type(runs), "go", fails)
        code, out, err = fedbench(*command, "resume=false")
    assert code == 1
    assert "1 of 2 runs failed: the disk is full" in err
    assert re.search("seed1-[0-9a-f]+: failed: the disk is full", out)
    assert [row["status"] for row in read(only_sweep(tmp_path) / "runs.csv")] == ["completed"] * 2
    runs.done.clear()
    assert fedbench(*command)[0] == 0
    assert runs.done == []


def test_a_stopped_sweep_keeps_its_tables_and_goes_on(
    runs, fedbench: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, _, err = fedbench("--multirun", "seed=0,15,1")
    assert code == 130
    line = "fedbench: stopped; the same command goes on with what is missing in outputs/sweeps/"
    assert (err.startswith(line), err.count("\n")) == (True, 1)
    directory = only_sweep(tmp_path)
    rows = read(directory / "runs.csv")  # those that have not ended too, with what was planned of them
    assert {row["seed"]: row["status"] for row in rows} == {"0": "completed", "15": "stopped", "1": "missing"}
    assert {row["seed"] for row in read(directory / "rounds.csv")} == {"0"}
    monkeypatch.setattr(runs, "stops", False)
    assert fedbench("--multirun", "seed=0,15,1")[0] == 0
    assert [row["seed"] for row in read(directory / "runs.csv")] == ["0", "15", "1"]
    assert [cfg.seed for cfg in runs.done] == [0, 15, 15, 1]


def test_keys_that_are_no_part_of_a_run_make_runs_in_a_directory_of_their_own(
    runs, fedbench: Call, tmp_path: Path
) -> None:
    """In the place of all runs they would be one run, which is said."""
    for words in (["engine=loop,vmap"], ["checkpoint.seconds=1,2", "seed=0,1"]):
        line = f"{words[0]}: runs that differ in it alone are the same run; hydra.sweep.dir=DIR"
        assert line in fedbench.refused("--multirun", *words)
    assert (runs.done, Path("outputs").exists()) == ([], False)
    assert fedbench("--multirun", "engine=loop,vmap", "hydra.sweep.dir=ours")[0] == 0
    rows = read(tmp_path / "ours" / "runs.csv")
    assert [row["engine"] for row in rows] == ["loop", "vmap"]
    assert len(runs.done) == 2


def test_ways_to_say_a_sweep(runs, fedbench: Call, tmp_path: Path) -> None:
    (tmp_path / "mine" / "experiment").mkdir(parents=True)
    (tmp_path / "mine" / "experiment" / "grid.yaml").write_text(
        "# @package _global_\nhydra:\n  mode: MULTIRUN\n"
        "  sweeper:\n    params:\n      seed: 4,5\n      rounds: 3\n"
    )
    cases = {
        ("-m", "seed=range(4,6)", "rounds=3"): [(4, 3), (5, 3)],
        ("-m", "hydra.sweeper.params={seed:'4,5'}", "rounds=3"): [(4, 3), (5, 3)],
        ("-cd", "mine", "experiment=grid"): [(4, 3), (5, 3)],
        ("-cd", "mine", "experiment=grid", "seed=6"): [(6, 3)],
        ("hydra.mode=MULTIRUN", "seed=4,5", "rounds=3"): [(4, 3), (5, 3)],
        ("-m", "seed=4,4", "rounds=3"): [(4, 3)],
    }
    for index, (command, expected) in enumerate(cases.items()):
        runs.done.clear()
        fedbench.done(*command, f"hydra.sweep.dir=s {index}")
        assert [(cfg.seed, cfg.rounds) for cfg in runs.done] == expected
    runs.done.clear()
    assert fedbench("-m", "partition=glob(*law*, exclude=[iid,file])", "partition.seed=3")[0] == 0
    assert [cfg.partition.name for cfg in runs.done] == ["powerlaw"]


def test_places_that_the_user_chooses(runs, fedbench: Call, tmp_path: Path) -> None:
    """A run is computed there, though it has been elsewhere."""
    assert fedbench("seed=1")[0] == 0
    given = ("-m", "seed=1,2", "hydra.sweep.dir=here", "hydra.sweep.subdir=${hydra.job.num}")
    assert fedbench(*given)[0] == 0
    assert [cfg.seed for cfg in runs.done] == [1, 1, 2]
    assert [row["dir"] for row in read(tmp_path / "here" / "runs.csv")] == ["0", "1"]
    for words in (["seed=3", "rounds=3,4"], ["seed=3,5", "rounds=3"]):
        assert fedbench("-m", *words, "hydra.sweep.dir=there")[0] == 0
    rows = read(tmp_path / "there" / "runs.csv")
    assert [(row["seed"], row["rounds"]) for row in rows] == [("3", "3"), ("3", "4"), ("5", "3")]


def test_a_single_run_is_reported_once_it_is_there(runs, fedbench: Call, tmp_path: Path) -> None:
    evaluated = "round  test accuracy\n0      0.1000\n1      0.2000\n"
    assert fedbench("seed=2", "rounds=3") == (0, evaluated, "")
    out = fedbench.done("seed=2", "rounds=3", "engine=loop")
    assert "final accuracy 0.5200" in out
    assert len(runs.done) == 1
    assert fedbench("seed=2", "rounds=3", "resume=false")[0] == 0
    assert len(runs.done) == 2
    (file,) = tmp_path.glob("outputs/*/*/.hydra/overrides.yaml")
    assert (file.parents[1] / "run.log").is_file()
    assert fedbench("seed=2", "rounds=4")[0] == 0
    assert len(list(tmp_path.glob("outputs/*/*/metrics.csv"))) == 2


def test_another_run_in_a_given_directory_is_refused(runs, fedbench: Call, tmp_path: Path) -> None:
    assert fedbench("hydra.run.dir=a b/c", "rounds=3")[0] == 0
    before = sorted((file, file.stat().st_mtime_ns) for file in tmp_path.rglob("*"))
    line = "fedbench: rounds=2: a b/c holds a run with rounds=3; give another directory, or that value\n"
    assert fedbench.refused("hydra.run.dir=a b/c", "rounds=2") == line
    other = fedbench.refused("hydra.run.dir=a b/c", "dtype=float64", "algorithm=scaffold")
    assert other.startswith("fedbench: algorithm=scaffold: a b/c holds a run with algorithm=fedavg")
    assert before == sorted((file, file.stat().st_mtime_ns) for file in tmp_path.rglob("*"))
    assert fedbench("hydra.run.dir=a b/c", "rounds=3", "engine=loop")[0] == 0
    assert len(runs.done) == 1
    assert fedbench("seed=13")[::2] == (1, "fedbench: the disk is full\n")
    assert fedbench("seed=15")[::2] == (130, "fedbench: interrupted\n")


def test_the_tables_of_a_sweep_that_was_moved_away_from_its_runs_stay(
    runs, fedbench: Call, tmp_path: Path
) -> None:
    assert fedbench("--multirun", "seed=0,1")[0] == 0
    moved = only_sweep(tmp_path).rename(tmp_path / "moved")
    before = contents(moved)
    assert "moved: none of its runs is where its list says" in fedbench.refused("collect", "moved")
    assert contents(moved) == before


def test_ctrl_c_is_an_interruption_though_what_it_leaves_half_done_fails(fedbench: Call) -> None:
    """OmegaConf, interrupted in a list that it fills, raises an AttributeError on its way out."""
    Path("half.py").write_text("try:\n    raise KeyboardInterrupt\nfinally:\n    None.missing\n")
    assert fedbench("imports=[half.py]")[::2] == (130, "fedbench: interrupted\n")


def contents(place: Path) -> dict[Path, bytes]:
    """Every file below a directory, with what it holds."""
    return {file: file.read_bytes() for file in place.rglob("*") if file.is_file()}


@pytest.mark.parametrize("more", [[], ["--dry-run"], ["resume=false"], ["hydra/launcher=basic"]])
def test_a_sweep_in_the_directories_of_other_runs_is_refused(runs, fedbench: Call, more: list[str]) -> None:
    """Nothing is started or touched; a new seed beside them neither."""
    words = ("-m", "hydra.sweep.dir=there", "hydra.sweep.subdir=s${seed}")
    assert fedbench(*words, "algorithm=fedavg", "seed=0,1")[0] == 0
    before = contents(Path("there"))
    line = fedbench.refused(*words, "algorithm=scaffold", "seed=2,0,1", *more)
    why = "there/s0 holds a run with algorithm=fedavg; give another directory, or that value"
    assert line == f"fedbench: algorithm=scaffold: {why}\n"
    assert contents(Path("there")) == before
    assert len(runs.done) == 2


def test_a_failure_is_not_written_over_another_run(
    runs, fedbench: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process has computed it in the directory after the sweep has begun."""
    assert fedbench("algorithm=scaffold", "hydra.run.dir=other")[0] == 0
    before = Path("other/summary.json").read_bytes()

    def beside(self, config, directory: Path):
        shutil.copytree("other", directory, dirs_exist_ok=True)
        raise RunError("the disk is full")

    monkeypatch.setattr(type(runs), "go", beside)
    line = fedbench("-m", "seed=0", "hydra.sweep.dir=there", "hydra.sweep.subdir=s${seed}")[2]
    assert "algorithm=fedavg: there/s0 holds a run with algorithm=scaffold" in line
    assert Path("there/s0/summary.json").read_bytes() == before


def test_the_files_of_hydra_are_those_that_hydra_writes(tmp_path: Path) -> None:
    """With texts and lists of all kinds."""
    words = ["dataset=npz", "dataset.path='a: b #c'", "model=mlp", "model.hidden=[3,4]", "target=1e-5"]
    written = []
    with composing() as composer:
        cfg = composer.read([*words, "hydra.run.dir=a b"]).cfg
        key = {"job_dir_key": "hydra.run.dir", "job_subdir_key": None}
        run_job(lambda _: None, cfg, hydra_context=composer.context(), **key)
        written.append({file.name: OmegaConf.load(file) for file in Path("a b/.hydra").iterdir()})
        shutil.rmtree("a b")
        with prepared(cfg, Path("a b")):
            assert HydraConfig.get().runtime.output_dir == str(tmp_path / "a b")
        written.append({file.name: OmegaConf.load(file) for file in Path("a b/.hydra").iterdir()})
    assert written[0].keys() == {"config.yaml", "hydra.yaml", "overrides.yaml"}
    assert written[0] == written[1]


def test_what_cannot_be_written_is_one_line(runs, fedbench: Call, tmp_path: Path) -> None:
    """A file where a directory should be, and a full disk."""
    (tmp_path / "file").write_text("")
    for place in ("here", "there/0"):
        Path(place, ".hydra").mkdir(parents=True)
        Path(place, ".hydra", "hydra.yaml").symlink_to("/dev/full")
    for words, place, why in (
        ("hydra.run.dir=file/x", "file/x", "Not a directory"),
        ("-m seed=1,2 hydra.sweep.dir=file/x", "file/x", "Not a directory"),
        ("hydra.run.dir=here", "here", "No space left on device"),
        ("-m hydra.sweep.dir=there hydra.sweep.subdir=${hydra.job.num}", "there", "No space left on device"),
    ):
        assert fedbench(*words.split())[::2] == (1, f"fedbench: cannot write {place}: {why}\n")


@pytest.mark.parametrize(("preset", "least"), [("all_sync", 33), ("all_async", 13)])
def test_the_presets_of_all_methods_weight_clients_alike(
    runs, fedbench: Call, preset: str, least: int
) -> None:
    """Methods whose default is another weighting stand beside some that have no choice."""
    assert fedbench(f"experiment={preset}", "seed=0")[0] == 0
    assert len(runs.done) >= least
    assert {cfg.algorithm.get("weighting", "uniform") for cfg in runs.done} == {"uniform"}
