"""The page of `fedbench report` in a real browser, clicked. Needs `pip install playwright` and a Chromium."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from make_results import rows, write_run, write_sweep

from fedbench.cli import main

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome", "microsoft-edge")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Playwright's own Chromium, or one that is installed."""
    reason = "playwright is not installed (pip install playwright; playwright install chromium)"
    api = pytest.importorskip("playwright.sync_api", reason=reason)
    with api.sync_playwright() as started:
        own = started.chromium.executable_path
        found = own if Path(own).is_file() else next(filter(None, map(shutil.which, BROWSERS)), None)
        if found is None:
            pytest.skip("no Chromium is installed (playwright install chromium)")
        opened = started.chromium.launch(executable_path=found)
        yield opened
        opened.close()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The page of a sweep of two methods, three rates and three seeds; SCAFFOLD diverges at rate 10."""
    pytest.importorskip("plotly", reason="plotly is not installed (the extra `report` has it)")
    runs: list[dict[str, Any]] = []
    for algorithm in ("fedavg", "scaffold"):
        for rate in (2.0, 10.0, 0.1):
            for seed in range(3):
                lost = algorithm == "scaffold" and rate == 10
                top = 0.9 - 0.05 * abs(math.log10(rate)) - 0.02 * (algorithm == "fedavg")
                made = rows(top, 0.8, seed, stop=35 if lost else None)
                status = "diverged" if lost else "completed"
                more = {"status": status, "config": {"algorithm.lr": rate}}
                runs.append({"metrics": made, "algorithm": algorithm, "seed": seed, **more})
    sweep = write_sweep(tmp_path / "a sweep", runs, ["algorithm", "algorithm.lr", "seed"])
    write_run(sweep / "odd#name?", rows(0.5, 0.8, 7), seed=7, config={"algorithm.lr": 0.1})
    failed = json.loads((sweep / "odd#name?" / "summary.json").read_text())
    error = "<b>boom</b>" + "<script>document.title = 'owned'</script>"
    content = {**failed, "status": "failed", "error": error, "final_accuracy": None}
    (sweep / "odd#name?" / "summary.json").write_text(json.dumps(content))
    assert main(["report", str(sweep)]) == 0
    return sweep / "report.html"


@pytest.fixture
def page(browser: Any, file: Path) -> Iterator[Any]:
    """The opened page; at the end it must have asked for nothing else, and have had no error."""
    opened = browser.new_page(viewport={"width": 1200, "height": 900})
    asked: list[str] = []
    errors: list[str] = []
    opened.on("request", lambda request: asked.append(request.url))
    opened.on("console", lambda said: errors.append(said.text) if said.type in ("error", "warning") else None)
    opened.on("pageerror", lambda error: errors.append(str(error)))
    opened.goto(file.as_uri())
    opened.wait_for_selector("#curves .legend .traces")
    yield opened
    assert errors == []
    assert [url for url in asked if not url.startswith(("data:", "blob:"))] == [file.as_uri()]
    assert opened.title().endswith("/a sweep")
    opened.close()


def column(page: Any, table: str, title: str) -> list[str]:
    """The texts of a column, from top to bottom."""
    titles = page.locator(f"#{table} th").all_inner_texts()
    at = titles.index(title) + 1
    return [text.strip() for text in page.locator(f"#{table} tbody td:nth-child({at})").all_inner_texts()]


def drawn(page: Any) -> set[str]:
    """Legend groups of the curves that are seen."""
    there = "t => t.visible === true && t.mode !== 'none'"
    code = f"document.getElementById('curves').data.filter({there}).map(t => t.legendgroup)"
    groups = set(page.evaluate(code))
    assert page.locator("#curves .scatterlayer .trace path.js-line").count() >= len(groups)
    return groups


def until(page: Any, groups: set[str]) -> None:
    """Wait until just these curves are seen."""
    there = "t.visible === true && t.mode !== 'none'"
    wanted = json.dumps(sorted(groups))
    page.wait_for_function(
        f"JSON.stringify([...new Set(document.getElementById('curves').data.filter(t => {there})"
        f".map(t => t.legendgroup))].sort()) === JSON.stringify({wanted})"
    )
    assert drawn(page) == groups


def test_a_click_on_a_title_sorts_by_it(page: Any) -> None:
    rate = page.get_by_role("button", name="algorithm.lr").first
    rate.click()
    found = list(map(float, column(page, "settings", "algorithm.lr")))
    assert found == sorted(found) == [0.1, 0.1, 2.0, 2.0, 10.0, 10.0]  # numbers, not words
    rate.click()
    assert list(map(float, column(page, "settings", "algorithm.lr"))) == found[::-1]
    assert page.locator("#settings th[aria-sort=descending]").inner_text().strip() == "algorithm.lr"
    page.locator("#settings").get_by_role("button", name="algorithm", exact=True).click()
    assert column(page, "settings", "algorithm") == ["fedavg"] * 3 + ["scaffold"] * 3
    assert page.locator("#settings th[aria-sort]").count() == 1
    page.locator("#runs").get_by_role("button", name="Final test accuracy").click()
    found = column(page, "runs", "Final test accuracy")
    assert found[-4:] == [""] * 4  # runs without one stand last, in either direction
    assert found[:-4] == sorted(found[:-4])
    page.locator("#runs").get_by_role("button", name="Final test accuracy").click()
    assert column(page, "runs", "Final test accuracy") == sorted(found[:-4], reverse=True) + [""] * 4


def test_curves_are_switched_on_and_off(page: Any) -> None:
    all_of_them = {f"s{rank}" for rank in range(6)}
    until(page, all_of_them)
    page.locator("#curves .legend .legendtoggle").first.click()
    until(page, all_of_them - {"s0"})
    assert not page.locator("input[data-curve=s0]").is_checked()  # the boxes follow
    page.locator("input[data-curve=s2]").uncheck()
    until(page, all_of_them - {"s0", "s2"})
    page.locator("#column").select_option("test_loss")
    until(page, all_of_them - {"s0", "s2"})  # in every column
    assert page.locator("#curves .ytitle").text_content() == "Test loss"
    page.locator("input[data-curve=s0]").check()
    until(page, all_of_them - {"s2"})
    page.get_by_role("button", name="none").click()
    until(page, set())
    page.get_by_role("button", name="all curves").click()
    until(page, all_of_them)
    page.locator("#curves .legend .legendtoggle").nth(1).dblclick()
    until(page, {"s1"})


def test_heat_maps_rows_and_links(page: Any, file: Path) -> None:
    page.locator("[data-heat]").scroll_into_view_if_needed()
    page.wait_for_selector("[data-heat] .heatmaplayer .hm")
    assert page.locator("[data-heat] .annotation-text").all_text_contents() == ["failed", "diverged"]
    page.locator("#filter").fill("scaffold DIVERGED")
    seen = page.locator("#runs tbody tr:visible")
    assert seen.count() == 3
    assert page.locator("#kept").inner_text() == "3 of 19"
    page.locator("#filter").fill("")
    assert (
        page.locator("#troubles .reason")
        .all_inner_texts()
        .count("<b>boom</b><script>document.title = 'owned'</script>")
    )
    name = page.locator("#runs tbody tr", has_text="odd#name?").get_by_role("link", name="metrics.csv")
    address = page.evaluate("e => e.href", name.element_handle())
    assert address == (file.parent / "odd#name?" / "metrics.csv").as_uri()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_narrow_screen_has_no_sideways_scrolling(browser: Any, file: Path) -> None:
    opened = browser.new_page(viewport={"width": 400, "height": 800})
    opened.goto(file.as_uri())
    opened.wait_for_selector("#curves .scatterlayer")
    assert opened.evaluate("document.documentElement.scrollWidth") == 400
    opened.close()
