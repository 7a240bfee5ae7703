"""The command on a book of five currencies, with options on pairs, under one reporting currency."""

import json

import pytest

from tests.test_command_line import _same_precision_after as _same_precision_after
from tests.test_command_line import rows_of, run

PILLARS = {"dates": ["2026-06-01", "2028-01-01"]}
SURFACE = {
    "expiries": ["2026-06-01", "2028-01-01"],
    "strikes": [80, 100, 120],
    "vols_by_expiry": [[0.25, 0.22, 0.2], [0.24, 0.22, 0.21]],
}
QUOTES = {
    "expiries": ["2026-04-05", "2027-01-05"],
    "at_the_money": [0.08, 0.09],
    "risk_reversals_25": [-0.006, -0.01],
    "butterflies_25": [0.002, 0.003],
}
RATES = {"EUR": 0.02, "USD": 0.04, "JPY": 0.005, "GBP": 0.035, "CHF": 0.001}
IN_EUROS = {
    "EUR": 1.0,
    "USD": 1 / 1.08,
    "JPY": 1 / 1.08 / 150.0,
    "GBP": 1.25 / 1.08,
    "CHF": 1 / 0.95,
}
MARKET = {
    "asof": "2026-01-05",
    "currency": "EUR",
    "curves": {
        name: {**PILLARS, "zero_rates": [rate, rate + 0.002]} for name, rate in RATES.items()
    },
    "equities": {
        f"S{name}": {"curve": name, "currency": name, "spot": 100.0, "implied_vols": SURFACE}
        for name in RATES
    },
    "fx": {
        "EURUSD": {"spot": 1.08, "vols": QUOTES},
        "GBPUSD": {"spot": 1.25},
        "USDJPY": {"spot": 150.0, "vols": {**QUOTES, "premium_adjusted": True}},
        "EURCHF": {"spot": 0.95},
    },
}
ROWS = [
    "id,type,underlying,quantity,option,strike,expiry",
    *(
        f"E{name},european,S{name},{quantity},call,100,2026-12-01"
        for name, quantity in zip(RATES, (10, 20, 3000, 5, -8), strict=True)
    ),
    "X1,european,EURUSD,1000,put,1.07,2026-09-01",
    "X2,digital,USDJPY,100,call,152,2026-09-01",
]


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("currencies")
    (folder / "trades.csv").write_text("\n".join(ROWS))
    (folder / "market.json").write_text(json.dumps(MARKET))
    files = "--trades", folder / "trades.csv", "--market", folder / "market.json"
    return folder, (*files, "--model", "black-scholes")


@pytest.mark.repeat
def test_a_book_of_five_currencies_has_one_total(inputs):
    folder, arguments = inputs
    outcome = run("risk", *arguments, "--out", folder / "out")
    assert outcome.exit_code == 0, outcome.output
    rows = rows_of(folder / "out" / "npv.csv")
    assert [row["currency"] for row in rows] == [*RATES, "USD", "JPY"]
    for row in rows:
        converted = IN_EUROS[row["currency"]] * float(row["value"])
        assert float(row["value:EUR"]) == pytest.approx(converted, rel=1e-12)
    total = sum(float(row["value:EUR"]) for row in rows)
    assert f"{total:,.2f}" in outcome.stdout and "Value in all" in outcome.stdout
    risks = {row["quote_id"]: row for row in rows_of(folder / "out" / "sensitivity.csv")}
    assert {row["currency"] for row in risks.values()} == {"EUR"}
    francs = IN_EUROS["CHF"] * float(rows[4]["value"])  # no other trade moves with the franc
    found = float(risks["FX/RATE/EUR/CHF"]["derivative"])
    assert found == pytest.approx(-francs / 0.95, rel=1e-12)
    assert 'id="currencies"' in (folder / "out" / "report.html").read_text()


def test_a_currency_without_a_rate_is_refused(inputs):
    folder, arguments = inputs
    outcome = run("risk", *arguments, "--out", folder / "none", "--currency", "SEK")
    assert outcome.exit_code == 2
    assert "--currency: there is no FX rate from" in outcome.stderr.replace("\n", " ")
