"""SABR as a model of equities: its surface, what it prices, and its calibration, an array to a field."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calibration import RESULTS, Exp, ImpliedVolError, Tanh, calibrate, fit
from calibration.least_squares_problem import LeastSquaresProblem
from calibration.objectives import model_vols
from calibration.parameters import FreeParameters, random_starts
from pricing import (
    American,
    BlackScholes,
    ClosedForm,
    Digital,
    European,
    HullWhite,
    Sabr,
    VolSurface,
    greeks,
    price,
)
from pricing.models import sabr_vol
from tests.helpers import curve, dax, double

pytestmark = double

NAMES = ("alpha", "rho", "nu")
EXPIRIES = np.array([0.25, 0.75, 2.0])
STRIKES = np.array([60.0, 80.0, 90.0, 100.0, 110.0, 125.0, 150.0])


def sabr(seed: int = 1, beta: float = 0.8) -> Sabr:
    rng = np.random.default_rng(seed)
    level, rho, nu = rng.uniform([[0.1], [-0.9], [0.3]], [[0.4], [0.5], [1.5]], (3, 3))
    level *= 100.0 ** (1.0 - beta)
    return Sabr(100.0, curve(), EXPIRIES, level, rho, nu / np.sqrt(1.0 + EXPIRIES), beta, 0.02)


def start(truth: Sabr) -> Sabr:
    ones = np.ones(3)
    level = 0.2 * 100.0 ** (1.0 - truth.beta)
    return dataclasses.replace(truth, alpha=level * ones, rho=-0.3 * ones, nu=0.6 * ones)


def quotes_of(model: Sabr, expiries=EXPIRIES) -> VolSurface:
    blank = VolSurface(expiries, STRIKES, np.full((len(expiries), STRIKES.size), 0.2))
    return VolSurface(expiries, STRIKES, model_vols(model, blank, 80))


def vol(model, t, strike):
    return model.black_vol(jnp.asarray(t), jnp.asarray(strike))


# --- the model --------------------------------------------------------------------------------------


def test_a_pillar_has_the_vol_of_the_formula():
    model = sabr()
    for i, expiry in enumerate(EXPIRIES):
        forward = model.forward(jnp.asarray(expiry))
        own = (getattr(model, name)[i] for name in ("expiries", "alpha"))
        expected = sabr_vol(forward, jnp.asarray(93.0), *own, model.beta, model.rho[i], model.nu[i])
        np.testing.assert_allclose(vol(model, expiry, 93.0), expected, rtol=1e-15)


def test_between_expiries_the_variance_is_linear_at_the_moneyness_and_outside_the_vol_is_flat():
    model = sabr()
    at = lambda t, m: float(vol(model, t, m * model.forward(jnp.asarray(t))))
    for moneyness in (0.8, 1.0, 1.3):
        ends = [at(t, moneyness) ** 2 * t for t in (0.25, 0.75)]
        inside = at(0.4, moneyness) ** 2 * 0.4
        np.testing.assert_allclose(inside, 0.7 * ends[0] + 0.3 * ends[1], rtol=1e-13)
        np.testing.assert_allclose(at(0.1, moneyness), at(0.25, moneyness), rtol=1e-13)
        np.testing.assert_allclose(at(5.0, moneyness), at(2.0, moneyness), rtol=1e-13)


@pytest.mark.costly
def test_no_vol_of_vol_and_beta_one_is_black_and_scholes_in_all_greeks():
    flat = Sabr(100.0, 0.03, [0.5, 2.0], [0.25, 0.25], [0.0, -0.5], [0.0, 0.0], 1.0, 0.01)
    for product in (European(105.0, 1.2), Digital(95.0, 0.3, "put")):
        expected = greeks(product, BlackScholes(100.0, 0.03, 0.25, 0.01))
        found = greeks(product, flat)
        for name in ("value", "delta", "gamma", "vega", "theta", "rho", "vanna", "volga"):
            np.testing.assert_allclose(
                getattr(found, name), getattr(expected, name), rtol=1e-10, atol=1e-12, err_msg=name
            )


@pytest.mark.costly
def test_delta_moves_the_smile_with_the_forward():
    """Black's delta, and vega times what the vol of the strike does as the forward moves."""
    model, option = sabr(), European(90.0, 0.75)
    found = greeks(option, model).delta
    held = float(vol(model, 0.75, 90.0))
    black = greeks(option, BlackScholes(100.0, curve(), held, 0.02))
    slope = jax.grad(lambda s: vol(model.shifted(underlying=s), 0.75, 90.0))(jnp.asarray(0.0))
    np.testing.assert_allclose(found, black.delta + black.vega * slope, rtol=1e-10)
    assert abs(float(slope)) > 1e-4


@pytest.mark.costly
def test_a_digital_is_the_slope_of_the_european_in_its_strike():
    model, strike = sabr(), jnp.asarray(95.0)
    flat = BlackScholes(100.0, curve(), float(vol(model, 0.75, 95.0)), 0.02)
    digital = price(Digital(95.0, 0.75), flat).value
    slope = jax.grad(lambda k: vol(model, 0.75, k))(strike)
    whole = -jax.grad(lambda k: price(European(k, 0.75), model, ClosedForm()).value)(strike)
    vega = greeks(European(95.0, 0.75), flat).vega
    np.testing.assert_allclose(whole, digital - vega * slope, rtol=1e-10)
    np.testing.assert_allclose(price(Digital(95.0, 0.75), model).value, whole, rtol=1e-10)
    assert abs(float(vega * slope)) > 0.01


@pytest.mark.costly
def test_a_smile_without_a_minimum_inside_is_said():
    """With beta = .5 the longest expiries ask for rho = -1, where the transform ends."""
    market = dax()
    start = Sabr.starting_on(market, "DAX")
    level = start.alpha * start.spot**0.5
    start = dataclasses.replace(start, alpha=level, beta=0.5)
    with pytest.raises(RuntimeError, match="some combination of the parameters moves no residual"):
        calibrate(market.equities["DAX"].surface, start)


def test_vega_moves_the_vol_at_the_money():
    """By that of the leading term, and so by what the term in time adds to it."""
    model = sabr()
    forward = model.forward(jnp.asarray(0.75))
    slope = jax.grad(lambda shift: vol(model.shifted(vol=shift), 0.75, forward))(jnp.asarray(0.0))
    assert abs(float(slope) - 1.0) < 0.1


def test_early_exercise_is_refused():
    """It would be that of a flat vol."""
    with pytest.raises(TypeError, match="Sabr"):
        price(American(100.0, 0.5, "put"), sabr())


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("alpha", [0.2, 0.0, 0.2], "alpha must be a finite number above 0"),
        ("rho", [0.0, 0.0, -1.0], "rho must be a number between -1 and 1, both excluded"),
        ("rho", [1.0, 0.0, 0.0], "rho must be a number between -1 and 1, both excluded"),
        ("nu", [0.5, -0.1, 0.5], "nu must be a finite number, not below 0"),
        ("beta", 1.2, r"beta must be a number in \[0, 1\]"),
        ("beta", -0.1, r"beta must be a number in \[0, 1\]"),
        ("expiries", [0.5, 0.5, 1.0], "expiries must be increasing times above 0"),
        ("spot", 0.0, "spot must be a finite number above 0"),
        ("nu", [0.5, 0.5], r"nus of shape \(2,\)"),
        ("alpha", 0.2, r"alphas of shape \(\)"),
    ],
)
def test_bad_input_is_named(field, value, said):
    with pytest.raises(ValueError, match=said):
        dataclasses.replace(sabr(), **{field: value})


# --- calibration ------------------------------------------------------------------------------------


@pytest.mark.costly
@pytest.mark.parametrize("beta", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_models_own_vols_give_it_back(seed, beta):
    truth = sabr(seed, beta)
    found = calibrate(quotes_of(truth), start(truth))
    assert found.result == RESULTS.converged
    for name in NAMES:
        np.testing.assert_allclose(getattr(found.model, name), getattr(truth, name), rtol=1e-8)
    assert found.model.beta == truth.beta
    assert found.stats["covariance"].shape == (9, 9)


def test_expiries_do_not_depend_on_one_another():
    """A parameter of one expiry moves the vols of that expiry alone."""
    model, quotes = start(sabr()), quotes_of(sabr())
    problem = LeastSquaresProblem(quotes, model, ImpliedVolError(), FreeParameters.of(model))
    _, jacobian = problem.linearized(problem.parameters.free(model))
    blocks = np.asarray(jacobian).reshape(3, STRIKES.size, len(NAMES), 3)
    moves = np.max(
        np.abs(blocks), axis=(1, 2)
    )  # of the vols of an expiry, by the parameters of another
    assert np.all(moves[~np.eye(3, dtype=bool)] == 0.0)
    assert np.all(np.diag(moves) > 1e-2)


@pytest.fixture(scope="module")
def on_dax():
    market = dax()
    quotes = market.equities["DAX"].surface
    return calibrate(quotes, Sabr.starting_on(market, "DAX"))


def test_the_dax_of_5_july_2002(on_dax):
    """.42 vol points over 104 quotes where Heston leaves 1.32; the 13 days to the first expiry leave most."""
    assert on_dax.result == RESULTS.converged
    assert on_dax.stats["steps"] <= 20
    squares = np.asarray(100.0 * on_dax.residuals) ** 2
    assert abs(np.sqrt(np.mean(squares)) - 0.4237) < 1e-4
    by_expiry = np.sqrt(np.mean(squares, axis=1))
    assert np.argmax(by_expiry) == 0
    assert abs(by_expiry[0] - 1.0597) < 1e-4
    assert np.max(by_expiry[1:]) < 0.32


@pytest.mark.costly
def test_random_starts_have_the_shape_of_the_fields_and_reach_the_optimum(on_dax):
    model = Sabr.starting_on(dax(), "DAX")
    points = random_starts(FreeParameters.of(model), model, 4, key=jax.random.key(2))
    assert points.shape == (4, 24)
    drawn = FreeParameters.of(model).model(model, points[1])
    for name, known in Sabr.free_parameters.items():
        field = getattr(drawn, name)
        assert field.shape == (8,)
        assert np.all((field >= known.low) & (field <= known.high))
        assert np.unique(field).size == 8
    found = calibrate(dax().equities["DAX"].surface, model, num_starts=5)
    assert found.stats["starts_at_optimum"] >= 4
    np.testing.assert_allclose(
        found.stats["sum_squared_vol_points"], on_dax.stats["sum_squared_vol_points"], rtol=1e-8
    )


def test_arrays_survive_the_free_space():
    model = sabr()
    parameters = FreeParameters.of(model, {"rho": Tanh(), "spot": Exp(), "nu": Exp()})
    free = parameters.free(model)
    expected = np.concatenate([np.arctanh(model.rho), [np.log(100.0)], np.log(model.nu)])
    np.testing.assert_allclose(free, expected, rtol=1e-12)
    np.testing.assert_allclose(
        parameters.values(free), np.concatenate([model.rho, [100.0], model.nu]), rtol=1e-12
    )
    back = parameters.model(start(model), free)
    for name in ("rho", "spot", "nu"):
        np.testing.assert_allclose(getattr(back, name), getattr(model, name), rtol=1e-12)


@pytest.mark.costly
def test_the_fit_is_differentiable_through_the_optimum(on_dax):
    """A quote bumped by a hundredth of a point moves the fit by what the derivative says."""
    market, fitted = dax(), fit(on_dax.model)
    place = lambda m: m.equities["DAX"].surface.vols
    direction = np.zeros(place(market).shape)
    direction[3, 5] = 1.0

    def nu_at(bump):
        equity = market.equities["DAX"]
        vols = equity.surface.vols + bump * direction
        surface = dataclasses.replace(equity.surface, vols=vols)
        equity = dataclasses.replace(equity, surface=surface)
        return fitted(dataclasses.replace(market, equities={"DAX": equity}))["DAX"].nu

    _, slope = jax.jvp(nu_at, (0.0,), (1.0,))
    quotient = (nu_at(1e-4) - nu_at(-1e-4)) / 2e-4
    np.testing.assert_allclose(slope, quotient, rtol=1e-5, atol=1e-7)
    assert abs(float(slope[3])) > 0.1


@pytest.mark.costly
def test_a_batch_is_refused_and_may_be_mapped_over():
    truths = [sabr(1), sabr(2)]
    stacked = lambda trees: jax.tree.map(lambda *x: jnp.stack(x), *trees)
    batch, quotes = stacked([start(t) for t in truths]), stacked([quotes_of(t) for t in truths])
    with pytest.raises(ValueError, match=r"Sabr has a spot of shape \(2,\)"):
        calibrate(quotes_of(truths[0]), batch)
    single = start(truths[0])
    object.__setattr__(single, "rho", batch.rho)
    with pytest.raises(ValueError, match=r"Sabr has a rho of shape \(2, 3\).*jax\.vmap"):
        calibrate(quotes_of(truths[0]), single)
    found = jax.vmap(lambda q, m: calibrate(q, m, throw=False))(quotes, batch)
    for i, truth in enumerate(truths):
        for name in NAMES:
            got = getattr(found.model, name)[i]
            np.testing.assert_allclose(got, getattr(truth, name), rtol=1e-7)


def test_a_model_without_vols_is_told_what_it_lacks():
    with pytest.raises(TypeError, match="HullWhite has no Black volatility or characteristic"):
        ImpliedVolError().residuals(HullWhite(0.03, 0.05, 0.01), quotes_of(sabr()))
