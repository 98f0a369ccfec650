"""`fedbench report`: what the page says of runs that completed, failed, diverged or have not begun."""

from __future__ import annotations

import json
import re
import shutil
import sys
from html import unescape
from html.parser import HTMLParser
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote

import pytest
from run_files import Call

pytestmark = pytest.mark.skipif(find_spec("plotly") is None, reason="plotly is not installed")


class Page(HTMLParser):
    """Tables by id as rows of texts, all links, all elements that would fetch something, scripts by id."""

    def __init__(self, file: Path) -> None:
        super().__init__(convert_charrefs=True)
        self.text = file.read_text(encoding="utf-8")
        self.tables: dict[str, list[list[str]]] = {}
        self.links: list[str] = []
        self.fetched: list[str] = []
        self.tags: list[str] = []
        self._rows: list[list[str]] | None = None
        self._inside = False  # a cell
        self.feed(self.text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        said = {name: value or "" for name, value in attributes}
        self.tags.append(tag)
        self.fetched += [said[name] for name in ("src", "srcset", "data-src") if name in said]
        self.fetched += [said["href"]] if tag == "link" else []
        if tag == "a":
            self.links.append(said["href"])
        if tag == "table":
            self._rows = self.tables.setdefault(said["id"], [])
        if tag == "tr" and self._rows is not None:
            self._rows.append([])
        if tag in ("td", "th") and self._rows is not None:
            self._rows[-1].append("")
            self._inside = True

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th"):
            self._inside = False
        if tag == "table":
            self._rows = None

    def handle_data(self, data: str) -> None:
        if self._inside and self._rows:
            self._rows[-1][-1] += data

    @property
    def data(self) -> dict:
        found = re.search(r'<script type="application/json" id="data">(.*?)</script>', self.text, re.DOTALL)
        assert found
        return json.loads(found[1])


def test_a_sweep_with_runs_that_failed_diverged_and_have_not_begun(runs, fedbench: Call) -> None:
    fedbench("-m", "algorithm.lr=0.1,0.2", "local.steps=2,4", "seed=0,1", "hydra.sweep.dir=s")
    fedbench("-m", "algorithm.lr=0.3", "local.steps=2", "seed=13,14", "hydra.sweep.dir=s")
    said = json.loads(Path("s/sweep.json").read_text())
    said["jobs"]["lr_9-missing"] = {"algorithm.lr": 9}
    Path("s/sweep.json").write_text(json.dumps(said))
    assert fedbench("report", "s") == (0, "s/report.html\n", "")
    page = Page(Path("s/report.html"))
    assert "11 runs (8 completed, 1 diverged, 1 failed, 1 missing) of 5 settings" in page.text
    assert set(page.tables["settings"][0][1:3]) == {"local.steps", "algorithm.lr"}
    assert len(page.tables["settings"]) == 1 + 5
    last = page.tables["settings"][-1]  # a setting of which no run completed is no candidate for the best
    assert last[3:6] == ["", "", "0"]
    assert sorted(last[6].split(", ")) == ["1 diverged", "1 failed"]
    assert len(page.tables["runs"]) == 1 + 11
    at = page.tables["runs"][0].index("algorithm.lr")
    assert [row[at] for row in page.tables["runs"] if "missing" in row] == ["9"]
    troubles = {row[1]: row[3] for row in page.tables["troubles"][1:]}
    lost = "a loss was no longer finite in round 1 of 50"
    assert troubles == {"failed": "the disk is full", "diverged": lost, "missing": "has not begun"}
    assert "smallest to largest" in page.text  # the bands of two seeds
    (heat,) = page.data["heat"]
    assert "by algorithm.lr and local.steps: mean over seeds<" in page.text
    assert sorted(note["text"] for note in heat["layout"]["annotations"]) == ["diverged", "n/a"]
    for target in page.links:
        if not target.startswith("#"):
            assert Path("s", unquote(target)).exists(), target
    assert page.fetched == []
    assert not re.search(r"url\(|@import", Path("s/report.html").read_text().split("</style>")[0])


def test_a_key_that_a_sweep_varies_sets_settings_apart(runs, fedbench: Call) -> None:
    """Even one that only says what is measured."""
    fedbench("-m", "eval.model=last,mean_of_two", "seed=0,1", "hydra.sweep.dir=s")
    assert fedbench("report", "s")[0] == 0
    page = Page(Path("s/report.html"))
    assert "4 runs (4 completed) of 2 settings; n = 2 seeds" in page.text
    assert "left out" not in page.text


def test_nothing_that_a_run_says_becomes_markup(runs, fedbench: Call) -> None:
    fedbench("-m", "algorithm.lr=0.1,0.2", "seed=0,13", "hydra.sweep.dir=s")
    evil = "</script><script>alert(1)</script>\"'<img src=x onerror=alert(2)>"
    for file in Path("s").glob("*/summary.json"):
        found = json.loads(file.read_text())
        found["config"] |= {"algorithm": f"fedavg{evil}", "model": f"{evil}{found['config']['seed']}"}
        error = {"error": f"boom {evil}"} if found["status"] == "failed" else {}
        file.write_text(json.dumps({**found, **error}))
    Path("s/runs.csv").unlink()
    broken = Path("s") / "javascript:alert(1)<b>"
    shutil.copytree(next(Path("s").glob("*seed_13*")), broken)
    assert fedbench("report", "s", "--out", "a page.html") == (0, "a page.html\n", "")
    page = Page(Path("a page.html"))
    assert "img" not in page.tags
    assert page.tags.count("script") == 3
    assert all(target.startswith(("#", "s")) for target in page.links)
    assert any(row[3] == f"boom {evil}" for row in page.tables["troubles"])
    names = {trace["name"] for trace in page.data["curves"]["test_accuracy"]["data"]}
    assert names
    assert all("<" not in name and evil in unescape(name) for name in names)


def test_what_is_left_out_is_said(runs, fedbench: Call, monkeypatch) -> None:
    from fedbench.report import plots

    monkeypatch.setattr(plots, "POINTS", 4)
    fedbench("-m", "algorithm.lr=0.1,0.2", "local.steps=2,4", "local.batch_size=8,16", "hydra.sweep.dir=s")
    assert fedbench("report", "s")[0] == 0
    page = Page(Path("s/report.html"))
    assert len(page.data["heat"]) == 3  # a pair of three keys each
    assert "mean over seeds and the best over all other keys<" in page.text
    figure = page.data["curves"]["test_accuracy"]
    assert figure["layout"]["yaxis"]["title"]["text"] == "Test accuracy (one in 5 evaluations)"


def test_one_run_and_a_page_elsewhere(runs, fedbench: Call) -> None:
    """Links start from where the page is."""
    fedbench("seed=3", "hydra.run.dir=r")
    Path("r/reproduce").touch()
    Path("pages/deep").mkdir(parents=True)
    assert fedbench("report", "r", "--out", "pages/deep/one.html")[0] == 0
    page = Page(Path("pages/deep/one.html"))
    assert "1 run (1 completed) of 1 setting;" in page.text
    assert "All runs completed." in page.text
    assert page.data["heat"] == []
    assert [row[0] for row in page.tables["runs"][1:]] == ["r"]
    assert {"../../r/metrics.csv", "../../r/reproduce"} <= {*page.links}
    Path("r/metrics.csv").unlink()  # a run that failed before it measured anything
    Path("r/summary.json").write_text('{"status": "failed", "error": "no memory"}')
    assert fedbench("report", "r", "--out", "pages/deep/one.html")[0] == 0
    assert Page(Path("pages/deep/one.html")).tables["troubles"][1] == ["r", "failed", "0", "no memory"]
    for words, status, says in (
        (["report", "r", "--out", "nowhere/one.html"], 1, ""),
        (["report", "pages"], 2, "fedbench: pages: no runs here, nor below it\n"),
        (["status", "nowhere"], 2, "fedbench: nowhere: no such directory\n"),
    ):
        code, _, err = fedbench(*words)
        assert (code, err.count("\n"), says in err) == (status, 1, True)
    assert sorted(path.name for path in Path("pages/deep").iterdir()) == ["one.html"]


def test_without_plotly_one_line_says_how_to_get_it(runs, fedbench: Call, monkeypatch) -> None:
    fedbench("seed=3", "hydra.run.dir=r")
    for name in ("plotly", "plotly.offline"):
        monkeypatch.setitem(sys.modules, name, None)
    line = "fedbench: report: needs plotly: pip install -e '.[report]'\n"
    assert fedbench("report", "r") == (2, "", line)
    assert not Path("r/report.html").exists()


def test_every_method_has_a_marker_on_the_page() -> None:
    """Of the readings of a paper too, such as AdaMasFL with a norm per tensor."""
    from fedbench.figures import style
    from fedbench.report import plots

    looks = [*style.ALGORITHMS.values(), *style.READINGS.values()]
    assert {look.marker for look in looks} | set(style.MARKERS) <= set(plots.SYMBOLS)
