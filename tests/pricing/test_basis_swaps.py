"""Curves made of basis swaps and trades of two floating legs: risk to quotes, ageing, what is refused.

Values beside QuantLib's are in the tables of `jaxtape validate` (`benchmarks/quantlib_basis_tables.py`).
"""

import json
from datetime import date

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks.quantlib_basis_tables import document
from pricing import (
    Book,
    CurveQuotes,
    FloatingPayments,
    Market,
    RateCurves,
    ZeroCurve,
    explain,
    price,
    risk,
)
from pricing.market import BasisSwaps, CurvesBeside, Observed
from pricing.market.moves import moved
from tests.helpers import double

DOCUMENT = document("rising")
HEADER = (
    "id,type,underlying,side,notional,spread,start,maturity,floating_frequency,forward_curve,"
    "other_frequency,other_curve"
)
TERM = "T,basis_swap,EUR,payer,100,0.0009,2026-06-10,2031-06-10,quarterly,EUR3M,semiannual,EUR6M"
OVERNIGHT = "O,basis_swap,EUR,receiver,100,0.001,2026-03-03,2029-03-03,quarterly,EUR3M,annual,"
FIXINGS = {
    "EUR3M 3M": {"2026-03-03": 0.0202},
    "EUR 1D": {f"2026-03-{day:02}": 0.019 for day in (3, 4, 5, 6, 9)},
}


def market(**changes) -> Market:
    return Market.from_text(json.dumps(DOCUMENT | {"fixings": FIXINGS} | changes))


def book(*rows) -> Book:
    return Book.from_text("\n".join([HEADER, *(rows or (TERM, OVERNIGHT))]))


def nothing(_):
    """A fit of no models: curves are all there is."""
    return {}


@pytest.mark.costly
@double
def test_risk_reaches_every_quote_of_three_curves_as_bumping_does():
    own = market()
    assert not own.errors
    found = risk(book(), own, nothing)
    assert [trade.status for trade in found.trades] == ["ok", "ok"]
    assert list(found.trades[0].figures.delta) == ["EUR", "EUR3M", "EUR6M"]
    assert list(found.trades[1].figures.delta) == ["EUR", "EUR3M"]
    for trade in found.trades:
        assert sum(trade.position.delta.values()) == pytest.approx(trade.position.rho)
    quotes = dict(own.flat_quotes())
    assert "BASIS_SWAP/BASIS_SPREAD/EUR3M/5Y" in quotes
    chosen = [quote for quote in quotes if "EUR3M" in quote] + list(quotes)[::6]
    for quote in chosen:
        level = quotes[quote]
        up, down = (
            risk(book(), own.with_quotes({quote: level + h}), nothing, greeks=False).value
            for h in (1e-5, -1e-5)
        )
        slope = (up - down) / 2e-5
        np.testing.assert_allclose(found.sensitivities[quote], slope, rtol=1e-5, atol=1e-5)


@double
def test_a_quoted_swap_is_worth_nothing_with_the_spread_on_either_leg():
    row = (
        "Q,basis_swap,EUR,payer,100,0.00093,2026-03-12,2031-03-12,quarterly,EUR3M,semiannual,EUR6M"
    )
    assert risk(book(row), market(), nothing, greeks=False).value == pytest.approx(0.0, abs=1e-9)
    basis = DOCUMENT["curves"]["EUR3M"]["basis_swaps"] | {"spread_on": "other"}
    curves = DOCUMENT["curves"] | {"EUR3M": DOCUMENT["curves"]["EUR3M"] | {"basis_swaps": basis}}
    other = (
        "R,basis_swap,EUR,payer,100,0.00093,2026-03-12,2031-03-12,semiannual,EUR6M,quarterly,EUR3M"
    )
    found = risk(book(other), market(curves=curves), nothing, greeks=False)
    assert found.value == pytest.approx(0.0, abs=1e-9)


@double
def test_the_other_leg_may_be_of_the_curve_that_discounts():
    basis = {
        "tenors": ["1Y", "2Y"],
        "spreads": [0.0011, 0.0012],
        "floating_frequency": "quarterly",
        "other_frequency": "annual",
        "spread_on": "other",
    }
    curves = DOCUMENT["curves"] | {"EUR3M": {"discount_curve": "EUR", "basis_swaps": basis}}
    own = market(curves=curves)
    row = "Q,basis_swap,EUR,payer,100,0.0012,2026-03-12,2028-03-12,annual,,quarterly,EUR3M"
    assert risk(book(row), own, nothing, greeks=False).value == pytest.approx(0.0, abs=1e-9)


@pytest.mark.costly
@double
def test_the_day_after_is_explained_and_the_last_day_ends_it():
    later = {name: dict(own) for name, own in FIXINGS.items()}
    implied = 360.0 * (1.0 / market().curve("EUR").discount(1 / 365) - 1.0)
    later["EUR 1D"]["2026-03-10"] = float(implied)
    found = explain(book(), market(), market(asof="2026-03-11", fixings=later), nothing)
    assert abs(found.change) > 1e-4 and abs(found.residual) < 0.01 * abs(found.change)
    row = OVERNIGHT.replace("2029-03-03", "2026-03-10").replace(",100,", ",200,")
    ended = book(row).trades[0].aged(Observed(date(2026, 3, 9), market()))
    grown = 1.0 + 0.019 * 3 / 360  # from Friday to Monday
    grown *= (1.0 + 0.019 / 360) ** 4
    paid = 200.0 * ((0.0202 + 0.001) * 7 / 360 - (grown - 1.0))
    assert ended.event == "expired" and ended.cash == pytest.approx(paid)


@double
def test_the_curves_of_one_product_may_be_three():
    terms = [1.0, 1.0, 1.0], [0.0] * 3, [0.5] * 3, [1.0] * 3, [1.0] * 3, [1.0, 10.0, 100.0]
    product = FloatingPayments(*terms, places=[0, 1, 2])
    model = RateCurves(0.02, 0.03, 0.04)
    rates = np.array([0.02, 0.03, 0.04])
    expected = np.exp(-0.02) * np.expm1(0.5 * rates) @ [1.0, 10.0, 100.0]
    assert price(product, model).value == pytest.approx(expected, rel=1e-13)
    padded = price(product.padded(5), model).value
    assert padded == pytest.approx(expected, rel=1e-13)
    moving = lambda by: price(product, model.shifted(underlying=by)).value
    slopes = jax.grad(moving)(jnp.zeros(3))
    h = 1e-6 * np.eye(3)
    bumped = [(moving(h[i]) - moving(-h[i])) / 2e-6 for i in range(3)]
    np.testing.assert_allclose(slopes, bumped, rtol=1e-7)
    assert not np.isfinite(price(product, RateCurves(0.02, 0.03), throw=False).value)


def test_single_precision_bootstraps_too():
    with jax.enable_x64(True):
        exact = float(market().curve("EUR3M").discount(4.0))
    assert float(market().curve("EUR3M").discount(4.0)) == pytest.approx(exact, rel=1e-5)


@pytest.mark.parametrize(
    ("change", "field", "message"),
    [
        ({"spreads": [0.001] * 7}, "basis_swaps.spreads", "7 spreads for 8 tenors"),
        ({"other_frequency": None}, "basis_swaps.other_frequency", "give an other_frequency"),
        ({"other_curve": "EUR9M"}, "basis_swaps.other_curve", "no curve 'EUR9M'"),
        ({"other_curve": "EUR3M"}, "basis_swaps.other_curve", "EUR3M"),
        ({"spread_on": "both"}, "basis_swaps.spread_on", "own, other"),
    ],
)
def test_a_mistake_in_basis_swaps_is_reported_at_its_place(change, field, message):
    basis = DOCUMENT["curves"]["EUR3M"]["basis_swaps"] | change
    basis = {name: value for name, value in basis.items() if value is not None}
    curves = DOCUMENT["curves"] | {"EUR3M": DOCUMENT["curves"]["EUR3M"] | {"basis_swaps": basis}}
    (error, *_) = market(curves=curves, fixings={}).errors
    assert error.field == f"curves.EUR3M.{field}" and message in str(error)


def test_a_curve_that_discounts_itself_has_no_basis_swaps():
    own = {
        key: value for key, value in DOCUMENT["curves"]["EUR3M"].items() if key != "discount_curve"
    }
    (error, *_) = market(curves=DOCUMENT["curves"] | {"EUR3M": own}, fixings={}).errors
    assert "needs a discount_curve" in str(error)
    swaps = BasisSwaps([[0.0]], [[1.0]], [[1.0]], [[0.0]], [[1.0]], [[0.0]], [0.001])
    with pytest.raises(ValueError, match="whose basis_curve is B"):
        CurveQuotes(swaps, discount_curve="A", basis_curve="B").bootstrapped(
            CurvesBeside(ZeroCurve([1.0], [0.03]))
        )


def test_a_spread_that_moves_is_checked():
    quote = "BASIS_SWAP/BASIS_SPREAD/EUR3M/30Y"
    after, errors = moved(market(), {quote: 0.0007})
    assert not errors and dict(after.flat_quotes())[quote] == pytest.approx(0.0007)
    (error,) = moved(market(), {quote: 7.0})[1]
    assert quote in str(error) and "1 % is 0.01" in str(error)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("semiannual,EUR6M", "semiannual,EUR3M", "both legs are on EUR3M"),
        ("semiannual,EUR6M", ",EUR6M", "other_frequency"),
        ("2031-06-10", "2026-06-10", "leaves a payment"),
        (",EUR,payer", ",EUR6M,payer", "discounts nothing"),
        ("0.0009", "9", "1 % is 0.01"),
    ],
)
def test_rows_that_would_be_wrong_are_refused(old, new, said):
    (error, *_) = book(TERM.replace(old, new)).checked(market()).errors
    assert said in str(error)


def test_a_coupon_that_has_no_fixing_names_it():
    (error,) = book(OVERNIGHT).checked(market(fixings={})).errors
    assert "there is no fixing of EUR" in str(error)
    assert book(TERM).trades[0].start == date(2026, 6, 10)
