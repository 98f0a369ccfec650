"""The report: every line leads to its claim, the runs behind it and their commands; counts agree."""

from __future__ import annotations

import io
import json
import re
import shlex
import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from papers.keep import NAME, keep
from run_files import Call

from fedbench.config.compose import compose
from fedbench.config.identity import run_hash
from fedbench.figures.results import read
from fedbench.papers import CLAIMS, FIGURES, PAPERS
from fedbench.papers.behind import on_test, steps, what_was_run
from fedbench.papers.claims import WORDS, Way
from fedbench.papers.evidence import MADE, SCALES, Evidence
from fedbench.papers.figure import command, shown
from fedbench.papers.figure_page import CLAIMS as CLAIMS_BELOW
from fedbench.papers.report import BEGIN, END, write_report
from fedbench.papers.why import command_of, why

ROOT = Path(__file__).parents[2]
LINK = re.compile(r"\]\(([^)#]*)(?:#([^)]*))?\)")
TUNED = ("fedbuff", "ca2fl", "defedavg_niid", "fadas", "masfl")


def counted(text: str) -> dict[str, int]:
    """How often a text says that each word was given: `2 agrees, 1 mixed`."""
    return {word: int(number) for number, word in re.findall(rf"(\d+) ({'|'.join(WORDS)})", text)}


def of_table() -> dict[str, str]:
    """The word of each of the papers' claims, from the words of its ways in claims.csv, by the rules
    again."""
    table = pd.read_csv(ROOT / "outputs/figures/claims.csv")
    found = {}
    for name, part in table[(table.kind == "paper") & ~table["ours to read"]].groupby("claim", sort=False):
        words = {*part.word}
        open_ = words == {"too few"} or words in ({"too few", "agrees"}, {"too few", "disagrees"})
        found[str(name)] = "too few" if open_ else words.pop() if len(words) == 1 else "mixed"
    return found


# ---- the committed report --------------------------------------------------------------------------------


def test_every_link_of_the_pages_leads_to_a_claim_or_a_file() -> None:
    """Of the first page, the papers' and the figures' pages, with the headings that they name."""
    pages = [ROOT / "outputs/README.md", *(ROOT / "outputs/figures").rglob("README.md")]
    seen = 0
    for page in pages:
        for place, heading in LINK.findall(page.read_text()):
            file = page.parent / place
            assert file.exists(), f"{page}: {place}"
            if heading:
                headings = re.findall(r"^### (.*)$", file.read_text(), re.MULTILINE)
                assert heading in map(str.lower, headings), f"{page}: {heading}"
                seen += 1
    assert seen > len(CLAIMS)
    assert pages[0].stat().st_size <= 10_000


def test_the_front_pages_sentences_agree_with_the_tables() -> None:
    """Each paper's counts, in README.md and outputs/README.md, are those of claims.csv; a headline has its
    claim's word."""
    words, first = of_table(), (ROOT / "outputs/README.md").read_text()
    front = (ROOT / "README.md").read_text().partition(BEGIN)[2].partition(END)[0]
    of = {claim.name: claim.text for claim in CLAIMS}
    for text in (front, first):
        said = re.findall(r"Of its (\d+) claims: ([\w, ]*)\.", text)
        papers = [paper for paper in PAPERS if paper.first]
        assert len(said) == len(papers)
        for (number, many), paper in zip(said, papers, strict=True):
            mine = Counter(words[claim.name] for claim in paper.claims if claim.kind == "paper")
            assert (int(number), counted(many)) == (mine.total(), dict(mine)), paper.name
            for name in list(paper.first)[: 3 if text is front else None]:
                if text is front:
                    assert f"**{words.get(name, 'agrees')}** {of[name]}: " in front
                else:
                    row = next(line for line in text.splitlines() if f"([{name}](" in line)
                    assert f" **{words.get(name, 'agrees')}**: " in row
    assert front.count("<img ") == len(papers)


@pytest.mark.slow
def test_the_runs_behind_a_number_have_it_as_their_mean() -> None:
    """Of the first way to read Figure 1: twelve runs, PAdaMFed's first; its numbers by seed are theirs."""
    lines = "\n".join(why("padamfed-accuracy-iid", ROOT)).split("\n\n")
    first = next(part for part in lines if "ours " in part)
    number = re.search(r"ours ([\d.]+)% \+- ([\d.]+)% \(3\)", first)
    assert number
    runs = re.findall(r"^   seed \d: ([\d.]+) \(best [\d.]+\), completed: (\S+)$", first, re.MULTILINE)
    ours = [100 * float(score) for score, name in runs if "algorithm_padamfed-" in name]
    assert len(runs) == 12
    assert [f"{np.mean(ours):.1f}", f"{np.std(ours, ddof=1):.1f}"] == list(number.groups())
    by_seed = re.findall(r"^   seed \d: PAdaMFed ([\d.]+), .*; the opposite by", first, re.MULTILINE)
    assert [100 * float(score) for score in by_seed] == pytest.approx(ours, abs=0.01)
    assert first.count("      fedbench algorithm=") == 12


@pytest.mark.parametrize("name", ["padamfed/fig1", "adamasfl/fig2", "fedproxvr/table1", "peers/niid_fmnist"])
def test_the_command_of_a_kept_run_computes_that_run(name: str) -> None:
    """Composed, its words have the identity that the run is named after."""
    run = read([shown(name, "cpu", ROOT)])[-1]
    program, *words = shlex.split(command_of(run.choices))
    assert program == "fedbench"
    assert run.source.endswith(f"-{run_hash(compose(words).config)}")


@pytest.mark.slow
def test_what_is_published_is_what_would_be_drawn_now(tmp_path: Path, fedbench: Call) -> None:
    """The words of captions and pages, the points, and the tables beside them: drawn again from what is kept,
    they are the same. Of figures that one function draws in the same way, the first."""
    shutil.copytree(ROOT / "outputs/figures", tmp_path / "outputs/figures")
    kept = [(name, scale) for name in FIGURES for scale in SCALES if shown(name, scale).is_dir()]
    kinds = {
        FIGURES[name].draw: (name, scale) for name, scale in reversed(kept)
    }  # each table of peers is one
    for scale in SCALES:
        if names := [name for name, at in kinds.values() if at == scale]:
            fedbench.done("figures", *names, "--scale", scale, "--redraw")
    for file in sorted(Path("outputs/figures").rglob("*/*/*")):
        if file.suffix in (".json", ".md", ".csv"):
            assert file.read_text() == (ROOT / file).read_text(), f"{file}: fedbench figures --redraw"


@pytest.mark.slow
def test_the_committed_report_is_that_of_the_committed_results(tmp_path: Path) -> None:
    """Its numbers come from the CSV files: written again (`scripts/figures --report`), it is the same, and so
    is what README.md says of it."""
    shutil.copytree(ROOT / "outputs/figures", tmp_path / "outputs/figures")
    shutil.copy(ROOT / "README.md", tmp_path)
    pages = list(tmp_path.rglob("README.md"))
    written = {page: page.read_bytes() for page in pages}
    for file in write_report(tmp_path):
        assert file.read_bytes() == (ROOT / file.relative_to(tmp_path)).read_bytes(), file.name
    assert written == {page: page.read_bytes() for page in pages}


# ---- reports on invented results ---------------------------------------------------------------------------


def test_the_report_is_made_from_what_is_kept(tmp_path: Path, fedbench: Call) -> None:
    """The first page, the papers' pages, a page for the figure (pictures, captions, provenance, claims), and
    how a claim has its word."""
    scores = {"adamasfl": 0.8, **dict.fromkeys(TUNED, 0.6), "fedbuff": 0.7}
    out = keep(tmp_path, scores, run_seconds=5400)
    fedbench.done("figures", "--report")
    text = Path("outputs/README.md").read_text()
    assert '<img width="260" alt="fig1" src="figures/adamasfl/fig1/cpu/updates.png">' in text
    assert f"Not made yet: {next(iter(FIGURES))}, " in text
    page = (out / "README.md").read_text()
    for said in ("![updates](updates.png)\n\n*Fifteen runs.*", "15 completed (1.5 core-hours)",
                 "commit 0123456789.",
                 "[adamasfl-accuracy](../../../adamasfl/README.md#adamasfl-accuracy)"):  # fmt: skip
        assert said in page
    claims = pd.read_csv("outputs/figures/claims.csv").set_index(["claim", "reading"])
    ours = claims.loc[("adamasfl-accuracy", "one norm")]
    assert (ours.word, ours.command, ours["holds in"]) == ("agrees", command(NAME, "cpu"), "3 of 3")
    assert (ours.ours, ours.other) == ("80.0% +- 0.0% (3)", "FedBuff 70.0% +- 0.0% (3)")
    assert (ours.difference, ours.low, ours.high) == pytest.approx((0.1001, 0.099852, 0.100348), abs=1e-6)
    assert claims.notes["padamfed-accuracy-iid", "ten digits, one norm"] == "not made yet"
    pages = "".join(page.read_text() for page in Path("outputs/figures").glob("*/README.md"))
    assert all(f"### {claim.name}\n" in pages for claim in CLAIMS if claim.kind != "peers")  # no tables kept
    said = fedbench.done("figures", "--why", "adamasfl-accuracy")
    assert "seed 2: AdaMasFL 0.8002, FedBuff 0.7, CA2FL 0.6, " in said
    assert "; holds by 0.1002\n" in said
    assert "   so agrees: it holds in every seed\n" in said
    assert (
        "seed 2: 0.8002 (best 0.8), completed: final/adamasfl-vector-2\n      fedbench algorithm=adamasfl "
        in said
    )
    assert (
        "adamasfl/fig1_average: too few\n   so too few: there are no numbers\n   note: not made yet" in said
    )
    said = fedbench.refused("figures", "--behind", "adamasfl-concurency")
    assert "did you mean 'adamasfl-concurrency'" in said


def test_a_claims_word_is_explained_from_any_directory(
    tmp_path: Path, fedbench: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the results of the checkout where none are here; a wheel without any says so."""
    assert "1. beta, theory/optimum: agrees\n" in fedbench.done("figures", "--why", "cheap-computation")
    monkeypatch.setattr("fedbench.papers.command.conf_dir", lambda: tmp_path / "conf")
    assert "no results here (outputs/figures)" in fedbench.refused("figures", "--why", "cheap-computation")


def test_what_is_drawn_again_is_judged_again_where_a_table_is_another_one(fedbench: Call) -> None:
    """Else the figure's page is written, with what it says of claims, and no other one."""
    asked = ["figures", "theory/comparison"]
    fedbench.done(*asked)
    page, first = Path("outputs/smoke/theory/comparison/README.md"), Path("outputs/smoke/README.md")
    before, judged = page.read_text() + f"{CLAIMS_BELOW}\n- **agrees** said\n", first.read_text()
    page.write_text(before.replace("Made by", "Gone"))
    first.write_text("as it was")
    fedbench.done(*asked, "--redraw")
    assert (page.read_text(), first.read_text()) == (before, "as it was")
    page.with_name("comparison.csv").write_text("another\n")
    fedbench.done(*asked, "--redraw")
    assert first.read_text() == judged


TRIALS = """algorithm,partition,algorithm.lr,algorithm.norm,search,seeds,mean,diverged,role,edge
fedbuff,dirichlet,0.03,,,2,0.6,0,neighbour,
fedbuff,dirichlet,0.1,,,2,0.65,0,winner,algorithm.lr:high
fedbuff,iid,0.3,,,2,0.9,0,winner,
adamasfl,dirichlet,0.5,vector,elsewhere,2,0.7,0,winner,
"""


def test_how_the_methods_were_tuned_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a claim's row in short, by --why whole: settings tried, the samples that scored them, their seeds.
    All follows from what is kept: a figure that is made again on held-out samples is in the list of those
    tuned on test data no more."""
    monkeypatch.chdir(tmp_path)
    for share, samples, seeds in ((None, "test", "0 1"), (0.1, "held-out", "100 101")):
        out = keep(tmp_path, {"adamasfl": 0.8, **dict.fromkeys(TUNED, 0.7)}, validation=share)
        (out / "tuning.csv").write_text(TRIALS)
        write_report(tmp_path)
        first = (tmp_path / "outputs/README.md").read_text()
        assert (f"hyper-parameters in {NAME} were chosen by test accuracy" in first) is not share
        table = pd.read_csv(tmp_path / "outputs/figures/claims.csv").set_index("claim")
        row = table.loc["adamasfl-accuracy"].query("figure == @NAME").iloc[0]
        assert row.run.endswith(f"; FedBuff tuned: 2 settings, {samples} samples, seed {seeds}")
        assert bool(row.tuned_on_test) is not share
        by = f"by the accuracy on {samples} samples, seed {seeds}" + " (dataset.validation=0.1)" * bool(share)
        told = (f"tuned FedBuff: 2 settings of lr 0.03 0.1, {by}; best lr=0.1 (65.0%), at an edge of what was"
                " tried: algorithm.lr:high")  # fmt: skip
        assert f"   {told}" in list(why("adamasfl-accuracy", tmp_path))


def test_a_number_is_tuned_on_test_data_if_its_own_methods_are() -> None:
    """Another method's search does not matter, nor that of the same method in other runs: of another norm, or
    at the theorem's step sizes."""
    rows = pd.DataFrame({"algorithm": ["adamasfl"], "algorithm.norm": "vector", "partition": "dirichlet",
                         "seed": 0, "dir": "final-elsewhere/a", "stage": "final-elsewhere"})  # fmt: skip
    tuning = pd.read_csv(io.StringIO(TRIALS))
    for one, scored, expected in (
        (rows, {}, True),
        (rows, {"validation": 0.2}, False),
        (rows.assign(stage="final"), {}, False),
        (rows.assign(**{"algorithm.norm": "tensor"}), {}, False),
        (rows.assign(algorithm="masfl"), {}, False),
    ):
        way = Way(rows=(one,))
        assert on_test(way, Evidence(one, tuning=tuning, made=scored)) is expected


def test_a_row_says_what_a_theorem_gave() -> None:
    """What is set, what is not, and what is swept, of which all are listed or the ends."""
    rows = pd.DataFrame({"algorithm.lr": [None, None], "algorithm.server_lr": ["average"] * 2,
                         "hyper.lr": [0.0158114, 0.0223607], "hyper.server_lr": [1.0, 1.0]})  # fmt: skip
    assert steps(rows) == "server_lr=average, theorem's lr=0.0158 0.0224"
    swept = pd.DataFrame({"algorithm.lr": [0.1 * (k + 1) for k in range(12)], "seed": 0, "dir": "a/b",
                          "stage": "a", "algorithm": "fedavg", "dataset": "fmnist",
                          "partition": ["iid", "dirichlet"] * 6,
                          "partition.alpha": [None, 0.5] * 6})  # fmt: skip
    way = Way(rows=(swept,), chosen="the best")
    words = "iid or Dirichlet(0.5), Fashion-MNIST, seed 0, lr=0.1 to 1.2 (12 values); the best"
    assert what_was_run(way, Evidence(swept)) == words


@pytest.mark.parametrize(("column", "values"), [("tuned", (True, False)), ("chosen", ("lr=0.1 of 3", None))])
def test_what_was_chosen_by_the_test_data_shown_is_said(
    column: str, values: tuple[object, object], tmp_path: Path
) -> None:
    """Without a search, the best of several settings counts: a table of the figure says so."""
    out = keep(tmp_path, {"adamasfl": 0.8})
    for count, said in ((2, True), (0, False)):
        pd.DataFrame({column: values[:count]}).to_csv(out / "table.csv", index=False)
        files = {"files": ["updates.json", "updates.png", "table.csv"]}
        (out / MADE).write_text(json.dumps({**json.loads((out / MADE).read_text()), **files}))
        write_report(tmp_path)
        text = (tmp_path / "outputs/README.md").read_text()
        assert (f"by test data**: {NAME} have no search" in text) is said


def test_a_way_of_ours_is_shown_and_decides_nothing(tmp_path: Path) -> None:
    """AdaMasFL is behind at the theorem's step sizes; ours, added later, has it ahead: the claim
    disagrees."""
    others = dict.fromkeys(TUNED, 0.7)
    both = ("vector", "tensor")
    keep(tmp_path, {"adamasfl": 0.6, **others}, norms=both)
    stages = {"final": 0.6, "final-elsewhere": 0.8}
    keep(tmp_path, {"adamasfl": 0.6, **others}, f"{NAME}_average", stages=stages, norms=both)
    write_report(tmp_path)
    page = (tmp_path / "outputs/figures/adamasfl/README.md").read_text()
    entry = page.split("### adamasfl-accuracy\n")[1].split("###")[0]
    assert entry.strip().startswith("**disagrees** AdaMasFL reaches state-of-the-art")
    (row,) = (one for one in entry.splitlines() if "eta of another task, one norm †‡" in one)
    assert "| 80.0% +- 0.0% (3) | FedBuff 70.0% +- 0.0% (3) | 3 of 3 | **agrees** |" in row
    first = (tmp_path / "outputs/README.md").read_text()
    assert (
        "**disagrees**: ours 60.0% +- 0.0% (3), FedBuff 70.0% +- 0.0% (3) (one norm). All 4 ways |" in first
    )


def test_smoke_results_are_no_part_of_the_report(tmp_path: Path) -> None:
    """They and their report lie in a directory of their own, which is not committed; they decide no claim."""
    out = keep(tmp_path, {"adamasfl": 0.8, "fedbuff": 0.7}, scale="smoke")
    assert out == tmp_path / "outputs/smoke" / NAME
    write_report(tmp_path)
    assert "updates.png" not in (tmp_path / "outputs/README.md").read_text()
    before = {file: file.read_bytes() for file in (tmp_path / "outputs").glob("*.md")}
    report, csv = write_report(tmp_path, smoke=True)
    assert report == tmp_path / "outputs/smoke/README.md"
    text = report.read_text()
    assert f'src="{NAME}/updates.png"' in text
    assert text.startswith("# What was reproduced? Nothing at scale smoke")
    page = (out / "README.md").read_text()
    assert "with digits and mlp in place of the paper's data and model" in page
    assert "(../../adamasfl/README.md#adamasfl-accuracy)" in page
    assert set(pd.read_csv(csv).word) == {"too few"}
    assert before == {file: file.read_bytes() for file in (tmp_path / "outputs").glob("*.md")}
