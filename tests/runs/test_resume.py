"""A run that dies after every update and goes on is the run that was never interrupted, bit for bit: whatever
state there is, and whatever is forgotten of it makes these tests fail."""

from __future__ import annotations

from pathlib import Path

import pytest
from run_files import metrics, runs, same_model, summary

import fedbench
from fedbench.errors import UserError
from fedbench.runs.server_loop import ServerLoop

BASE = (
    "rounds=3 clients.total=5 clients.per_round=2 local.steps=2 local.batch_size=8 partition=dirichlet "
    "progress=none checkpoint.seconds=0 engine=vmap"
)
run = runs(BASE)
NORM = ["model=cnn", "model.norm=batch", "dataset.train_samples=100", "dataset.test_samples=40"]
ASYNC = ["schedule=async", "schedule.concurrency=4", "delay=exponential"]
MOMENTUM = ["optimizer.momentum=0.9", "optimizer.keep=true", "local.clip_norm=0.5"]
COSINE = ["lr_schedule=cosine", "lr_schedule.warmup=2", "server_lr_schedule=exponential"]
CYCLIC = ["participation=cyclic", "participation.groups=2", "participation.stragglers=0.5"]
UPDATE = ServerLoop.update


def dying_after_every_update(directory: Path, *words: str) -> int:
    """The same run, of which every process makes one update and dies before the next; how many it took."""

    def mortal(walk: ServerLoop) -> None:
        if getattr(walk, "tired", False):
            raise SystemExit
        walk.tired = True  # type: ignore[attr-defined]
        UPDATE(walk)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ServerLoop, "update", mortal)
        for processes in range(1, 50):
            try:
                run(directory, *words)
                return processes
            except SystemExit:
                continue
    raise AssertionError("it never ends")


@pytest.mark.parametrize(
    "words",
    [
        [*NORM, "algorithm=scaffold"],
        [*NORM, "algorithm=fedbn"],
        [*NORM, "algorithm=fedbuff", *ASYNC],
        ["algorithm=fedavg", "eval.model=mean_of_two"],
        ["algorithm=fedadam"],
        ["algorithm=padamfed_vr"],
        ["algorithm=ca2fl", *ASYNC],
        ["algorithm=masfl", *ASYNC],
        ["algorithm=fedasync", "clients.per_round=1", "rounds=9", *ASYNC],
        ["algorithm=feddyn", *MOMENTUM, "state.place=disk", "dtype=float64"],
        ["algorithm=fedbuff", *MOMENTUM, *ASYNC, "schedule.p_fail=0.2", "lr_schedule=cosine", "trace=true"],
        ["algorithm=fedbn", "model=mlp", "model.norm=layer", *MOMENTUM, "engine=loop"],
        ["algorithm=scaffold", *COSINE, *CYCLIC, "trace=true"],
        ["algorithm=scaffold", "eval.clients=true", "eval.finetune_steps=2", "dataset.validation=0.2"],
        ["algorithm=fedproxvr", "algorithm.lr=null", "algorithm.beta=5", "algorithm.L=null"],  # L at theta^0
        ["patience=1", "algorithm.lr=1e-12"],  # ends with round 2
        ["patience=1", "algorithm.lr=1e-12", *ASYNC],
    ],
    ids=" ".join,
)
def test_dying_after_every_update_changes_nothing(tmp_path: Path, words: list[str]) -> None:
    words = [*words, "eval.every=2", f"eval.train={'algorithm=fedbn' not in words}".lower()]
    run(tmp_path / "whole", *words)
    assert dying_after_every_update(tmp_path / "parts", *words) == summary(tmp_path / "whole")["rounds"]
    assert metrics(tmp_path / "parts") == metrics(tmp_path / "whole")
    assert same_model(tmp_path / "parts", tmp_path / "whole")
    for file in tmp_path.glob("whole/[cj]*s.csv"):  # clients.csv, jobs.csv
        assert (tmp_path / "parts" / file.name).read_bytes() == file.read_bytes()


def test_another_run_in_a_given_directory_is_refused(tmp_path: Path) -> None:
    """By `fedbench.run` as by the command line: no number of the run that lies there is handed out for it."""
    first = fedbench.run(BASE.split(), directory=tmp_path)
    with pytest.raises(UserError, match=r"^eval\.final_k=3: .*holds a run with eval\.final_k="):
        fedbench.run([*BASE.split(), "eval.final_k=3"], directory=tmp_path)
    again = fedbench.run([*BASE.split(), "device=cpu", "chunk=1"], directory=tmp_path)  # no other run
    assert again.final_accuracy == first.final_accuracy
