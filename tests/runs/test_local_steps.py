"""Optimizers, clipping and rates of runs: which methods take which, what names such runs, going on."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedbench import algorithms
from fedbench.api import compose_config
from fedbench.cli import main
from fedbench.config.identity import identity, run_hash
from fedbench.errors import ConfigError
from fedbench.runs.run import Run
from fedbench.runs.run_directory import RunDirectory

BASE = [
    "rounds=5", "clients.total=5", "clients.per_round=2", "local.steps=2", "local.batch_size=8",
    "engine=vmap", "partition=dirichlet", "progress=none", "checkpoint.seconds=0",
]  # fmt: skip
ASYNC = ["schedule=async", "schedule.concurrency=3", "delay=exponential"]
ADAM = ["optimizer=adam", "optimizer.keep=true", "algorithm.lr=0.01"]
MOMENTUM = ["optimizer.momentum=0.9", "optimizer.keep=true", "local.clip_norm=0.5"]

TAKE_ALL = {
    "area", "asyncfeded", "ca2fl", "defedavg_iid", "defedavg_niid", "fadas", "fedadagrad", "fedadam",
    "fedams", "fedasync", "fedavg", "fedavgm", "fedbn", "fedbuff", "feddyn", "fedexp", "fedexp_m", "fedhyper",
    "fedprox", "fedyogi", "led", "local", "slowmo",
}  # fmt: skip
NEED_SGD = {"scaffold", "scaffold_exp", "vrl_sgd"}
OWN_STEPS = {
    "ace", "adamasfl", "delta_sgd", "dude_asgd", "fafed", "fedadamw", "fedadt", "fedavg_m", "fedcm",
    "fedlada", "fednova", "fedproxvr", "fedsps", "local_amsgrad", "masfl", "mime", "mimelite", "padamfed",
    "padamfed_vr", "ringmaster_asgd", "scaffold_m", "scaffold_m_vr",
}  # fmt: skip
NOT_CLIPPED = {
    "ace", "adamasfl", "dude_asgd", "fafed", "fedproxvr", "fedsps", "masfl", "mime", "mimelite", "padamfed",
    "padamfed_vr", "scaffold_m_vr",
}  # fmt: skip
NO_RATE = {  # lr from a theorem, or none
    "ace", "adamasfl", "dude_asgd", "fedsps", "padamfed", "padamfed_vr", "ringmaster_asgd",
}  # fmt: skip
NO_SERVER_RATE = {
    "adamasfl", "area", "delta_sgd", "fafed", "fedadamw", "fedadt", "fedasync", "feddyn", "fedexp",
    "fedexp_m", "fedhyper", "fedproxvr", "fedsps", "led", "local", "local_amsgrad", "padamfed", "padamfed_vr",
    "scaffold_exp", "vrl_sgd",
}  # fmt: skip
METHODS = [cls.name for cls in algorithms.every() if cls.__module__.startswith("fedbench.")]
EVERYONE = {cls.name for cls in algorithms.every() if cls.full_participation}
ALONE = {cls.name for cls in algorithms.every() if cls.every_arrival}


def plan(*words: str) -> Run:
    return Run(compose_config([*BASE, *words]))


def refused(method: str, *words: str) -> str:
    """Why a run of the method cannot have these options; "" where it can."""
    cohort = "1" if method in ALONE else "5" if method in EVERYONE else "2"
    own = ["model=mlp", "model.norm=layer"] if method == "fedbn" else []
    own += ["local.steps=1"] if algorithms.get(method).fixed_steps == 1 else []
    try:
        plan(f"algorithm={method}", f"clients.per_round={cohort}", *own, *words)
    except ConfigError as error:
        return str(error)
    return ""


def test_every_method_is_decided() -> None:
    assert set(METHODS) == TAKE_ALL | NEED_SGD | OWN_STEPS
    assert len(METHODS) == len(TAKE_ALL) + len(NEED_SGD) + len(OWN_STEPS)


@pytest.mark.parametrize("method", METHODS)
def test_which_methods_take_which_optimizer(method: str) -> None:
    adam = refused(method, "optimizer=adam")
    momentum = refused(method, "optimizer.momentum=0.9")
    if method in OWN_STEPS:
        assert adam.startswith(f"optimizer=adam: must be sgd: {method} ")
        assert momentum.startswith(f"optimizer.momentum=0.9: must be 0: {method} ")
        assert adam.partition(method)[2].strip() == algorithms.get(method).own_step
        assert "of its own" in adam or algorithms.get(method).own_step != algorithms.Algorithm.own_step
        decayed = refused(method, "optimizer.weight_decay=0.1")
        assert decayed.startswith("optimizer.weight_decay=0.1: must be 0")
        assert decayed.endswith("loss.weight_decay adds it to every gradient")
    else:
        assert momentum == ""
        assert ("needs SGD's sum of directions" in adam) == (method in NEED_SGD)
        assert (adam == "") == (method in TAKE_ALL)


def test_scaffold_takes_adaptive_optimizers_with_option_1() -> None:
    assert refused("scaffold", "optimizer=adam", "algorithm.option=1") == ""
    assert "give algorithm.option=1" in refused("scaffold", "optimizer=adamw")


@pytest.mark.parametrize("method", METHODS)
def test_which_methods_are_clipped_and_have_rates_that_change(method: str) -> None:
    assert (refused(method, "local.clip_norm=1") == "") == (method not in NOT_CLIPPED)
    assert (refused(method, "lr_schedule=exponential") == "") == (method not in NO_RATE)
    assert (refused(method, "server_lr_schedule=exponential") == "") == (method not in NO_SERVER_RATE)


def test_other_refusals() -> None:
    assert "local.clip_norm" in refused("scaffold", "algorithm.option=1", "local.clip_norm=1")
    assert "eta" in refused("slowmo", "lr_schedule=exponential", *ASYNC)
    assert refused("slowmo", "lr_schedule=exponential") == ""
    assert "keeps state at its clients" in refused("fedbuff", *ASYNC, "schedule.pool=all", *MOMENTUM)
    assert refused("fedbuff", *ASYNC, "schedule.pool=all", "optimizer.momentum=0.9") == ""


USERS = """
from fedbench.method import Algorithm, positive, register

@register("mine")
class Mine(Algorithm):
    \"\"\"{0}\"\"\"
    lr: float = positive(0.1)

    def local_step(self, local, client, h):
        return {{"y": {0}}}

    def server_step(self, server, mean, n, h):
        return {{"theta": server.theta + mean.delta}}
"""


@pytest.mark.parametrize("takes", [True, False])
def test_a_users_method_takes_optimizers_where_it_descends(
    takes: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One whose steps are written out is refused, not run as if nothing had been asked for."""
    monkeypatch.chdir(tmp_path)
    g = "client.grad(local.y)"
    line = f"client.descend(local.y, {g}, h.lr)" if takes else f"local.y - h.lr * {g}"
    Path("mine.py").write_text(USERS.format(line))
    Path("conf/algorithm").mkdir(parents=True)
    Path("conf/algorithm/mine.yaml").write_text("name: mine\nlr: 0.1\n")
    words = ["--config-dir", "conf", "imports=[mine.py]", "algorithm=mine", "optimizer=adam", *BASE]
    assert main(words) == (0 if takes else 2)
    said = capsys.readouterr().err
    assert ("optimizer=adam: must be sgd: mine makes local steps of its own" in said) == (not takes)


def test_the_default_is_no_part_of_the_identity_and_another_choice_is(tmp_path: Path) -> None:
    plain = compose_config(BASE)
    assert run_hash(plain) == run_hash(compose_config([*BASE, "optimizer=sgd", "optimizer.momentum=0"]))
    assert not [key for key in identity(plain) if "optimizer" in key or "clip" in key]
    other = compose_config([*BASE, *ADAM, "local.clip_norm=2"])
    said = {key: value for key, value in identity(other).items() if "optimizer" in key or "clip" in key}
    assert said == {"optimizer": "adam", "optimizer.keep": True, "local.clip_norm": 2}
    Run(other).go(tmp_path)
    assert RunDirectory(tmp_path).config() == other
    assert RunDirectory(tmp_path).choices["lr_schedule"] == "constant"


def test_a_sweep_names_the_optimizers_in_its_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    swept = ["optimizer=sgd,adam", "local.clip_norm=null,1", "hydra.sweep.dir=sweep"]
    assert main(["-m", *BASE, "rounds=1", *swept]) == 0
    lines = (tmp_path / "sweep" / "runs.csv").read_text().splitlines()
    rows = [dict(zip(lines[0].split(","), line.split(","), strict=True)) for line in lines[1:]]
    assert sorted((row["optimizer"], row["local.clip_norm"]) for row in rows) == [
        ("adam", ""), ("adam", "1.0"), ("sgd", ""), ("sgd", "1.0"),
    ]  # fmt: skip


def test_kept_state_counts_as_clients_state() -> None:
    d = plan().problem.layout.d
    assert plan(*MOMENTUM).problem.cost.client_state == d
    assert plan(*ADAM).problem.cost.client_state == 2 * d
    assert plan("optimizer=adam").problem.cost.client_state == 0
    assert plan("algorithm=scaffold", *MOMENTUM).problem.cost.client_state == 2 * d
