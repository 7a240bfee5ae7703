"""Early exercise by regression: bounds that enclose what is known, and Greeks of a rule that is held."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pricing import (
    RESULTS,
    American,
    Basket,
    Bermudan,
    BermudanSwaption,
    BlackScholes,
    European,
    Heston,
    HullWhite,
    LeastSquares,
    Quadrature,
    ZeroCurve,
    bounds,
    greeks,
    price,
)
from tests.helpers import double

pytestmark = double
KEY = jax.random.key(5)


def enclosed(found, value: float, known_to: float, most: float = 5e-3) -> None:
    """lower <= value <= upper within three standard errors, and a gap of at most .5 %, or of `most`."""
    assert found.result == RESULTS.successful
    assert found.lower <= value + known_to + 3.0 * found.std_errors.lower
    assert found.upper >= value - known_to - 3.0 * found.std_errors.upper
    assert found.gap <= most * value


# Longstaff and Schwartz (2001), Table 1: spot, vol, expiry, and the exact value with 50 dates a year
_PUTS = [
    (36.0, 0.2, 1, 4.4778),
    (40.0, 0.2, 1, 2.3141),
    (44.0, 0.2, 1, 1.1099),
    pytest.param(36.0, 0.4, 2, 8.5068, marks=pytest.mark.slow),
    pytest.param(40.0, 0.4, 2, 6.9171, marks=pytest.mark.slow),
    pytest.param(44.0, 0.4, 2, 5.6412, marks=pytest.mark.slow),
]


@pytest.mark.costly
@pytest.mark.parametrize(("spot", "vol", "expiry", "value"), _PUTS)
def test_puts_of_longstaff_and_schwartz(spot, vol, expiry, value):
    dates = np.arange(1, 50 * expiry + 1) / 50.0
    put = Bermudan(European(40.0, float(expiry), "put"), dates)
    found = bounds(put, BlackScholes(spot, 0.06, vol), LeastSquares(8192), key=KEY)
    enclosed(found, value, 5e-5)


_BEST_OF = Bermudan(Basket(100.0, 3.0, average="max"), np.arange(1, 10) / 3.0)


def assets(count: int) -> BlackScholes:
    spots, vols, yields = (count * [x] for x in (100.0, 0.2, 0.1))
    return BlackScholes(spots, 0.05, vols, yields, asset_correlation=np.eye(count))


@pytest.mark.costly
@pytest.mark.parametrize(
    ("count", "value", "known_to", "most"),
    [
        (2, 13.90178, 5e-6, 1.5e-3),
        pytest.param(5, 26.159, 0.0, 5e-3, marks=pytest.mark.slow),
    ],
)
def test_the_best_of_several_assets(count, value, known_to, most):
    """Andersen and Broadie (2004), Table 2; two assets: computed on a grid. Five: a point estimate."""
    method = LeastSquares(4096, 16384)
    enclosed(bounds(_BEST_OF, assets(count), method, key=KEY), value, known_to, most)


@pytest.mark.costly
def test_inner_points_tighten_the_upper_bound():
    """The usual ones, in the program of the test above, and none."""
    model = assets(2)
    known, by_points = (
        bounds(_BEST_OF, model, LeastSquares(4096, 16384, num_inner_paths=points), key=KEY)
        for points in (0, None)
    )
    for found, most in ((known, 1e-2), (by_points, 2e-3)):
        enclosed(found, 13.90178, 5e-6, most)
    assert by_points.upper < known.upper
    assert by_points.std_errors.upper < 0.5 * known.std_errors.upper


@pytest.mark.costly
@pytest.mark.parametrize("kind", ["max", pytest.param("min", marks=pytest.mark.slow)])
def test_assets_that_differ_are_ranked_by_what_they_pay(kind):
    """Each bound holds whatever the regression: that they are close says that it is right."""
    model = BlackScholes(
        [80.0, 100.0, 115.0], 0.05, [0.5, 0.2, 0.1], [0.0, 0.1, 0.05], asset_correlation=np.eye(3)
    )
    call = Bermudan(Basket(100.0, 1.0, average=kind), [0.5, 1.0])
    found = bounds(call, model, LeastSquares(8192), key=KEY)
    assert -3.0 * found.std_errors.gap < found.gap < 5e-3 * found.lower


@pytest.mark.costly
def test_a_bermudan_swaption_is_enclosed():
    model, swaption = idealised_swaption()
    enclosed(bounds(swaption, model, LeastSquares(8192), key=KEY), 12.9258599208, 1e-9)


def idealised_swaption():
    model = HullWhite(0.04875825, 0.048696, 0.0058904)
    dates = np.arange(1.0, 6.0), np.arange(2.0, 7.0), np.ones(5)
    return model, BermudanSwaption(0.0499664907, *dates, "payer", 1000.0)


@jax.jit
def by_quadrature(product, model) -> dict[str, jax.Array]:
    """The value and its first derivatives, by one reverse sweep."""

    def value(moves):
        moved = model.shifted(underlying=moves["delta"], vol=moves["vega"], rate=moves["rho"])
        return Quadrature().samples(product.rolled(moves["theta"]), moved)

    still = dict.fromkeys(("delta", "vega", "rho", "theta"), jnp.zeros(()))
    value, slopes = jax.value_and_grad(value)(still)
    return {"value": value} | slopes


def greeks_agree(found, exact: dict[str, jax.Array], rough: dict[str, float]) -> None:
    """To three standard errors, themselves below 1 %, and what a rule that is nearly the best costs."""
    assert found.gamma is None
    for name, most in rough.items():
        error, true = getattr(found.std_errors, name), exact[name]
        assert error < 1e-2 * abs(true)
        assert abs(getattr(found, name) - true) < 3.0 * error + most * abs(true)


@pytest.mark.costly
def test_a_bermudan_swaption_and_its_greeks_are_those_of_quadrature():
    model, swaption = idealised_swaption()
    found = greeks(swaption, model, LeastSquares(16384), key=KEY)
    rough = {"value": 1e-5, "delta": 2e-3, "vega": 2e-3}
    greeks_agree(found, by_quadrature(swaption, model), rough)


@pytest.mark.costly
@pytest.mark.parametrize("exercise", [pytest.param("bermudan", marks=pytest.mark.slow), "american"])
def test_bounds_under_heston_are_close(exercise):
    model = Heston(100.0, 0.05, 0.04, 1.5, 0.04, 0.5, -0.7)
    put = European(100.0, 0.5, "put")
    product = (
        Bermudan(put, np.arange(1, 7) / 12.0)
        if exercise == "bermudan"
        else American(100.0, 0.5, "put")
    )
    found = bounds(product, model, LeastSquares(8192, num_steps=50), key=KEY)
    held = price(put, model).value
    assert held < found.lower < found.upper
    of_a_step = 100.0 * np.expm1(0.05 * 0.5 / 50) if exercise == "american" else 0.0  # its interest
    assert found.gap <= 1e-2 * found.lower + of_a_step


@pytest.mark.costly
@pytest.mark.parametrize("num_steps", [8, pytest.param(50, marks=pytest.mark.slow)])
def test_the_bounds_of_a_right_at_any_time_hold_its_value(num_steps):
    """Dates alone forgo .5 % of the put's value on 50 of them: more than the gap that regression leaves.

    What they leave open is the interest or the dividends of a step at most.
    """
    market = ZeroCurve([1.0, 5.0, 10.0], [0.02, 0.025, 0.03])
    puts = [BlackScholes(100.0, 0.03, 0.25), BlackScholes(100.0, market, 0.25, 0.01)]
    pairs = [
        *((American(100.0, 10.0, "put"), model, 0.04) for model in puts),
        (American(100.0, 10.0, "call"), BlackScholes(100.0, 0.01, 0.25, 0.06), 0.06),
    ]
    for product, model, carry in pairs:
        found = bounds(product, model, LeastSquares(8192, num_steps=num_steps), key=KEY)
        value = price(product, model, Quadrature()).value
        errors = found.std_errors
        assert found.lower - 4.0 * errors.lower < value < found.upper + 4.0 * errors.upper
        assert found.gap < 0.01 * value + 100.0 * np.expm1(carry * 10.0 / num_steps)


_DATES = [0.2, 0.4, 0.6, 0.8, 1.0]
_MODEL = {"spot": 100.0, "rate": 0.05, "vol": 0.2}


@pytest.mark.costly
def test_greeks_of_a_held_rule_are_those_of_the_option():
    """The rule is the best to first order, so holding it costs nothing to first order."""
    put, model = Bermudan(European(100.0, 1.0, "put"), _DATES), BlackScholes(**_MODEL)
    rough = {"value": 2e-5, "delta": 2e-4, "vega": 1e-3, "rho": 1e-3, "theta": 1e-3}
    found = greeks(put, model, LeastSquares(65536), key=KEY)
    greeks_agree(found, by_quadrature(put, model), rough)


@pytest.mark.costly
def test_a_contract_that_a_program_holds_as_constants_is_worth_the_same():
    """Constants are folded and fused otherwise: what is zero but for rounding must not matter."""
    put = Bermudan(European(100.0, 1.0, "put"), _DATES)

    def value(numbers, put):
        model = BlackScholes(**dict(zip(_MODEL, numbers, strict=True)))
        return price(put, model, LeastSquares(4096), key=KEY, throw=False).value

    with_slopes, numbers = jax.value_and_grad(value), jnp.asarray(list(_MODEL.values()))
    given, slopes = jax.jit(with_slopes)(numbers, put)
    held, slopes_of_held = jax.jit(lambda numbers: with_slopes(numbers, put))(numbers)
    np.testing.assert_allclose(held, given, rtol=1e-9)
    np.testing.assert_allclose(slopes_of_held, slopes, rtol=1e-6)


@pytest.mark.costly
def test_a_held_rule_is_not_fitted_again():
    put, model = Bermudan(European(100.0, 1.0, "put"), _DATES), BlackScholes(**_MODEL)
    method = LeastSquares(4096)
    held = method.fitted(put, model, key=KEY)
    np.testing.assert_allclose(
        price(put, model, held, key=KEY).value, price(put, model, method, key=KEY).value, rtol=1e-9
    )
    other = price(put, model, held, key=jax.random.key(6))
    assert eqx.tree_equal(other.stats["method"].rule, held.rule)
    exact = by_quadrature(put, model)["value"]
    assert abs(other.value - exact) < 4.0 * other.std_error + 1e-3


@pytest.mark.parametrize("name", ["num_paths", "num_fit_paths", "num_steps", "block", "degree"])
def test_counts_below_one_are_refused(name):
    with pytest.raises(ValueError, match=f"{name} must be at least 1"):
        LeastSquares(**{name: 0})


def test_what_cannot_be_exercised_early_has_no_bounds():
    with pytest.raises(TypeError, match="no right to exercise early"):
        bounds(European(100.0, 1.0), BlackScholes(**_MODEL), key=KEY)


@pytest.mark.parametrize("points", [-1, 3])
def test_inner_points_that_are_no_net_are_refused(points):
    with pytest.raises(ValueError, match="num_inner_paths must be 0 or a power of 2"):
        LeastSquares(num_inner_paths=points)
