"""What a user types is what annotations allow: `make lint` checks the types of this file as an editor does.

Plain numbers, lists and words are given, in the order of the docs; arrays are there.
"""

import jax
import pytest

from pricing import (
    G2,
    American,
    Asian,
    Autocallable,
    AverageStrike,
    Barrier,
    Basket,
    Bates,
    Bermudan,
    BermudanSwaption,
    BlackScholes,
    Cliquet,
    Digital,
    DoubleBarrier,
    European,
    ForwardStart,
    Heston,
    HullWhite,
    LocalVol,
    Lookback,
    Sabr,
    Spread,
    Ssvi,
    Swap,
    Swaption,
    Touch,
    VarianceSwap,
    VolSurface,
    ZeroCurve,
)
from pricing.fbsde import DeepBSDE, GradientRegression, Hermite, OneStepMalliavin, PayoffBasis

pytestmark = pytest.mark.repeat

CURVE = ZeroCurve([1.0, 5.0], [0.03, 0.04])
SURFACE = VolSurface([0.5, 1.0], [90.0, 110.0], [[0.24, 0.2], [0.23, 0.21]])
CALL = European(100.0, 1.0)

MODELS = (
    BlackScholes(100.0, 0.05, 0.2),
    BlackScholes(spot=100.0, rate=CURVE, vol=0.2, dividend_yield=0.01),
    Heston(100.0, 0.05, 0.04, 2.5, 0.04, 0.66, -0.8),
    Heston(100.0, CURVE, 0.04, 2.5, 0.04, 0.66, correlation=-0.8, dividend_yield=0.02),
    Bates(100.0, 0.05, 0.04, 2.5, 0.04, 0.66, -0.8, 0.1, -0.1, 0.15),
    Ssvi(100.0, 0.0, 0.2, -0.6, 0.5, 0.4),
    Sabr(100.0, 0.0, [0.5, 1.0], [0.2, 0.2], [-0.5, -0.4], [0.8, 0.6]),
    LocalVol(100.0, 0.03, SURFACE, 0.02),
    HullWhite(0.03, 0.05, 0.01),
    HullWhite(CURVE, mean_reversion=0.05, vol=0.01),
    G2(CURVE, 0.05, 0.01, 0.2, 0.008, -0.5),
)
PRODUCTS = (
    CALL,
    European(strike=[90.0, 100.0], expiry=1.0, option=["call", "put"]),
    Digital(100.0, 1.0, "put"),
    American(100.0, 1.0, "put"),
    Bermudan(European(105.0, 1.0, "put"), [0.5, 1.0]),
    Barrier(100.0, 1.0, 135.0, "up-and-out"),
    DoubleBarrier(100.0, 80.0, 120.0, [0.5, 1.0]),
    Asian(100.0, [0.5, 1.0]),
    Basket(100.0, 1.0, average="max"),
    Autocallable([0.5, 1.0], [0.05, 0.1], 1.0, 0.7, 100.0),
    Autocallable(
        [0.5, 1.0], [0.05, 0.1], 1.0, 0.7, 100.0, coupon_barrier=0.8, memory="yes", knock_in=0.6
    ),
    Touch(110.0, 1.0, "no-touch"),
    Lookback(1.0, 95.0, dates=[0.5, 1.0]),
    ForwardStart(1.1, 0.25, 1.0),
    Cliquet([0.5, 1.0], -0.05, 0.05),
    AverageStrike([0.5, 1.0]),
    VarianceSwap(0.2, 1.0, notional=100.0),
    Spread(0.0, 1.0, weights=[1.0, -1.0]),
    Swap(0.03, 0.0, [1.0, 2.0], [1.0, 1.0]),
    Swaption(0.03, 1.0, [2.0, 3.0], [1.0, 1.0]),
    BermudanSwaption(0.03, [1.0, 2.0], [2.0, 3.0], [1.0, 1.0]),
)
SOLVERS = (
    GradientRegression(8192, bases=(Hermite(6), PayoffBasis())),
    DeepBSDE(num_iterations=100),
    OneStepMalliavin(num_iterations=100),
)


@pytest.mark.parametrize("given", [*MODELS, *PRODUCTS], ids=lambda given: type(given).__name__)
def test_plain_numbers_are_arrays(given):
    assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(given))
    assert jax.tree.leaves(given)


def test_what_is_read_is_an_array_to_a_checker_of_types():
    assert CALL.strike.shape == () and SURFACE.vols.shape == (2, 2)
    assert SOLVERS[0].num_paths == 8192
