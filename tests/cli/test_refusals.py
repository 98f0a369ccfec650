"""Bad input on the command line: one line on stderr, exit code 2, nothing left behind, nothing executed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from run_files import Call

from fedbench.cli import main

KEYS = "`fedbench --help` shows all keys"
CAN = "cannot be set; of Hydra's keys these can: "
ONE = "one option; for a sweep: -m "
POOL = "--multirun seed=0,1 hydra/launcher=processes hydra.launcher.devices="

BAD = [
    ("model=foo", "or your own, which imports=[FILE.py] registers"),
    ("algorithm=fedagv", "(did you mean 'fedavg', "),
    ("experiment=peers/nid_fmnist", "`fedbench list experiments` shows (did you mean 'peers/niid_fmnist',"),
    ("experiment=adamasfl", "is a directory; must be one of adamasfl/fig1, adamasfl/fig1_average, ada"),
    ("experiment=settings", "(did you mean 'padamfed/settings'?)"),
    ("scale=smoke", "scale=smoke: is of use with experiment=NAME only"),
    ("-m scale=smoke,cpu seed=0,1", "scale=smoke: is of use with experiment=NAME only"),
    ("dataset@=digits", "dataset@=digits: no such key; an option is chosen as GROUP=NAME"),
    ("hydra/launcher=joblb", "hydra/launcher=joblb: must be one of basic"),
    ("algorithm.lrr=1", "algorithm=fedavg has lr, server_lr, weighting (did you mean 'algorithm.lr'?)"),
    ("sede=1", f"sede=1: no such key; {KEYS}"),
    ("lr=1", "(did you mean 'algorithm.lr'?)"),
    ("eval.lr=1", "(did you mean 'algorithm.lr'?)"),
    ("model/foo=bar", "model/foo=bar: no such key"),
    ("rounds=abc", "rounds=abc: must be an integer >= 0"),
    ("clients=5", "clients=5: is a section; write clients.KEY=VALUE"),
    ("engine=compile engine.chunk=1", "engine.chunk=1: no such key; "),
    ("local.steps.k=3", "local.steps={...}: must be an integer >= 1"),
    ("algorithm=null", "algorithm=null: must be the name of an option: the "),
    ("model=null", "model=null: must be the name of an option: char_lstm, cnn, "),
    ("algoritm=fedavg", "(did you mean 'algorithm'?)"),
    ("hlep", ", figures, help, list, plot, "),
    ("~algorithm", "one option must be chosen: "),
    ("seed=0,1", "several values need --multirun"),
    ("rounds=3 algorithm.lr", "algorithm.lr: must be written key=value"),
    ("rounds=(", "rounds=(: cannot be read"),
    ("rounds=${rounds}", "rounds=${rounds}: cannot be resolved: Recursive"),
    ("clients.per_round=30", "clients.per_round=30: must be at most clients.total=20"),
    ("--mutirun", "did you mean --multirun?"),
    ("--cfg", "argument --cfg/-c: expected one argument"),
    ("--multirun --cfg job", "only one of --run, --multirun"),
    ("--config-dir nowhere", "there is no such directory"),
    ("--config-name nope", "nope"),
    ("--experimental-rerun x.pickle", "unrecognized arguments: --experimental-rerun (--hydra-help"),
    ("rounds", ", or key=value"),
    ("colect x", "(did you mean 'collect'?)"),
    ("collect nowhere", "SWEEP_DIR=nowhere: must be the directory of a sweep"),
    ("list algoritms", "algoritms"),
    ("figures", "--all"),
    ("figures padamfed/fig3", "padamfed/fig"),
    ("figures padamfed/fig1 rounds=-3", "rounds=-3"),
    ("figures padamfed/fig1 --scale huge", "huge"),
    ("--multirun seed=range(0,0)", "nothing to run"),
    ("--multirun hydra.run.dir=a,b", "Sweeping over Hydra's configuration is not supported"),
    ("--multirun seed=0,1 hydra.run.dir=a",
     "hydra.run.dir=a: is a single run's, and this is a sweep: hydra.sweep.dir=DIR says where it lies"),
    ("experiment=quickstart hydra.run.dir=a", "hydra.run.dir=a: is a single run's, and this is a sweep"),
    ("hydra.run.dir=", "hydra.run.dir=: must be a directory"),
    ("-m seed=0,1 hydra.sweep.dir=", "hydra.sweep.dir=: must be a directory"),
    ("hydra.sweep.dir=a",
     "hydra.sweep.dir=a: is a sweep's, and this is a single run: hydra.run.dir=DIR says where it lies"),
    ("hydra.sweep.subdir=a --dry-run", "hydra.sweep.subdir=a: is a sweep's, and this is a single run"),
    ("seed=0,1 hydra.sweep.dir=a", "several values need --multirun"),
    ("--multirun seed=0,1 clients.per_round=2,300",
     "clients.total=20 (in the run seed=0 clients.per_round=300; none of the 4 was started)"),
    ("--multirun algorithm=glob(*) algorithm.lrr=1,2", "algorithm.lrr=1: no such key; "),
    ("local.steps=5 local.epochs=2", "local.steps=5: only one of local.steps and local.epochs can be given"),
    ("dtype=float16", "must be one of float32, float64: a model kept in 16 bits"),
    ("engine=vmapp", "(did you mean 'vmap'?)"),
    ("imports=[[a]]", "imports=[[a]]: must be a list such as [a, b], each the name of a module"),
    ("imports=[no_such_module]", "imports=no_such_module: must be a module importable from here, or a pat"),
    ("rounds=${nowhere}", "'nowhere' not found"),
    ("seed=${oc.env:FEDBENCH_NO_SUCH}", "FEDBENCH_NO_SUCH"),
    ("eval.train=${oc.env:HOME}", ": must be true or false"),
    ("local.step=3",
     "local has steps, epochs, epochs_range, batch_size, batch_share, clip_norm, sampler (did"),
    ("partition.alpha=3", "partition=iid has seed (alpha belongs to partition=dirichlet"),
    # sections and keys that cannot be taken away
    ("-m seed=0,1 eval=null", "eval=null: is a section; write eval.KEY=VALUE"),
    ("~seed", "~seed: a key cannot be taken away; seed=VALUE sets it"),
    # keys of Hydra's
    ("+hydra.run.dri=x", f"hydra.run.dri=x: {CAN}hydra.run.dir (did you mean 'hydra.run.dir'?)"),
    ("+hydra.foo=1", f"hydra.foo=1: {CAN}hydra.mode, hydra.searchpath, hydra.verbose, hydra.launcher, "),
    ("hydra.job_logging.root.level=DEBUG", f"hydra.job_logging.root.level=DEBUG: {CAN}hydra.run.dir, "),
    ("hydra.sweep.subdri=x", "did you mean 'hydra.sweep.subdir'?"),
    ("-m seed=0,1 hydra.sweeper.max_batch_size=1", "max_batch_size=1: no such key; hydra.sweeper has "),
    ("-m hydra.sweep.subdir=same seed=0,1", "hydra.sweep.subdir=same: must be another directory"),
    ("hydra.searchpath=[nowhere]", "hydra.searchpath=nowhere: must be existing directories"),
    # odd words
    ("rounds=1 =3", "=3: must be written key=value"),
    (f"algorithm={'x' * 5000}", "is longer than 1000 characters"),
    (f"clients.total={'x' * 5000}", "clients.total=xxxx"),
    (f"{'x' * 5000}", "must be one of "),
    ("-m hydra/sweeper=basic seed=1,14", "=basic: must be fedbench; `fedbench tune --search optuna`"),
    ("tune hydra/sweeper=basic algorithm.lr=0.1,1", "hydra/sweeper=basic: must be fedbench; "),
    ("-m algorithm.lr=interval(0,1)", "an interval is searched by fedbench tune --search random"),
    # several options of a group, whose files Hydra would merge
    ("dataset=[mnist,fmnist]", f"dataset=[mnist,fmnist]: {ONE}dataset=mnist,fmnist"),
    ("experiment=[quickstart,untuned]", f"{ONE}experiment=quickstart,untuned"),
    ("hydra/launcher=[basic,processes]", f"{ONE}hydra/launcher=basic,processes"),
    ("-m seed=0,1 algorithm=fedavg,[fedavg,fedprox]", f"{ONE}algorithm=fedavg,fedprox"),
    ("-m seed=0,1 hydra.sweeper.params.algorithm='[fedavg,led]'", f"{ONE}algorithm=fedavg,led"),
]  # fmt: skip
BY_A_RUN = [
    ("algorithm.lr=${oc.env:HOME}", "algorithm.lr=/"),
    ("device=cuda:", "device=cuda:: must be auto, cpu, cuda, or cuda:1"),
    ("device=cuda:99", "device=cuda:99: "),
    (f"{POOL}[gpu]", "hydra.launcher.devices=[gpu]: must be a list of cpu, cuda, or cuda:N"),
    (f"{POOL}[cpu] hydra.launcher.processes=-1", "hydra.launcher.processes=-1: must be an integer >= 1"),
    (f"{POOL}[cpu] hydra.launcher.thread=2", "hydra.launcher.thread=2: no such key; "),
    (f"{POOL}[cpu,cuda:99]", "hydra.launcher.devices=cuda:99: "),
    ("eval.metrics=[f1]", "eval.metrics=[f1]: must be a list of macro_f1, auroc"),
    ("eval.metrics=[auroc] algorithm=fedbn model=cnn_small model.norm=batch",
     "eval.metrics=[auroc]: needs test samples of the clients' own"),
    ("eval.finetune_steps=2 algorithm=fedsps", "eval.finetune_lr=null: must be a number > 0: fedsps has"),
    ("eval.finetune_lr=0.1", "eval.finetune_lr=0.1: is the rate of eval.finetune_steps, and that is 0"),
    ("dataset.validation=0.9999",
     "local.batch_size=32: must be at most the 20 training samples that dataset.validation=0.9999 leaves"),
    ("local.steps=100000000000", "local.steps=100000000000: a job of 100,000,000,000 local steps needs"),
    ("local.epochs_range=[1,100000000000]", "local.epochs_range=[1,100000000000]: a job of 300,000,000,000"),
    ("participation=often", "participation=often: "),
    ("participation=file", "participation.path=null: must be the path of a CSV"),
    ("local.epochs_range=[3,2]", "local.epochs_range=[3,2]: must be a list [low, high]"),
    ("local.epochs_range=[2,3] local.epochs=2", "local.epochs_range=[2,3]: stands in place of"),
    ("participation=weighted algorithm=scaffold", "participation=weighted: lets a client count twice"),
    ("participation=bernoulli algorithm=fedasync clients.per_round=1", "participation=bernoulli: lets"),
    ("algorithm=dude_asgd local.epochs_range=[1,2]", "local.epochs_range=[1,2]: dude_asgd makes exactly 1"),
    ("participation=cyclic algorithm=led clients.per_round=20", "participation.groups=2: must be at"),
    ("participation=bernoulli algorithm=led clients.per_round=20", "participation=bernoulli: must be"),
    ("algorithm=local participation.stragglers=0.5 participation.straggler_work=drop",
     "participation.straggler_work=drop: must be partial: local's clients send nothing"),
    ("lr_schedule=exponential lr_schedule.factor=0.9 rounds=1000",
     "lr_schedule.factor=0.9: must be larger: the rate would be below 1.18e-38"),
    ("algorithm=local schedule=async", "schedule=async: must be sync: local's clients evaluate their own"),
]  # fmt: skip


@pytest.mark.parametrize(("given", "says"), BAD)
def test_bad_input_is_one_line(runs: Any, fedbench: Call, tmp_path: Path, given: str, says: str) -> None:
    err = fedbench.refused(*given.split())
    assert says in err
    assert len(err) < 1000
    assert not any(word in err for word in ("object at", "class '", "None", "{'", "Error("))
    assert list(tmp_path.iterdir()) == []
    assert runs.done == []


@pytest.mark.parametrize(("given", "line"), BY_A_RUN)
def test_what_a_run_refuses_is_one_line(fedbench: Call, tmp_path: Path, given: str, line: str) -> None:
    assert fedbench.refused(*given.split()).startswith(f"fedbench: {line}")
    assert list(tmp_path.iterdir()) == []


def test_a_traceback_is_shown_when_asked_for(
    runs: Any, fedbench: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDBENCH_TRACEBACK", "1")
    code, _, err = fedbench("rounds=abc")
    assert code == 2
    assert "Traceback" in err
    assert err.splitlines()[-1] == "fedbench: rounds=abc: must be an integer >= 0"


@pytest.mark.parametrize(
    "given",
    [
        "+hydra.callbacks.x._target_=os.mkdir +hydra.callbacks.x.path=executed",
        "+hydra.callbacks.x={_target_:os.mkdir,path:executed}",
        "hydra.launcher._target_=os.mkdir",
        "+hydra.sweeper.sampler._target_=optuna.samplers.os.mkdir",
        "hydra.sweeper._target_=os.mkdir --multirun",
        "+model._target_=os.mkdir",
        "hydra.job_logging.handlers.console.class=evil.Handler",
        "+hydra.job_logging.handlers.console.stream2=ext://evil.stream",
        "hydra.searchpath=[pkg://evil]",
        "+hydra.callbacks.x._target_=os.mkdir --cfg job",
    ],
)
def test_overrides_execute_nothing(
    runs: Any, fedbench: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    (tmp_path / "evil.py").write_text("open('executed', 'w')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    err = fedbench.refused(*given.split())
    assert "would run code" in err or "would be imported" in err or "of Hydra's keys these can: " in err
    assert [path.name for path in tmp_path.iterdir()] == ["evil.py"]


PACKAGE = "hydra:\n  searchpath: [pkg://evil]\n"
CALLBACK = "hydra:\n  callbacks:\n    x:\n      _target_: os.mkdir\n      path: executed\n"


FILES = [
    ("mine/experiment/e.yaml", f"# @package _global_\n{CALLBACK}", "--config-dir mine experiment=e"),
    ("mine/experiment/e.yaml", f"# @package _global_\n{CALLBACK}", "hydra.searchpath=[mine] experiment=e"),
    ("mine/algorithm/a.yaml", "name: a\nx: {_target_: os.mkdir}\n", "-cd mine -m algorithm=a,fedavg"),
    ("mine/main.yaml", f"defaults: [config, _self_]\n{PACKAGE}", "--config-dir mine --config-name main"),
    ("mine/main.yaml", f"defaults: [config, _self_]\n{CALLBACK}", "--config-path mine --config-name main"),
    ("mine/main.yaml", f"defaults: [/config, _self_]\n{CALLBACK}", "--config-name {here}/mine/main"),
    ("evil.yaml", CALLBACK, "experiment=../../../../../../..{here}/evil"),
    ("mine/experiment/s.yaml", "# @package _global_\nhydra: {sweeper: {x: {_target_: os.mkdir}}}\n",
     "-cd mine -m experiment=s"),
]  # fmt: skip


@pytest.mark.parametrize(("file", "content", "given"), FILES)
def test_files_execute_nothing(
    runs: Any, fedbench: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, content: str,
    given: str,
) -> None:  # fmt: skip
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "evil.py").write_text("open('executed', 'w')\n")
    monkeypatch.syspath_prepend(str(tmp_path / "modules"))
    (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / file).write_text(content)
    err = fedbench.refused(*given.format(here=tmp_path).split())
    assert not (tmp_path / "executed").exists()
    assert not (tmp_path / "outputs").exists()
    not_found = any(
        words in err
        for words in (
            "Cannot find primary config",
            "Could not load",
            "must begin with",
            "Parent traversal",  # Hydra 1.4
        )
    )
    assert "_target_" in err or "no such key" in err or "would be imported" in err or not_found


def test_closed_standard_streams_are_no_error(runs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("stdin", "stdout", "stderr"):
        monkeypatch.setattr(sys, name, None)
    assert main(["rounds=1"]) == 0
    assert main(["rounds=-1"]) == 2


def test_a_sweep_over_experiments_with_grids_of_their_own_is_refused(
    runs: Any, fedbench: Call, tmp_path: Path
) -> None:
    """One grid would be run under all of their names."""
    for name, params in (("a", "algorithm.lr: 0.1,0.2"), ("b", "algorithm.lr: 0.3,0.4"), ("c", "seed: 0,1")):
        file = tmp_path / "mine" / "experiment" / f"{name}.yaml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"# @package _global_\nhydra:\n  sweeper:\n    params:\n      {params}\n")
    (tmp_path / "mine" / "experiment" / "plain.yaml").write_text("# @package _global_\nrounds: 3\n")
    mine = ["--config-dir", "mine", "-m"]
    for words, refused in (
        (["-m", "experiment=quickstart,lr_relative", "scale=smoke"], "lr_relative"),
        ([*mine, "experiment=a,b"], "b"),
        ([*mine, "experiment=plain,c"], "c"),
    ):
        line = f"experiment={refused}: has a different grid (hydra.sweeper) from the first one"
        assert line in fedbench.refused(*words)
    assert runs.done == []
    assert fedbench(*mine, "experiment=a")[0] == 0
    assert [cfg.algorithm.lr for cfg in runs.done] == [0.1, 0.2]
    assert fedbench(*mine, "experiment=plain", "seed=5,6")[::2] == (0, "")
    assert [cfg.rounds for cfg in runs.done[2:]] == [3, 3]
