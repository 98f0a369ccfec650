"""The generated report on the kept results: the first page, a page for each paper and one for each figure."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Any

import pandas as pd

from fedbench.config.places import SHOWN, SMOKE
from fedbench.files import write_text
from fedbench.papers import FIGURES, PAPERS
from fedbench.papers.behind import on_test, what_was_run
from fedbench.papers.claims import WORDS, Claim, Way, counts, ways, word_of
from fedbench.papers.evidence import Evidence, made, read
from fedbench.papers.figure import Paper, markdown, shown
from fedbench.papers.figure_page import CLAIMS, section
from fedbench.tuning.tune import write_table

KINDS = {
    "paper": "Claims of the papers",
    "peers": "Tables of other suites",
    "construction": "True by construction",
    "ours": "Our own questions",
}
PAGES = Path(__file__).with_name("pages")
"""The words of the pages."""
BEGIN, END = "<!-- reproduced -->", "<!-- end of what was reproduced -->"
"""What stands between these lines of the project's README.md is written with the report."""
_SUBSET = re.compile(
    r"([\d,]+) training and ([\d,]+) test samples, where the (\w+) split has ([\d,]+) and ([\d,]+)"
)


@dataclass(frozen=True)
class Results:
    """All that is kept: figure -> its directory and its evidence; and all claims in numbers, but of tables of
    other suites only where the table is kept. `top`: the directory of the first page, `pages`: of the
    papers' pages."""

    top: Path
    pages: Path
    places: Mapping[str, Path]
    evidence: Mapping[str, Evidence]
    ways: Mapping[Claim, Sequence[Way]]

    def words(self, claims: Sequence[Claim]) -> list[str]:
        """The words of those of these claims that are listed."""
        return [word_of(self.ways[claim]) for claim in claims if claim in self.ways]

    def page(self, of: str | Paper, here: Path) -> str:
        """The page of a figure or a paper, as a page in the directory `here` links to it."""
        place = self.places[of] if isinstance(of, str) else self.pages / of.name
        return Path(os.path.relpath(place / "README.md", here)).as_posix()

    def of_its(self, paper: Paper) -> str:
        """How many of its own claims have each word."""
        said = self.words([claim for claim in paper.claims if claim.kind == "paper"])
        return f"Of its {len(said)} claims: {counts(said)}."


def gather(root: Path, smoke: bool = False, papers: Sequence[Paper] = PAPERS) -> Results:
    """The claims of `papers` by what is kept below `root`: of each figure the results at scale paper, or else
    cpu. With `smoke`, by the smoke results."""
    scales = ("smoke",) if smoke else ("cpu", "paper")  # the last one that is kept
    asked = {name for paper in papers for claim in paper.claims for name in claim.figures}
    places = {name: out for name in FIGURES if name in asked or papers is PAPERS
              for scale in scales if made(out := shown(name, scale, root))}  # fmt: skip
    evidence = {name: kept for name, out in places.items() if (kept := read(out)) is not None}
    found = {claim: ways(claim, evidence) for paper in papers for claim in paper.claims
             if claim.kind != "peers" or set(claim.figures) & set(evidence)}  # fmt: skip
    pages = root / (SMOKE if smoke else SHOWN)
    return Results(pages if smoke else pages.parent, pages, places, evidence, found)


def write_report(root: Path, smoke: bool = False) -> list[Path]:
    """Write the first page, a page for each paper, claims.csv and a page for each figure from the results
    kept below `root`, and what README.md there says of them. Return the paths of the first page and the CSV.

    outputs/README.md shows each figure at scale paper, or else cpu. With `smoke`, outputs/smoke/README.md
    shows the smoke results.
    """
    results = gather(root, smoke)
    first, csv = results.top / "README.md", results.pages / "claims.csv"
    results.pages.mkdir(parents=True, exist_ok=True)
    rows = [row for claim in results.ways for row in _csv_rows(claim, results)]
    write_table(csv, pd.DataFrame(rows))
    for paper in PAPERS:
        here = results.pages / paper.name
        here.mkdir(exist_ok=True)
        write_text(here / "README.md", "\n".join(_paper_page(paper, results, here)))
    write_text(first, _first(results, smoke))
    for name, out in results.places.items():
        lines = [*section(FIGURES[name], out, results.evidence[name].made), *_claims_of(results, name)]
        write_text(out / "README.md", "\n".join(lines))
    front = root / "README.md"
    if not smoke and front.is_file() and BEGIN in (text := front.read_text(encoding="utf-8")):
        before, _, rest = text.partition(BEGIN)
        said = f"{before}{BEGIN}\n{_front(results, root)}{END}{rest.partition(END)[2]}"
        write_text(front, said)
    return [first, csv]


# ---- a claim in numbers ----------------------------------------------------------------------------------


def _csv_rows(claim: Claim, results: Results) -> Iterator[dict[str, Any]]:
    """The rows of claims.csv: one for each way to read it."""
    for way in results.ways[claim]:
        data, reading = results.evidence.get(way.reading.figure), way.reading
        made_by = data.made if data else {}
        failed = int((data.runs.status == "failed").sum()) if data and "status" in data.runs else 0
        # ten digits: further ones differ from processor to processor
        mean, low, high = (float(f"{number:.10g}") for number in way.interval)
        yield {
            "claim": claim.name,
            "kind": claim.kind,
            "text": claim.text,
            "source": claim.source,
            "added when known": claim.post_hoc or reading.late,
            "ours to read": reading.ours,
            "reading": way.words,
            "figure": reading.figure,
            "run": what_was_run(way, data),
            "word": way.word,
            "ours": way.ours,
            "other": way.other,
            "holds in": way.holds,
            "difference": mean,
            "low": low,
            "high": high,
            "notes": "; ".join([*way.notes, *[f"{failed} failed runs left out"] * bool(failed)]),
            "tuned_on_test": bool(data and on_test(way, data)),
            "command": made_by.get("command", ""),
        }


def outcome(claim: Claim, found: Sequence[Way]) -> str:
    """What came out: the word, our numbers and what they are compared with, of the first way that is the
    paper's and has numbers; and of the most favourable one."""
    mine = [way for way in found if way.ours and not way.reading.ours]
    word = word_of(found)
    if not mine:
        return f"**{word}**: not run here"
    said = f"**{word}**: {_beside(mine[0], several=len(mine) > 1)}"
    if len(mine) == 1:
        return said
    best = max(mine, key=lambda way: float(way.margin.mean()))
    said += f"; at best {_beside(best, several=True)}" if best is not mine[0] else ""
    each = [way.word for way in mine]
    return f"{said}. {f'All {len(mine)} ways' if {*each} == {word} else counts(each)}"


def _beside(way: Way, several: bool) -> str:
    """`ours 70.3% +- 5.2% (3), SCAFFOLD-M 96.1% +- 0.3% (3) (ten digits, one norm)`."""
    which = f" ({way.words}{way.reading.marks})" if several and way.words else way.reading.marks
    return f"ours {way.ours}, {way.other}{which}"


# ---- the first page --------------------------------------------------------------------------------------


def _filled(name: str, **parts: str) -> str:
    """A page from its text in pages/."""
    return Template((PAGES / f"{name}.md").read_text(encoding="utf-8")).substitute(parts)


def _first(results: Results, smoke: bool) -> str:
    kept = results.evidence
    return _filled(
        "first",
        scale=" Nothing at scale smoke, which only tries the code" * smoke,
        rules=_filled(
            "legend", csv=(results.pages / "claims.csv").relative_to(results.top).as_posix()
        ).rstrip(),
        papers="\n".join(_headlines(results)),
        counts=_counts(results),
        subsets=_subsets(results),
        on_test=_names(name for name, data in kept.items() if data.tuned_on_test),
        best=_names(name for name, data in kept.items() if data.best_on_test),
        absent=_names(name for name in FIGURES if name not in results.places),
    )


def _names(figures: Iterable[str]) -> str:
    return ", ".join(figures) or "none"


def _front(results: Results, root: Path) -> str:
    """What the project's README.md says: a row for each paper, with a line for each of its first
    three claims and the first picture beside them."""
    rows = []
    for paper in (one for one in PAPERS if one.first):
        lines = []
        for claim, _ in paper.headlines[:3]:
            found = results.ways[claim]
            first = next((way for way in found if way.ours), Way())
            numbers = [first.ours, *[first.other] * (first.other not in claim.text)]
            said = ", ".join(filter(None, numbers)) or "not run here"
            lines.append(f"**{word_of(found)}** {claim.text}: {said}")
        pictures = (_picture(figure, results, root, 180)[0] for _, figure in paper.headlines)
        image = next((one for one in pictures if "<img" in one), "")
        rows.append({"paper": f"[{paper.title.partition(':')[0]}]({results.page(paper, root)})",
                     "what it says: what came out": "<br>".join([*lines, results.of_its(paper)]),
                     "": image})  # fmt: skip
    return markdown(pd.DataFrame(rows))


def _picture(shows: str, results: Results, here: Path, width: int) -> tuple[str, str]:
    """The first picture of a figure's results, or else its name, and its page. `shows`: the figure, and the
    picture's name if it is another one. `here`: the directory of the page that shows it."""
    figure, _, which = shows.partition(" ")
    if figure not in results.places:
        return figure, ""
    page = results.page(figure, here)
    for name in results.evidence[figure].made.get("files", []):
        if name.endswith(".png") and name.startswith(which):
            place, alt = page.removesuffix("README.md"), figure.rpartition("/")[2]
            return f'<img width="{width}" alt="{alt}" src="{place}{name}">', page
    return figure, page


def _headlines(results: Results) -> Iterator[str]:
    """The claims that come first, paper by paper: what it says, what came out here, a picture."""
    for paper in (one for one in PAPERS if one.first):
        page, rows = results.page(paper, results.top), []
        for claim, figure in paper.headlines:
            picture, link = _picture(figure, results, results.top, 260)
            built = ", true by construction" * (claim.kind == "construction")
            rows.append({"the paper says":
                         f"{claim.text} ([{claim.name}]({page}#{claim.name.lower()}){built})",
                         "here": outcome(claim, results.ways[claim]),
                         "": f"[{picture}]({link})" if link else picture})  # fmt: skip
        yield f"**[{paper.title}]({page})**\n\n{markdown(pd.DataFrame(rows))}"
        yield f"{results.of_its(paper)}\n"


def _counts(results: Results) -> str:
    rows = []
    for paper in PAPERS:
        for kind, title in KINDS.items():
            said = results.words([claim for claim in paper.claims if claim.kind == kind])
            if said:
                page = f"[{paper.title.partition(':')[0]}]({results.page(paper, results.top)})"
                rows.append({"": page, "what": title, "claims": len(said),
                             **{word: said.count(word) for word in WORDS}})  # fmt: skip
    return markdown(pd.DataFrame(rows))


def _subsets(results: Results) -> str:
    """The sizes of the data sets that are a subset here, as the runs' notes say them."""
    notes = [note for data in results.evidence.values() for several in data.made.get("notes", [])
             for note in several]  # fmt: skip
    found = dict.fromkeys(match.groups() for note in notes if (match := _SUBSET.search(note)))
    parts = [f"{ours} training and {test} test samples where the {split} split has {all_} and {all_test}"
             for ours, test, split, all_, all_test in found]  # fmt: skip
    return "; ".join(parts) or "no run with it"


# ---- a paper's page and a figure's claims ------------------------------------------------------------------


def _paper_page(paper: Paper, results: Results, here: Path) -> Iterator[str]:
    yield f"# {paper.title}\n\n{_filled('legend', csv='../claims.csv')}{_filled('terms')}"
    for kind, title in KINDS.items():
        mine = [claim for claim in paper.claims if claim.kind == kind and claim in results.ways]
        if mine:
            yield f"## {title}: {len(mine)} ({counts(results.words(mine))})\n"
        for claim in mine:
            yield from _entry(claim, results, here)
    yield "## Figures\n"
    for name in (figure.name for figure in paper.figures if figure.name in results.places):
        yield f"- [{name}]({results.page(name, here)}): {FIGURES[name].about}."
    yield ""


def _entry(claim: Claim, results: Results, here: Path) -> Iterator[str]:
    """The lines on a claim: its word and its source, and a row for each way to read it."""
    yield f"### {claim.name}\n"
    yield f"**{word_of(results.ways[claim])}** {claim.text}{' †' * claim.post_hoc}. *{claim.source}.*"
    yield f"Setting: {claim.differs}.\n" if claim.differs else ""
    rows, before = [], ""
    for way in results.ways[claim]:
        figure = way.reading.figure
        link = f"[{figure}]({results.page(figure, here)})" if figure in results.places else figure
        run = "<br>".join(filter(None, [what_was_run(way, results.evidence.get(figure)), link]))
        rows.append({
            "what was run": "as above" if run == before else run,
            "read as": " ".join(filter(None, [way.words, way.reading.marks])),
            "ours (n)": way.ours, "other": way.other, "holds in": way.holds,
            "": f"**{way.word}**",
            "notes": "; ".join(way.notes),
        })  # fmt: skip
        before = run
    yield markdown(pd.DataFrame(rows))


def _claims_of(results: Results, name: str) -> Iterator[str]:
    """A line for each claim that a figure's page bears on, with its word."""
    up = "../" * len(results.places[name].relative_to(results.pages).parts)
    mine = [(paper, claim) for paper in PAPERS for claim in paper.claims
            if claim in results.ways and name in claim.figures]  # fmt: skip
    if mine:
        yield CLAIMS
    for paper, claim in mine:
        link = f"[{claim.name}]({up}{paper.name}/README.md#{claim.name.lower()})"
        yield f"- **{word_of(results.ways[claim])}** {link}: {claim.text}"
    yield ""
