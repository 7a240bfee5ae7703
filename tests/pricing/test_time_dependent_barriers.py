"""Continuous barriers where rate or vol depends on time, and what a surface means to a path."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pricing import (
    Asian,
    Barrier,
    Bermudan,
    BlackScholes,
    ClosedForm,
    European,
    FiniteDifference,
    MonteCarlo,
    Sabr,
    VolCurve,
    VolSurface,
    ZeroCurve,
    fbsde,
    greeks,
    price,
)
from pricing.valuation import select_method
from tests.helpers import double

pytestmark = double

UP = Barrier(100.0, 1.0, 120.0, "up-and-out")
DOWN = Barrier(100.0, 1.0, 90.0, "down-and-out", rebate=3.0)
FALLING_VOLS = BlackScholes(100.0, 0.05, VolCurve([0.5, 1.0], [0.35, 0.25]))
RISING_RATES = BlackScholes(100.0, ZeroCurve([0.5, 1.0], [-0.02, 0.06]), 0.2, 0.01)


def quantlib(contract, vols, rates, dividend_yield=0.0, rebate=0.0):
    """Value by FdBlackScholesBarrierEngine: (kind, barrier), days and quotes of the curves; a call at 100."""
    ql = pytest.importorskip("QuantLib")
    today, count = ql.Date(1, 1, 2021), ql.Actual365Fixed()
    ql.Settings.instance().evaluationDate = today
    (kind, barrier), dates = contract, lambda days: [today + int(day) for day in days]
    spot = ql.QuoteHandle(ql.SimpleQuote(100.0))
    zero = ql.ZeroCurve([today, *dates(rates[0])], [rates[1][0], *rates[1]], count)
    flat = ql.FlatForward(today, dividend_yield, count)
    vol = ql.BlackVarianceCurve(today, dates(vols[0]), vols[1], count)
    curves = map(ql.YieldTermStructureHandle, (flat, zero))
    process = ql.BlackScholesMertonProcess(spot, *curves, ql.BlackVolTermStructureHandle(vol))
    payoff, end = ql.PlainVanillaPayoff(ql.Option.Call, 100.0), ql.EuropeanExercise(today + 365)
    option = ql.BarrierOption(kind(ql), barrier, rebate, payoff, end)
    option.setPricingEngine(ql.FdBlackScholesBarrierEngine(process, 1000, 1000))
    return option.NPV()


@pytest.mark.costly
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_quantlib_agrees_on_term_structures_of_vols_and_rates():
    half = 182
    times = [half / 365, 1.0]
    up = BlackScholes(100.0, 0.05, VolCurve(times, [0.35, 0.25]))
    found = price(UP, up).value
    vols, rates = ([half, 365], [0.35, 0.25]), ([half, 365], [0.05, 0.05])
    wanted = quantlib((lambda ql: ql.Barrier.UpOut, 120.0), vols, rates)
    np.testing.assert_allclose(found, wanted, rtol=4e-4)

    down = BlackScholes(100.0, ZeroCurve(times, [-0.02, 0.06]), 0.2, 0.01)
    found = price(DOWN, down).value
    vols, rates = ([half, 365], [0.2, 0.2]), ([half, 365], [-0.02, 0.06])
    wanted = quantlib((lambda ql: ql.Barrier.DownOut, 90.0), vols, rates, 0.01, 3.0)
    np.testing.assert_allclose(found, wanted, rtol=4e-4)


@pytest.mark.parametrize(
    ("product", "model", "value"),
    [
        (UP, FALLING_VOLS, 0.88182),
        (Barrier(100.0, 1.0, 90.0), BlackScholes(100.0, RISING_RATES.rate, 0.2), 8.34853),
    ],
    ids=["vols", "rates"],
)
def test_values_of_an_independent_grid(product, model, value):
    """4,000 nodes and 2,000 steps of another code, extrapolated; the closed form gave .6913 and 9.1505."""
    found = price(product, model)
    assert isinstance(found.stats["method"], FiniteDifference)
    np.testing.assert_allclose(found.value, value, rtol=4e-5)


@pytest.mark.parametrize(
    ("spot", "value"), [(118.8, 0.0590141), (119.9, 0.00491047), (119.99, 0.00049096)]
)
def test_values_beside_the_barrier_where_the_vol_jumps(spot, value):
    """The forward vol falls from .35 to .05 at six months: Crank and Nicolson's scheme was 63 % off at 119.9.

    7,680 nodes and 640 steps; that scheme comes to .0049104 with 1,920 nodes and 2,560 steps.
    """
    model = BlackScholes(spot, 0.03, FALLING_VOLS.vol)
    np.testing.assert_allclose(price(UP, model).value, value, rtol=1e-4)


@pytest.mark.costly
def test_monte_carlo_agrees():
    found = price(DOWN, RISING_RATES, MonteCarlo(2**15, 256), key=jax.random.key(1))
    wanted = price(DOWN, RISING_RATES).value
    assert abs(found.value - wanted) < 4.0 * found.std_error


@pytest.mark.costly
@pytest.mark.parametrize("kind", ["up-and-out", "up-and-in"])
def test_every_greek_on_curves_that_happen_to_be_flat_is_that_of_the_closed_form(kind):
    """In the middle, beside the barrier, beyond it, and a week before expiry."""
    product = Barrier(100.0, [1.0, 1.0, 0.02], 120.0, kind, rebate=2.0)
    flat = ZeroCurve([0.5, 2.0], [0.05, 0.05])
    for spot in (100.0, 119.9, 121.0):
        found = greeks(product, BlackScholes(spot, flat, 0.2, 0.01), FiniteDifference())
        wanted = greeks(product, BlackScholes(spot, 0.05, 0.2, 0.01), ClosedForm())
        for name in ("value", "delta", "gamma", "vega", "theta", "rho", "vanna", "volga"):
            np.testing.assert_allclose(
                getattr(found, name), getattr(wanted, name), rtol=2e-7, atol=3e-6, err_msg=name
            )


@pytest.mark.costly
def test_derivatives_to_quotes_are_differences_of_values():
    times = jnp.array([0.4, 0.9])

    @jax.jit
    def value(quotes):
        rates, vols = quotes
        model = BlackScholes(100.0, ZeroCurve(times, rates), VolCurve(times, vols), 0.01)
        return price(UP, model, FiniteDifference(), throw=False).value

    quotes = jnp.array([[0.01, 0.04], [0.2, 0.25]])
    found = jax.jit(jax.grad(value))(quotes)
    bumps = 1e-4 * np.eye(4).reshape(4, 2, 2)
    wanted = [float(value(quotes + bump) - value(quotes - bump)) / 2e-4 for bump in bumps]
    np.testing.assert_allclose(np.ravel(found), wanted, rtol=2e-5)


def test_a_curve_of_one_pillar_is_flat_and_has_the_closed_form():
    """Whether the closed form applies depends on shapes, not on numbers."""
    one = BlackScholes(
        100.0, ZeroCurve([1.0], [0.05]), VolSurface([0.5], [90.0, 110.0], [[0.3, 0.2]])
    )
    found, wanted = price(UP, one), price(UP, BlackScholes(100.0, 0.05, 0.25))
    assert isinstance(found.stats["method"], ClosedForm)
    np.testing.assert_allclose(found.value, wanted.value, rtol=1e-13)
    with pytest.raises(TypeError, match="no constant rate and volatility; would work: Finite"):
        price(UP, FALLING_VOLS, ClosedForm())


def test_a_surface_without_a_smile_is_its_term_structure():
    surface = VolSurface([0.5, 1.0], [90.0, 110.0], [[0.35, 0.35], [0.25, 0.25]])
    model, times = BlackScholes(100.0, 0.05, surface), jnp.linspace(0.1, 1.3, 7)
    for product in (UP, Bermudan(European(95.0, 1.0), [0.5, 1.0]), Asian(100.0, [0.5, 1.0])):
        found = model.at_smile_point(product.smile_point).state_variance(times)
        np.testing.assert_allclose(found, FALLING_VOLS.state_variance(times), rtol=1e-13)
    assert isinstance(select_method(UP, model), FiniteDifference)
    dated = Asian(100.0, [0.25, 0.5, 1.0], average="geometric")
    np.testing.assert_allclose(
        price(dated, model).value, price(dated, FALLING_VOLS).value, rtol=1e-12
    )


@pytest.mark.costly
def test_under_a_smile_the_law_is_that_of_the_strike():
    surface = VolSurface([0.5, 1.0], [90.0, 110.0], [[0.4, 0.3], [0.32, 0.24]])
    at_strike = VolCurve([0.5, 1.0], [0.35, 0.28])
    found = price(UP, BlackScholes(100.0, 0.05, surface)).value
    np.testing.assert_allclose(
        found, price(UP, BlackScholes(100.0, 0.05, at_strike)).value, rtol=1e-12
    )


@pytest.mark.costly
def test_theta_of_a_batch_with_one_expiry_is_that_of_each_contract():
    """XLA rounds their times twice; `jnp.clip` in the surface's time then lost derivatives, 2.5 % of theta."""
    vols = [[0.25, 0.2, 0.18], [0.24, 0.21, 0.19], [0.23, 0.2, 0.19]]
    surface = VolSurface([0.1, 0.5, 1.0], [80.0, 100.0, 120.0], vols)
    model = BlackScholes(100.0, ZeroCurve([0.5, 2.0], [0.025, 0.03]), surface, 0.01)
    kinds, grid = ["down-and-out", "down-and-in"], FiniteDifference(8, 4, 40)
    one, each = (
        greeks(Barrier(95.0, expiry, 90.0, kinds, rebate=2.0), model, grid).theta
        for expiry in (0.8, [0.8, 0.8])
    )
    np.testing.assert_allclose(one, each, rtol=1e-9)


@pytest.mark.costly
def test_a_variance_that_falls_has_no_path_and_says_so():
    falling = BlackScholes(
        100.0, 0.05, VolSurface([0.5, 1.0], [90.0, 110.0], [[0.4, 0.35], [0.25, 0.25]])
    )
    assert price(European(100.0, 1.0), falling).value > 0.0  # it sees the vol of its expiry alone
    for product in (
        UP,
        Asian(100.0, [0.5, 1.0], average="geometric"),
        Bermudan(European(100.0, 1.0), [0.5, 1.0]),
    ):
        with pytest.raises(RuntimeError, match="decreases in time at the contract's strike"):
            price(product, falling)
    before = Barrier(100.0, 0.5, 120.0, "up-and-out")
    wanted = price(before, BlackScholes(100.0, 0.05, 0.375), ClosedForm()).value
    np.testing.assert_allclose(price(before, falling).value, wanted, rtol=1e-6)


def test_sabr_has_no_law_of_paths():
    model = Sabr(100.0, 0.0, [0.5, 1.0], [0.2, 0.2], [-0.5, -0.4], [0.8, 0.6])
    with pytest.raises(TypeError, match="no method prices Barrier under Sabr"):
        price(UP, model)


@pytest.mark.costly
def test_quadrature_takes_the_nodes_that_a_term_structure_needs():
    """A tenth of the variance in the second half of the time: .06125, then .00125 in four steps."""
    dates = [0.5, 0.625, 0.75, 0.875, 1.0]
    found = price(Bermudan(European(100.0, 1.0, "put"), dates), FALLING_VOLS)
    assert found.stats["method"].num_nodes >= 24.0 * np.sqrt(0.0625 / 0.0003125)
    assert found.value > price(European(100.0, 1.0, "put"), FALLING_VOLS).value


def test_a_backward_equation_has_the_law_of_one_strike():
    surface = VolSurface([0.5, 1.0], [90.0, 110.0], [[0.3, 0.25], [0.32, 0.24]])
    with pytest.raises(TypeError, match="one strike at a time"):
        fbsde.from_product(
            European([90.0, 100.0], 1.0), BlackScholes(100.0, 0.05, surface), num_steps=4
        )
