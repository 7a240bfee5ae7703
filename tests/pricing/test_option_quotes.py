"""Lists of option quotes: beside QuantLib's numbers, what is wrong by name, surfaces written and read back."""

import datetime as dt
import json

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
import QuantLib as ql

from pricing import BlackScholes, European, FiniteDifference, LocalVol, Market, VolSurface, price
from pricing.ingestion import UnreadableFile
from pricing.market import option_quotes
from tests.helpers import double, first_difference

pytestmark = double

ASOF = dt.date(2024, 1, 2)
DAY, LATER = "2024-07-02", "2025-01-01"
TIME = (dt.date(2024, 7, 2) - ASOF).days / 365.0
SPOT, RATE, YIELD = 100.0, 0.03, 0.01
VOLS = [
    {"expiry": DAY, "strike": 90, "bid": 0.23, "ask": 0.25},
    {"expiry": LATER, "strike": 95, "vol": 0.22, "weight": 2},
    {"expiry": DAY, "strike": 110, "bid": 0.19, "ask": 0.194},
    {"expiry": DAY, "strike": 100, "bid": 0.2, "ask": 0.21},
]


def document(quotes, **equity) -> str:
    own = {"curve": "EUR", "spot": SPOT, "dividend_yield": YIELD, "option_quotes": quotes, **equity}
    own = {name: value for name, value in own.items() if value is not None}
    curves = {"EUR": {"zero_rate": RATE}}
    return json.dumps(
        {"asof": str(ASOF), "currency": "EUR", "curves": curves, "equities": {"A": own}}
    )


def surface_of(quotes, **equity) -> VolSurface:
    market = Market.from_text(document(quotes, **equity))
    assert not market.errors, market.errors
    return market.equities["A"].surface


def test_a_ragged_list_is_a_surface_with_mids_and_weights():
    """Weights by hand: the spreads are .02, .004 and .01, and their median .01."""
    surface = surface_of(VOLS)
    np.testing.assert_allclose(surface.expiries, [TIME, 365 / 365], rtol=1e-15)
    np.testing.assert_allclose(surface.vols[0], [0.24, 0.205, 0.192, np.nan], rtol=1e-15)
    np.testing.assert_allclose(surface.weights, [[0.5, 1.0, 2.5, 0.0], [2.0, 0.0, 0.0, 0.0]])
    np.testing.assert_array_equal(surface.bids[0, :3], [0.23, 0.2, 0.19])
    assert np.isnan(surface.asks[1]).all()
    tight = [{**VOLS[0], "ask": 0.2301}, *VOLS[2:]]
    assert float(surface_of(tight).weights[0, 0]) == pytest.approx(
        10.0
    )  # no more than ten times the median's
    assert "weights" not in repr(VolSurface([1.0], [90.0, 110.0], [[0.2, 0.2]]))


def test_the_surface_is_read_as_the_expiries_alone_are():
    """Each row as a surface of its own, and total variance linear in time between them."""
    surface = surface_of(VOLS)
    row = VolSurface([TIME], [90.0, 100.0, 110.0], [[0.24, 0.205, 0.192]])
    strikes = np.array([50.0, 90.0, 93.0, 105.0, 110.0, 300.0])
    np.testing.assert_allclose(surface.vol(TIME, strikes), row.vol(TIME, strikes), rtol=1e-14)
    np.testing.assert_allclose(surface.vol(2.0, strikes), 0.22, rtol=1e-14)
    middle = 0.5 * (TIME + 1.0)
    total = 0.5 * (row.vol(TIME, strikes) ** 2 * TIME + 0.22**2)
    np.testing.assert_allclose(surface.vol(middle, strikes) ** 2 * middle, total, rtol=1e-13)
    up = surface.shifted(0.01)
    assert float(up.asks[0, 0]) == pytest.approx(0.26) and np.isnan(up.vols[1, 1])


def test_prices_become_vols_and_deltas_strikes_as_quantlib_has_them():
    forward, discount = SPOT * np.exp((RATE - YIELD) * TIME), np.exp(-RATE * TIME)
    quotes, wanted = [], {}
    for strike, call, put in ((80, 21.1, 0.5), (100, 6.6, 5.4), (125, 0.4, 24.0)):
        for option, mid in (("call", call), ("put", put)):
            sides = {"bid_price": 0.98 * mid, "ask_price": 1.02 * mid}
            quotes.append({"expiry": DAY, "strike": strike, "option": option, **sides})
        is_put = strike < forward
        kind, mid = (ql.Option.Put, put) if is_put else (ql.Option.Call, call)
        worth = [(kind, strike, forward, x * mid, discount) for x in (1.0, 0.98, 1.02)]
        stds = [ql.blackFormulaImpliedStdDev(*each, 0.0, 0.2, 1e-12, 1000) for each in worth]
        wanted[strike] = np.array(stds) / TIME**0.5
    found = surface_of(quotes)
    for field, place in (("vols", 0), ("bids", 1), ("asks", 2)):
        reference = [wanted[strike][place] for strike in (80, 100, 125)]
        np.testing.assert_allclose(getattr(found, field)[0, :3], reference, rtol=1e-8)
    deltas = [-0.1, -0.25, 0.25]
    by_delta = surface_of([{"expiry": DAY, "delta": x, "vol": 0.2} for x in deltas])
    growth = np.exp(-YIELD * TIME)
    for place, delta in enumerate(deltas):
        side = ql.Option.Call if delta > 0 else ql.Option.Put
        calculator = ql.BlackDeltaCalculator(
            side, ql.DeltaVolQuote.Spot, SPOT, discount, growth, 0.2 * TIME**0.5
        )
        strike = calculator.strikeFromDelta(delta)
        np.testing.assert_allclose(by_delta.strikes[0, place], strike, rtol=1e-9)


def test_prices_are_read_above_the_dividends():
    """An option of the price that Black's formula gives on the forward above dividends has its vol."""
    dividends = {"dates": ["2024-03-01"], "cash": [5.0]}
    time = (dt.date(2024, 3, 1) - ASOF).days / 365.0
    growth = np.exp((RATE - YIELD) * TIME)
    forward = growth * (SPOT - 5.0 * np.exp(-(RATE - YIELD) * time))
    worth = ql.blackFormula(ql.Option.Call, 95.0, forward, 0.25 * TIME**0.5, np.exp(-RATE * TIME))
    quote = {"expiry": DAY, "strike": 95, "option": "call", "price": worth}
    assert float(surface_of([quote], dividends=dividends).vols[0, 0]) == pytest.approx(
        0.25, rel=1e-9
    )


BAD = {
    "crossed": ({"bid": 0.22, "ask": 0.21}, "2.bid': is crossed: the bid is above the ask"),
    "no bid": ({"bid": 0, "ask": 0.21}, "2.bid': a bid of 0 is not a quote"),
    "one side": ({"ask": 0.21}, "2.bid': is missing beside the ask"),
    "NaN": ({"bid": float("nan"), "ask": 0.21}, "2.bid': NaN is not a finite number"),
    "percent": ({"bid": 19, "ask": 0.21}, "2.bid': 19 is larger than 10"),
    "outside": ({"bid": 0.2, "ask": 0.21, "vol": 0.3}, "2.vol': is not between bid and ask"),
    "twice": (
        {"strike": 90, "vol": 0.2},
        "2': the quote of expiry 0.49863 at strike 90 appears twice",
    ),
    "no place": ({"strike": None, "vol": 0.2}, "2.strike': a quote has a strike or a delta"),
    "two places": ({"delta": 0.25, "vol": 0.2}, "2.strike': a quote has a strike or a delta"),
    "delta": ({"strike": None, "delta": 1, "vol": 0.2}, "2.delta': no strike has this delta"),
    "far delta": ({"strike": None, "delta": 0.999, "vol": 0.2}, "2.delta': no strike has this"),
    "sign": (
        {"strike": None, "delta": 0.3, "vol": 0.2, "option": "put"},
        "2.delta': does not have the sign of its option",
    ),
    "mixed": ({"price": 3.0, "option": "call"}, "2': the list mixes prices and vols"),
    "both": ({"price": 3.0, "vol": 0.2}, "2.price': has a vol and a price"),
    "past": ({"expiry": "2024-01-02", "vol": 0.2}, "2.expiry': 2024-01-02 is not after"),
    "no expiry": ({"expiry": None, "vol": 0.2}, "2': needs an expiry or days"),
    "weight": ({"vol": 0.2, "weight": -1}, "2.weight': -1 is not a number >= 0"),
    "name": ({"volume": 0.2}, "2.volume': is not a known field"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_quote_is_left_out_by_name_and_the_others_stay(case):
    change, message = BAD[case]
    quote = {"expiry": DAY, "strike": 110, **change}
    quote = {name: value for name, value in quote.items() if value is not None}
    market = Market.from_text(document([*VOLS[:2], quote]))
    (error,) = market.errors
    assert f"equities.A.option_quotes.{message}" in str(error) and error.remedy
    assert [name for name, _ in market.flat_quotes() if "OPTION" in name] == [
        f"EQUITY_OPTION/RATE_LNVOL/A/{DAY}/90",
        f"EQUITY_OPTION/RATE_LNVOL/A/{LATER}/95",
    ]


def test_a_bad_price_is_left_out_by_name():
    good = {"expiry": DAY, "strike": 100, "option": "put", "price": 5.4}
    for change, message in (
        ({"price": 0.5, "strike": 80}, "1.price': 0.5 is not between"),
        ({"option": None, "strike": 120}, "1.option': a price needs its option and strike"),
        ({"price": 0}, "1.price': a price or vol of 0 is not a quote"),
    ):
        quote = {
            name: x for name, x in {**good, "option": "call", **change}.items() if x is not None
        }
        (error,) = Market.from_text(document([good, quote])).errors
        assert message in str(error)


def test_an_equity_without_a_sound_quote_is_left_out():
    for quotes, message in (
        ([], "no quote is valid"),
        ([{"expiry": DAY, "strike": 90, "bid": 0.3, "ask": 0.2}], "no quote is valid"),
        ([{"expiry": DAY, "strike": 90, "vol": 2.0}], "every vol is 2 or more"),
        ([{"expiry": DAY, "strike": 0.9, "vol": 0.2}], "the strikes are from 0.9"),
        (None, "give implied_vols, an object with expiries, strikes and vols_by_expiry, or"),
    ):
        market = Market.from_text(document(quotes))
        assert not market.equities and any(message in str(error) for error in market.errors)
    vols = {"days": [100], "strikes": [90], "vols_by_expiry": [[0.2]]}
    (error,) = Market.from_text(document(VOLS, implied_vols=vols)).errors
    assert "option_quotes': is given together with implied_vols" in str(error)


def test_a_matrix_with_gaps_is_a_list():
    vols = {"days": [100, 200], "strikes": [90, 100, 110]}
    vols["vols_by_expiry"] = [[0.2, 0.21, None], [0.2, None, 0.19]]
    surface = surface_of(None, implied_vols=vols)
    np.testing.assert_array_equal(surface.strikes, [[90.0, 100.0], [90.0, 110.0]])
    np.testing.assert_array_equal(surface.vols, [[0.2, 0.21], [0.2, 0.19]])
    vols["vols_by_expiry"][1] = [None, None, None]
    (error,) = Market.from_text(document(None, implied_vols=vols)).errors
    assert "vols_by_expiry.1': an expiry has no vol" in str(error)


@pytest.mark.parametrize("kind", ["csv", "parquet", "frame"])
def test_a_market_is_written_and_read_back(tmp_path, kind):
    market = Market.from_text(document(VOLS))
    quotes = market.option_table
    if kind != "frame":
        write = pyarrow.csv.write_csv if kind == "csv" else pyarrow.parquet.write_table
        write(quotes, tmp_path / f"quotes.{kind}")
        quotes = tmp_path / f"quotes.{kind}"
    again = Market.from_text(document(None), option_quotes=quotes)
    assert not again.errors and again.flat_quotes() == market.flat_quotes()
    jax.tree.map(np.testing.assert_array_equal, again.equities, market.equities)


def test_the_rows_of_a_table_have_their_lines(tmp_path):
    columns = {"surface": ["A", "B", "A", "A"], "expiry": [DAY] * 4, "strike": [90, 90, 100, 110]}
    table = pa.table({**columns, "bid": [0.2, 0.2, 0.2, 0.0], "ask": [0.21, 0.21, 0.19, 0.2]})
    pyarrow.csv.write_csv(table, tmp_path / "q.csv")
    market = Market.from_text(document(None), option_quotes=tmp_path / "q.csv")
    said = [str(error) for error in market.errors]
    assert [message.split("q.csv:")[1][:20] for message in said] == [
        "4: column 'bid': is ",
        "5: column 'bid': a b",
        "3: column 'surface':",
    ]
    assert market.equities["A"].surface.vols.shape == (1, 1)
    for more, message in (
        ({"price": [1.0] * 4}, "vols (bid, ask) and prices (price)"),
        ({"expiry": ["soon"] * 4}, "column 'expiry': holds no number"),
        ({"ask": ["x"] * 4}, "column 'ask': holds no number"),
    ):
        changed = pa.table({**table.to_pydict(), **more})
        try:
            told = str(Market.from_text(document(None), option_quotes=changed).errors[0])
        except UnreadableFile as error:
            told = str(error)
        assert message in told


def test_a_frame_is_a_surface():
    columns = {"expiry": [0.5, 0.5, 1.0], "delta": [-0.25, 0.25, 0.5], "vol": [0.22, 0.19, 0.2]}
    found = option_quotes(pa.table(columns), SPOT, RATE, YIELD)
    assert found.strikes.shape == (2, 2) and found.bids is None
    twice = pa.table({name: [*x, x[0]] for name, x in columns.items()})
    with pytest.raises(ValueError, match=r"option quotes:4: the quote of expiry 0\.5 at strike"):
        option_quotes(twice, SPOT, RATE, YIELD)
    named = pa.table({**columns, "surface": ["A", "A", "B"]})
    with pytest.raises(ValueError, match="the surfaces are A, B: give the name of one"):
        option_quotes(named, SPOT, RATE)
    assert option_quotes(named, SPOT, RATE, name="B").vols.shape == (1, 1)


def test_rows_of_a_surface_that_do_not_fit_are_refused():
    rows = [[90.0, 100.0], [90.0, 110.0]]
    for vols, message in (
        ([[0.2, 0.2]], "give a row of strikes and of vols for each expiry"),
        ([[np.nan, 0.2], [0.2, 0.2]], "the expiry 0.5 has no quote, or one after a gap"),
    ):
        with pytest.raises(ValueError, match=message):
            VolSurface([0.5, 1.0], rows, vols)
    with pytest.raises(ValueError, match="bids have shape"):
        VolSurface([0.5], [90.0, 100.0], [[0.2, 0.2]], bids=[[0.1]])
    with pytest.raises(ValueError, match="the expiry 1 has one quote and no slope"):
        LocalVol(100.0, 0.0, VolSurface([0.5, 1.0], rows, [[0.2, 0.2], [0.2, np.nan]]))


RAGGED = (
    [0.25, 1.0],
    [[90.0, 100.0, 110.0, 220.0], [80.0, 95.0, 105.0, 130.0]],
    [[0.23, 0.21, 0.2, np.nan], [0.25, 0.22, 0.21, 0.19]],
)


@pytest.mark.costly
def test_local_vol_of_ragged_quotes_meets_them():
    """The shorter row is the spline through its own quotes, and prices are those of the quoted vols."""
    model = LocalVol(SPOT, RATE, VolSurface(*RAGGED))
    assert not model.arbitrages()
    alone = LocalVol(SPOT, RATE, VolSurface([0.25], [90.0, 100.0, 110.0], [RAGGED[2][0][:3]]))
    k = jnp.linspace(-0.4, 0.4, 17)
    both, one = (each.local_variances.variances(k)[0] for each in (model, alone))
    np.testing.assert_allclose(both, one, rtol=1e-12)
    quoted = [(RAGGED[1][row][at], RAGGED[2][row][at]) for row, at in ((1, 0), (1, 3))]
    options = European([strike for strike, _ in quoted], [1.0, 1.0])
    found = price(options, model, FiniteDifference()).value
    black = [price(European(k, 1.0), BlackScholes(SPOT, RATE, vol)).value for k, vol in quoted]
    np.testing.assert_allclose(found, black, atol=2e-3)


@pytest.mark.costly
def test_derivatives_to_quotes_are_differences():
    def value(vols, model):
        surface = VolSurface(RAGGED[0], RAGGED[1], vols)
        if model is LocalVol:
            smile = LocalVol(SPOT, RATE, surface).local_variances
            between = jnp.array(0.2), jnp.array(0.6)
            return smile.local_variance(*between, jnp.array([-0.1, 0.07, 0.3])).sum()
        return price(European(97.0, 0.6), BlackScholes(SPOT, RATE, surface)).value

    vols = np.array(RAGGED[2])
    for model in (BlackScholes, LocalVol):
        slopes = jax.grad(value)(vols, model)
        assert slopes[0, 3] == 0.0
        for place in ((0, 1), (0, 2), (1, 2)):
            bump = lambda h, place=place, model=model: value(_with(vols, place, h), model)
            np.testing.assert_allclose(slopes[place], first_difference(bump, 1e-4), rtol=1e-6)


def _with(vols, place, h):
    moved = vols.copy()
    moved[place] += h
    return moved
