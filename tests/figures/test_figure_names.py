"""What lines and settings are called, and how lines look."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from make_results import CONFIG, rows, write_run

from fedbench.algorithms import every
from fedbench.figures import style
from fedbench.figures.caption import common, settings_line
from fedbench.figures.lines import group
from fedbench.figures.results import read
from fedbench.runs.records import Run


@pytest.mark.parametrize(
    ("shown", "choices", "name"),
    [
        (["algorithm.lr", "algorithm"], {"algorithm": "scaffold", "algorithm.lr": 0.1}, "SCAFFOLD, lr=0.1"),
        (
            ["algorithm", "algorithm.estimator"],
            {"algorithm": "fedproxvr", "algorithm.estimator": "svrg"},
            "FedProxVR (SVRG)",
        ),
        (["algorithm.estimator"], {"algorithm": "fedproxvr", "algorithm.estimator": "sarah"}, "SARAH"),
        (["partition"], {"partition": "dirichlet", "partition.alpha": 1.0}, "Dirichlet(1)"),
        (["partition.alpha"], {"partition": "dirichlet", "partition.alpha": 0.1}, "Dirichlet(0.1)"),
        (["model"], {"model": "resnet18", "model.width": 64}, "ResNet-18"),
        (["model", "model.width"], {"model": "resnet18", "model.width": 8.0}, "ResNet-18 (width 8)"),
        (["algorithm.lr"], {"algorithm": "padamfed", "algorithm.lr": None}, "lr=theorem"),
        (["algorithm.delay_threshold"], {"algorithm.delay_threshold": None}, "delay threshold=none"),
        (["dataset.iid", "rounds"], {"dataset.iid": False, "rounds": 9}, "not iid, T=9"),
        (["local.batch_size", "rounds"], {"local.batch_size": None, "rounds": 9}, "B=full, T=9"),
    ],
)
def test_lines_have_the_names_that_a_paper_gives_them(
    shown: list[str], choices: dict[str, Any], name: str
) -> None:
    assert style.line(shown, choices) == name


def test_settings_are_written_as_in_a_paper() -> None:
    more = {"model": "rnn", "schedule": "async", "schedule.concurrency": 20, "loss.scale": 10.0}
    said = settings_line({**CONFIG, **more, "delay": "none"})
    assert (
        said == "Fashion-MNIST, RNN, Dirichlet(0.5), asynchronous, N=100, S=10, M_c=20, K=5, B=32, loss × 10"
    )
    assert settings_line({"dataset": "emnist", "dataset.split": "balanced"}) == "EMNIST (balanced)"
    unset = {"local.steps": None, "local.epochs": None}
    assert settings_line({**unset, "algorithm": "fedavg"}) == "K=10"
    assert settings_line({**unset, "local.epochs_range": [2, 5]}) == ""
    runs = [Run(Path(), {**unset, "algorithm": "mine"}, {"local_steps": 1}, pd.DataFrame())]
    assert settings_line(common(runs)) == "K=1"  # as the run of a user's method says


def runs(*configs: dict[str, object]) -> list[Run]:
    """Runs of these choices; ace's says that it makes one step."""
    said = [{"local_steps": 1} if config.get("algorithm") == "ace" else {} for config in configs]
    every = zip(configs, said, strict=True)
    chosen = {**CONFIG, "algorithm": "fedavg"}
    return [Run(Path(), {**chosen, **config}, of, pd.DataFrame()) for config, of in every]


@pytest.mark.parametrize(
    ("configs", "words"),
    [
        ([{"algorithm": "fedavg"}, {"algorithm": "scaffold"}], "K=10, B=32"),
        ([{"local.epochs": 1}, {"local.epochs": 5}], "B=32"),
        ([{"local.epochs": 1}, {}], "B=32"),
        ([{"algorithm": "fedbuff"}, {"algorithm": "ace"}], "B=32"),  # which has its own
        ([{"local.steps": 10}, {}], "K=10, B=32"),
    ],
)
def test_what_differs_between_runs_is_no_shared_setting(configs: list[dict[str, Any]], words: str) -> None:
    """K follows from epochs, or from the method, where local.steps is null."""
    given = runs(*({"local.steps": None, **config} for config in configs))
    assert settings_line(common(given)).partition("S=10, ")[2] == words


def test_a_key_that_some_runs_lack_is_not_shared() -> None:
    """Wherever the run without it stands; null is a value, and no lack."""
    a, b, c = runs(*({"algorithm.mu": 0.5, "local.momentum": None} if full else {} for full in (1, 0, 1)))
    for order in ([a, b, c], [b, a, c], [a, c, b]):
        assert not {"algorithm.mu", "local.momentum"} & {*common(order)}
    assert common([a, c]) == {**b.settings(), "algorithm.mu": 0.5, "local.momentum": None}


def test_a_method_without_the_variant_is_only_its_name(tmp_path: Path) -> None:
    """FedAvg beside FedProxVR's estimators, told apart by both keys."""
    for index, (name, estimator) in enumerate(
        [("fedavg", None), ("fedproxvr", "svrg"), ("fedproxvr", "sarah")]
    ):
        config = {"algorithm.estimator": estimator} if estimator else {}
        write_run(tmp_path / str(index), rows(0.8, 1.0, 0), algorithm=name, config=config)
    series = group(read([tmp_path]), by=["algorithm", "algorithm.estimator"])
    assert [line.label for line in series] == ["FedAvg", "FedProxVR (SVRG)", "FedProxVR (SARAH)"]
    assert len({line.style.colour for line in series}) == 3  # two estimators are two methods


def test_no_two_methods_of_a_picture_have_one_colour() -> None:
    """SCAFFOLD and MasFL are both blue; who comes first keeps it, and so does everybody without a rival."""
    names_of = ["scaffold", "masfl", "padamfed", "adamasfl", "fedavg"]
    looks = style.line_styles([(name, name, name) for name in names_of])
    assert len({look.colour for look in looks}) == len(looks)
    for rank in (0, 2, 4):
        assert looks[rank].colour == style.ALGORITHMS[names_of[rank]].colour
    every = style.line_styles([(name, name, name) for name in list(style.ALGORITHMS)[:8]])
    assert len({look.colour for look in every}) == 8


def test_settings_of_a_method_share_its_colour_and_differ_in_dash_and_marker() -> None:
    looks = style.line_styles([("scaffold", "SCAFFOLD", "lr=1"), ("scaffold", "SCAFFOLD", "lr=2")])
    assert looks[0].colour == looks[1].colour
    assert (looks[0].dash, looks[0].marker) != (looks[1].dash, looks[1].marker)


# ---- looks: told apart by colour, in grey, and by colour-blind readers -----------------------------------


def rgb(colour: str) -> np.ndarray:
    return np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])


def test_every_algorithm_has_a_style() -> None:
    assert set(style.ALGORITHMS) == {method.name for method in every()}, "scripts/readme_table writes it"


def test_no_two_methods_share_dash_and_marker_so_grey_prints_can_be_read() -> None:
    looks = [*style.ALGORITHMS.values(), *style.READINGS.values()]
    pairs = [(str(look.dash), look.marker) for look in looks]
    assert len(set(pairs)) == len(pairs)


def test_deuteranopes_can_tell_the_colours_apart() -> None:
    """Viénot, Brettel and Mollon (1999): the deuteranope's view of linear RGB."""
    view = np.array([[0.29275, 0.70725, 0.0], [0.29275, 0.70725, 0.0], [-0.02234, 0.02234, 1.0]])
    seen = [np.clip(view @ rgb(colour) ** 2.2, 0, 1) ** (1 / 2.2) for colour in style.COLOURS]
    nearest = min(np.linalg.norm(a - b) for a, b in itertools.combinations(seen, 2))
    assert nearest > 0.15


def test_an_unknown_algorithm_keeps_one_hollow_style() -> None:
    mine = style.of_algorithm("my_method")
    assert mine == style.of_algorithm("my_method")
    assert mine.label == "my_method"
    assert not mine.filled
    assert mine.line()["markerfacecolor"] == "white"
