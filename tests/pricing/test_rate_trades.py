"""Swaps and swaptions of a book: their cells, their dates, and their figures under Hull-White."""

import itertools
from datetime import date

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pricing import Book, ClosedForm, HullWhite, Quadrature, greeks, price, risk
from pricing.market import leg
from pricing.models.surface_models import black_scholes
from pricing.portfolio.batching import products_of
from pricing.reporting.terms import terms
from tests.helpers import double, first_difference, sample_market, second_difference

HEADER = (
    "id,type,underlying,quantity,side,fixed_rate,notional,start,expiry,exercise_dates,maturity,"
    "frequency,day_count,calendar"
)
SWAP = "S,swap,EUR,2,payer,0.04,100,2002-10-05,,,2005-10-05,,,"
SWAPTION = "O,swaption,EUR,-3,Receiver,0.045,1000,,2003-07-05,,2006-07-05,,,"
BERMUDAN = "B,bermudan_swaption,EUR,1,payer,0.04,100,,,2003-07-05|2004-07-05,2006-07-05,,,"
MEASURES = ("value", "delta", "gamma", "vega", "theta", "rho")


def book(*rows) -> Book:
    return Book.from_text("\n".join([HEADER, *rows]))


def hull_white(market):
    """A fit that reads the curve, and takes a tenth of the mean swaption vol for a parameter."""
    vol = 0.05 * jnp.mean(market.swaption_vols.vols)
    return {"EUR": HullWhite(market.curves["EUR"], 0.05, vol)}


# --- from cells to contracts --------------------------------------------------------------------------


def test_cells_become_dates_on_the_calendar_of_the_currency():
    swap, swaption, bermudan = book(SWAP, SWAPTION, BERMUDAN).trades
    assert (swap.frequency, swap.day_count, swap.calendar) == ("annual", "30E/360", "XECB")
    assert swap.swap_start == date(2002, 10, 7)  # 5 October 2002 was a Saturday
    assert swap.payment_dates == (date(2003, 10, 6), date(2004, 10, 5), date(2005, 10, 5))
    assert bermudan.exercise_days == (date(2003, 7, 7), date(2004, 7, 5))
    assert (swap.expiry, swaption.expiry, bermudan.expiry) == (
        date(2005, 10, 5),
        date(2003, 7, 5),
        date(2004, 7, 5),
    )
    assert swaption.side == "receiver"
    assert all(trade.in_rates for trade in (swap, swaption, bermudan))


def test_conventions_of_ones_own():
    row = SWAP.replace("2005-10-05,,,", "2005-10-05,Semi-annual,act/360,xlon")
    (trade,) = book(row).trades
    assert len(trade.payment_dates) == 6
    days = [date(2002, 10, 7), *trade.payment_dates]
    lengths = [(later - day).days / 360 for day, later in itertools.pairwise(days)]
    assert trade.accruals == pytest.approx(lengths)


def test_products_are_those_of_the_leg():
    market = sample_market()
    (trade,) = book(SWAP).trades
    swap, own = products_of([trade], market), leg(market.asof, trade.start, trade.maturity, 12)
    np.testing.assert_allclose(swap.start, [own.start], rtol=1e-6)
    np.testing.assert_allclose(swap.payment_dates, [own.payment_dates], rtol=1e-6)
    np.testing.assert_allclose(swap.accruals, [own.accruals], rtol=1e-6)
    assert (int(swap.side[0]), float(swap.notional[0])) == (1, 100.0)


def test_swaptions_of_any_expiry_are_one_batch():
    """One may expire after the last payment of another."""
    other = SWAPTION.replace("O,", "P,").replace("2003", "2010").replace("2006", "2013")
    batch = products_of(book(SWAPTION, other).trades, sample_market())
    assert batch.payment_dates.shape == (2, 3)


@pytest.mark.parametrize(
    ("row", "wanted"),
    [
        (SWAP, "EUR, payer, 4 % on 100, 5 Oct 2005"),
        (SWAPTION, "EUR, receiver, 4.5 % on 1,000, 5 Jul 2003, swap to 5 Jul 2006"),
        (BERMUDAN, "EUR, payer, 4 % on 100, 2 dates to 5 Jul 2004, swap to 5 Jul 2006"),
    ],
)
def test_terms_in_words(row, wanted):
    assert terms(book(row).trades[0]) == wanted


CASES = {
    "no side": (SWAP, "payer", "", "side", "payer or receiver"),
    "an unknown side": (SWAP, "payer", "long", "side", "payer, receiver"),
    "a rate in percent": (SWAP, "0.04", "4", "fixed_rate", "1 % is 0.01"),
    "no rate": (SWAPTION, "0.045", "", "fixed_rate", "give a fixed_rate"),
    "a swap without a start": (SWAP, "2002-10-05", "", "start", "give a start"),
    "an expiry of a swap": (SWAP, "05,,", "05,2003-01-01,", "expiry", "leave it empty"),
    "a maturity too early": (SWAPTION, "2006", "2003", "maturity", "leaves a payment"),
    "a weekend to the maturity": (SWAP, "2005-10-05", "2002-10-07", "maturity", "leaves a payment"),
    "no maturity": (SWAP, "2005-10-05", "", "maturity", "give a maturity"),
    "an unknown frequency": (SWAP, "2005-10-05,,", "2005-10-05,weekly,", "frequency", "quarterly"),
    "an unknown day count": (SWAP, "2005-10-05,,,", "2005-10-05,,30/365,", "day_count", "30E/360"),
    "an unknown calendar": (
        SWAP,
        "2005-10-05,,,",
        "2005-10-05,,,Mars",
        "calendar",
        "XECB (TARGET)",
    ),
    "a date within a period": (BERMUDAN, "4-07-05", "4-08-05", "exercise_dates", "2004-07-05"),
    "an option of a swap": (f"{SWAP},", ",,,,", ",,,,call", "option", "leave it empty"),
}


@pytest.mark.parametrize("case", CASES)
def test_a_bad_cell_is_reported_in_its_place(case):
    good, old, new, column, remedy = CASES[case]
    assert old in good
    header = f"{HEADER},option" if good.endswith(",,,,") else HEADER
    found = Book.from_text(f"{header}\n{good.replace(old, new, 1)}")
    error = found.errors[0]
    assert (error.line, error.field) == (2, column)
    assert error.column == header.split(",").index(column) + 1
    assert remedy in error.remedy
    assert found.trades == ()


@pytest.mark.parametrize(
    ("row", "column", "remedy"),
    [
        (SWAP.replace("2002-10-05", "2002-07-03"), "", "add the row EUR 12M,2002-07-03,VALUE"),
        (SWAP.replace("EUR", "EURO"), "underlying", "did you mean 'EUR'? the curves are EUR"),
        (SWAP.replace("EUR", "DAX"), "underlying", "the curves are EUR"),
    ],
)
def test_what_the_market_cannot_serve_is_set_aside(row, column, remedy):
    trades, errors = book(row).check(sample_market())
    assert (trades, [error.field for error in errors]) == ((), [column])
    assert remedy in errors[0].remedy


# --- figures ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def found():
    return risk(book(SWAP, SWAPTION, BERMUDAN), sample_market(), hull_white)


@pytest.mark.costly
@double
def test_figures_are_the_greeks_of_each_contract(found):
    """Vega and rho are those of the quotes."""
    model = hull_white(sample_market())["EUR"]
    for row, trade in zip((SWAP, SWAPTION), found.trades, strict=False):
        assert (trade.status, trade.method) == ("ok", "ClosedForm")
        one = jax.tree.map(lambda x: x[0], products_of(book(row).trades, sample_market()))
        expected = greeks(one, model, ClosedForm())
        figures = trade.figures
        np.testing.assert_allclose(figures.value, expected.value, rtol=1e-7)
        np.testing.assert_allclose(figures.delta["EUR"], expected.delta, rtol=1e-7)
        np.testing.assert_allclose(figures.gamma["EUR", "EUR"], expected.gamma, rtol=1e-7)
        np.testing.assert_allclose(figures.theta, expected.theta, rtol=1e-7)
        np.testing.assert_allclose(figures.rho, expected.delta, rtol=1e-7)
        np.testing.assert_allclose(figures.vega, 0.05 * expected.vega, rtol=1e-7)


@pytest.mark.costly
@double
def test_a_bermudan_swaption_is_worth_more_than_either_of_its_swaptions(found):
    trade, model = found.trades[2], hull_white(sample_market())["EUR"]
    assert (trade.status, trade.method) == ("ok", "Quadrature")
    product = products_of(book(BERMUDAN).trades, sample_market())
    value = price(product, model, Quadrature().prepared(product, model)).value[0]
    np.testing.assert_allclose(trade.figures.value, value, rtol=1e-9)
    first = BERMUDAN.replace("bermudan_", "").replace(",2003-07-05|2004-07-05", "2003-07-05,")
    later = first.replace("2003", "2004")
    singles = [products_of(book(row).trades, sample_market()) for row in (first, later)]
    europeans = [price(single, model, ClosedForm()).value[0] for single in singles]
    assert max(map(float, europeans)) < value < sum(map(float, europeans))


@pytest.mark.costly
@double
@pytest.mark.parametrize("row", [SWAP, SWAPTION])
def test_delta_gamma_and_theta_are_difference_quotients(found, row):
    """Of the level of all zero rates, and of the contract as time passes and the curve stands."""
    market = sample_market()
    index = [SWAP, SWAPTION].index(row)
    product, model = products_of(book(row).trades, market), hull_white(market)["EUR"]
    value = jax.jit(lambda rate, age: price(product.rolled(age), model.shifted(rate=rate)).value[0])
    zero, figures = jnp.zeros(()), found.trades[index].figures
    by_rate = lambda h: value(zero + h, zero)
    np.testing.assert_allclose(*figures.delta.values(), first_difference(by_rate, 1e-3), rtol=1e-8)
    np.testing.assert_allclose(*figures.gamma.values(), second_difference(by_rate, 1e-3), rtol=1e-6)
    by_age = first_difference(lambda h: value(zero, zero + h), 1e-3)
    np.testing.assert_allclose(figures.theta, by_age, rtol=1e-7)


@pytest.mark.costly
@double
def test_vega_and_rho_add_up_to_the_quotes(found):
    assert not found.failed
    for measure, family in (("vega", "SWAPTION/"), ("rho", "ZERO/")):
        trades = sum(getattr(trade.position, measure) for trade in found.trades)
        quotes = sum(x for quote, x in found.sensitivities.items() if quote.startswith(family))
        np.testing.assert_allclose(trades, quotes, rtol=1e-9)


def test_without_a_model_of_the_curve_options_say_so_and_swaps_are_discounted():
    option, swap = risk(book(SWAPTION, SWAP), sample_market(), black_scholes).trades
    assert "there is no model of EUR" in option.status
    assert (swap.status, swap.method) == ("ok", "ClosedForm")
