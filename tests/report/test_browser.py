"""The page in a real browser: what it shows, at three widths, dark, unobserved and on paper.

Run: pytest -m slow tests/report/test_browser.py   (WLGEN_CHROMIUM names the browser if it is not on the path)
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kit.audits import good, manifest, row

from wlgen.audit.audit import audit
from wlgen.audit.run_figures import Setting
from wlgen.report.page import page
from wlgen.report.provenance import Provenance

BROWSER = os.environ.get("WLGEN_CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(BROWSER is None, reason="no Chromium on this machine")]

LOOK = """<pre id="look"></pre><script>
const box = e => e.getBoundingClientRect(), all = s => [...document.querySelectorAll(s)];
const wide = document.documentElement.clientWidth;
document.getElementById("look").textContent = JSON.stringify({
  width: document.documentElement.scrollWidth, wide,
  paper: getComputedStyle(document.body).backgroundColor,
  loaded: performance.getEntriesByType("resource").length,
  text: document.body.innerText,
  headings: all("h2").map(h => h.innerText),
  tiles: all(".tile").map(t => t.innerText.split("\\n")),
  empty: all("svg[role=img]").filter(s => !s.children.length || box(s).height < 20).length,
  outside: all(".plot .x span").filter(s => box(s).right > wide || box(s).left < 0).length,
  drawn: Object.fromEntries(["kept", "broken", "unseen"].map(
    k => [k, all(`svg[role=img] .${k}`).filter(s => box(s).width > 0).length])),
});
</script></body>"""


def run(*, cached: int | None = 1664, planned_times: bool = False, ranks: int = 4) -> str:
    """Return the page of 40 requests a rank, of which rank 3 found `cached` tokens and all others 1664."""
    content = [row("formal", rank, n) for n in range(40) for rank in range(ranks)]
    if planned_times:
        content = [replace(each, timestamp_ms=n // ranks * 900) for n, each in enumerate(content)]
    results = []
    for n, (each, result) in enumerate(zip(content, good(content), strict=True)):
        found = cached if each.dp_rank == 3 or cached is None else result.cached_tokens
        start = n // ranks * 0.9 + n % 7 / 50
        times = {"start": start, "first_token": start + 0.4 + n % 5 / 10, "end": start + 4 + n % 3 / 10}
        results.append(replace(result, cached_tokens=found, **times))
    found = audit(content, [("r", results)], manifest(ranks=ranks), setting=Setting(cards=ranks))
    servers = ["http://127.0.0.1:30000"]
    source = Provenance.of(
        manifest(ranks=ranks), clients=["aisbench"], results=[], witnesses=[], servers=servers, options={}
    )
    return page(found, None, source)


def chromium(folder: Path, content: str, *options: str) -> str:
    """Let the browser open a page, and return what it prints."""
    place = folder / "page.html"
    place.write_text(content, encoding="utf-8")
    command = [str(BROWSER), "--headless", "--no-sandbox", "--disable-gpu", *options, place.as_uri()]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout


def looked(folder: Path, content: str, *options: str) -> dict[str, Any]:
    dumped = chromium(folder, content.replace("</body>", LOOK), "--dump-dom", *options)
    told = dumped.partition('<pre id="look">')[2].partition("</pre>")[0]
    for entity, sign in (("&lt;", "<"), ("&gt;", ">"), ("&amp;", "&")):
        told = told.replace(entity, sign)
    found: dict[str, Any] = json.loads(told)
    return found


def pages() -> Iterator[tuple[str, str]]:
    yield "kept", run()
    yield "a rank at 0", run(cached=0, planned_times=True)
    yield "not observed", run(cached=None)


@pytest.mark.parametrize("width", [1200, 700, 500])
@pytest.mark.parametrize("name", [name for name, _ in pages()])
def test_nothing_sticks_out_is_empty_or_loaded_from_elsewhere(tmp_path, name, width):
    found = looked(tmp_path, dict(pages())[name], f"--window-size={width},900")
    assert found["width"] <= found["wide"] <= width
    assert (found["loaded"], found["empty"], found["outside"]) == (0, 0, 0)


def test_a_run_with_a_rank_at_0_shows_it_in_words_and_in_each_picture(tmp_path):
    found = looked(tmp_path, run(cached=0, planned_times=True))
    for words in ("NOT KEPT", "Found nothing cached: rank 3", "lost_cache", "http://127.0.0.1:30000"):
        assert words in found["text"]
    assert "160 formal rows of 2,052 prompt tokens and 64 output tokens" in found["text"]
    assert found["headings"] == [
        "Findings",
        "Cached ratio of each request, by rank",
        "Distribution",
        "Hit ratio in the order sent",
        "By split, rank, group, class and round",
        "Timeline of the formal rows",
        "Cached ratio over time, by rank",
        "Throughput over time",
        "Requests running, by rank",
        "Latencies",
        "Planned and observed times",
        "Windows",
    ]
    assert found["drawn"]["broken"] == 7 * 40  # a mark of each of rank 3's rows in seven pictures
    names = [tile[0] for tile in found["tiles"]]
    assert names[:5] == [
        "output tokens/s",
        "input tokens/s",
        "requests/s",
        "TTFT, p50 and p99",
        "TPOT, p50 and p99",
    ]


def test_a_row_above_its_plan_has_a_tile_of_its_own(tmp_path):
    tiles = {tile[0]: tile[1:] for tile in looked(tmp_path, run(cached=1792))["tiles"]}
    assert tiles["highest request"][0] == "87.3294 %"
    assert tiles["highest request"][1].startswith("40 requests above the plan")


def test_a_run_that_nobody_observed_is_grey_and_one_line(tmp_path):
    found = looked(tmp_path, run(cached=None))
    assert found["drawn"]["unseen"] > 0
    assert (found["drawn"]["kept"], found["drawn"]["broken"]) == (0, 0)
    assert "No ratio is drawn or listed, since no row's cached tokens were observed." in found["text"]
    assert "Distribution" not in found["headings"]


def test_the_page_is_dark_where_the_person_asked_for_it_and_white_on_paper(tmp_path):
    light, dark = (
        looked(tmp_path, run(), f"--blink-settings=preferredColorScheme={scheme}") for scheme in (1, 0)
    )
    assert (light["paper"], dark["paper"]) == ("rgb(255, 255, 255)", "rgb(15, 20, 25)")
    chromium(tmp_path, run(), f"--print-to-pdf={tmp_path / 'page.pdf'}", "--no-pdf-header-footer")
    assert (tmp_path / "page.pdf").read_bytes().startswith(b"%PDF")
