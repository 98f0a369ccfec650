"""The option files of conf/dataset and conf/partition: complete, and synthetic brings its own partition."""

from __future__ import annotations

from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig, OmegaConf
from option_helpers import load, partition

from fedbench.data.options import DATASETS
from fedbench.data.partition_options import PARTITIONS

CONF = Path(__file__).parents[2] / "conf"


@pytest.mark.parametrize(("group", "names"), [("dataset", DATASETS), ("partition", PARTITIONS)])
def test_one_file_per_option_named_like_it(group: str, names: tuple[str, ...]) -> None:
    files = {path.stem: OmegaConf.load(path) for path in (CONF / group).glob("*.yaml")}
    assert sorted(files) == sorted(names)
    assert all(content["name"] == name for name, content in files.items())
    common = {"name", "normalize", "augment"} if group == "dataset" else {"name", "seed"}
    assert all(common <= set(content) for content in files.values())


@pytest.fixture
def composed(tmp_path: Path) -> Path:
    """A configuration of these two groups alone."""
    for group in ("dataset", "partition"):
        (tmp_path / group).symlink_to(CONF / group)
    (tmp_path / "config.yaml").write_text("defaults: [partition: iid, dataset: digits, _self_]\n")
    return tmp_path


def choose(conf: Path, *overrides: str) -> DictConfig:
    with initialize_config_dir(str(conf), version_base="1.3"):
        return compose("config", overrides=list(overrides))


def test_synthetic_takes_its_natural_partition_unless_told_otherwise(composed: Path) -> None:
    assert choose(composed).partition.name == "iid"
    assert choose(composed, "dataset=synthetic").partition.name == "natural"
    for order in (
        ["dataset=synthetic", "partition=dirichlet"],
        ["partition=dirichlet", "dataset=synthetic", "partition.alpha=2"],
    ):
        assert choose(composed, *order).partition.name == "dirichlet"


@pytest.mark.parametrize("name", ["iid", "dirichlet", "shards", "powerlaw", "natural"])
def test_defaults_of_the_options_work(composed: Path, tmp_path: Path, name: str) -> None:
    cfg = choose(composed, "dataset=synthetic", f"partition={name}")
    data = load(OmegaConf.to_container(cfg.dataset), str(tmp_path), seed=0, clients=10)
    client = partition(
        OmegaConf.to_container(cfg.partition), data.y_train.numpy(), data.classes, 10, 0, data.client
    )
    assert sorted(set(client.tolist())) == list(range(10))
