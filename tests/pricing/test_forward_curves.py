"""Overnight swaps, FRAs, and curves of forwards beside the one that discounts: QuantLib's; risk to quotes."""

import json
from datetime import date

import jax
import numpy as np
import pytest

from pricing import Book, CurveQuotes, Market, RateCurves, Swap, explain, price, risk
from pricing.market import Deposits, FloatingSwaps, ParSwaps
from pricing.market.moves import moved
from tests.helpers import double

ASOF = date(2026, 3, 10)
OVERNIGHT = {
    "tenors": ["1W", "1M", "6M", "1Y", "18M", "3Y", "5Y", "10Y"],
    "rates": [0.0193, 0.0194, 0.0199, 0.0203, 0.0208, 0.0222, 0.0237, 0.0263],
    "payment_lag": 1,
}
FRAS = {"tenors": ["1x7", "3x9", "6x12"], "rates": [0.0214, 0.0217, 0.0221]}
SWAPS = {
    "tenors": ["2Y", "3Y", "5Y", "10Y"],
    "rates": [0.0226, 0.0235, 0.0251, 0.0278],
    "floating_frequency": "semiannual",
}
DOCUMENT = {
    "asof": str(ASOF),
    "currency": "EUR",
    "curves": {
        "EUR6M": {  # before the curve that discounts it
            "discount_curve": "EUR",
            "deposits": {"tenors": ["6M"], "rates": [0.0211]},
            "fras": FRAS,
            "swaps": SWAPS,
        },
        "EUR": {"overnight_swaps": OVERNIGHT},
    },
    "equities": {},
    "fixings": {
        "EUR6M 6M": {"2025-12-10": 0.0205},
        "EUR 1D": {f"2026-03-{day:02}": 0.019 + 1e-5 * day for day in (3, 4, 5, 6, 9)},
    },
}
HEADER = (
    "id,type,underlying,quantity,side,fixed_rate,notional,start,maturity,floating_frequency,"
    "forward_curve,payment_lag"
)
ROWS = (
    "S,swap,EUR,2,payer,0.025,100,2026-06-10,2031-06-10,semiannual,EUR6M,",
    "A,swap,EUR,1,receiver,0.025,100,2025-06-10,2030-06-10,semiannual,EUR6M,",
    "O,overnight_swap,EUR,1,payer,0.022,100,2026-06-10,2031-06-10,,,1",
    "P,overnight_swap,EUR,1,receiver,0.022,100,2026-03-03,2028-03-03,,,1",
    "F,fra,EUR,3,payer,0.02,100,2026-06-10,2026-12-10,,EUR6M,",
    "E,swap,EUR,1,payer,0.025,100,2026-06-10,2029-06-10,,,",
)
TIMES = np.array([0.01, 0.1, 0.3, 0.7, 1.2, 1.7, 2.5, 4.0, 6.0, 9.0])


def market(**changes) -> Market:
    return Market.from_text(json.dumps(DOCUMENT | changes))


def book(*rows) -> Book:
    return Book.from_text("\n".join([HEADER, *(rows or ROWS)]))


def nothing(_):
    """A fit of no models: curves are all there is."""
    return {}


@pytest.fixture(scope="module")
def found():
    return risk(book(), market(), nothing)


# --- the curves beside QuantLib -----------------------------------------------------------------------


class Peer:
    """QuantLib's curves from the same quotes."""

    def __init__(self):
        ql = self.ql = pytest.importorskip("QuantLib")
        self.today = ql.Date.from_date(ASOF)
        ql.Settings.instance().evaluationDate = self.today
        quote = lambda rate: ql.QuoteHandle(ql.SimpleQuote(rate))
        pairs = lambda section: zip(section["tenors"], section["rates"], strict=True)
        none = ql.YieldTermStructureHandle()
        overnight = [
            ql.OISRateHelper(2, ql.Period(tenor), quote(rate), ql.Estr(), none, False, 1)
            for tenor, rate in pairs(OVERNIGHT)
        ]
        self.discount = ql.YieldTermStructureHandle(self.curve(overnight))
        rules = 2, ql.TARGET(), ql.ModifiedFollowing, False, ql.Actual360()
        helpers = [ql.DepositRateHelper(quote(0.0211), ql.Period("6M"), *rules)]
        for tenor, rate in pairs(FRAS):
            months = map(int, tenor.split("x"))
            pillar = ql.Pillar.LastRelevantDate, ql.Date(), False
            helpers.append(ql.FraRateHelper(quote(rate), *months, *rules, *pillar))
        fixed = ql.Annual, ql.ModifiedFollowing, ql.Thirty360(ql.Thirty360.European)
        for tenor, rate in pairs(SWAPS):
            terms = quote(rate), ql.Period(tenor), ql.TARGET(), *fixed, ql.Euribor6M()
            start = ql.Period(0, ql.Days)
            helpers.append(ql.SwapRateHelper(*terms, ql.QuoteHandle(), start, self.discount))
        self.forward = ql.YieldTermStructureHandle(self.curve(helpers))

    def curve(self, helpers):
        return self.ql.PiecewiseLinearZero(self.today, helpers, self.ql.Actual365Fixed())


@double
def test_quantlib_bootstraps_the_same_two_curves():
    peer, ours = Peer(), market().bootstrapped()
    for name, theirs in (("EUR", peer.discount), ("EUR6M", peer.forward)):
        factors = [theirs.discount(t) for t in TIMES]
        np.testing.assert_allclose(ours.curves[name].discount(TIMES), factors, rtol=0, atol=1e-11)


@pytest.mark.costly
@double
def test_quantlib_values_the_same_trades(found):
    peer = Peer()
    ql, values = peer.ql, {trade.id: trade.position.value for trade in found.trades}
    day = lambda text: ql.DateParser.parseISO(text)
    index, overnight = ql.Euribor6M(peer.forward), ql.Estr(peer.discount)
    index.addFixing(day("2025-12-08"), 0.0205, True)
    for fixed, rate in DOCUMENT["fixings"]["EUR 1D"].items():
        overnight.addFixing(day(fixed), rate, True)
    engine = ql.DiscountingSwapEngine(peer.discount)

    def schedule(start, end, months):
        rules = ql.TARGET(), *[ql.ModifiedFollowing] * 2, ql.DateGeneration.Backward, False
        return ql.Schedule(day(start), day(end), ql.Period(months, ql.Months), *rules)

    def swap(kind, start, end):
        fixed = schedule(start, end, 12), 0.025, ql.Thirty360(ql.Thirty360.European)
        floating = schedule(start, end, 6), index, 0.0, ql.Actual360()
        return ql.VanillaSwap(kind, 100.0, *fixed, *floating)

    def compounded(kind, start, end):
        terms = schedule(start, end, 12), 0.022, ql.Actual360(), overnight, 0.0, 1
        return ql.OvernightIndexedSwap(kind, 100.0, *terms)

    payer, receiver = ql.Swap.Payer, ql.Swap.Receiver
    theirs = {
        "S": (2.0, swap(payer, "2026-06-10", "2031-06-10")),
        "A": (1.0, swap(receiver, "2025-06-10", "2030-06-10")),
        "O": (1.0, compounded(payer, "2026-06-10", "2031-06-10")),
        "P": (1.0, compounded(receiver, "2026-03-03", "2028-03-03")),
    }
    for name, (quantity, contract) in theirs.items():
        contract.setPricingEngine(engine)
        assert values[name] == pytest.approx(quantity * contract.NPV(), abs=1e-10), name
    fra = ql.ForwardRateAgreement(
        index, day("2026-06-10"), day("2026-12-10"), ql.Position.Long, 0.02, 100.0, peer.discount
    )
    assert values["F"] == pytest.approx(3.0 * fra.NPV(), abs=1e-10)


# --- risk ---------------------------------------------------------------------------------------------


@pytest.mark.costly
@double
def test_risk_reaches_every_quote_as_bumping_does(found):
    quotes = dict(market().flat_quotes())
    assert {quote.split("/")[0] for quote in quotes} == {"MM", "FRA", "IR_SWAP", "OIS"}
    for quote, level in quotes.items():
        up, down = (
            risk(book(), market().with_quotes({quote: level + h}), nothing, greeks=False).value
            for h in (1e-5, -1e-5)
        )
        slope = (up - down) / 2e-5
        np.testing.assert_allclose(found.sensitivities[quote], slope, rtol=1e-5, atol=1e-5)


@pytest.mark.costly
@double
def test_each_curve_has_a_delta_and_they_add_up_to_rho(found):
    swap = found.trades[0].position
    assert list(swap.delta) == ["EUR", "EUR6M"]
    assert abs(swap.delta["EUR6M"]) > 100 * abs(swap.delta["EUR"])
    assert sum(swap.delta.values()) == pytest.approx(swap.rho)


@double
def test_a_forward_curve_equal_to_its_discount_curve_changes_nothing():
    text = dict(DOCUMENT, curves={"EUR": DOCUMENT["curves"]["EUR"]})
    text["curves"]["F"] = {"discount_curve": "EUR", "overnight_swaps": OVERNIGHT}
    rows = book(ROWS[-1], ROWS[-1].replace("E,swap", "G,swap").replace(",,,", ",annual,F,"))
    assert not rows.errors
    one, two = risk(rows, Market.from_text(json.dumps(text)), nothing).trades
    assert one.figures.value == pytest.approx(two.figures.value, abs=1e-12)


@pytest.mark.costly
@double
def test_the_day_after_is_explained():
    later = dict(DOCUMENT, asof="2026-03-11")
    fixed = DOCUMENT["fixings"]["EUR 1D"] | {"2026-03-10": 0.0192}
    later["fixings"] = DOCUMENT["fixings"] | {"EUR 1D": fixed}
    found = explain(book(), market(), Market.from_text(json.dumps(later)), nothing)
    assert abs(found.change) > 1e-4
    assert abs(found.residual) < 0.01 * abs(found.change)


@double
def test_an_fra_pays_at_its_start_and_is_over():
    later = Market.from_text(
        json.dumps(dict(DOCUMENT, asof="2026-06-10", fixings={"EUR6M 6M": {"2026-06-10": 0.03}}))
    )
    row = book(ROWS[4]).checked(later).rows[0]
    accrual = 183 / 360
    assert row.history.event == "expired"
    assert row.history.cash == pytest.approx(3 * 100 * 0.01 * accrual / (1 + 0.03 * accrual))


# --- what is refused ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (ROWS[5].replace("EUR,1", "EUR6M,1"), "discounts nothing"),
        (ROWS[0].replace("semiannual", ""), "floating_frequency"),
        (ROWS[0].replace(",EUR6M,", ",EUR3M,"), "EUR3M"),
        (ROWS[2].replace(",,1", ",,1.5"), "whole number"),
        (ROWS[4].replace("2026-12-10", "2028-12-10"), "months"),
    ],
)
def test_rows_that_would_be_wrong_are_refused(row, said):
    checked = book(row).checked(market())
    assert not checked.trades
    assert said in str(checked.errors[0])


def test_an_option_does_not_ignore_a_forward_curve():
    header = HEADER + ",expiry"
    row = "O,swaption,EUR,1,payer,0.02,100,,2031-06-10,,EUR6M,,2027-06-10"
    (error,) = Book.from_text(f"{header}\n{row}").errors
    assert "forward_curve" in str(error)


def test_a_swap_of_one_curve_is_refused_on_two():
    with pytest.raises(TypeError, match="one curve"):
        price(Swap(0.03, 0.5, [1.5], [1.0]), RateCurves(0.03, 0.035))


def without_frequency():
    curve = DOCUMENT["curves"]["EUR6M"]
    swaps = {key: value for key, value in SWAPS.items() if key != "floating_frequency"}
    return {"EUR6M": curve | {"swaps": swaps}}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"curves": DOCUMENT["curves"] | without_frequency()}, "floating_frequency"),
        ({"curves": {"EUR6M": DOCUMENT["curves"]["EUR6M"]}}, "no curve 'EUR'"),
        ({"swaption_vols": {"curve": "EUR6M"}}, "swaption_vols"),
    ],
)
def test_markets_that_would_be_wrong_are_refused(changes, said):
    found = market(**changes)
    assert said in str(found.errors[0])


def test_an_equity_is_not_discounted_on_a_forward_curve():
    equity = {
        "curve": "EUR6M",
        "spot": 100.0,
        "implied_vols": {"days": [365], "strikes": [100.0], "vols_by_expiry": [[0.2]]},
    }
    (error,) = market(equities={"X": equity}).errors
    assert "name its discount curve, EUR" in str(error)


def test_a_quote_that_moves_too_far_names_the_curve():
    _, errors = moved(market(), {"OIS/RATE/EUR/10Y": 1.0}, confirmed=True)
    assert "no zero rate reprices" in str(errors[0])


def test_a_forward_curve_alone_does_not_bootstrap():
    swaps = FloatingSwaps([[1.0]], [[1.0]], [[0.0]], [[1.0]], [[1.0]], [0.03])
    forward = CurveQuotes(swaps, discount_curve="EUR")
    with pytest.raises(ValueError, match="forward curve whose discount_curve is EUR"):
        forward.discount(1.0)
    with pytest.raises(ValueError, match="FloatingSwaps"):
        CurveQuotes(ParSwaps([0.0], [[1.0]], [[1.0]], [0.03]), discount_curve="EUR")
    with pytest.raises(ValueError, match="leave it out"):
        plain = CurveQuotes(Deposits([0.0], [1.0], [1.0], [0.03]))
        plain.bootstrapped(plain.bootstrapped())


@pytest.mark.costly
@double
def test_both_curves_in_one_gradient_and_in_a_jit():
    value = jax.jit(lambda m: m.curve("EUR6M").discount(4.0))
    slopes = market().by_quote(jax.grad(value)(market()))
    assert slopes["OIS/RATE/EUR/5Y"] != 0.0
    assert slopes["IR_SWAP/RATE/EUR6M/5Y"] < -1.0
