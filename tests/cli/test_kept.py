"""Compositions from kept bases are those of plain Hydra, key by key and in the same order."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import hydra
import pytest
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf

from fedbench.config import compose as composing_module
from fedbench.config import kept
from fedbench.config.compose import Composer, composing
from fedbench.config.config import GROUPS
from fedbench.config.kept import Loader
from fedbench.config.options import conf_dir, options

VALUES = ["rounds=7", "algorithm.lr=0.25", "eval.metrics=[macro_f1]", "data.root=there"]
ALL = [*VALUES, "hydra.sweep.dir=here"]


@pytest.fixture
def composer() -> Iterator[Composer]:
    with composing() as made:
        yield made


def normal(cfg: DictConfig, words: Sequence[str]) -> DictConfig:
    """With the words as they were given: Hydra itself needs ++ before a key that no file has."""
    task = [word for word in words if not word.startswith(("hydra.", "hydra/"))]
    cfg.hydra.overrides.task, cfg.hydra.job.override_dirname = task, ",".join(sorted(task))
    return cfg


def forced(words: Sequence[str]) -> list[str]:
    groups = ("hydra", "~", *(f"{group}=" for group in (*GROUPS, "experiment", "scale", "logger")))
    return [word if word.startswith(groups) else f"++{word}" for word in words]


def plain(words: Sequence[str]) -> DictConfig:
    return normal(hydra.compose("config", forced(words), return_hydra_config=True), words)


def as_kept(words: Sequence[str]) -> DictConfig:
    return Loader(GlobalHydra.instance().config_loader(), "config").compose(words)


def said(cfg: DictConfig) -> str:
    """All of a configuration, unresolved, in its order, with the types of its nodes."""
    types = {key: OmegaConf.get_type(cfg, key) for key in cfg}
    return f"{OmegaConf.to_container(cfg, resolve=False)!r} {types} {OmegaConf.is_struct(cfg)}"


def test_every_option_is_composed_as_hydra_does(composer: Composer) -> None:
    """Of the methods, which are the most, as many as the next largest group has options: all of their files
    hold nothing but keys."""
    columns = {group: options(group) for group in (*GROUPS, "logger")}
    assert sum(map(len, columns.values())) > 110
    files = [conf_dir() / "algorithm" / f"{name}.yaml" for name in columns["algorithm"]]
    assert not any(word in file.read_text() for file in files for word in ("defaults:", "@package"))
    most = max(len(names) for group, names in columns.items() if group != "algorithm")
    for row in itertools.islice(itertools.zip_longest(*columns.values()), most):
        words = [f"{group}={name}" for group, name in zip(columns, row, strict=True) if name is not None]
        words += ALL
        assert said(as_kept(words)) == said(plain(words)), words


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["experiment=quickstart", "partition=iid", "algorithm=scaffold", "seed=3"],
        ["experiment=padamfed/fig1", "scale=smoke", "dataset=synthetic"],
        ["~algorithm", "model=mlp", "hydra.verbose=true", "hydra.job.chdir=true"],
        ["local={steps: 3, batch_size: 7}", "local.steps=4"],
        ["logger=[mlflow,tensorboard]", "algorithm=scaffold"],
        ["hydra/launcher=processes", "hydra.launcher.processes=2", "algorithm=scaffold"],
        ["hydra.mode=MULTIRUN", "hydra.sweep.subdir=${hydra.job.override_dirname}", "model=mlp", "seed=1"],
        ["algorithm=padamfed", "algorithm=fedavg"],
        ["nonsense=1", "algorithm.nonsense=2"],
    ],
    ids=" ".join,
)
def test_what_is_special_too(composer: Composer, words: list[str]) -> None:
    def ends(compose: Callable[[list[str]], DictConfig]) -> str:
        try:
            return said(compose(words))
        except HydraException as error:
            return f"{type(error).__name__}: {error}"

    theirs = ends(plain)
    assert ends(as_kept) == theirs
    with contextlib.suppress(HydraException):  # a copy that is changed leaves the base as it was
        OmegaConf.update(as_kept(words), "rounds", 999, force_add=True)
    assert ends(as_kept) == theirs


def test_the_jobs_of_a_sweep_are_those_of_hydra(composer: Composer) -> None:
    master = composer.read(["rounds=2", "dataset=synthetic"]).cfg
    jobs = composer.context().config_loader
    for words in (
        ["algorithm=scaffold", "seed=1", "hydra.sweep.subdir=x"],
        ["algorithm=padamfed", "model=mlp", "model.hidden=[8]", "algorithm.new=1"],
    ):
        theirs = composer.loader.theirs.load_sweep_config(master, forced(words))
        assert said(jobs.load_sweep_config(master, words)) == said(normal(theirs, words))


def test_a_file_that_changes_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    conf = tmp_path / "conf"
    shutil.copytree(conf_dir(), conf)
    for module in (kept, composing_module):
        monkeypatch.setattr(module, "conf_dir", lambda: conf)
    with composing() as composer:
        assert composer.read(["algorithm=fedprox"]).cfg.algorithm.mu == 0.01
        file = conf / "algorithm" / "fedprox.yaml"
        file.write_text(file.read_text().replace("mu: 0.01", "mu: 0.75"))
        assert composer.read(["algorithm=fedprox"]).cfg.algorithm.mu == 0.75
        file = conf / "config.yaml"
        file.write_text(file.read_text().replace("algorithm: fedavg", "algorithm: fedprox"))
        assert composer.read([]).cfg.algorithm.mu == 0.75
        (conf / "algorithm" / "mine.yaml").write_text("# @package algorithm\nname: mine\nx: 1\n")
        assert composer.read(["algorithm=mine"]).cfg.algorithm == {"name": "mine", "x": 1}


def test_the_working_directory_is_the_one_of_now(
    composer: Composer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    composer.read([])
    monkeypatch.chdir(tmp_path)
    assert composer.read([]).cfg.hydra.runtime.cwd == os.getcwd() == str(tmp_path)


def test_a_users_directory_comes_first_and_is_not_kept(tmp_path: Path) -> None:
    file = tmp_path / "algorithm" / "fedprox.yaml"
    file.parent.mkdir()
    for mu in (0.5, 0.25):
        file.write_text(f"name: fedprox\nlr: 0.1\nmu: {mu}\n")
        with composing(str(tmp_path)) as composer:
            cfg = composer.read(["algorithm=fedprox"]).cfg
            assert cfg.algorithm.mu == mu
            job = composer.context().config_loader.load_sweep_config(cfg, ["algorithm=fedprox"])
            assert job.algorithm.mu == mu
        with composing() as composer:
            assert composer.read(["algorithm=fedprox"]).cfg.algorithm.mu == 0.01
            searched = composer.read(["algorithm=fedprox", f"hydra.searchpath=[{tmp_path}]"])
            assert searched.cfg.algorithm.mu == 0.01  # conf/ comes before what is searched in addition
