"""Finite differences under Heston: limits, references, orders of convergence, exact derivatives."""

import functools

import chex
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxtape.jax_settings.platform import traced_for
from pricing import (
    RESULTS,
    American,
    Barrier,
    Bermudan,
    BlackScholes,
    ClosedForm,
    European,
    FiniteDifference,
    Heston,
    IntegralEquation,
    LeastSquares,
    MonteCarlo,
    ZeroCurve,
    bounds,
    greeks,
    price,
    valuation,
)
from pricing.grids.alternating_directions import Operator, time_shares, variance_grid
from pricing.grids.stencil import second_difference, sinh_grid
from pricing.numerics.tridiagonal import Tridiagonal
from pricing.sensitivities import Sensitivities
from tests.helpers import double

# Up-and-out call under Heston: [P] finite differences 9.1530; [C] on another grid 9.1593, Delta .52119,
# Gamma -.03750. On 400 x 120 x 400 we find 9.1533, .51972, -.03789.
_MODEL = Heston(100.0, 0.05, 0.04, 2.5, 0.04, 0.66, -0.8)
_UP_AND_OUT = Barrier(100.0, 1.0, 135.0, "up-and-out")

_KINDS = ("down-and-out", "down-and-in", "up-and-out", "up-and-in")
_EVERY_KIND = Barrier(
    strike=[90.0, 110.0] * 8,
    expiry=0.5,
    barrier=[95.0] * 4 + [105.0] * 4 + [95.0] * 4 + [105.0] * 4,
    kind=[kind for kind in _KINDS for _ in range(2)] * 2,
    option=["call"] * 8 + ["put"] * 8,
    rebate=3.0,
)


def value_on(grid, product, model):
    """The value that `price` gives, without the two grids that give its error."""
    (value, _), result = valuation._value(product, model, grid, None, 2**30)
    assert np.all(result == RESULTS.successful)
    return value


@eqx.filter_jit
def value_delta_and_gamma(product, model, method):
    at = lambda spot: method.samples(product, model.shifted(underlying=spot))
    along = lambda f: lambda spot: jax.jvp(f, (spot,), (jnp.ones_like(spot),))
    (value, delta), (_, gamma) = along(along(at))(jnp.zeros(()))
    return value, delta, gamma


@double
def test_up_and_out_reference():
    grid = FiniteDifference(240, 80, 128)
    value, delta, gamma = value_delta_and_gamma(_UP_AND_OUT, _MODEL, grid)
    np.testing.assert_allclose(value, 9.1530, rtol=5e-4)
    np.testing.assert_allclose(delta, 0.52119, atol=3e-3)
    np.testing.assert_allclose(gamma, -0.03750, atol=4e-4)


@pytest.mark.costly
@double
def test_every_kind_tends_to_black_scholes_as_the_variance_stops_moving():
    still = Heston(100.0, 0.08, 0.0625, 1.0, 0.0625, 1e-3, 0.0, 0.04)
    exact = price(_EVERY_KIND, BlackScholes(100.0, 0.08, 0.25, 0.04)).value
    coarse, fine = (
        np.abs(value_on(FiniteDifference(nodes, 24, steps), _EVERY_KIND, still) - exact)
        for nodes, steps in ((120, 64), (240, 128))
    )
    assert coarse.max() < 3e-3
    order = np.log2(coarse.max() / fine.max())
    assert 1.8 < order < 2.4, "second order in distance and time"


@pytest.mark.costly
@double
def test_in_and_out_add_up_to_the_vanilla():
    out, into = (
        price(Barrier(105.0, 0.8, 85.0, kind, "put"), _MODEL).value
        for kind in ("down-and-out", "down-and-in")
    )
    vanilla = price(European(105.0, 0.8, "put"), _MODEL).value
    np.testing.assert_allclose(out + into, vanilla, rtol=1e-12)


@pytest.mark.parametrize("kind, expected", [("down-and-out", 2.0), ("down-and-in", None)])
def test_a_spot_beyond_the_barrier_has_touched_it(kind, expected):
    product = Barrier(95.0, 0.8, 105.0, kind, rebate=2.0)
    if expected is None:
        expected = price(product.vanilla, _MODEL).value
    np.testing.assert_allclose(price(product, _MODEL).value, expected, rtol=1e-6)


@pytest.mark.costly
@double
def test_derivatives_are_those_of_the_discrete_value():
    """Grids stand still under small bumps, so central differences see what differentiation sees."""
    method = FiniteDifference(60, 24, 16)
    value = lambda model: method.samples(_UP_AND_OUT, model)
    value_and_grad = jax.jit(jax.value_and_grad(value))
    _, bar = value_and_grad(_MODEL)
    for name in (
        "spot",
        "rate",
        "mean_reversion",
        "long_run_variance",
        "vol_of_vol",
        "correlation",
    ):
        at = lambda model, name=name: getattr(model, name)
        step = 1e-4 * abs(at(_MODEL))
        moved = (eqx.tree_at(at, _MODEL, at(_MODEL) + by) for by in (step, -step))
        up, down = (value_and_grad(model)[0] for model in moved)
        np.testing.assert_allclose(at(bar), (up - down) / (2 * step), rtol=2e-6, err_msg=name)


@double
@pytest.mark.costly
def test_agrees_with_monte_carlo():
    barrier = Barrier(100.0, 0.5, 90.0, "down-and-out", "call", 1.0)
    found = greeks(barrier, _MODEL, MonteCarlo(2**15, 32), key=jax.random.key(3))

    @jax.jit
    def along(spot, rate):
        value = lambda h: price(barrier, _MODEL.shifted(underlying=h * spot, rate=h * rate)).value
        return jax.jvp(value, (0.0,), (1.0,))

    (exact, delta), (_, rho) = along(1.0, 0.0), along(0.0, 1.0)
    for name, true in {"value": exact, "delta": delta, "rho": rho}.items():
        assert abs(getattr(found, name) - true) < 3.5 * getattr(found.std_errors, name), name


@pytest.mark.costly
@double
def test_rates_are_those_of_the_curve_day_by_day():
    """Negative for three months, then steep: flat to expiry, the value would be 14 standard errors away."""
    curve = ZeroCurve([0.0, 0.25, 0.5], [-0.1, -0.1, 0.05])
    steep = eqx.tree_at(lambda model: model.rate, _MODEL, curve)
    barrier = Barrier(100.0, 0.5, 90.0, "down-and-out", "call", 1.0)
    found, flat = price(barrier, steep).value, price(barrier, _MODEL).value
    peer = price(barrier, steep, MonteCarlo(2**17, 32), key=jax.random.key(3))
    assert abs(found - peer.value) < 3.0 * peer.std_error
    assert abs(flat - peer.value) > 10.0 * peer.std_error


@pytest.mark.costly
@double
def test_stable_where_the_feller_condition_fails_badly():
    """The DAX optimum, reverse knock-outs of two years: values stay between zero and the vanilla."""
    dax = Heston(4468.17, 0.036, 0.19122, 15.56191, 0.07459, 3.29523, -0.51202)
    products = Barrier(
        strike=[3400.0, 4550.0, 4800.0],
        expiry=[1.93, 1.82, 0.1],
        barrier=[5350.0, 4210.0, 4700.0],
        kind=["up-and-out", "down-and-out", "up-and-out"],
        option=["call", "put", "call"],
    )
    values = price(products, dax).value
    assert jnp.all(values >= -1e-6 * dax.spot)
    assert jnp.all(values <= price(products.vanilla, dax).value)


@double
def test_a_fine_grid_keeps_the_digits_of_single_precision():
    """A u and (I - A)^{-1} u of a diffusion with decay; by the diagonal alone both lose more than a digit."""
    y = sinh_grid(jnp.linspace(0.0, 1.0, 120), jnp.asarray(2.0), jnp.asarray(0.1))
    y = y.astype(jnp.float32)

    def found(dtype, made):
        lower, diagonal, upper = (10.0 * b[:, None] for b in second_difference(y.astype(dtype)))
        matrix, u = made(lower, diagonal - dtype(0.05), upper), jnp.exp(-y)[:, None].astype(dtype)
        solved = matrix.identity_minus(jnp.ones((), dtype)).factored().solve(u)
        return np.asarray(matrix @ u, float)[1:-1], np.asarray(solved, float)

    by_sums = functools.partial(Tridiagonal.with_sums, -0.05)
    exact = found(jnp.float64, Tridiagonal)
    chex.assert_trees_all_equal(found(jnp.float64, by_sums), exact)
    errors, others = (
        [
            np.max(np.abs(x / right - 1.0))
            for x, right in zip(found(jnp.float32, made), exact, strict=True)
        ]
        for made in (by_sums, Tridiagonal)
    )
    assert errors[0] < 1e-4 and errors[1] < 2e-6  # 4e-5, 7e-7
    assert others[0] > 5e-3 and others[1] > 5e-6  # 2e-2, 1e-5


@double
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_a_product_along_the_last_axis_is_that_of_the_transposed_bands(dtype):
    """Of a matrix with the sums of its rows, and of one without; and back."""
    bands = jax.random.normal(jax.random.key(0), (4, 7, 3), dtype)
    u = jax.random.normal(jax.random.key(1), (7, 3), dtype)
    for matrix in (Tridiagonal(*bands[1:]), Tridiagonal.with_sums(bands[0], *bands[1:])):
        across = matrix.transposed.across(u.T)
        np.testing.assert_allclose(across.T, matrix @ u, rtol=1e-6)
        chex.assert_trees_all_equal(matrix.transposed.transposed, matrix)


@pytest.mark.parametrize(
    ("rows", "platform", "turn"), [(120, "cpu", 2), (481, "cpu", 1), (481, "tpu", 2)]
)
def test_only_long_systems_on_cpus_take_one_row_a_turn(rows, platform, turn):
    band = jnp.full((rows, 3), 0.1)
    factored = Tridiagonal(band, band + 1.0, band).factored()
    with traced_for([platform]):
        program = str(jax.make_jaxpr(factored.solve)(band))
    assert program.count(f"unroll={turn}") == program.count("unroll=") > 0


# --- early exercise -----------------------------------------------------------------------------------

# American puts, K=10, T=.25, at spots of 8 to 12 (Ikonen and Toivanen 2007, their finest grid) [P]
_CLARKE_PARROTT = functools.partial(Heston, rate=0.1, mean_reversion=5.0, long_run_variance=0.16)
_SPOTS = (8.0, 9.0, 10.0, 11.0, 12.0)
_PUBLISHED = {
    0.0625: (2.0, 1.107621, 0.520030, 0.213677, 0.082044),
    0.25: (2.078372, 1.333639, 0.795983, 0.448277, 0.242810),
}
_STILL = Heston(100.0, 0.05, 0.0625, 1.0, 0.0625, 1e-3, 0.0, 0.02)  # hardly moves
_FLAT = BlackScholes(100.0, 0.05, 0.25, 0.02)


def american_puts(variance: float, method: FiniteDifference) -> np.ndarray:
    def value(spot):
        model = _CLARKE_PARROTT(
            spot=spot, initial_variance=variance, vol_of_vol=0.9, correlation=0.1
        )
        return value_on(method, American(10.0, 0.25, "put"), model)

    return np.array([value(spot) for spot in _SPOTS])


@pytest.mark.costly
@double
@pytest.mark.parametrize("variance", _PUBLISHED)
def test_american_puts_of_clarke_and_parrott(variance):
    usual = american_puts(variance, FiniteDifference())
    fine = american_puts(variance, FiniteDifference(240, 80, 80))
    np.testing.assert_allclose(usual, _PUBLISHED[variance], atol=2.5e-4)
    np.testing.assert_allclose(fine, _PUBLISHED[variance], atol=1e-4)


@pytest.mark.costly
@double
@pytest.mark.parametrize(
    "product",
    [
        American([90.0, 110.0], 0.8, "put"),
        American([90.0, 110.0], 0.8, "call"),
        Bermudan(European([90.0, 110.0], 0.8, "put"), [0.1, 0.5, 0.8]),
        pytest.param(Bermudan(European([90.0, 110.0], 0.8, "put"), [0.8]), marks=pytest.mark.slow),
    ],
    ids=["american put", "american call", "bermudan put", "european put"],
)
def test_early_exercise_tends_to_black_scholes_as_the_variance_stops_moving(product):
    exact = price(product, _FLAT).value
    coarse, fine = (
        np.max(np.abs(value_on(FiniteDifference(nodes, 24, steps), product, _STILL) - exact))
        for nodes, steps in ((120, 40), (240, 80))
    )
    assert coarse < 0.02
    assert fine < 0.5 * coarse


def test_rights_to_exercise_have_one_form_so_that_they_share_a_program():
    call = European(110.0, 1.0)
    rights = American(90.0, 0.8, "put"), Bermudan(call, [1.0]), Bermudan(call, [0.5, 1.0])
    forms = [FiniteDifference().canonical(right) for right in rights]
    chex.assert_trees_all_equal_shapes_and_dtypes(*forms)
    american, european, bermudan = forms
    np.testing.assert_allclose(american.ends, [0.2, 0.4, 0.6, 0.8])
    np.testing.assert_array_equal(european.is_date, [0.0, 0.0, 0.0, 1.0])
    np.testing.assert_array_equal(bermudan.dates, [0.25, 0.5, 0.75, 1.0])
    np.testing.assert_array_equal(bermudan.is_date, [0.0, 1.0, 0.0, 1.0])
    np.testing.assert_array_equal([form.any_time for form in forms], [1.0, 0.0, 0.0])


@pytest.mark.costly
@double
def test_delta_and_gamma_of_an_american_put_tend_to_those_of_black_scholes():
    put, grid = American(105.0, 0.8, "put"), FiniteDifference(240, 24, 80)
    _, delta, gamma = value_delta_and_gamma(put, _STILL, grid)
    _, exact_delta, exact_gamma = value_delta_and_gamma(put, _FLAT, IntegralEquation())
    np.testing.assert_allclose(delta, exact_delta, atol=2e-4)
    np.testing.assert_allclose(gamma, exact_gamma, atol=2e-4)


@pytest.mark.costly
@double
def test_an_american_option_in_the_region_of_exercise_is_its_payoff():
    model = eqx.tree_at(lambda m: m.spot, _MODEL, jnp.asarray(60.0))
    np.testing.assert_allclose(price(American(100.0, 0.5, "put"), model).value, 40.0, rtol=1e-9)


@double
@pytest.mark.costly
def test_the_bounds_by_regression_hold_the_values_of_the_grid():
    dates = [0.2, 0.4, 0.6]
    product = Bermudan(European(105.0, 0.6, "put"), dates)
    found = bounds(product, _MODEL, LeastSquares(8192, 4096, 24), key=jax.random.key(5))
    value = value_on(FiniteDifference(240, 60, 60), product, _MODEL)
    assert found.lower - 3.0 * found.std_errors.lower < value
    assert value < found.upper + 3.0 * found.std_errors.upper


@pytest.mark.parametrize("name, least", [("num_spots", 5), ("num_variances", 4), ("num_steps", 1)])
def test_grids_that_are_too_small_are_refused(name, least):
    with pytest.raises(ValueError, match=f"{name} must be at least {least}, got 0"):
        FiniteDifference(**{name: 0})


# --- errors -------------------------------------------------------------------------------------------

_ROUND = Heston(118.8, 0.03, 0.04, 2.0, 0.04, 0.5, -0.7)


@pytest.mark.costly
@double
def test_beside_a_barrier_that_is_in_the_money_greeks_are_right_and_errors_hold():
    """True figures from 240 x 80 x 640: with steps that ring Gamma was -.0114, and -4.9 at 119.9."""
    product = Barrier(100.0, 1.0, 120.0, "up-and-out")
    found = greeks(product, _ROUND)
    true = {"value": 0.14194, "delta": -0.1229, "gamma": 0.00775, "vega": -1.8195, "theta": 0.15333}
    for name, figure in true.items():
        assert abs(getattr(found, name) - figure) < 2.0 * getattr(found.std_errors, name), name
    np.testing.assert_allclose(found.gamma, true["gamma"], rtol=0.01)

    # value, Delta and Gamma on 300 x 100 x 400; where two grids cross their difference is no error
    finest = {
        (118.0, 120.0, "up-and-out"): (0.242701, -0.129114, 0.0078633),
        (119.99, 120.0, "up-and-out"): (0.00113743, -0.113780, 0.0075098),
        (90.01, 90.0, "down-and-out"): (0.00657388, 0.657414, 0.0051428),
        (91.2, 90.0, "down-and-out"): (0.793723, 0.666406, 0.0095995),
    }
    for (spot, barrier, kind), figures in finest.items():
        model = eqx.tree_at(lambda m: m.spot, _ROUND, jnp.asarray(spot))
        found = greeks(Barrier(100.0, 1.0, barrier, kind), model, FiniteDifference())
        for name, figure in zip(("value", "delta", "gamma"), figures, strict=True):
            error = getattr(found.std_errors, name)
            assert abs(getattr(found, name) - figure) < 1.3 * error, (spot, name)
            assert error < 0.15 * abs(figure)


# on 360 x 100 x 480 by the same scheme in scipy's sparse matrices: value, Delta, Gamma
_BESIDE = {
    "up-and-out": (_ROUND, 119.9, Barrier(100.0, 1.0, 120.0, "up-and-out"),
                   (0.011408, -0.114457, 0.0075332)),
    "rebate": (_ROUND, 118.0, Barrier(100.0, 1.0, 120.0, "up-and-out", rebate=5.0),
               (4.924932, 0.033495, 0.0041038)),
    "down-and-out call": (_ROUND, 90.2, Barrier(100.0, 0.5, 90.0, "down-and-out"),
                          (0.070519, 0.356714, 0.041264)),
    "down-and-out put": (_ROUND, 90.5, Barrier(100.0, 0.5, 90.0, "down-and-out", "put"),
                         (0.045102, 0.083292, -0.026740)),
    "high vol of vol": (Heston(118.0, 0.03, 0.04, 2.0, 0.04, 1.5, -0.7), 118.0,
                        Barrier(100.0, 1.0, 120.0, "up-and-out"), (0.584869, -0.324596, 0.036965)),
}  # fmt: skip


@double
@pytest.mark.parametrize("name", _BESIDE)
def test_delta_and_gamma_beside_a_barrier(name):
    model, spot, out, true = _BESIDE[name]
    model = eqx.tree_at(lambda m: m.spot, model, jnp.asarray(spot))
    found = value_delta_and_gamma(out.broadcast(), model, FiniteDifference())
    np.testing.assert_allclose(found, true, rtol=0.02)


@pytest.mark.costly
@double
@pytest.mark.parametrize(("spot", "barrier", "kind", "option"), [
    (118.8, 120.0, "up-and-out", "call"), (119.9, 120.0, "up-and-out", "call"),
    (90.2, 90.0, "down-and-out", "put"), (119.9, 120.0, "up-and-in", "call"),
])  # fmt: skip
def test_beside_a_barrier_greeks_tend_to_black_scholes_as_the_variance_stops_moving(
    spot, barrier, kind, option
):
    product = Barrier(100.0, 1.0, barrier, kind, option).broadcast()
    still = Heston(spot, 0.05, 0.0625, 1.0, 0.0625, 1e-3, 0.0, 0.02)
    found = value_delta_and_gamma(product, still, FiniteDifference())
    exact = value_delta_and_gamma(product, BlackScholes(spot, 0.05, 0.25, 0.02), ClosedForm())
    np.testing.assert_allclose(found, exact, rtol=0.01)


@pytest.mark.costly
@double
def test_a_grid_whose_error_is_large_is_doubled_for_in_and_out_alike():
    small, vanilla = FiniteDifference(30, 12, 8), price(European(105.0, 0.8, "put"), _MODEL)
    out, into = (Barrier(105.0, 0.8, 85.0, kind, "put") for kind in ("down-and-out", "down-and-in"))
    run = lambda product, method: valuation._value(product, _MODEL, method, None, 2**30)
    total = 0.0
    for product in (out, into):
        method, (value, error), _ = valuation.estimated(
            run, product, _MODEL, small, may_refine=True
        )
        assert method == small.finer() == FiniteDifference(60, 24, 16)
        named = price(product, _MODEL, small)
        assert named.stats["method"] == small
        steps = price(product, _MODEL, FiniteDifference(30, 12, 32))
        spread = np.ptp([value, named.value, steps.value])
        np.testing.assert_allclose(error, spread, rtol=1e-9)
        total += value
    np.testing.assert_allclose(total, vanilla.value, rtol=1e-12)


@pytest.mark.parametrize("count", [1, 40])
def test_the_first_step_is_a_third_of_the_others(count):
    length, edges = time_shares(count)
    assert (edges[0], edges[-1], edges.size) == (0.0, 1.0, count + 1)
    np.testing.assert_allclose(np.diff(edges), [length / 3.0] + [length] * (count - 1))


def test_errors_are_large_beside_their_figure_and_by_what_a_move_makes_of_them():
    """A Gamma off by 6 % is large, unless it makes less than .1 % of the value of a move of 1 %."""
    is_close = valuation.is_close
    assert is_close(_ROUND, np.float64(2.0), np.float64(0.09))
    assert not is_close(_ROUND, np.float64(2.0), np.float64(0.11))
    assert is_close(_ROUND, np.float64(1e-6), np.float64(1e-4))  # of the spot a millionth
    assert not is_close(_ROUND, np.array([2.0, 2.0]), np.array([0.0, 0.11]))
    first, second = jnp.array([0.1, -0.1, 0.01, -1.0, 0.1, 0.1]), jnp.array(1.0)
    figures = Sensitivities(*first, None, second)
    still = jax.tree.map(jnp.zeros_like, figures)
    with_gamma = lambda error: eqx.tree_at(lambda s: s.gamma, still, jnp.array(error))
    assert is_close(_ROUND, figures, with_gamma(4e-4))
    assert not is_close(_ROUND, figures, with_gamma(6e-4))
    assert is_close(
        _ROUND, eqx.tree_at(lambda s: s.value, figures, jnp.array(1.0)), with_gamma(6e-4)
    )


@pytest.mark.costly
@double
@pytest.mark.parametrize(("expiry", "barrier"), [(1 / 52, 50.0), (0.25, 60.0), (1.0, 20.0)])
def test_a_barrier_out_of_reach_changes_nothing(expiry, barrier):
    model = eqx.tree_at(lambda m: m.spot, _ROUND, jnp.asarray(100.0))
    found = greeks(Barrier(100.0, expiry, barrier, "down-and-out"), model)
    wanted = greeks(European(100.0, expiry), model)
    np.testing.assert_allclose(found.value, wanted.value, rtol=2e-3)
    np.testing.assert_allclose(found.gamma, wanted.gamma, rtol=2e-2)
    assert abs(found.value - wanted.value) < 2.0 * found.std_errors.value


@pytest.mark.costly
@double
def test_a_step_is_the_scheme_as_it_is_published():
    """in 't Hout and Foulon (2010), eq. 2.6, on dense matrices: with a source, and rates above their means."""
    theta, dt, shape = 1.0 / 3.0, jnp.asarray(0.07), (7, 6)
    y = sinh_grid(jnp.linspace(0.0, 1.0, shape[0]), jnp.asarray(0.8), jnp.asarray(0.1))
    v = variance_grid(shape[1], _MODEL, jnp.asarray(1.0))
    rates, excess = (jnp.asarray(0.05), jnp.asarray(0.02)), (jnp.asarray(0.03), jnp.asarray(-0.01))
    one = jnp.ones(())
    operator = Operator.of(_MODEL, rates, -one, y, v, one)
    u, source = jax.random.normal(jax.random.key(0), (2, *shape))

    size, like = u.size, jnp.zeros(shape)
    dense = lambda part: np.asarray(jax.jacobian(part)(like)).reshape(size, size)
    parts = (
        dense(lambda u: operator.explicit(u, excess)),
        dense(lambda u: operator.along_y @ u),
        dense(operator.along_v.across),
    )
    first, *implicit = (float(dt) * part for part in parts)
    whole, before = first + sum(implicit), np.asarray(u).ravel()

    def swept(start):
        for part in implicit:
            left = np.eye(size) - theta * part
            start = np.linalg.solve(left, start - theta * part @ before)
        return start

    start = before + whole @ before + float(dt) * np.asarray(source).ravel()
    change = swept(start) - before
    corrected = start + theta * first @ change + (0.5 - theta) * whole @ change
    found = operator.stepper(dt).step(u, excess, source)
    np.testing.assert_allclose(found.ravel(), swept(corrected), rtol=1e-11, atol=1e-12)
