"""`jaxtape risk --scenarios` and `jaxtape explain`: files, page and messages, and that they say the same."""

import json
import re
from html.parser import HTMLParser

import jax
import numpy as np
import pytest

from pricing import Book, explain
from pricing.market import Market
from pricing.models.surface_models import black_scholes
from tests.test_command_line import BAD, GOOD, HEADER, MARKET, rows_of, run, run_risk

pytestmark = pytest.mark.repeat

FEW = GOOD[:3]  # two kinds

SCENARIOS = """{
 "grid": {"spots": [-0.1, 0, 0.1], "vols": [-0.02, 0, 0.02]}, "rates": [-0.01, 0.01],
 "scenarios": {
  "crash": {"spots": {"DAX": -0.2}, "vols": 0.1},
  "rally": {"spots": 0.1, "rates": 0.005}
 }
}"""


@pytest.fixture(autouse=True)
def _same_precision_after():
    before = jax.config.jax_enable_x64
    yield
    jax.config.update("jax_enable_x64", before)


class Tables(HTMLParser):
    """The tables of a page by their names: rows of (text, value), the value None where a cell is no number."""

    def __init__(self, page):
        super().__init__()
        self.found, self._name, self._cell = {}, None, None
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        if tag == "table":
            self._name = given.get("data-name")
            self.found.setdefault(self._name, [])
        elif tag == "tr" and self._name:
            self.found[self._name].append([])
        elif tag in ("td", "th") and self._name:
            value = given.get("data-value")
            self._cell = ["", None if value is None else float(value)]

    def handle_data(self, data):
        if self._cell:
            self._cell[0] += data

    def handle_endtag(self, tag):
        if tag in ("td", "th") and self._cell:
            self.found[self._name][-1].append(tuple(self._cell))
            self._cell = None
        elif tag == "table":
            self._name = None


@pytest.fixture(scope="module")
def stressed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stressed")
    file = folder / "scenarios.json"
    file.write_text(SCENARIOS)
    outcome = run_risk(folder, FEW, "--scenarios", file)
    assert outcome.exit_code == 0, outcome.output
    page = (folder / "out" / "report.html").read_text(encoding="utf-8")
    return folder / "out", page, Tables(page).found


def shown(text):
    return float(text.replace(",", "").replace("\N{MINUS SIGN}", "-"))


def test_the_page_has_the_numbers_of_the_positions(stressed):
    folder, page, tables = stressed
    positions = rows_of(folder / "npv.csv")
    names = ("value", "delta_1pct", "gamma_1pct", "vega_1volpt", "theta_1day", "rho_1bp")
    sums = [sum(float(row[name]) for row in positions) for name in names]
    for group in ("underlying", "product", "expiry"):
        _, *rows, total = tables[group]
        np.testing.assert_allclose([value for _, value in total[3:]], sums, rtol=1e-12)
        parts = np.array([[value for _, value in row[3:]] for row in rows])
        np.testing.assert_allclose(parts.sum(axis=0), sums, rtol=1e-9, atol=1e-9)
        assert total[1][1] == len(positions) == sum(row[1][1] for row in rows)
        for text, value in total[3:]:
            assert shown(text) == pytest.approx(value, rel=2e-3, abs=1e-3)
    tiles = dict(re.findall(r'<dt>(.+?)</dt><dd data-value="(.+?)"', page))
    labels = "Value", "Delta, equities", "Gamma, equities", "Vega, equities"
    heads = [float(tiles[label]) for label in labels]
    np.testing.assert_allclose(heads, sums[:4], rtol=1e-12)
    kinds = {row[0][0]: row[3][1] for row in tables["product"][1:-1]}
    for kind, value in kinds.items():
        own = sum(float(row["value"]) for row in positions if row["type"] == kind)
        assert value == pytest.approx(own, rel=1e-9)


def test_the_page_has_the_numbers_of_the_scenarios(stressed):
    folder, page, tables = stressed
    rows = rows_of(folder / "scenarios.csv")
    book = {row["scenario"]: float(row["pnl"]) for row in rows if row["group"] == "book"}
    assert len(book) == 9 + 3 + 2 and all(row["status"] == "ok" for row in rows)
    trades = rows_of(folder / "scenario_trades.csv")
    assert [row["id"] for row in trades] == [line.split(",")[0] for line in FEW]
    for scenario, pnl in book.items():
        assert sum(float(row[f"pnl:{scenario}"]) for row in trades) == pytest.approx(
            pnl, rel=1e-9, abs=1e-9
        )
        for group in ("underlying", "product"):
            parts = [
                float(r["pnl"]) for r in rows if (r["scenario"], r["group"]) == (scenario, group)
            ]
            assert sum(parts) == pytest.approx(pnl, rel=1e-9, abs=1e-9)
    cells = [value for row in tables["book"][1:] for _, value in row[1:]]
    assert cells == [pnl for name, pnl in book.items() if name.startswith("spots")]
    assert cells[4] == 0.0 and book["rates +0 bp"] == 0.0
    named = {row[0][0]: row[2][1] for row in tables["named"][1:]}
    assert named == {name: book[name] for name in ("crash", "rally")}
    tiles = dict(re.findall(r'<dt>(.+?)</dt><dd data-value="(.+?)"', page))
    assert float(tiles["Worst scenario"]) == min(book.values())
    assert float(tiles["Best scenario"]) == max(book.values())
    crash = next(row for row in rows if row["scenario"] == "crash")
    assert (crash["spots"], crash["vols"], crash["name"]) == ("DAX=-0.2", "all=0.1", "book")


def test_a_bad_scenario_leaves_the_others(tmp_path):
    file = tmp_path / "scenarios.json"
    file.write_text(SCENARIOS.replace('"DAX": -0.2', '"DAXX": -0.2'))
    outcome = run_risk(tmp_path, GOOD[:1], "--scenarios", file)
    assert outcome.exit_code == 1
    assert (
        "scenarios.json:4: field 'scenarios.crash.spots.DAXX': 'DAXX' is not an equity"
        in outcome.stderr
    )
    found = {row["scenario"] for row in rows_of(tmp_path / "out" / "scenarios.csv")}
    assert "rally" in found and "crash" not in found
    assert "Left out of the scenarios" in (tmp_path / "out" / "report.html").read_text()


@pytest.mark.parametrize(
    ("text", "message"),
    [(None, "there is no such file"), ("{", "is not JSON"), ("[]", "a set of scenarios")],
)
def test_scenarios_that_cannot_be_read_exit_with_2_before_any_work(tmp_path, text, message):
    file = tmp_path / "scenarios.json"
    if text:
        file.write_text(text)
    outcome = run_risk(tmp_path, GOOD, "--scenarios", file)
    assert outcome.exit_code == 2 and message in outcome.stderr
    assert not (tmp_path / "out" / "npv.csv").exists()


def moved_market(file, **changes):
    """Write the sample market with other numbers: a spot, vols, a rate; a day later by `asof`."""
    market = json.loads(MARKET.read_text(encoding="utf-8"))
    for curve in market["curves"].values():  # pillars by date, none of them today
        curve.pop("days")
        curve["dates"] = ["2002-07-18", *market["equities"]["DAX"]["implied_vols"]["expiries"][1:]]
        curve["zero_rates"] = [rate + changes.get("rate", 0.0) for rate in curve["zero_rates"][1:]]
    for equity in market["equities"].values():
        vols = equity["implied_vols"]
        vols.pop("days", None)
        shift = changes.get("vol", 0.0)
        vols["vols_by_expiry"] = [[vol + shift for vol in row] for row in vols["vols_by_expiry"]]
        equity["spot"] *= 1.0 + changes.get("spot", 0.0)
    for pair in market["fx"].values():
        pair["vols"].pop("days")
    market["asof"] = changes.get("asof", market["asof"])
    file.write_text(json.dumps(market))
    return file


def run_explain(folder, rows, before, after, *options):
    trades = folder / "trades.csv"
    trades.write_text(HEADER + "".join(rows))
    files = ("--trades", trades, "--before", before, "--after", after, "--out", folder / "out")
    return run("explain", *files, "--model", "black-scholes", *options)


@pytest.mark.repeat
def test_a_change_is_explained_as_the_library_does(tmp_path):
    before = moved_market(tmp_path / "before.json")
    after = moved_market(
        tmp_path / "after.json", spot=0.01, vol=0.004, rate=0.0005, asof="2002-07-08"
    )
    outcome = run_explain(tmp_path, FEW, before, after)
    assert outcome.exit_code == 0, outcome.output
    written = json.loads((tmp_path / "out" / "explain.json").read_text())
    book = Book.read(tmp_path / "trades.csv")
    expected = explain(book, Market.read(before), Market.read(after), black_scholes)
    assert written["change"] == pytest.approx(expected.change, rel=1e-9)
    assert written["parts"] == pytest.approx(expected.parts, rel=1e-9, abs=1e-9)
    assert (written["currency"], written["by_currency"]["EUR"]["change"]) == (
        "EUR",
        written["change"],
    )
    assert sum(written["parts"].values()) == pytest.approx(
        written["after"] - written["before"], rel=1e-9
    )
    assert all(written["parts"][name] for name in ("theta", "delta", "gamma", "vega", "rho"))
    assert abs(written["parts"]["residual"]) < 0.1 * abs(written["change"])
    rows = rows_of(tmp_path / "out" / "explain.csv")
    parts = {row["name"]: float(row["pnl"]) for row in rows if row["kind"] == "part"}
    assert parts == written["parts"]
    assert {r["name"]: float(r["pnl"]) for r in rows if r["kind"] == "quote"} == written["by_quote"]
    assert {row["currency"] for row in rows} == {"EUR"} and written["payments"] == []
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    table = Tables(page).found["parts"]
    assert [row[1][1] for row in table[1:]] == [*parts.values(), written["change"]]
    assert "Not explained" in outcome.stdout and f"{written['change']:,.2f}" in outcome.stdout


def test_a_trade_that_ends_between_two_days_is_explained_with_what_it_pays(tmp_path):
    """With the steps of a full revaluation in every file, in which it is not."""
    before = moved_market(tmp_path / "before.json")
    after = moved_market(tmp_path / "after.json", spot=0.01, asof="2002-07-08")
    paid = "G1,european,DAX,2,call,4300,2002-07-08,,,,,\n"
    assumed = "G2,european,DAX,1,call,4300,2002-07-06,,,,,\n"
    rows = GOOD[0], paid, assumed
    outcome = run_explain(tmp_path, rows, before, after, "--full-revaluation")
    assert outcome.exit_code == 0, outcome.output
    written = json.loads((tmp_path / "out" / "explain.json").read_text())
    spot = dict(Market.read(after).flat_quotes())["EQUITY/PRICE/DAX"]
    payments = {payment["id"]: payment["cash"] for payment in written["payments"]}
    assert payments == pytest.approx({"G1": 2.0 * (spot - 4300.0), "G2": spot - 4300.0})
    assert (written["trades"], written["skipped"], written["cash"]) == (
        3,
        [],
        sum(payments.values()),
    )
    assert written["change"] == pytest.approx(
        written["after"] + written["cash"] - written["before"]
    )
    assert "G2: DAX on 2002-07-06: no such fixing" in outcome.stderr and "G1:" not in outcome.stderr
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    rows = Tables(page).found["payments"][1:]
    assert {row[0][0]: row[4][1] for row in rows} == payments
    assert "Paid in between" in page and "no figures" not in page
    steps, parts = written["steps"], written["parts"]
    assert list(steps) == ["spots", "time"] and abs(parts["residual"]) < 1e-6
    assert sum(steps.values()) + parts["events"] == pytest.approx(written["change"], rel=1e-9)
    rows = rows_of(tmp_path / "out" / "explain.csv")
    assert {r["name"]: float(r["pnl"]) for r in rows if r["kind"] == "step"} == steps
    table = Tables(page).found["steps"][1:]
    assert [row[1][1] for row in table] == [*steps.values(), sum(steps.values())]
    assert "step by step: Spots" in outcome.stdout


def test_a_book_in_another_currency_than_the_market_has_a_total_with_a_part_of_fx_rates(tmp_path):
    paths = []
    for name, rate, moves in (("before", 1.1, {}), ("after", 1.2, {"asof": "2002-07-08"})):
        paths.append(moved_market(tmp_path / f"{name}.json", **moves))
        document = json.loads(paths[-1].read_text())
        document["equities"]["DAX"]["currency"], document["currency"] = "USD", "EUR"
        document["fx"] = {"EURUSD": {"spot": rate}}
        paths[-1].write_text(json.dumps(document))
    outcome = run_explain(tmp_path, GOOD[:1], *paths)
    assert outcome.exit_code == 0, outcome.output
    written = json.loads((tmp_path / "out" / "explain.json").read_text())
    dollars = written["by_currency"]["USD"]
    assert (written["currency"], list(written["by_currency"])) == ("EUR", ["USD"])
    assert written["after"] == pytest.approx(dollars["after"] / 1.2, rel=1e-12)
    assert written["parts"]["fx"] == pytest.approx(
        (1 / 1.2 - 1 / 1.1) * dollars["after"], rel=1e-12
    )
    assert sum(written["parts"].values()) == pytest.approx(written["change"], rel=1e-12)
    rows = rows_of(tmp_path / "out" / "explain.csv")
    of_total = {row["name"]: float(row["pnl"]) for row in rows if row["kind"] == "total"}
    assert of_total == written["parts"]
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert "FX rates" in page and "EUR, all trades" in page
    assert "FX rates" in outcome.stdout and "Trades in USD" in outcome.stdout


def test_explaining_names_what_is_in_no_number(tmp_path):
    before = moved_market(tmp_path / "before.json")
    after = moved_market(tmp_path / "after.json", asof="2002-07-08")
    other = "G1,european,DAXX,1,call,4500,2003-03-18,,,,,\n"
    outcome = run_explain(tmp_path, (GOOD[0], other, BAD), before, after)
    assert outcome.exit_code == 1
    assert "trades.csv:3: column 'underlying': 'DAXX' is not an underlying" in outcome.stderr
    assert "trades.csv:4: column 'strike': -1" in outcome.stderr
    written = json.loads((tmp_path / "out" / "explain.json").read_text())
    assert (written["trades"], written["skipped"]) == (1, ["G1", "X1"])
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert "2 of 3 trades have no figures" in page and "P&amp;L, EUR</th>" in page
    assert (
        "&#39;DAXX&#39; is not an underlying" in page and "P&amp;L of 1 trade on DAX</h1>" in page
    )


def test_what_cannot_be_explained_exits_with_2(tmp_path):
    before = moved_market(tmp_path / "before.json")
    later = moved_market(tmp_path / "later.json", asof="2002-07-08")
    outcome = run_explain(tmp_path, GOOD[:1], later, before)
    assert outcome.exit_code == 2 and "swap them" in outcome.stderr
    other = tmp_path / "other.json"
    other.write_text(before.read_text().replace("4400.0", "4401.0"))
    outcome = run_explain(tmp_path, GOOD[:1], before, other)
    assert outcome.exit_code == 2 and "in one market only, among them" in outcome.stderr
    outcome = run_explain(tmp_path, GOOD[:1], before, tmp_path / "none.json")
    assert outcome.exit_code == 2 and "there is no such file" in outcome.stderr
