"""Ragged lists of option quotes: fitted, counted within bid and ask, and the book's risk to each mid."""

import datetime as dt
import json

import jax
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest
from typer.testing import CliRunner

from calibration import calibrate, calibrate_many, calibrate_market, calibrate_table, read_jobs
from jaxtape.cli.main import app
from pricing import Book, European, Heston, Market, SmileQuotes, Ssvi, VolCurve, price, risk
from pricing.market import option_quotes
from pricing.numerics.implied_vol import implied_vol
from tests.helpers import double

pytestmark = double

SPOT, RATE = 100.0, 0.02
ASOF = dt.date(2024, 1, 2)
TRUE = Heston(SPOT, RATE, 0.04, 1.5, 0.05, 0.5, -0.6)
START = Heston(SPOT, RATE, 0.05, 1.0, 0.05, 0.4, -0.5)
LIST = {37: (92, 97, 100, 103), 91: (85, 92.5, 97.5, 100, 105, 110), 365: (75, 90, 100, 115, 130)}
SPREADS = (0.004, 0.012, 0.006, 0.02)


def columns() -> dict:
    """Return quotes about the vols of a Heston model, each off its mid by a tenth of its spread."""
    rows = [(days, float(k)) for days, strikes in LIST.items() for k in strikes]
    days, strikes = map(np.array, zip(*rows, strict=True))
    t = days / 365.0
    values = np.array(price(European(strikes, t), TRUE).value) * np.exp(RATE * t)
    options = values, SPOT * np.exp(RATE * t), strikes, t, np.ones(t.size)
    vols = np.array(implied_vol(*map(jax.numpy.asarray, options)))
    spreads = np.resize(SPREADS, t.size)
    mids = vols + np.resize([0.1, -0.1, 0.05], t.size) * spreads
    expiries = [ASOF + dt.timedelta(days=int(x)) for x in days]
    sides = {"bid": mids - 0.5 * spreads, "ask": mids + 0.5 * spreads}
    return {"surface": ["A"] * t.size, "expiry": expiries, "strike": strikes, **sides}


@pytest.fixture(scope="module")
def quotes() -> dict:
    return columns()


def document(**equity) -> str:
    own = {"curve": "EUR", "spot": SPOT, **equity}
    curves = {"EUR": {"zero_rate": RATE}}
    return json.dumps(
        {"asof": str(ASOF), "currency": "EUR", "curves": curves, "equities": {"A": own}}
    )


@pytest.mark.costly
def test_a_fit_to_ragged_quotes_is_the_fit_to_its_smiles(quotes):
    """The same least squares on log-moneyness; the tighter a quote, the more it counts."""
    surface = option_quotes(pa.table(quotes), SPOT, RATE, asof=ASOF)
    found = calibrate(surface, START)
    spreads = np.asarray(surface.asks) - np.asarray(surface.bids)
    is_there = ~np.isnan(spreads)
    median = np.median(spreads[is_there])
    weights = np.where(is_there, median / np.maximum(spreads, 0.1 * median), 0.0)
    forwards = SPOT * np.exp(RATE * np.asarray(surface.expiries))
    k = np.log(forwards[:, None] / np.asarray(surface.strikes))
    smiles = SmileQuotes(surface.expiries, k, surface.vols, weights)
    beside = calibrate(smiles, START)
    for one, other in zip(jax.tree.leaves(found.model), jax.tree.leaves(beside.model), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)
    assert int(found.stats["num_quotes"]) == int(found.stats["num_bid_ask"]) == 15
    residuals = np.abs(np.asarray(found.residuals) / weights)
    within = int(np.sum(residuals[is_there] <= 0.5 * spreads[is_there] + 1e-12))
    assert int(found.stats["num_within_bid_ask"]) == within > 12


def test_ssvi_is_fitted_to_ragged_quotes(quotes):
    surface = option_quotes(pa.table(quotes), SPOT, RATE, asof=ASOF)
    start = Ssvi(SPOT, RATE, VolCurve(surface.expiries, [0.2] * 3), -0.5, 0.5, 0.4)
    found = calibrate(surface, start.starting_for(surface), throw=False)
    errors = np.asarray(found.residuals) / np.asarray(surface.weights)
    assert not found.has_failed and np.nanmax(np.abs(errors)) < 0.01
    assert int(found.stats["num_bid_ask"]) == 15


@pytest.mark.costly
def test_risk_to_each_mid_is_a_bump_and_a_rerun(quotes):
    market = Market.from_text(document(), option_quotes=pa.table(quotes))
    assert not market.errors
    header = "id,type,underlying,quantity,option,strike,expiry\n"
    book = Book.from_text(header + "E1,european,A,10,call,104,2024-09-02\n")
    models = calibrate_market(market, book)
    found = risk(book, models.market, models.fit).sensitivities
    ids = [name for name, _ in market.flat_quotes() if "OPTION" in name]
    assert len(ids) == 15 and set(ids) <= set(found)
    largest = max(abs(found[name]) for name in ids)

    def rerun(name, h):
        moved = market.with_quotes({name: dict(market.flat_quotes())[name] + h})
        again = calibrate_market(moved, book)
        return risk(book, again.market, again.fit).value

    for name in (ids[1], ids[7]):
        h = 2e-4
        slope = (
            8 * (rerun(name, h) - rerun(name, -h)) - rerun(name, 2 * h) + rerun(name, -2 * h)
        ) / (12 * h)
        assert abs(slope - found[name]) <= 1e-5 * largest, (name, slope, found[name])


def table_of(quotes, **more) -> pa.Table:
    count = len(quotes["strike"])
    constant = {"spot": SPOT, "rate": RATE, "asof": ASOF, **more}
    return pa.table({**quotes, **{name: [value] * count for name, value in constant.items()}})


@pytest.mark.costly
def test_ragged_surfaces_of_many_sizes_share_a_program(quotes):
    """Fifteen quotes and fewer in one table: each fit is that of `calibrate`."""
    few = {name: [*column[:4], *column[4:9]] for name, column in quotes.items()}
    few["surface"] = ["B"] * 9
    both = {name: [*quotes[name], *few[name]] for name in quotes}
    jobs = list(read_jobs(table_of(both), Heston))
    assert [job.quotes.vols.shape for job in jobs] == [(3, 8), (2, 8)]
    assert [job.num_bid_ask for job in jobs] == [15, 9]
    found = calibrate_many(iter(jobs))
    assert found.status == ("ok", "ok")
    one = calibrate(option_quotes(pa.table(quotes), SPOT, RATE, asof=ASOF), START)
    assert found.num_bid_ask.tolist() == [15, 9]
    assert found.num_within_bid_ask[0] == int(one.stats["num_within_bid_ask"])
    np.testing.assert_allclose(found.parameters["vol_of_vol"][0], one.model.vol_of_vol, rtol=1e-5)
    table = found.table
    assert table["num_within_bid_ask"].to_pylist()[0] == found.num_within_bid_ask[0]
    again = type(found).of_columns(found.columns)
    np.testing.assert_array_equal(again.num_within_bid_ask, found.num_within_bid_ask)


def test_a_bad_quote_of_a_table_refuses_its_surface_by_name(quotes):
    crossed = table_of({**quotes, "bid": np.where(np.arange(15) == 3, 0.5, quotes["bid"])})
    (status,) = calibrate_table(crossed, Heston)["status"].to_pylist()
    assert status == (
        "failed: row 4: column 'bid' is crossed: the bid is above the ask; correct one of them, or leave the "
        "quote out"
    )
    gone = {**quotes, "bid": [None, *quotes["bid"][1:]], "ask": [None, *quotes["ask"][1:]]}
    (job,) = read_jobs(table_of(gone), Heston)
    assert job.num_bid_ask == 14 and not job.unreadable


@pytest.mark.costly
def test_the_commands_take_a_table_of_quotes(tmp_path, quotes):
    pyarrow.csv.write_csv(pa.table(quotes), tmp_path / "quotes.csv")
    (tmp_path / "market.json").write_text(document())
    (tmp_path / "trades.csv").write_text(
        "id,type,underlying,quantity,option,strike,expiry\nE1,european,A,10,call,104,2024-09-02\n"
    )
    run = lambda *words: CliRunner().invoke(app, list(map(str, words)))
    inputs = ("--market", tmp_path / "market.json", "--option-quotes", tmp_path / "quotes.csv")
    fit = run("calibrate", *inputs, "--underlying", "A", "--out", tmp_path / "fit")
    assert fit.exit_code == 0, fit.output
    found = json.loads((tmp_path / "fit" / "calibration.json").read_text())
    assert found["num_bid_ask"] == 15 and len(found["residuals"]) == 15
    words = f"{found['num_within_bid_ask']} of 15 quotes within bid and ask"
    assert words in fit.output.replace("\n", " ")
    assert words in (tmp_path / "fit" / "report.html").read_text()
    valued = run("risk", *inputs, "--trades", tmp_path / "trades.csv", "--out", tmp_path / "risk")
    assert valued.exit_code == 0, valued.output
    rows = (tmp_path / "risk" / "sensitivity.csv").read_text()
    assert rows.count("EQUITY_OPTION/RATE_LNVOL/A/") == 15
    many = run(
        "calibrate",
        "--market",
        tmp_path / "quotes.csv",
        "--option-quotes",
        "x.csv",
        "--out",
        tmp_path,
    )
    assert many.exit_code == 2 and "--option-quotes" in many.output
