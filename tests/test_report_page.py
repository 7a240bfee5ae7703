"""The page of a report in a real browser, light and dark.

It has no overflow, no errors and no faint text, and its tables are sorted and filtered.
"""

import html
import json
import re
import shutil
import subprocess

import numpy as np
import pytest

from pricing import Book, Measures, Revaluation, RiskResult, Scenario, ScenarioSet, TradeRisk
from pricing.market import Market
from pricing.reporting import positions_of, write_report
from pricing.reporting.stress import Stress

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
MARKET = """{"asof": "2002-07-05", "currency": "EUR", "curves": {"EUR": {"zero_rate": 0.03}}, "equities": {
 "DAX": {"curve": "EUR", "spot": 4400.0, "implied_vols": {"expiries": ["2002-12-17", "2003-06-15"],
  "strikes": [4000, 4200, 4400, 4600, 4800], "vols_by_expiry": [[0.3, 0.28, 0.26, 0.25, 0.24],
  [0.29, 0.28, 0.26, 0.25, 0.24]]}}}}"""
COUNT = 40
WATCH = """<script>window.said = [];
addEventListener("error", (event) => said.push(event.message));
addEventListener("securitypolicyviolation", (event) => said.push(event.violatedDirective));
</script>"""
# the contrast of WCAG 2.2 (success criterion 1.4.3) of every text, with its tag, and of every placeholder
CONTRASTS = r"""<script>
const channels = (color) => [...color.match(/[\d.]+/g).map(Number), 1].slice(0, 4);
const over = (above, below) => below.map((c, i) => above[3] * above[i] + (1 - above[3]) * c);
const behind = (element) => {
  const own = channels(getComputedStyle(element).backgroundColor);
  return own[3] === 1 ? own.slice(0, 3) : over(own, behind(element.parentElement));
};
const linear = (c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
const luminance = (rgb) =>
  [0.2126, 0.7152, 0.0722].reduce((sum, share, i) => sum + share * linear(rgb[i] / 255), 0);
const contrast = (color, element) => {
  const back = behind(element);
  const [one, other] = [luminance(over(channels(color), back)), luminance(back)];
  return (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
};
const contrasts = () => {
  const found = [];
  for (const details of document.querySelectorAll("details")) details.open = true;
  const walk = document.createTreeWalker(document.querySelector("main"), NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const text = walk.currentNode.data.trim(), element = walk.currentNode.parentElement;
    if (!text || !element.getClientRects().length) continue;
    const { color, fill } = getComputedStyle(element), drawn = element.closest("svg");
    const tag = drawn ? "svg" : element.localName;
    found.push([text, tag, contrast(drawn ? fill : color, element)]);
  }
  for (const field of document.querySelectorAll("input")) {
    const { color } = getComputedStyle(field, "::placeholder");
    found.push([field.placeholder, "input", contrast(color, field)]);
  }
  return found;
};
</script>"""
LOOK = """<script>addEventListener("load", () => {
const found = { said, wide: document.documentElement.scrollWidth, inner: innerWidth };
found.dark = matchMedia("(prefers-color-scheme: dark)").matches;
found.contrasts = contrasts();
const table = document.querySelector('table[data-name="positions"]');
const body = table.tBodies[0];
const column = (index) => [...body.rows].map((row) => row.cells[index].textContent);
const button = (index) => table.tHead.rows[0].cells[index].querySelector("button");
button(4).click();
found.falling = column(4);
button(4).click();
found.rising = column(4);
button(0).click();
found.names = column(0);
const field = table.parentElement.previousElementSibling.querySelector("input");
field.value = "call 4,0";
field.dispatchEvent(new Event("input"));
found.shown = [...body.rows].filter((row) => !row.hidden).map((row) => row.cells[2].textContent);
found.told = field.nextElementSibling.textContent;
const sums = document.querySelector('table[data-name="product"]');
sums.tHead.rows[0].cells[0].querySelector("button").click();
found.last = sums.tBodies[0].lastElementChild.cells[0].textContent;
parent.postMessage(JSON.stringify(found), "*");
});</script>"""
SHOWN = {"h1", "h2", "h3", "a", "p", "td", "th", "dt", "dd", "button", "summary", "input", "svg"}
FRAME = """<!doctype html><meta name="color-scheme" content="light dark">
<iframe style="width: {width}px; height: 900px; border: 0" srcdoc="{page}"></iframe>
<pre id="found"></pre><script>addEventListener("message", (event) => {{
document.querySelector("iframe").remove();
document.getElementById("found").textContent = event.data; }});</script>"""


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """Write the page of forty trades in scenarios, from figures made by hand."""
    rows = [
        f"T{i:02},{('european', 'digital')[i % 2]},DAX,{i - 20.5},call,{4000 + 25 * i},2003-03-18"
        for i in range(COUNT)
    ]
    book = Book.from_text("\n".join(["id,type,underlying,quantity,option,strike,expiry", *rows]))
    market = Market.from_text(MARKET)
    trades = tuple(
        TradeRisk(
            *(row.id, row.type, row.trade.quantity),
            figures=Measures(
                100.0 + i, {"DAX": 0.5}, {("DAX", "DAX"): 1e-3}, vega=300.0, theta=-80.0, rho=200.0
            ),
            method="MonteCarlo",
            status="ok",
            std_errors=Measures(0.1, {"DAX": 1e-3}, vega=0.5, theta=0.1, rho=0.2),
        )
        for i, row in enumerate(book.rows)
    )
    result = RiskResult(trades, 0.0, {}, {}, ())
    named = (
        Scenario("A crash of one day, vols up <b>", {"all": -0.2}, {"all": 0.1}),
        Scenario("rally", {"DAX": 0.1}),
    )
    moves = ScenarioSet(named=named)
    pnl = np.random.default_rng(0).normal(0.0, 1e5, (len(moves.scenarios), COUNT))
    found = Revaluation(moves.scenarios, tuple(row.id for row in book.rows), pnl, 0.01 * abs(pnl))
    stress = Stress(moves, found, positions_of(result, book, market))
    path = tmp_path_factory.mktemp("page") / "report.html"
    write_report(path, result, book, market, [], {"read": 0.1}, stress)
    return path.read_text(encoding="utf-8")


@pytest.mark.skipif(CHROMIUM is None, reason="needs chromium")
@pytest.mark.parametrize(
    ("width", "scheme"),
    [
        (420, "dark"),
        (1400, "light"),
        pytest.param(1400, "dark", marks=pytest.mark.slow),
        pytest.param(420, "light", marks=pytest.mark.slow),
    ],
)
def test_it_fits_is_legible_and_its_tables_are_sorted_and_filtered(tmp_path, page, width, scheme):
    watched = page.replace("<head>", f"<head>{WATCH}{CONTRASTS}").replace(
        "</body>", f"{LOOK}</body>"
    )
    file = tmp_path / "frame.html"
    file.write_text(FRAME.format(width=width, page=html.escape(watched)), encoding="utf-8")
    command = [
        CHROMIUM,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--virtual-time-budget=5000",
        f"--blink-settings=preferredColorScheme={('dark', 'light').index(scheme)}",
    ]
    command += [f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", f"file://{file}"]
    dom = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout
    (text,) = re.findall(r'<pre id="found">(.+?)</pre>', dom, re.S)
    found = json.loads(html.unescape(text))
    assert found["said"] == []
    assert found["inner"] == width and found["wide"] <= width
    assert found["dark"] == (scheme == "dark")
    assert {tag for _, tag, _ in found["contrasts"]} >= SHOWN
    assert [one for one in found["contrasts"] if not one[2] >= 4.5] == []
    values = [
        float(text.replace(",", "").replace("\N{MINUS SIGN}", "-")) for text in found["rising"]
    ]
    assert len(values) == COUNT and values == sorted(values)
    assert found["falling"] == found["rising"][::-1]
    assert found["names"] == [f"T{i:02}" for i in range(COUNT)]
    assert found["shown"] and all("call 4,0" in text for text in found["shown"])
    assert found["told"] == f"{len(found['shown'])} of {COUNT} rows"
    assert found["last"] == "total"


def test_without_a_script_the_tables_are_there(page):
    """And nothing is fetched: the page forbids it to itself."""
    still = re.sub(r"<script>.*?</script>", "", page, flags=re.S)
    assert "T39" in still and "A crash of one day, vols up &lt;b&gt;" in still
    assert "default-src 'none'" in still
    assert not re.search(
        r"""<(link|img|iframe)\b|@import|url\((?!#)|<script[^>]|\bsrc\s*=|href\s*=\s*"(?!#)""", page
    )
