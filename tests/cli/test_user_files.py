"""A user's configuration files: every line names the file, the key and what is allowed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from fedbench.config.user_files import check_file
from fedbench.errors import UserError

Call = Callable[..., tuple[int, str, str]]
RUN = "# @package _global_\n"
REFUSED = [
    ("experiment/e", RUN + "sede: 3\n", "sede=3: no such key; keys are rounds, ", "(did you mean 'seed'?)"),
    ("experiment/e", RUN + "rounds: many\n", "rounds=many: must be an integer >= 0"),
    ("experiment/e", RUN + "clients: {per_round: 0}\n", "clients.per_round=0: must be an integer >= 1"),
    ("experiment/e", RUN + "clients: 3\n", "clients=3: is a section; write clients.KEY=VALUE"),
    ("experiment/e", RUN + "algorithm: {lrr: 0.1}\n", "algorithm.lrr=0.1: no such key", "'algorithm.lr'"),
    ("experiment/e", RUN + "delay: {c: -1}\n", "delay.c=-1: must be a number > 0"),
    ("experiment/e", "rounds: 3\n", "must begin with the line '# @package _global_'"),
    ("experiment/e", "", "must begin with the line '# @package _global_'"),
    ("experiment/e", RUN + "- a\n", "experiment/e.yaml: must hold keys with values, not a list"),
    ("main", "round: 3\n", "round=3: no such key", "(did you mean 'rounds'?)"),
    ("algorithm/a", "", "algorithm=a: its file must hold keys with values, 'name: ...' among them"),
    ("algorithm/a", "- a\n- b\n", "algorithm/a.yaml: must hold keys with values, not a list"),
    ("algorithm/a", "lr: 0.1\n", "algorithm=a: its file must hold keys", "'name: ...' among them; it has lr"),
    ("dataset/d", "name: npzz\n", "dataset.name=npzz: must be one of digits, ", "(did you mean 'npz'?)"),
    ("delay/d", "name: constant\nd: 3\n", "delay.d=3: no such key; delay=constant has c, speed, transfer"),
    ("delay/d", "name: constant\nc: x\n", "delay.c=x: must be a number > 0"),
    ("delay/d", "name: constant\ntransfer: {up: 0}\n", "delay.transfer.up=0: must be a number > 0 or a list"),
]
FINE = [
    ("experiment/e", RUN + "rounds: ${oc.env:ROUNDS,3}\nalgorithm: {lr: 1e-3}\nhydra: {sweeper: {}}\n"),
    ("experiment/e", RUN + "defaults: [override /delay: pareto]\ndelay: {cap: null, min: 2}\n"),
    ("algorithm/a", "name: a\nanything: [1, 2]\n"),
    ("algorithm/a", "defaults: [scaffold, _self_]\nlr: 0.2\n"),
    ("dataset/d", "name: npz\npath: my.npz\n"),
    ("main", "defaults: [config, _self_]\nrounds: 3\n"),
    ("hydra/launcher/mine", "n_jobs: 2\n"),
]


def write(directory: Path, name: str, text: str) -> None:
    file = directory / f"{name}.yaml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


@pytest.mark.parametrize(("name", "text", "says"), [(case[0], case[1], case[2:]) for case in REFUSED])
def test_what_is_wrong_is_named_with_its_file(
    tmp_path: Path, name: str, text: str, says: tuple[str, ...]
) -> None:
    write(tmp_path, name, text)
    with pytest.raises(UserError) as caught:
        check_file(tmp_path, name, [tmp_path])
    line = str(caught.value)
    assert caught.value.exit_code == 2
    assert "\n" not in line
    assert f"{name}.yaml" in line
    for words in says:
        assert words in line


@pytest.mark.parametrize(("name", "text"), FINE)
def test_what_may_be_right_is_left_alone(tmp_path: Path, name: str, text: str) -> None:
    write(tmp_path, name, text)
    check_file(tmp_path, name, [tmp_path])


@pytest.mark.parametrize("name", ["experiment/e", "algorithm/a"])
def test_what_is_not_utf8_is_named_with_its_line(tmp_path: Path, name: str) -> None:
    write(tmp_path, name, "")
    (tmp_path / f"{name}.yaml").write_bytes(b"# @package _global_\nrounds: 3 # \xe9\n")
    with pytest.raises(UserError, match=rf"{name}\.yaml: must be UTF-8, but line 2 has the byte 0xe9"):
        check_file(tmp_path, name)


def test_the_command_line_names_the_file_and_no_other(
    fedbench: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("algorithm/bad", "experiment/bad"):
        write(tmp_path, f"mine/{name}", "")
        (tmp_path / "mine" / f"{name}.yaml").write_bytes(b"name: x # \xe9\n")
    write(tmp_path, "mine/experiment/typo", RUN + "algorithm: {lrr: 0.1}\n")
    write(tmp_path, "mine/experiment/top", RUN + "sede: 3\n")
    write(tmp_path, "mine/experiment/kind", RUN + "rounds: many\n")
    for words, says in [
        ("experiment=bad", "mine/experiment/bad.yaml: must be UTF-8, but line 1 has the byte 0xe9"),
        ("algorithm=bad", "mine/algorithm/bad.yaml: must be UTF-8, but line 1 has the byte 0xe9"),
        ("experiment=typo", "(did you mean 'algorithm.lr'?) (in experiment/typo.yaml)"),
        ("experiment=top", "(did you mean 'seed'?) (in experiment/top.yaml)"),
        ("experiment=kind rounds=5", "rounds=many: must be an integer >= 0 (in experiment/kind.yaml)"),
    ]:
        code, out, err = fedbench("--config-dir", "mine", *words.split())
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert says in err
