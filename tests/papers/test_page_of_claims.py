"""The report: every line leads to its claim, the runs behind it and their commands; counts agree."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from papers.keep import NAME, keep
from run_files import Call

from fedbench.config.compose import compose
from fedbench.config.identity import run_hash
from fedbench.figures.results import read
from fedbench.papers import CLAIMS, FIGURES, PAPERS, peers
from fedbench.papers.behind import behind, command_of
from fedbench.papers.claims import CONSISTENT, MADE, SCALES, YES, Claim, Evidence, on_figure
from fedbench.papers.figure import Paper, command, shown
from fedbench.papers.figure_page import CLAIMS as CLAIMS_BELOW
from fedbench.papers.report import anchor, write_report
from fedbench.papers.tests import Leads
from fedbench.papers.verdicts import MARKS, judgements

ROOT = Path(__file__).parents[2]
LINK = re.compile(r"\]\(([^)#]*)(?:#([^)]*))?\)")
COUNT = re.compile(r"(\d+) (yes|~|\?|no)(?!\w)")
TUNED = ("fedbuff", "ca2fl", "defedavg_niid", "fadas", "masfl")


def counted(text: str) -> Counter[str]:
    """Marks and how often a text says that they were given."""
    found: Counter[str] = Counter()
    for number, one in COUNT.findall(text):
        found[one] += int(number)
    return found


# ---- the committed report --------------------------------------------------------------------------------


def test_every_line_of_the_first_page_leads_to_its_claim_and_to_files() -> None:
    """Links of the page, the ledger and the figures' pages exist, with the headings that they name."""
    pages = [
        ROOT / "outputs/README.md",
        ROOT / "outputs/ledger.md",
        *(ROOT / "outputs/figures").rglob("README.md"),
    ]
    seen = 0
    for page in pages:
        for place, heading in LINK.findall(page.read_text()):
            file = page.parent / place
            assert file.exists(), f"{page}: {place}"
            if heading:
                headings = re.findall(r"^### (.*)$", file.read_text(), re.MULTILINE)
                assert heading in map(anchor, headings), f"{page}: {heading}"
                seen += 1
    rows = [line for line in pages[0].read_text().splitlines() if re.match(r"\| (yes|~|\?|no)", line)]
    assert len(rows) >= 19
    assert all("ledger.md#" in row for row in rows)
    assert seen > len(rows)
    assert max(map(len, pages[1].read_text().splitlines())) <= 120


def test_the_gallery_counts_what_the_page_counts() -> None:
    """Each claim once; those of which no figure is kept are in the totals alone."""
    totals, gallery = (ROOT / "outputs/README.md").read_text().split("## Gallery")
    ledger = re.findall(r"^## .*$", (ROOT / "outputs/ledger.md").read_text(), re.MULTILINE)
    kept = {made.parent for made in (ROOT / "outputs/figures").rglob(MADE)}
    places = {claim: {shown(name, scale, ROOT) for name in claim.figures for scale in SCALES}
              for claim in CLAIMS if claim.kind != "peers"}  # fmt: skip
    absent = [claim for claim, several in places.items() if not kept & several]
    assert counted(totals[totals.index("All ") :]) == counted("".join(ledger))
    assert counted("".join(ledger)) - Counter({"?": len(absent)}) == counted(gallery)


def test_rows_of_tables_that_were_not_run_are_said() -> None:
    """They count as undecided, beside those with numbers."""
    table = pd.read_csv(ROOT / "outputs/figures/claims.csv")
    ran = table[table.kind == "peers"].groupby("claim").numbers.apply(lambda cells: cells.notna().any())
    page = (ROOT / "outputs/README.md").read_text()
    assert f"\n{len(ran)} rows of tables of other suites" in page
    assert f"; {(~ran).sum()} are ? since they were not run here." in page


def test_the_first_readme_says_the_same_totals() -> None:
    """The papers' claims and their verdicts, as outputs/README.md counts them."""
    text = (ROOT / "outputs/README.md").read_text()
    totals = re.search(r"All (\d+ claims) of the papers: (.*)\.", text)
    assert totals
    said = " ".join((ROOT / "README.md").read_text().split())
    assert f"Of the {totals[1]} of these papers that we tested {totals[2]}:" in said


@pytest.mark.slow
def test_the_runs_behind_a_number_have_it_as_their_mean() -> None:
    """Of the first reading of Figure 1: twelve runs, PAdaMFed's first."""
    lines = "\n".join(behind("padamfed-accuracy-iid", ROOT)).split("\n\n")
    number = re.search(r"PAdaMFed ([\d.]+)% \+- ([\d.]+)% \(3\)", lines[1])
    assert number
    runs = re.findall(r"^   ([\d.]+) \(best [\d.]+\), completed: (\S+)$", lines[1], re.MULTILINE)
    ours = [100 * float(score) for score, name in runs if "algorithm_padamfed-" in name]
    assert len(runs) == 12
    assert [f"{np.mean(ours):.1f}", f"{np.std(ours, ddof=1):.1f}"] == list(number.groups())
    assert lines[1].count("      fedbench algorithm=") == 12


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
    """Its numbers come from the CSV files: written again (`scripts/figures --report`), it is the same."""
    shutil.copytree(ROOT / "outputs/figures", tmp_path / "outputs/figures")
    pages = [file for file in tmp_path.rglob("README.md") if file.with_name(MADE).is_file()]
    written = {page: page.read_bytes() for page in pages}
    for file in write_report(tmp_path):
        assert file.read_bytes() == (ROOT / file.relative_to(tmp_path)).read_bytes(), file.name
    assert written == {page: page.read_bytes() for page in pages}


# ---- reports on invented results ---------------------------------------------------------------------------


def test_the_report_is_made_from_what_is_kept(tmp_path: Path, fedbench: Call) -> None:
    """A page of verdicts, the ledger, a page for the figure (pictures, captions, provenance, claims), and the
    runs behind a claim."""
    out = keep(tmp_path, {"adamasfl": 0.8, "fedbuff": 0.7}, run_seconds=5400)
    fedbench.done("figures", "--report")
    text = Path("outputs/README.md").read_text()
    rows = [row for paper in PAPERS if paper not in peers.PAPERS for row in paper.rows]
    assert all(f"| ? | {row.result}<br>[" in text for row in rows)
    assert "(figures/adamasfl/fig1/cpu/updates.png)](figures/adamasfl/fig1/cpu/README.md)" in text
    assert f"Not made yet: {next(iter(FIGURES))}, " in text
    page = (out / "README.md").read_text()
    for said in ("![updates](updates.png)\n\n*Fifteen runs.*", "15 completed (1.5 core-hours)",
                 "commit 0123456789.",
                 "- **?** [adamasfl-accuracy](../../../../ledger.md#adamasfl-accuracy)"):  # fmt: skip
        assert said in page
    claims = pd.read_csv("outputs/figures/claims.csv").set_index(["claim", "reading"])
    ours = claims.loc[("adamasfl-accuracy", "one norm")]
    assert (ours.verdict, ours.command) == ("cannot tell", command(NAME, "cpu"))
    assert ours.reason == "no runs of ca2fl with dataset=fmnist, partition=!iid"
    assert claims.reason["padamfed-accuracy-iid", "ten digits, one norm"] == "not made yet"
    ledger = Path("outputs/ledger.md").read_text()
    assert all(f"### {claim.name}\n" in ledger for claim in CLAIMS if claim.kind != "peers")  # no tables kept
    assert f"## Claims of the papers: {sum(claim.kind == 'paper' for claim in CLAIMS)} " in ledger
    said = fedbench.done("figures", "--behind", "adamasfl-concurrency")
    assert f"{MARKS['cannot tell']}  one norm, adamasfl/fig2: not made yet" in said
    said = fedbench.refused("figures", "--behind", "adamasfl-concurency")
    assert "did you mean 'adamasfl-concurrency'" in said


def test_what_is_drawn_again_is_judged_again_where_a_table_is_another_one(fedbench: Call) -> None:
    """Else the figure's page is written, with what it says of claims, and no other one."""
    asked = ["figures", "theory/comparison"]
    fedbench.done(*asked)
    page, ledger = Path("outputs/smoke/theory/comparison/README.md"), Path("outputs/smoke/ledger.md")
    before, judged = page.read_text() + f"{CLAIMS_BELOW}\n- **yes** said\n", ledger.read_text()
    page.write_text(before.replace("Made by", "Gone"))
    ledger.write_text("as it was")
    fedbench.done(*asked, "--redraw")
    assert (page.read_text(), ledger.read_text()) == (before, "as it was")
    page.with_name("comparison.csv").write_text("another\n")
    fedbench.done(*asked, "--redraw")
    assert ledger.read_text() == judged


def test_what_was_tuned_on_test_data_is_said(tmp_path: Path) -> None:
    """Where there was a search and no validation data."""
    for share, said in ((None, True), (0.1, False)):
        out = keep(tmp_path, {"adamasfl": 0.8}, validation=share, run_seconds=2 * 3600)
        (out / "tuning.csv").write_text("role,algorithm,diverged\nwinner,fedbuff,0\n")
        write_report(tmp_path)
        text = (tmp_path / "outputs/README.md").read_text()
        assert (f"hyper-parameters in {NAME} were chosen by test accuracy" in text) is said
        assert ("about 2 core-hours for the final runs" in text) is said


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


def test_a_reading_of_ours_is_shown_and_decides_nothing(tmp_path: Path) -> None:
    """AdaMasFL is behind at the theorem's step sizes; ours, added later, has it ahead: the claim stays no."""
    others = dict.fromkeys(TUNED, 0.7)
    keep(tmp_path, {"adamasfl": 0.6, **others})
    keep(tmp_path, {"adamasfl": 0.8, **others}, f"{NAME}_average", "final-elsewhere")
    write_report(tmp_path)
    ledger = " ".join((tmp_path / "outputs/ledger.md").read_text().split())
    entry = ledger.split("### adamasfl-accuracy ")[1].split("###")[0]
    assert entry.startswith("**no** AdaMasFL reaches state-of-the-art")
    (line,) = (one for one in entry.split("- **") if "eta of another task, one norm" in one)
    assert line.startswith("yes** server averages")
    assert "AdaMasFL 80.0%" in line
    assert (
        "*our way to read it, not the paper's; we added this test when its result was already known*" in line
    )
    row = next(line for line in (tmp_path / "outputs/README.md").read_text().splitlines()
               if "AdaMasFL best on Fashion-MNIST" in line)  # fmt: skip
    assert row.startswith("| no |")
    assert "server averages, eta of another task, one norm: 80.0% +- 0.0% (3)" in row
    lines = "\n".join(behind("adamasfl-accuracy", tmp_path))
    assert "(best 0.8), completed: final-elsewhere/adamasfl-2\n      fedbench algorithm=adamasfl " in lines


def test_smoke_results_are_no_part_of_the_report(tmp_path: Path) -> None:
    """They and their report lie in a directory of their own, which is not committed; they decide no claim."""
    out = keep(tmp_path, {"adamasfl": 0.8, "fedbuff": 0.7}, scale="smoke")
    assert out == tmp_path / "outputs/smoke" / NAME
    write_report(tmp_path)
    assert "updates.png" not in (tmp_path / "outputs/README.md").read_text()
    before = {file: file.read_bytes() for file in (tmp_path / "outputs").glob("*.md")}
    report, _, csv = write_report(tmp_path, smoke=True)
    assert report == tmp_path / "outputs/smoke/README.md"
    text = report.read_text()
    assert f"({NAME}/updates.png)" in text
    assert text.startswith("# What was reproduced? Nothing at scale smoke")
    asked = {row.rpartition(" | ")[2] for row in text.splitlines() if "](ledger.md#" in row and row[0] == "|"}
    assert asked == {"smoke: digits, 1000 rounds |", "smoke: no runs |"}
    page = (out / "README.md").read_text()
    assert "with digits and mlp in place of the paper's data and model" in page
    assert "(../../ledger.md#adamasfl-accuracy)" in page
    assert set(pd.read_csv(csv).verdict) == {"cannot tell"}
    assert before == {file: file.read_bytes() for file in (tmp_path / "outputs").glob("*.md")}


def test_holms_correction_is_over_the_claims_of_a_paper() -> None:
    """One test at p = 0.02 holds alone; beside another one it is twice that, 0.04, and beside three, 0.08.
    Our own questions and our readings of a claim are corrected among themselves."""
    scores = [1.0, 0.0, -1.0]  # sd 1, so t = sqrt(3) mean, and p = 1/2 - t / (2 sqrt(2 + t^2)) with 2 degrees
    x = 2 * (0.5 - 0.02)  # t / sqrt(2 + t^2)
    mean = (2 * x**2 / (1 - x**2)) ** 0.5 / 3**0.5
    rows = [{"dir": f"{name}{seed}", "algorithm": name, "seed": seed, "status": "completed",
             "final_accuracy": (mean + scores[seed]) * (name == "a")}
            for name in "ab" for seed in range(3)]  # fmt: skip
    evidence = {"fig": Evidence(pd.DataFrame(rows))}
    for count, verdict in ((1, YES), (2, YES), (4, CONSISTENT)):
        claims = tuple(
            Claim(str(n), "", "", on_figure("fig", {"": Leads("a", ("b",))})) for n in range(count)
        )
        test = on_figure("fig", {"": Leads("a", ("b",))})
        for several, also in ((1, YES), (3, CONSISTENT)):
            ours = tuple(Claim(f"ours {n}", "", "", test, kind="ours") for n in range(several))
            reading = Claim("read", "", "", (replace(test[0], ours=True),))
            found = judgements(Paper((), (*claims, *ours, reading)), evidence)
            assert {found[claim][0][1].verdict for claim in claims} == {verdict}
            assert {found[claim][0][1].verdict for claim in (*ours, reading)} == {also}
