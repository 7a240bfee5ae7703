"""Cases on rates, notes and expired trades from public threads, as `test_threads` has those on options."""

from dataclasses import replace
from datetime import date

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pricing import (
    Autocallable,
    CmsCoupon,
    CurveQuotes,
    ForwardRates,
    HullWhite,
    Swap,
    Swaption,
    price,
)
from pricing.market import CurvesBeside, FloatingSwaps, ParSwaps, schedule
from tests.helpers import double
from tests.pricing.threads import KEY, checked_row, errors_of_row, named, value

pytestmark = double

LAGGED = Swaption(0.03, 345 / 365, [2.0, 3.0, 4.0, 5.0], [1.0] * 4, notional=100.0, start=1.0)
ENTERED = Swap(0.03, 1.0, [2.0, 3.0, 4.0, 5.0], [1.0] * 4, notional=100.0)
ONE_FACTOR = HullWhite(0.03, 0.05, 0.01)
ONE_YEAR = [[1.0]], [[1.0]], [[0.0]], [[1.0]], [[1.0]]
BOND = np.exp(-0.03 * np.array([5.0, 6.0, 7.0]))


def of_par_rate(rate):
    """The value of a payer's swap of two years at 3 %, on the curve of par swaps of which it is one."""
    swaps = ParSwaps([0.0, 0.0], [[0.0, 1.0], [1.0, 2.0]], [[0.0, 1.0], [1.0, 1.0]], [0.03, rate])
    first, last = CurveQuotes(swaps).bootstrapped().discount(jnp.array([1.0, 2.0]))
    return 1.0 - last - 0.03 * (first + last)


def of_two_curves():
    """Discount factors of a curve of an overnight swap, and of one of forwards beside it."""
    overnight = CurveQuotes(FloatingSwaps(*ONE_YEAR, [0.03])).bootstrapped()
    forwards = CurveQuotes(FloatingSwaps(*ONE_YEAR, [0.035]), discount_curve="EUR")
    found = forwards.bootstrapped(CurvesBeside(overnight))
    return [overnight.discount(1.0), found.discount(1.0)]


PRICED = [
    (
        "Strata#1925",
        "the last days of months, counted back from one",
        lambda: [
            day.toordinal()
            for day in schedule(date(2024, 2, 29), date(2025, 2, 28), 6, end_of_month=True)
        ],
        [date(*d).toordinal() for d in ((2024, 2, 29), (2024, 8, 30), (2025, 2, 28))],
        0.0,
    ),
    (
        "QuantLib#1143 QuantLib#1327 SWIG#538",
        "exercised 20 days before the swap starts: QuantLib's value; payer less receiver is the swap",
        lambda: [
            value(LAGGED, ONE_FACTOR),
            value(LAGGED, ONE_FACTOR)
            - value(replace(LAGGED, side="receiver"), ONE_FACTOR)
            - value(ENTERED, ONE_FACTOR),
        ],
        [1.3571057215, 0.0],
        1e-9,
    ),
    (
        "QuantLib#1378 QuantLib#2476 QuantLib#2488 QuantLib#2674 QuantLib#2696 QuantLib#2379 QuantLib#567 "
        "SWIG#359 SWIG#638 FinancePy#202 FinancePy#22 FinancePy#42",
        "an overnight swap makes the curve that discounts, another swap that of the forwards",
        of_two_curves,
        [1.0 / 1.03, 1.0 / 1.035],
        1e-12,
    ),
    (
        "Engine#344 Engine#125 auto-differentiation/QuantLibAAD#31",
        "the risk of a par swap to its own par rate is its annuity",
        lambda: jax.grad(of_par_rate)(0.03),
        1.0 / 1.03 + 1.03**-2,
        1e-10,
    ),
    (
        "QuantLib#2570 Engine#195",
        "a CMS coupon of next to no vol pays the forward swap rate",
        lambda: value(CmsCoupon(4.0, 5.0, [5.0, 6.0, 7.0], [1.0] * 3), ForwardRates(0.03, 1e-6)),
        BOND[0] * (np.exp(-0.12) - BOND[-1]) / BOND.sum(),
        1e-10,
    ),
    (
        "FinancePy#116 digital-asset/daml-finance#1195 digital-asset/daml-finance#1196 "
        "finos/common-domain-model#2502",
        "a phoenix note whose coupons are certain is a bond",
        lambda: value(
            Autocallable([0.5, 1.0], [0.03, 0.03], 1e4, 1e-2, 100.0, coupon_barrier=1e-2), key=KEY
        ),
        0.03 * np.exp(-0.025) + 1.03 * np.exp(-0.05),
        1e-9,
    ),
    (
        "Engine#314 Engine#302",
        "an option that has expired keeps its row, with what it paid",
        lambda: checked_row(expiry="2025-01-02", strike=90.0).history.cash,
        10.0,
        1e-12,
    ),
]


@pytest.mark.parametrize(("run", "wanted", "tolerance"), named(PRICED))
def test_case_is_priced(run, wanted, tolerance):
    np.testing.assert_allclose(np.asarray(run(), float), wanted, rtol=0, atol=tolerance)


REFUSED = [
    (
        "QuantLib#1143",
        "a Bermudan swaption exercised within a period, without the rule for it",
        lambda: errors_of_row(
            type="bermudan_swaption",
            underlying="EUR",
            option=None,
            strike=None,
            expiry=None,
            side="payer",
            fixed_rate=0.03,
            exercise_dates=["2026-01-02", "2027-04-02"],
            maturity="2030-01-02",
        ),
        "begins on 2027-04-02; give dates that lead to .*between_coupons: next-period or short-period",
    ),
    (
        "Engine#195",
        "a range accrual on swap rates",
        lambda: errors_of_row(type="range_accrual"),
        "is not a known kind of trade",
    ),
    (
        "FinancePy#34",
        "a swap of one currency for another",
        lambda: errors_of_row(type="cross_currency_swap"),
        "is not a known kind of trade",
    ),
]


@pytest.mark.parametrize(("run", "words"), named(REFUSED))
def test_case_is_refused_by_name(run, words):
    with pytest.raises((RuntimeError, TypeError, ValueError), match=f"(?s){words}"):
        run()


def test_a_swaption_without_a_lag_is_worth_more():
    assert price(replace(LAGGED, exercise_date=1.0, start=None), ONE_FACTOR).value > 1.3571057215
