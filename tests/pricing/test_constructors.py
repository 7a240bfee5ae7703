"""Numbers that no market has are refused where an object is made or shifted, as they are in files."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pricing import (
    G2,
    BlackScholes,
    Cap,
    CapQuotes,
    CmsCoupon,
    European,
    FloatingPayments,
    Heston,
    HullWhite,
    LocalVol,
    NeuralLocalVol,
    Sabr,
    Swap,
    Swaption,
    VarianceSwap,
    VolCurve,
    VolSurface,
    ZeroCurve,
    price,
)
from pricing.market import Deposits, Equity, Futures, ParSwaps, SmileQuotes, SwaptionVols
from pricing.models import Bates

FLAT = [[0.2, 0.2]]
NAN, INF = np.nan, np.inf


def surface(vols=FLAT):
    return VolSurface([1.0], [90.0, 110.0], vols)


def heston():
    return Heston(100.0, 0.03, 0.04, 1.0, 0.04, 0.5, -0.7)


BAD = {
    "a negative vol": (lambda: BlackScholes(105.0, 0.05, -0.2), "vol must be"),
    "one of several vols": (lambda: BlackScholes([1.0, 2.0], 0.05, [0.2, -0.1]), "vol must be"),
    "a vol without end": (lambda: BlackScholes(105.0, 0.05, INF), "vol must be"),
    "a rate without end": (lambda: BlackScholes(105.0, INF, 0.2), "rate must be"),
    "a rate that is none": (lambda: HullWhite(NAN, 0.1, 0.01), "curve must be"),
    "a shift below zero": (lambda: BlackScholes(105.0, 0.05, 0.2).shifted(vol=-0.3), "vol must be"),
    "a shift of the spot": (lambda: heston().shifted(underlying=-101.0), "spot must be"),
    "a shift whose square is positive": (lambda: heston().shifted(vol=-0.3), "vol must be"),
    "the same with jumps": (
        lambda: Bates(1.0, 0.0, 0.04, 1.0, 0.04, 0.5, 0.0, 0.1, 0.0, 0.1).shifted(vol=-0.3),
        "vol must be",
    ),
    "a shift of a short rate's vol": (lambda: HullWhite(0.03, 0.1, 0.01).shifted(vol=-0.1), "vol"),
    "of two factors": (lambda: G2(0.03, 0.4, 0.01, 0.1, 0.01, 0.0).shifted(vol=-0.1), "vol must"),
    "of SABR": (
        lambda: Sabr(1.0, 0.0, [1.0], [0.2], [0.0], [0.5]).shifted(vol=-0.3),
        "alpha must be",
    ),
    "of a surface": (lambda: LocalVol(100.0, 0.0, surface()).shifted(vol=-0.3), "vols must be"),
    "a network's vol": (
        lambda: NeuralLocalVol.flat(100.0, 0.0, 3.5, key=jax.random.key(0)),
        "base_vol must be",
    ),
    "strikes that fall": (lambda: VolSurface([1.0], [110.0, 90.0], FLAT), "strikes .* sort them"),
    "a strike twice": (lambda: VolSurface([1.0], [90.0, 90.0], FLAT), "strikes must be"),
    "a strike of zero": (lambda: VolSurface([1.0], [0.0, 90.0], FLAT), "strikes must be"),
    "expiries that fall": (
        lambda: VolSurface([2.0, 1.0], [90.0, 110.0], FLAT * 2),
        "expiries must be",
    ),
    "a negative vol of a surface": (lambda: surface([[0.2, -0.2]]), "vols must be"),
    "an infinite vol": (lambda: surface([[0.2, INF]]), "vols must be"),
    "a missing vol that is read": (
        lambda: BlackScholes(100.0, 0.0, surface([[0.2, NAN]])),
        "vol must have finite numbers",
    ),
    "the same by a local vol": (
        lambda: LocalVol(100.0, 0.0, surface([[0.2, NAN]])),
        "surface must have finite numbers",
    ),
    "times in no order": (lambda: ZeroCurve([2, 1, 3], [0.01, 0.02, 0.03]), "times must be"),
    "a time twice": (lambda: ZeroCurve([1, 1], [0.01, 0.02]), "times must be"),
    "a time before today": (lambda: ZeroCurve([-1, 1], [0.01, 0.02]), "times must be"),
    "a zero rate that is none": (lambda: ZeroCurve([1.0], [NAN]), "zero_rates must be"),
    "a term structure's vol": (lambda: VolCurve([1.0], [-0.2]), "vols must be"),
    "its times": (lambda: VolCurve([2.0, 1.0], [0.2, 0.2]), "times must be"),
    "swaption vols": (lambda: SwaptionVols([1.0], [5.0], [[-0.2]]), "vols must be"),
    "a kind of them": (lambda: SwaptionVols([1.0], [5.0], [[0.2]], "bp"), "kind must be"),
    "tenors": (lambda: SwaptionVols([1.0], [5.0, 2.0], FLAT), "tenors must be"),
    "a weight": (lambda: SmileQuotes([1.0], [[0.1]], [[0.2]], [[-1.0]]), "weights must be"),
    "a moneyness": (lambda: SmileQuotes([1.0], [[INF]], [[0.2]], [[1.0]]), "log_moneyness"),
    "a deposit's rate": (lambda: Deposits([0.0], [1.0], [1.0], [NAN]), "rates must be"),
    "a future's price": (lambda: Futures([0.0], [1.0], [1.0], [NAN]), "prices must be"),
    "a swap's dates": (lambda: ParSwaps([0.0], [[NAN]], [[1.0]], [0.03]), "payment_dates"),
    "an equity's spot": (lambda: Equity(-1.0, 0.0, surface(), "EUR"), "spot must be"),
    "accruals below zero": (lambda: Swaption(0.03, 1.0, [2.0, 3.0], [-1.0, -1.0]), "accruals must"),
    "those of a cap": (lambda: Cap(0.03, [0.5], [1.0], [-0.5]), "accruals must be year fractions"),
    "days for a year fraction": (lambda: Cap(0.03, [0.5], [1.0], [18.2]), "accrues 18.2: give its"),
    "those of a quote": (
        lambda: CapQuotes([[0.5]], [[0.75]], [[30.0]], [0.03], [[0.2]]),
        "accrues 30",
    ),
    "those of a deposit": (lambda: Deposits([0.0], [0.25], [91.0], [0.03]), "accrues 91"),
    "a period that runs back": (lambda: Cap(0.03, [1.0], [0.5], [0.5]), "an end after the start"),
    "a coupon before the swap": (
        lambda: Swap(0.03, 1.5, [1.0, 2.0], [1.0, 1.0]),
        "a coupon is paid at 1 years, before the start at 1.5",
    ),
    "one before its fixing": (
        lambda: FloatingPayments([1.0], [0.0], [2.0], [2.5], [1.0], [100.0]),
        "a coupon is paid at 1 years, before its rate is fixed at 2",
    ),
    "a CMS coupon before its fixing": (
        lambda: CmsCoupon(5.0, 4.0, [6.0, 7.0], [1.0, 1.0]),
        "the coupon is paid at 4 years, before the fixing at 5",
    ),
    "a swap before that": (
        lambda: CmsCoupon(5.0, 5.0, [4.0, 7.0], [1.0, 1.0]),
        "first payment at 4",
    ),
    "its floating leg": (
        lambda: CmsCoupon(5.0, 5.0, [6.0, 7.0], [1.0, 1.0], resets=[3.0, 4.0]),
        "the floating leg begins at 3",
    ),
    "a reset after its end": (
        lambda: CmsCoupon(5.0, 5.0, [6.0, 7.0], [1.0, 1.0], resets=[5.0, 8.0]),
        "the swap ends at 7 years, before the last floating period begins at 8",
    ),
    "a vol in percent": (lambda: VarianceSwap(20.0, 1.0), r"strike must be a number in \[0, 5\]"),
    "no contract": (lambda: European([], 1.0), "strike must be .* got none"),
    "no expiry": (lambda: VolSurface([], [90.0, 110.0], np.zeros((0, 2))), "expiries must be"),
}


@pytest.mark.parametrize("make, said", BAD.values(), ids=BAD)
def test_what_no_market_has_is_refused_by_name(make, said):
    with pytest.raises(ValueError, match=said):
        make()


def test_a_missing_quote_is_a_quote_of_a_surface():
    assert np.isnan(surface([[0.2, NAN]]).vols[0, 1])
    assert np.isnan(SmileQuotes([1.0], [[0.1]], [[NAN]], [[0.0]]).vols[0, 0])


def test_what_jax_traces_cannot_be_looked_at_and_is_priced():
    call = European(100.0, 1.0)

    def value(vol):
        at_strikes = VolSurface([1.0], [90.0, 110.0], [[vol, vol]])
        curve = ZeroCurve([1.0, 2.0], jnp.stack([0.0 * vol, vol]))
        return price(call, BlackScholes(105.0, curve, at_strikes).shifted(vol=0.01)).value

    wanted = [float(price(call, BlackScholes(105.0, 0.0, vol)).value) for vol in (0.21, 0.31)]
    vols = jnp.array([0.2, 0.3])
    np.testing.assert_allclose(jax.jit(jax.vmap(value))(vols), wanted, rtol=1e-12)
