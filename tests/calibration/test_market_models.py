"""The models of a market: the verb finds the figures of the command, and keeps failures as data."""

import csv
import functools

import jax
import numpy as np
import pytest
from typer.testing import CliRunner

from calibration import RESULTS, Calibration, calibrate_market, market_models
from jaxtape.cli.main import app
from pricing import Book, Market, explain, risk

from ..documented import ROOT, blocks

MARKET = ROOT / "pricing" / "samples" / "dax_2002-07-05.json"
SAMPLE = ROOT / "pricing" / "samples" / "dax_book.csv"
HEADER = "id,type,underlying,quantity,option,strike,expiry\n"
TRADES = (
    HEADER
    + "E1,european,DAX,10,call,4500,2003-03-18\n"
    + "E2,european,DAX,-7,put,4100,2002-10-18\n"
    + "X1,european,MDAX,1,call,4500,2003-03-18\n"
)


@pytest.fixture(autouse=True)
def _same_precision_after():
    before = jax.config.jax_enable_x64
    yield
    jax.config.update("jax_enable_x64", before)


@functools.cache
def market() -> Market:
    return Market.read(MARKET)


def unfinished(start, quotes, **settings):
    del settings
    return Calibration(start, quotes.vols, RESULTS.max_steps_reached, {})


@pytest.mark.costly
@pytest.mark.parametrize("book", ["two", pytest.param("sample", marks=pytest.mark.slow)])
def test_the_main_job_in_python_finds_the_figures_of_the_command(tmp_path, monkeypatch, book):
    """The ten lines of the page, on the sample book and on a small one."""
    small = tmp_path / "trades.csv"
    small.write_text(TRADES)
    trades = SAMPLE if book == "sample" else small
    program = blocks(ROOT / "docs" / "calibration.md", "python")[0]
    assert len([line for line in program.splitlines() if line]) <= 10
    program = program.replace("pricing/samples/dax_book.csv", str(trades))
    program = program.replace("pricing/samples/dax_2002-07-05.json", str(MARKET))
    monkeypatch.chdir(tmp_path)
    found = {}
    exec(program, found)
    inputs = ["--trades", str(trades), "--market", str(MARKET), "--out", str(tmp_path / "out")]
    outcome = CliRunner().invoke(app, ["risk", *inputs])
    assert outcome.exit_code == (book == "two"), outcome.output
    with (tmp_path / "out" / "npv.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    trades = found["result"].trades
    assert [row["id"] for row in rows] == [trade.id for trade in trades]
    without = {True: np.nan, False: 0.0}  # by whether it has failed; others have ended
    values = [
        trade.position.value if trade.position else without[trade.has_failed] for trade in trades
    ]
    written = [float(row["value"] or "nan") for row in rows]
    np.testing.assert_allclose(values, written, rtol=1e-12)
    with (tmp_path / "out" / "sensitivity.csv").open(newline="") as file:
        derivatives = {row["quote_id"]: float(row["derivative"]) for row in csv.DictReader(file)}
    for quote, value in found["result"].sensitivities.items():
        np.testing.assert_allclose(value, derivatives[quote], rtol=1e-9, atol=1e-9)
    page = (tmp_path / "report.html").read_text()
    assert "Heston" in page and "Risk of" in page


def test_what_cannot_be_calibrated_is_data(monkeypatch):
    monkeypatch.setattr(market_models, "calibrate_precisely", unfinished)
    calls = []
    models = calibrate_market(
        market(), Book.from_text(TRADES), progress=lambda *each: calls.append(each), file="dax.json"
    )
    assert calls == [(0, 1, "DAX"), (1, 1, "")] and set(models.seconds) == {"DAX"}
    error = models.failed["DAX"]
    assert error.file == "dax.json" and error.field == "equities.DAX.implied_vols"
    assert "Heston could not be calibrated" in error.message and "black-scholes" in error.remedy
    assert not models.calibrations and not models.market.equities
    result = risk(Book.from_text(TRADES), models.market, models.fit)
    assert [trade.figures for trade in result.trades] == [None] * 3
    later = models.restrict(market())
    assert not later.equities and later.errors[-1] == error


def test_without_a_book_every_quoted_underlying_is_calibrated(monkeypatch):
    monkeypatch.setattr(market_models, "calibrate_precisely", unfinished)
    models = calibrate_market(market())
    assert set(models.failed) == {*market().equities, market().swaption_vols.curve}
    assert models.market.swaption_vols is None


def test_black_scholes_reads_the_surfaces_and_calibrates_nothing():
    book = Book.from_text(TRADES)
    models = calibrate_market(market(), book, model="black-scholes")
    assert not models.calibrations and set(models.market.equities) == {"DAX"}
    assert [fit.underlying for fit in models.surface_fits()] == ["DAX"]
    up = market().with_quotes({"EQUITY/PRICE/DAX": 4500.0})
    change = explain(book, models.market, models.restrict(up), models.fit)
    assert change.trades == 2 and abs(change.residual) < 0.01 * abs(change.change)


def test_the_first_equity_and_the_first_curve_are_calibrated_first():
    names = market_models.calibrated_names(market(), None, "heston")
    assert names == ("DAX", "SX5E", "RHEIN", "EUR")
    found = market_models._one_of_each_kind_first(names, market())
    assert found == ["DAX", "EUR", "SX5E", "RHEIN"]
