"""A user's configuration files: every line names the file, the key and what is allowed."""

from __future__ import annotations

from pathlib import Path

import pytest
from run_files import Call

from fedbench.config.options import conf_dir

RUN = "# @package _global_\n"
REFUSED = [
    ("experiment/e", RUN + "sede: 3\n",
     "sede=3: no such key; `fedbench --help` shows all keys", "(did you mean 'seed'?)"),
    ("experiment/e", RUN + "clients: 3\n", "clients=3: is a section; write clients.KEY=VALUE"),
    ("experiment/e", RUN + "algorithm: {lrr: 0.1}\n", "algorithm.lrr=0.1: no such key", "'algorithm.lr'"),
    ("experiment/e", RUN + "defaults: [override /delay: constant]\ndelay: {c: -1}\n",
     "delay.c=-1: must be a number > 0"),
    ("experiment/e", RUN + "rounds: [\n", "e.yaml"),
    ("experiment/e", "rounds: 3\n", "must begin with the line '# @package _global_'"),
    ("experiment/e", RUN + "- a\n", "Cannot merge "),
    ("experiment/e", RUN + "imports: 5\n", "imports=5: must be a list such as [a, b]"),
    ("experiment/e", RUN + "seed: {a: 1}\n", "seed.a=1: no such key"),
    ("experiment/e", RUN + "defaults: [override /dataset: [mnist, fmnist]]\n",
     "one option, not several in a file's defaults"),
    ("experiment/e", RUN + "rounds: 3 # \xe9\n", "e.yaml: must be UTF-8, but line 2 has the byte 0xe9"),
    ("experiment/e", RUN + "hydra: {launcher: 3}\n", "hydra.launcher=3: must be a section; "),
    ("experiment/e", RUN + "hydra: {sweeper: null}\n", "hydra.sweeper=null: must be a section"),
    ("experiment/e", RUN + "hydra: {sweeper: {grids: [1]}}\n", "hydra.sweeper.grids.0=1: must be a section"),
    ("experiment/e", RUN + "hydra: {sweeper: {params: {seed: {a: 1}}}}\n",
     "hydra.sweeper.params.seed={...}: must be values to try, such as 0.1,0.2"),
    ("main", "defaults: [config, _self_]\nround: 3\n", "round=3: no such key", "(did you mean 'rounds'?)"),
    ("algorithm/a", "", "its file must hold keys with values, 'name: ...' among them"),
    ("algorithm/a", "- a\n- b\n", "algorithm/a.yaml: must hold keys with values, not a list"),
    ("algorithm/a", "lr: 0.1\n", "its file must hold keys", "'name: ...' among them; it has lr"),
    ("algorithm/a", "name: x # \xe9\n", "a.yaml: must be UTF-8, but line 1 has the byte 0xe9"),
    ("dataset/d", "name: npzz\n",
     "dataset.name=npzz: must be the name of an option: digits, ", "(did you mean 'npz'?)"),
    ("delay/d", "name: constant\nd: 3\n", "delay.d=3: no such key; delay=constant has c, speed"),
]  # fmt: skip
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
    file.write_text(text, encoding="latin-1")


def arguments(name: str) -> list[str]:
    """The arguments that have the file `name` of the directory mine/ read."""
    group, _, option = name.rpartition("/")
    return ["--config-dir", "mine", *([f"{group}={option}"] if group else ["--config-name", option])]


@pytest.mark.parametrize(("name", "text", "says"), [(case[0], case[1], case[2:]) for case in REFUSED])
def test_what_is_wrong_is_named_with_its_file(
    runs: object, fedbench: Call, tmp_path: Path, name: str, text: str, says: tuple[str, ...]
) -> None:
    write(tmp_path / "mine", name, text)
    line = fedbench.refused(*arguments(name))
    assert [words for words in (f"{name}.yaml", *says) if words not in line] == []
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


@pytest.mark.parametrize(("name", "text"), FINE)
def test_what_may_be_right_is_left_alone(fedbench: Call, tmp_path: Path, name: str, text: str) -> None:
    write(tmp_path / "mine", name, text)
    fedbench.done(*arguments(name), "--cfg", "job")


def test_the_command_line_names_the_file_and_no_other(fedbench: Call, tmp_path: Path) -> None:
    for name in ("algorithm/bad", "experiment/bad"):
        write(tmp_path, f"mine/{name}", "name: x # \xe9\n")
    write(tmp_path, "mine/experiment/base", RUN + "defaults:\n  - override /model: mpl\n")
    for words, says in [
        ("experiment=bad", "mine/experiment/bad.yaml: must be UTF-8, "),
        ("algorithm=bad", "mine/algorithm/bad.yaml: must be UTF-8, "),
        ("experiment=base", "(did you mean 'mlp'?)"),
    ]:
        assert says in fedbench.refused("--config-dir", "mine", words)


def test_a_users_file_counts_before_ours_of_the_same_name(runs, fedbench: Call, tmp_path: Path) -> None:
    write(tmp_path, "mine/algorithm/fedavg", "name: fedavg\nlr: 0.77\nserver_lr: 1.0\nweighting: samples\n")
    write(tmp_path, "mine/algorithm/scaffold", "name: scaffold\nrate: 0.5\n")
    fedbench.done("--config-dir", "mine", "algorithm=fedavg", "seed=3")
    assert runs.done[0].algorithm.lr == 0.77
    fedbench.done("--config-dir", "mine", "--multirun", "algorithm=fedavg", "seed=4,5")
    assert [cfg.algorithm.lr for cfg in runs.done[1:]] == [0.77, 0.77]
    err = fedbench.refused("--config-dir", "mine", "algorithm=scaffold", "algorithm.lr=1")
    assert "algorithm.lr=1: no such key; algorithm=scaffold has rate" in err


def test_a_users_first_file_is_used_or_refused(runs, fedbench: Call, tmp_path: Path) -> None:
    ours = (conf_dir() / "config.yaml").read_text()
    write(tmp_path, "mine/config", ours.replace("data:\n", "rounds: 7\ndata:\n"))
    fedbench.done("--config-dir", "mine")
    assert runs.done[0].rounds == 7
    fedbench.done("hydra.run.dir=there")
    write(tmp_path, "other/config", "rounds: 7\n")
    write(tmp_path, "circle/config", "defaults: [config, _self_]\n")
    for words, says in [
        ("there --config-name config", "fedbench replay DIR computes a run again"),
        ("other", "settings of your own go into another file"),
        ("circle", "a file among its own defaults"),
    ]:
        assert says in fedbench.refused("--config-dir", *words.split())
    assert len(runs.done) == 2


def test_list_shows_a_users_options_and_executes_nothing(fedbench: Call, tmp_path: Path) -> None:
    write(tmp_path, "mine/model/tiny", "# A very small network.\nname: tiny\n")
    write(tmp_path, "mine/algorithm/signed", "# Signs.\nname: signed\n")
    for group, line in (("models", "tiny  A very small network."), ("algorithms", "signed  Signs.")):
        assert fedbench.done("list", group, "--config-dir", "mine").endswith(f"\nin mine:\n{line}\n")
    fedbench.refused("list", "models", "--config-dir", "nowhere")


def test_a_hook_runs_but_makes_no_other_run(runs, fedbench: Call, tmp_path: Path) -> None:
    """Code that `imports` names may change the numbers; what `hooks` names only watches."""
    (tmp_path / "hook.py").write_text("from pathlib import Path\nPath('seen').write_text('x')\n")
    assert fedbench("seed=1")[0] == 0
    assert fedbench.done("seed=1", "hooks=[hook.py]").startswith("finished before")
    assert fedbench("seed=2", "hooks=[hook.py]")[0] == 0
    assert (tmp_path / "seen").is_file()
    assert fedbench.done("seed=2").startswith("finished before")
    assert len(runs.done) == 2
    line = "hooks=nowhere.py: must be a module importable from here, or a path to a .py file"
    assert line in fedbench.refused("seed=3", "hooks=[nowhere.py]")
