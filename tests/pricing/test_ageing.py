"""Trades that age stay in one program: lists of dates keep their length, and the padding changes no value."""

from dataclasses import replace
from datetime import date, timedelta

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pricing import (
    AverageStrike,
    Barrier,
    Bermudan,
    BermudanSwaption,
    BlackScholes,
    Book,
    Cliquet,
    European,
    HullWhite,
    Lookback,
    Market,
    VarianceSwap,
    greeks,
    price,
)
from pricing.grids.exercise_periods import exercise_periods
from pricing.portfolio.aged_book import aged
from pricing.portfolio.batching import products_of, shape_key
from pricing.products.trade import Trade
from tests.helpers import double
from tests.pricing.test_seasoned import ASOF, book, market

DAYS = ("2026-01-20", "2026-02-20", "2026-03-20", "2026-04-20", "2026-06-22", "2027-01-07")
DATES = "|".join(DAYS)
PAST = "name,date,value\n" + "".join(f"S,{day},10{n}\n" for n, day in enumerate(DAYS))
SWAP = {"underlying": "EUR", "side": "payer", "fixed_rate": 0.03, "notional": 100}
ROWS = {
    "asian": {"option": "call", "strike": 95, "averaging_dates": DATES},
    "autocallable": {
        "exercise_dates": DATES,
        "coupons": "0.01|0.02|0.03|0.04|0.05|0.06",
        "barrier": 150,
        "protection": 70,
        "initial_spot": 100,
    },
    "average_strike": {"option": "put", "averaging_dates": DATES},
    "barrier": {
        "option": "call",
        "strike": 95,
        "barrier": 60,
        "barrier_type": "down-and-out",
        "monitoring_dates": DATES,
        "expiry": DAYS[-1],
    },
    "bermudan": {"option": "put", "strike": 95, "exercise_dates": DATES},
    "bermudan_swaption": SWAP
    | {"exercise_dates": "2026-02-03|2027-02-03", "maturity": "2031-02-03"},
    "cliquet": {"monitoring_dates": DATES, "local_floor": 0.0, "initial_spot": 100},
    "double_knock_out": {
        "option": "call",
        "strike": 95,
        "lower": 50,
        "upper": 200,
        "monitoring_dates": DATES,
    },
    "lookback": {"option": "put", "monitoring_dates": DATES, "expiry": DAYS[-1], "extreme": 101.0},
    "swap": SWAP
    | {"start": "2025-10-09", "maturity": "2028-10-09", "floating_frequency": "quarterly"},
    "variance_swap": {
        "vol_strike": 0.2,
        "monitoring_dates": DATES,
        "expiry": DAYS[-1],
        "initial_spot": 100,
        "annualization": 6,
    },
}
RATES = "".join(f"EUR 3M,{day},0.02\n" for day in ("2025-10-09", "2026-01-09", "2026-04-09"))


def form_on(row: dict, day: date):
    (trade,) = book(row).checked(market(PAST + RATES, asof=day)).trades
    batch = products_of([trade], market(PAST + RATES, asof=day))
    return (
        jax.tree.structure(batch),
        [leaf.shape for leaf in jax.tree.leaves(batch)],
        shape_key(trade),
    )


@double
@pytest.mark.parametrize("kind", ROWS)
def test_a_trade_that_ages_is_a_contract_of_one_shape(kind):
    """On a day before its first date, and on one after half of them."""
    row = {"type": kind} | ROWS[kind]
    assert form_on(row, ASOF) == form_on(row, date(2026, 5, 4))


def test_every_kind_with_a_list_of_dates_is_tested_here():
    from pricing.products.trade import TRADE_TYPES

    assert {name for name, kind in TRADE_TYPES.items() if kind.dates_name} <= set(ROWS)


def test_a_trade_knows_the_row_that_it_is_left_of():
    (trade,) = book({"type": "bermudan"} | ROWS["bermudan"]).trades
    left = trade._as(type(trade), exercise_dates=trade.dates[3:]).left_of(trade)
    again = left._as(type(trade), exercise_dates=left.dates[1:]).left_of(left)
    assert isinstance(again, Trade) and len(again.dates) == 2
    assert again.num_dates == left.num_dates == trade.num_dates == 6
    assert again.row is trade and trade.row is trade


# --- values ---------------------------------------------------------------------------------------------

BASE = BlackScholes(100.0, 0.03, 0.25, 0.01)
TIMES = [0.3, 0.55, 0.8]
CLOSED = {
    "cliquet": Cliquet(TIMES, local_floor=0.01, local_cap=0.08, accrued=0.02),
    "cliquet with a start": Cliquet(TIMES, local_floor=0.01, initial_spot=98.0),
    "geometric average strike": AverageStrike(TIMES, "put", "geometric", 1.02, 9.1, 2.0),
    "variance": VarianceSwap(0.2, 0.8, TIMES, initial_spot=97.0, accrued=0.01, past_returns=2.0),
    "variance from the first date": VarianceSwap(0.2, 0.8, TIMES),
}
BY_QUADRATURE = {
    "bermudan": Bermudan(European(100.0, 0.8, "put"), TIMES),
    "barrier on one date": Barrier(105.0, 0.8, 95.0, rebate=1.0, dates=[0.8]).canonical,
}


@double
@pytest.mark.parametrize("name", CLOSED)
def test_padding_changes_no_digit(name):
    product = CLOSED[name]
    wanted, found = (price(each, BASE).value for each in (product, product.padded(6)))
    np.testing.assert_allclose(found, wanted, rtol=1e-11)
    slope, padded_slope = (
        jax.grad(lambda spot, each=each: price(each, replace(BASE, spot=spot)).value)(BASE.spot)
        for each in (product, product.padded(6))
    )
    np.testing.assert_allclose(padded_slope, slope, rtol=1e-9)


@double
@pytest.mark.parametrize("name", BY_QUADRATURE)
def test_padding_changes_no_digit_of_a_quadrature(name):
    product = BY_QUADRATURE[name]
    wanted, found = (price(each, BASE).value for each in (product, product.padded(4)))
    np.testing.assert_allclose(found, wanted, rtol=1e-9)


@pytest.mark.costly
@double
def test_padding_changes_no_digit_of_a_bermudan_swaption():
    right = BermudanSwaption(0.03, [0.5, 1.5], [1.5, 2.5, 3.5], [1.0, 1.0, 1.0])
    padded = replace(
        right.padded(4), payment_dates=[1.5, 1.5, 2.5, 3.5], accruals=[0.0, 1.0, 1.0, 1.0]
    )
    wanted, found = (price(each, HullWhite(0.03, 0.1, 0.01)).value for each in (right, padded))
    np.testing.assert_allclose(found, wanted, rtol=1e-11)


@double
@pytest.mark.parametrize(
    "product",
    [
        *(CLOSED[name] for name in ("cliquet", "cliquet with a start", "variance")),
        AverageStrike(TIMES, past_sum=210.0, num_past=2.0),
        Lookback(0.8, 95.0, "put", TIMES, 101.0),
        VarianceSwap(0.2, 0.8, TIMES, measure="volatility"),
    ],
)
def test_a_spot_on_a_repeated_date_counts_once(product):
    spots = jnp.array([90.0, 104.0, 97.0])
    again = jnp.concatenate([spots[:1], spots[:1], spots])
    found = product.padded(5).payoff(again)
    np.testing.assert_allclose(found, product.payoff(spots), rtol=1e-13)


@double
def test_a_repeated_date_is_a_step_on_the_way_to_it_on_a_grid():
    periods = exercise_periods(BY_QUADRATURE["bermudan"].padded(5))
    np.testing.assert_allclose(periods.ends, [0.1, 0.2, 0.3, 0.55, 0.8], rtol=1e-12)
    assert periods.is_date.tolist() == [0.0, 0.0, 1.0, 1.0, 1.0]


@double
def test_gamma_and_theta_of_a_variance_swap_are_those_of_a_day_that_passes():
    """Watched at all times: a move of the spot adds its square to the variance, a rest the time alone."""
    swap, model = VarianceSwap(0.2, 0.5, notional=100.0), replace(BASE, dividend_yield=0.0)
    found, h, move = greeks(swap, model), 1e-5, 0.01
    kept = 252.0 * h
    paid = {"accrued": jnp.log1p(move) ** 2, "past_returns": kept}
    later = [
        VarianceSwap(0.2, 0.5 - h, notional=100.0, **x) for x in ({"past_returns": kept}, paid)
    ]
    rested, moved = (price(each, model).value for each in later)
    np.testing.assert_allclose(found.theta, (rested - price(swap, model).value) / h, rtol=1e-3)
    np.testing.assert_allclose(0.5 * found.gamma * move**2 * 100.0**2, moved - rested, rtol=0.02)
    assert abs(found.delta) < 1e-12


@pytest.mark.costly
def test_a_trade_of_which_nothing_has_passed_is_the_same_trade():
    """By this `explain` knows whether it may count second orders. A variance swap takes every day's return."""
    before = Market.read("pricing/samples/dax_2002-07-05.json")
    after = replace(before, asof=before.asof + timedelta(days=1))
    book = Book.read("pricing/samples/dax_book.csv").checked(before)
    book = replace(book, rows=tuple(row for row in book.rows if row.type != "variance_swap"))
    two = aged(book, before, after)
    rows = zip(two.before.rows, two.after.rows, strict=True)
    changed = {old.trade.type for old, new in rows if old.trade is not new.trade}
    assert len({trade.type for trade in book.trades}) > 10
    assert not changed
