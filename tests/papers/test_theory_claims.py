"""The claims that need no runs, from the tables as the theory figures keep them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import fedbench
from fedbench.papers import CLAIMS
from fedbench.papers.claims import AGREES, DISAGREES, ways
from fedbench.papers.evidence import MADE, Evidence, read
from fedbench.papers.measures import Moves
from fedbench.papers.theory import BASE, optimum_table, stepsize_table


@pytest.fixture(scope="module")
def evidence(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Evidence]:
    """What the two figures keep, read back."""
    tables = {
        "theory/optimum": {"optimum": optimum_table()},
        "theory/stepsizes": {f"stepsizes_{kind}": stepsize_table(kind) for kind in BASE},
    }
    found = {}
    for figure, parts in tables.items():
        out: Path = tmp_path_factory.mktemp("theory")
        for name, table in parts.items():
            table.to_csv(out / f"{name}.csv", index=False)
        made = {"scale": "paper", "command": "a command", "files": [f"{name}.csv" for name in parts]}
        (out / MADE).write_text(json.dumps(made))
        kept = read(out)
        assert kept is not None
        found[figure] = kept
    return found


def test_claims_that_need_no_runs(evidence: dict[str, Evidence]) -> None:
    """What the slides say of the optimum holds; the parameter-free methods' steps ignore the loss."""
    found = {
        (claim.name, way.words): way.word
        for claim in CLAIMS
        for way in ways(claim, evidence)
        if way.reading.figure in evidence
    }
    assert len(found) == 10
    assert set(found.values()) == {AGREES}, found


def test_the_claim_about_beta_fails_without_the_papers_simplification():
    """With beta free in problem (20), a small gamma need not mean a large beta: the page would say so."""
    full = Evidence(tables={"optimum": optimum_table(form="full")})
    assert next(Moves("beta", "gamma", -1, "optimum", each="sigma2")(full)).word == DISAGREES
    assert next(Moves("tau", "gamma", -1, "optimum", each="sigma2")(full)).word == AGREES


@pytest.mark.parametrize("algorithm", ["padamfed", "padamfed_vr"])
def test_a_factor_on_the_loss_changes_nothing_in_float64(algorithm: str, tmp_path: Path) -> None:
    """In float32 PAdaMFed-VR amplifies its rounding; in float64 the models are the same."""
    words = ["dataset=digits", "model=logistic", "partition=dirichlet", "clients.total=10", "rounds=40",
             "clients.per_round=4", "local.steps=5", "dtype=float64", f"algorithm={algorithm}"]  # fmt: skip
    one, other = (
        fedbench.run([*words, f"loss.scale={factor}"], directory=tmp_path / str(factor)).metrics.test_loss
        for factor in (1, 1000)
    )
    assert other.iloc[-1] == pytest.approx(one.iloc[-1], rel=1e-9)
