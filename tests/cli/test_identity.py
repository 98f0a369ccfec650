"""The identity of a run, and the names that follow from it."""

from __future__ import annotations

from pathlib import Path

import pytest
from omegaconf import DictConfig, OmegaConf

from fedbench.compose.composer import compose
from fedbench.compose.names import sweep_dir
from fedbench.compose.overrides import first_values
from fedbench.config.config import GROUPS
from fedbench.config.identity import difference, flat, identity, run_dir, run_hash, slug, stored


def composed(*overrides: str, hydra: bool = False) -> DictConfig:
    found = compose(overrides)
    return found.cfg if hydra else found.job


@pytest.fixture(scope="module")
def base() -> DictConfig:
    return composed()


def test_options_stand_under_their_groups_and_the_rest_under_dotted_keys(base: DictConfig) -> None:
    choices = flat(base)
    assert [choices[group] for group in GROUPS] == ["digits", "iid", "logistic", "fedavg", "sync", "none"]
    assert choices["clients.total"] == base.clients.total
    assert choices["algorithm.lr"] == base.algorithm.lr
    assert choices["imports"] == []
    assert not any(key.startswith(("hydra", "algorithm.grid")) or key.endswith(".name") for key in choices)


def test_sizes_of_a_data_set_are_a_choice_once_they_are_given(base: DictConfig) -> None:
    """Results from before these keys existed keep their names."""
    assert "dataset.test_samples" not in identity(base)
    assert identity(composed("dataset.test_samples=50"))["dataset.test_samples"] == 50
    assert "dataset.test_samples" in identity(base, swept=["dataset.test_samples"])
    padamfed = composed("algorithm=padamfed")
    assert padamfed.algorithm.norm == "vector"
    assert "algorithm.norm" not in identity(padamfed)
    assert identity(composed("algorithm=padamfed", "algorithm.norm=tensor"))["algorithm.norm"] == "tensor"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("engine", "loop"),
        ("device", "cpu"),
        ("chunk", 3),
        ("threads", 1),
        ("data.root", "/elsewhere"),
        ("resume", False),
        ("checkpoint.seconds", 1),
        ("progress", "none"),
        ("verbose", True),
    ],
)
def test_how_a_run_is_computed_is_not_part_of_it_unless_swept(
    base: DictConfig, key: str, value: object
) -> None:
    other = OmegaConf.merge(base)
    OmegaConf.update(other, key, value)
    assert run_hash(other) == run_hash(base)
    assert run_hash(other, [key]) != run_hash(base, [key])


@pytest.mark.parametrize(
    ("key", "value"),
    [("seed", 1), ("rounds", 51), ("algorithm.lr", 0.2), ("dtype", "float64"), ("trace", True)],
)
def test_what_is_computed_is(base: DictConfig, key: str, value: object) -> None:
    other = OmegaConf.merge(base)
    OmegaConf.update(other, key, value)
    assert run_hash(other) != run_hash(base)
    assert difference(identity(base), identity(other)) == [(key, OmegaConf.select(base, key), value)]


def test_one_and_one_point_zero_are_one_value(base: DictConfig) -> None:
    other = OmegaConf.merge(base)
    other.algorithm.server_lr = 1
    assert isinstance(base.algorithm.server_lr, float)
    assert run_hash(other) == run_hash(base)


def test_another_option_comes_first_among_the_differences(base: DictConfig) -> None:
    found = difference(identity(base), identity(composed("algorithm=scaffold", "rounds=3")))
    assert found[0] == ("algorithm", "fedavg", "scaffold")
    assert {key for key, _, _ in found} >= {"rounds", "algorithm.option", "algorithm.weighting"}


def test_the_identity_survives_being_stored(base: DictConfig, tmp_path: Path) -> None:
    assert stored(tmp_path) is None
    (tmp_path / "config.yaml").write_text(OmegaConf.to_yaml(base, resolve=True))
    assert stored(tmp_path) == identity(base)


def test_run_directories_are_readable_and_stable(base: DictConfig) -> None:
    name = run_dir(base)
    assert name == run_dir(composed("engine=loop"))
    assert name.startswith("fedavg-digits-iid-logistic-seed0/")
    assert run_dir(composed("schedule=async", "delay=exponential")).startswith(
        "fedavg-digits-iid-logistic-async-exponential-seed0/"
    )


def test_the_hash_may_stand_inside_hydras_node_without_recursion(base: DictConfig) -> None:
    cfg = composed("rounds=${clients.total}", hydra=True)
    assert cfg.hydra.run.dir == f"outputs/{run_dir(composed('rounds=20'))}"


def sweep(*overrides: str) -> str:
    """The directory of a sweep, from the configuration of its first job and what was given."""
    cfg = composed(*first_values(overrides), hydra=True)
    OmegaConf.set_readonly(cfg.hydra, False)
    cfg.hydra.overrides.task = list(overrides)
    return sweep_dir(cfg)


def test_sweep_directories_follow_from_values_not_from_their_order() -> None:
    name = sweep("seed=0,1", "rounds=5")
    assert name.startswith("seed/")
    assert sweep("rounds=5", "seed=1,0") == name
    assert sweep("rounds=5", "seed=range(0,2)", "engine=loop") == name
    assert sweep("seed=0,1", "rounds=6") != name
    assert sweep("seed=0,1,2", "rounds=5") != name


def test_fixed_values_of_a_swept_group_count() -> None:
    one = sweep("algorithm=fedavg,scaffold", "algorithm.lr=0.1")
    assert one.startswith("algorithm/")
    assert sweep("algorithm=fedavg,scaffold", "algorithm.lr=0.2") != one
    assert sweep("algorithm=scaffold,fedavg", "algorithm.lr=0.1") == one


def test_slugs_are_plain_words() -> None:
    assert slug(["lr_0.1", "model_{a:1}", "", "x/y"]) == "lr_0.1-model_a_1-x_y"
    assert slug([]) == "run"
    assert len(slug(["a" * 300])) == 100
