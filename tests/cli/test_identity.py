"""The identity of a run, and the names that follow from it."""

from __future__ import annotations

import dataclasses
import hashlib
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from omegaconf import DictConfig, OmegaConf
from run_files import Call

import fedbench
from fedbench import compose_config
from fedbench.cli import main
from fedbench.config.compose import compose
from fedbench.config.config import GROUPS, USUAL, Config, Settings, flat, role
from fedbench.config.grouping import settings
from fedbench.config.identity import difference, identity, inputs, run_hash, run_name, slug
from fedbench.config.options import CLASSES, build, checked, with_defaults
from fedbench.config.overrides import first_values, parse
from fedbench.config.register import sweep_dir
from fedbench.data.partition_options import PARTITIONS
from fedbench.errors import ConfigError
from fedbench.fields import Rule, roles, rules


def composed(*overrides: str, hydra: bool = False) -> DictConfig:
    found = compose(overrides)
    return found.cfg if hydra else found.job


@pytest.fixture(scope="module")
def base() -> DictConfig:
    return composed()


USED = ("digits", "iid", "logistic", "fedavg", "sync", "none")
PLAIN: dict[str, Any] = dict(zip(GROUPS, USED, strict=False))
PLAIN["eval.every"] = None  # once it was 1, which is what an identity without it means


def test_the_identity_is_what_differs_from_the_defaults() -> None:
    """And the names of the options of groups that every run must choose."""
    assert identity(compose_config()) == PLAIN
    words = ["rounds=50", "dataset.test_samples=50", "algorithm.lr=0.1", "optimizer=sgd", "eval.metrics=[]"]
    assert identity(compose_config(words)) == {**PLAIN, "dataset.test_samples": 50}
    words = ["algorithm=padamfed", "algorithm.norm=tensor", "algorithm.scale=null", "algorithm.momentum=true"]
    found = {"algorithm": "padamfed", "algorithm.norm": "tensor"}
    assert identity(compose_config(words)) == PLAIN | found
    words = ["optimizer=adam", "optimizer.beta1=0.9", "optimizer.beta2=0.9", "model=mlp", "model.hidden=[7]"]
    found = {"model": "mlp", "model.hidden": [7], "optimizer": "adam", "optimizer.beta2": 0.9}
    assert identity(compose_config(words)) == PLAIN | found


def test_a_key_that_a_stored_run_does_not_know_changes_nothing() -> None:
    """Its configuration lacks keys and groups, as one that was written before they were invented."""
    config = compose_config(["algorithm=padamfed", "rounds=7", "eval.every=1"])
    some = {"patience", "dataset.noise", "algorithm.scale", "model.init", "eval.every"}
    for left_out in (some, {*USUAL}, {*config.choices}):
        kept = {"algorithm", "rounds", *PLAIN} | ({*config.choices} - left_out)
        older = {key: value for key, value in config.choices.items() if key in kept}
        assert run_hash(older) == run_hash(config)
    gone = {"schedule.gone": None, "algorithm.gone": None, "gone": None}  # no longer declared
    assert run_hash({**config.choices, **gone}) == run_hash(config)
    assert run_hash({**config.choices, "schedule.gone": 1}) != run_hash(config)


def test_what_nothing_declares_has_no_default() -> None:
    """Of an option that is not ours, or not known: a table of old results may say little."""
    found = with_defaults({"algorithm": "mine", "rounds": 3})
    assert (found["algorithm"], found["rounds"], found["clients.total"]) == ("mine", 3, 20)
    assert {key.split(".")[0] for key in found} & {*GROUPS} == {
        "algorithm",
        *USUAL,
        "dataset",
        "partition",
        "delay",
    }
    assert not any(isinstance(value, dict) for value in found.values())
    assert with_defaults({}) == {}


def test_all_keys_of_a_users_own_option_count(tmp_path: Path) -> None:
    """Nothing declares their defaults, which may change with the file; keys that all data sets share have
    some."""
    (tmp_path / "algorithm").mkdir()
    (tmp_path / "algorithm" / "mine.yaml").write_text("name: mine\nlr: 0.1\nscale: null\n")
    found = identity(compose_config(["algorithm=mine", "rounds=3"], config_dir=tmp_path))
    own = {"algorithm": "mine", "algorithm.lr": 0.1, "algorithm.scale": None}
    assert found == PLAIN | own | {"rounds": 3}
    ours = {"name": "ours", "noise": 0.0, "size": 3, "normalize": True}
    found = identity(build({**compose_config().given, "dataset": ours}))
    assert found == PLAIN | {"dataset": "ours", "dataset.noise": 0, "dataset.size": 3}


def test_a_directory_is_named_after_the_hash_of_all_that_counts(base: DictConfig) -> None:
    """The first 12 digits of SHA-256 over the sorted JSON; whole numbers are written as integers."""
    config = compose_config(["rounds=7", "algorithm=padamfed", "dataset.test_samples=50", "loss.scale=2"])
    text = '{"algorithm": "padamfed", "dataset": "digits", "dataset.test_samples": 50, "delay": "none", '
    text += '"eval.every": null, "loss.scale": 2, "model": "logistic", "partition": "iid", "rounds": 7, '
    expected = hashlib.sha256((text + '"schedule": "sync"}').encode()).hexdigest()[:12]
    words = "padamfed-digits-iid-logistic-seed0-test_samples_50-scale_2-rounds_7"
    assert run_name(config) == f"{words}-{expected}"
    assert run_name(base) == run_name(composed("engine=loop"))
    assert run_name(base) == f"fedavg-digits-iid-logistic-seed0-{run_hash(base)}"
    name = run_name(composed("schedule=async", "delay=exponential"))
    assert name.startswith("fedavg-digits-iid-logistic-async-exponential-seed0-")


def sweep(*overrides: str) -> str:
    """The directory of a sweep, from the configuration of its first job and what was given."""
    cfg = composed(*first_values(parse(overrides)), hydra=True)
    OmegaConf.set_readonly(cfg.hydra, False)
    cfg.hydra.overrides.task = list(overrides)
    return sweep_dir(cfg)


def test_sweep_directories_follow_from_values_not_from_their_order() -> None:
    name = sweep("seed=0,1", "rounds=5")
    assert name.startswith("seed/")
    assert sweep("rounds=5", "seed=1,0") == name
    assert sweep("rounds=5", "seed=range(0,2)", "engine=loop") == name
    assert sweep("seed=0,1", "rounds=6") != name
    assert sweep("seed=0,2", "rounds=5") != name
    assert sweep("algorithm.lr=0.1,0.1231") != sweep("algorithm.lr=0.1,0.1234")
    assert sweep("seed=0,1", "rounds=5", "algorithm.lr=0.2") != name
    one = sweep("algorithm=fedavg,scaffold", "algorithm.lr=0.1")
    assert one.startswith("algorithm/")
    assert sweep("algorithm=fedavg,scaffold", "algorithm.lr=0.2") != one
    assert sweep("algorithm=scaffold,fedavg", "algorithm.lr=0.1") == one


def test_slugs_are_plain_words() -> None:
    assert slug(["lr_0.1", "model_{a:1}", "", "x/y"]) == "lr_0.1-model_a_1-x_y"
    assert slug([]) == "run"
    assert len(slug(["a" * 300])) == 100


# ---- a configuration that was changed in Python --------------------------------------------------------

SMALL = ["rounds=2", "clients.total=4", "clients.per_round=2", "local.steps=2", "progress=none"]
Change = Callable[[Config], Config]


def choose(config: Config, group: str, **options: Any) -> Config:
    """With other options of a group."""
    own = getattr(config, group)
    changed = {"options": {**own.options, **options}} if group in ("algorithm", "model") else options
    return dataclasses.replace(config, **{group: dataclasses.replace(own, **changed)})


@pytest.mark.parametrize(
    ("word", "change"),
    [
        ("rounds=9", lambda c: dataclasses.replace(c, rounds=9)),
        ("local.steps=5", lambda c: dataclasses.replace(c, local=dataclasses.replace(c.local, steps=5))),
        ("algorithm.lr=0.5", lambda c: choose(c, "algorithm", lr=0.5)),
        ("model.hidden=[7,5]", lambda c: choose(c, "model", hidden=(7, 5))),
        ("dataset.train_samples=50", lambda c: choose(c, "dataset", train_samples=50)),
        ("dataset.classes=[0,3]", lambda c: choose(c, "dataset", classes=[0, 3])),
        ("partition.alpha=2", lambda c: choose(c, "partition", alpha=2.0)),
        ("schedule.concurrency=3", lambda c: choose(c, "schedule", concurrency=3)),
        ("schedule.leave=[[0,1.5]]", lambda c: choose(c, "schedule", leave=((0, 1.5),))),
        ("delay.c=3", lambda c: choose(c, "delay", c=3.0)),
        ("delay.speed=2", lambda c: choose(c, "delay", speed=2.0)),
        ("imports=[a.py]", lambda c: dataclasses.replace(c, imports=("a.py",))),
    ],
)
def test_a_changed_configuration_is_that_of_the_command_line(word: str, change: Change) -> None:
    words = ["model=mlp", "partition=dirichlet", "schedule=async", "delay=constant"]
    before, composed_ = compose_config(words), compose_config([*words, word])
    changed = change(before)
    assert changed == composed_ != before
    assert identity(changed) == identity(composed_)
    assert run_name(changed) == run_name(composed_) != run_name(before)
    (key,) = (key for key, _, _ in difference(identity(before), identity(changed)))
    assert key == word.partition("=")[0]
    assert checked(changed) == changed
    again = pickle.loads(pickle.dumps(changed))
    assert (again, run_name(again)) == (changed, run_name(changed))


def test_a_changed_configuration_is_computed_named_and_recorded(capsys: pytest.CaptureFixture[str]) -> None:
    """As what it says; and a wrong change is refused."""
    config = compose_config([*SMALL, "seed=77"])
    changed = choose(config, "algorithm", lr=0.5)
    run = fedbench.run(changed)
    assert run.config == changed
    assert run.summary["config"]["algorithm.lr"] == run.summary["hyper"]["lr"] == 0.5
    assert main([*SMALL, "seed=77", "algorithm.lr=0.5"]) == 0
    assert capsys.readouterr().out.startswith("finished before")
    wrong = dataclasses.replace(config, clients=dataclasses.replace(config.clients, per_round=9))
    with pytest.raises(ConfigError, match=r"^clients\.per_round=9: must be at most clients\.total=4"):
        fedbench.run(wrong)


def test_options_cannot_be_changed_in_place() -> None:
    with pytest.raises(TypeError):
        compose_config().algorithm.options["lr"] = 0.5  # type: ignore[index]


# ---- every key counts ----------------------------------------------------------------------------------

NO_PART = {  # what a run's result does not depend on
    *("engine", "device", "chunk", "threads", "data.root", "resume", "progress", "hooks"),
    "cuda_graph",
    *("checkpoint.seconds", "checkpoint.until", "checkpoint.keep", "state.place", "state.directory"),
}


def another(rule: Rule, value: Any) -> Any:
    """A value that the rule allows and that is not `value`."""
    candidates = [*rule.options, True, False, 1, 2, 7, 0.25, 0.5, "x", "cuda", ["x"], [1, 2], ["auroc"]]
    for one in candidates:
        try:
            if rule.value("", one) != rule.value("", value):
                return one
        except (ConfigError, ValueError):
            continue
    raise AssertionError(rule)


def test_every_key_of_a_run_makes_another_run_but_those_that_say_how(base: DictConfig) -> None:
    same = set()
    for key, rule in rules(Settings):
        other = OmegaConf.merge(base)
        OmegaConf.update(other, key, another(rule, flat(base)[key]))
        same |= {key} if run_hash(other) == run_hash(base) else set()
    assert same == NO_PART


ROLES = {
    "what": "dtype precision loss clients.per_round",
    "when": "rounds patience target clients clients.total",
    "method": "local aggregation byzantine compress",
    "seed": "seed",
    "measured": "eval init_from deterministic trace imports",
    "how": "engine device cuda_graph chunk threads resume progress hooks data checkpoint state",
}


def test_every_key_says_what_a_difference_in_it_means() -> None:
    """A key of a section what the section says, unless the table names it. The table is the design's: what
    names a run, what makes another experiment, and what shapes a step."""
    table = {key: name for name, keys in ROLES.items() for key in keys.split()}
    declared = roles(Settings)
    assert declared == {key: table.get(key, table.get(key.split(".")[0])) for key in declared}
    assert table.keys() <= declared.keys()
    given = compose_config([]).choices
    assert {*given} - {*settings(given)} == {key for key in given if role(key) in ("seed", "measured", "how")}
    assert all(map(role, [*given, "logger.csv.place", "experiment"]))
    assert role("final_accuracy") is None


@pytest.mark.parametrize(
    "option",
    [
        *("dataset=digits", "dataset=emnist", "dataset=npz", "dataset=synthetic", "dataset=reviews"),
        *(f"partition={name}" for name in PARTITIONS if name not in ("iid", "natural")),
        *("schedule=async", "delay=constant", "delay=bands", "delay=lognormal", "delay=pareto"),
    ],
)
def test_every_option_of_a_group_makes_another_run(option: str) -> None:
    group, name = option.split("=")
    needed = [f"{group}.path=x"] if name in ("npz", "file") else []
    base = compose_config([option, *needed]).given
    declared = {key: rule for key, rule in rules(CLASSES[group][name]) if rule.kind != "custom"}
    assert declared
    for key, rule in declared.items():
        other = OmegaConf.create(base)
        said = OmegaConf.select(other, f"{group}.{key}", default=rule.default)
        OmegaConf.update(other, f"{group}.{key}", another(rule, said))
        found = difference(identity(base), identity(other))  # type: ignore[arg-type]
        assert [key for key, _, _ in found] == [f"{group}.{key}"]


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("eval.final_k=1", "eval.final_k=2", False),
        ("algorithm.lr=0.1231", "algorithm.lr=0.1234", False),
        ("algorithm.lr=0.1", "algorithm.lr=0.10000000000000002", False),
        ("seed=9007199254740992", "seed=9007199254740993", False),
        ("algorithm.server_lr=1", "algorithm.server_lr=1.0", True),
    ],
)
def test_every_digit_of_a_value_counts(one: str, other: str, same: bool) -> None:
    assert (run_name(compose_config([one])) == run_name(compose_config([other]))) == same


# ---- files and code that a run reads -------------------------------------------------------------------


@pytest.mark.parametrize("key", ["init_from", "partition.path", "participation.path", "delay.table"])
def test_what_names_a_file_reads_no_directory(key: str, tmp_path: Path) -> None:
    """It is refused later: a home directory's files would take minutes to read before that."""
    (tmp_path / "file").touch()
    assert inputs({key: str(tmp_path)}) == {}
    assert [*inputs({key: str(tmp_path / "file")})] == [f"{key} (content)"]
    assert [*inputs({"dataset": "hf", "dataset.path": str(tmp_path)})] == ["dataset.path (content)"]
    assert inputs({"dataset": "npz", "dataset.path": str(tmp_path)}) == {}


def test_code_in_a_package_below_imports_counts(tmp_path: Path) -> None:
    """All files of a package that `imports` names, in all its sub-packages; `hooks` does not count. None of
    it is executed to name a run."""
    files = ["__init__.py", "rates.py", "inner/__init__.py", "inner/deep/__init__.py", "inner/deep/steps.py"]
    for name in files:
        file = tmp_path / "package_of_mine" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("raise RuntimeError\n")
    words = ["imports=[package_of_mine]", "imports=[package_of_mine.inner]", "hooks=[package_of_mine]"]
    configs = [compose_config([word]) for word in words]
    for name in files:
        before = [run_name(config) for config in configs]
        (tmp_path / "package_of_mine" / name).write_text("raise RuntimeError  # another\n")
        moved = [run_name(config) != was for config, was in zip(configs, before, strict=True)]
        assert moved == [True, name.startswith("inner/"), False]


def test_a_long_name_keeps_what_differs_and_a_run_keeps_the_name_that_it_has(fedbench: Call) -> None:
    """Words were cut at 100 letters once: such a run is found, alone and in a sweep."""
    words = ["partition=dirichlet", "clients.total=10", "clients.per_round=2", "rounds=1", "local.steps=1"]
    words += ["eval.every=5", "local.batch_size=64", "optimizer.momentum=0.9", "dataset.validation=0.1"]
    assert fedbench(*words, "partition.alpha=0.25")[0] == 0
    (made,) = Path("outputs/runs").iterdir()
    readable, _, digest = made.name.rpartition("-")
    assert len(readable) > 100
    assert "-alpha_0.25" in readable
    old = made.rename(made.with_name(f"{slug([readable])}-{digest}"))
    model = old / "model.pt"
    before = model.stat().st_mtime_ns
    assert fedbench(*words, "partition.alpha=0.25")[0] == 0
    assert fedbench("-m", *words, "partition.alpha=0.25,0.125")[0] == 0
    assert model.stat().st_mtime_ns == before
    names = {path.name for path in Path("outputs/runs").iterdir() if path.is_dir()}
    assert len(names) == 2
    assert old.name in names
    assert "-alpha_0.125" in (names - {old.name}).pop()
