"""What is said to users: on any terminal, in few characters, with a way on that can be taken."""

from __future__ import annotations

import io
import sys

import pytest
from omegaconf import OmegaConf

from fedbench import algorithms, compose_config
from fedbench.cli import main
from fedbench.config.compose import compose
from fedbench.config.config import flat


def test_a_page_is_shown_as_far_as_the_terminal_can(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Letters that it lacks are question marks; without them it is the page of a terminal with all."""
    described = algorithms.get("padamfed")
    monkeypatch.setattr(described, "__doc__", f"{described.__doc__}\n\n    Ågren: θ ← θ + γ u\n")

    def shown(encoding: str, stream: str, code: int, *words: str) -> str:
        written = io.TextIOWrapper(io.BytesIO(), encoding)
        monkeypatch.setattr(sys, stream, written)
        assert main(words) == code
        written.flush()
        return written.buffer.getvalue().decode(encoding)  # type: ignore[attr-defined]

    for given in (("stdout", 0, "show", "padamfed"), ("stderr", 2, "rounds=\u0159")):
        whole = shown("utf-8", *given)
        assert not whole.isascii()
        assert shown("ascii", *given) == whole.encode("ascii", "replace").decode()


def test_numbers_and_switches_may_be_given_as_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    """As that of an environment variable is: of sections, options and methods, they are what they say."""
    texts = {
        "seed": ("3", 3), "target": ("0.5", 0.5), "partition.alpha": ("1e-1", 0.1), "loss.scale": ("2", 2.0),
        "algorithm.lr": ("2.5", 2.5),
        "model.dropout": (".5", 0.5), "eval.train": ("yes", True), "dataset.normalize": ("False", False),
    }  # fmt: skip
    for key, (said, _) in texts.items():
        monkeypatch.setenv(key.upper(), said)
    words = ["partition=dirichlet", "model=mlp", *(f"{key}=${{oc.env:{key.upper()}}}" for key in texts)]
    found = flat(compose_config(words))
    assert {key: (found[key], type(found[key])) for key in texts} == {
        key: (value, type(value)) for key, (_, value) in texts.items()
    }


def test_a_plus_before_a_key_of_ours_is_not_needed() -> None:
    """+key=value and key=value are one; what is kept of a run's overrides is what was written."""
    cfg = compose(["+rounds=3", "+algorithm.lr=0.2"]).cfg
    assert OmegaConf.to_container(cfg.hydra.overrides.task) == ["rounds=3", "algorithm.lr=0.2"]
    assert cfg.hydra.job.override_dirname == "algorithm.lr=0.2,rounds=3"
    assert (cfg.rounds, cfg.algorithm.lr) == (3, 0.2)


def test_colours_are_for_terminals_whose_users_want_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    for no_colour, shown in (("", "\033[31mfedbench:\033[0m rounds=x: "), ("1", "fedbench: rounds=x: ")):
        monkeypatch.setenv("NO_COLOR", no_colour)
        terminal = io.StringIO()
        monkeypatch.setattr(terminal, "isatty", lambda: True)
        monkeypatch.setattr(sys, "stderr", terminal)
        assert main(["rounds=x"]) == 2
        assert terminal.getvalue().startswith(shown)
