"""Problems: their steps, what is refused, and those made from products and models."""

import itertools
import math

import chex
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.errors import ConcretizationTypeError, TracerArrayConversionError

from pricing import (
    American,
    Asian,
    Barrier,
    Basket,
    Bermudan,
    BermudanSwaption,
    BlackScholes,
    European,
    Heston,
    HullWhite,
    Swaption,
)
from pricing.fbsde import (
    Hermite,
    HiddenLayer,
    Jumps,
    MeanPolynomials,
    PayoffBasis,
    Problem,
    SeparableBasis,
    SmoothMaximum,
    from_product,
    problems,
)
from pricing.fbsde.dynamics.driver_form import driver_forms, error_of_dates
from pricing.fbsde.dynamics.forward_paths import has_exact_steps, standardizer_by_date, survival
from pricing.fbsde.dynamics.forward_paths import simulate as eager_simulate
from pricing.fbsde.dynamics.ito_taylor import Composition
from pricing.fbsde.dynamics.ito_taylor import martingale_increments as eager_increments
from pricing.fbsde.functions import with_traced_functions
from pricing.fbsde.solvers.bases import compositions

simulate, martingale_increments = map(eqx.filter_jit, (eager_simulate, eager_increments))

HESTON = Heston(100.0, 0.02, 0.04, 1.5, 0.04, 0.5, -0.7)
HULL_WHITE = HullWhite(0.03, 0.05, 0.01)
SWAPTION = Swaption(0.02, 1.0, [2.0, 3.0], [1.0, 1.0])


def test_another_grid_has_the_same_dates():
    given = {
        "exercise_times": [0.5],
        "exercise_value": lambda t, x: jnp.sum(x),
        "stopping_times": [0.5, 1.0],
        "is_alive": lambda t, x: x[0] > -1.0,
    }
    problem = brownian(**given)
    coarse = problem.with_num_steps(2)
    assert (coarse.exercise_dates, coarse.stopping_dates) == ((1,), (1, 2))
    assert coarse.drift is problem.drift and coarse.dt == 2.0 * problem.dt
    with pytest.raises(ValueError, match="exercise_times"):
        problem.with_num_steps(3)


def brownian(**options) -> Problem:
    """Of two coordinates that move differently, and pays their sum."""
    given = {
        "dim": 2,
        "maturity": 1.0,
        "x0": 0.0,
        "drift": lambda t, x: jnp.zeros_like(x),
        "diffusion": lambda t, x: jnp.array([1.0, 2.0]),
        "driver": lambda t, x, y, z: 0.0 * y,
        "terminal": jnp.sum,
        "num_steps": 4,
    }
    return Problem(**(given | options))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_steps": 0}, "both must be at least 1"),
        ({"scheme": "heun"}, "give 'euler' or 'milstein'"),
        ({"exercise_times": [0.3], "exercise_value": lambda t, x: x[0]}, "choose num_steps"),
        ({"exercise_times": [0.5]}, "exercise_times is given without exercise_value"),
        ({"is_alive": lambda t, x: x[0] > 0.0}, "is_alive is given without stopping_times"),
        ({"maturity": -1.0}, "maturity must be"),
        ({"x0": [1.0, 2.0, 3.0]}, r"x0 has the shape \(3,\): give a number, or dim=2 numbers"),
    ],
)
def test_what_cannot_be_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        brownian(**options)


ENDS = {"stopping_times": [1.0]}
MAY_EXERCISE = {"exercise_times": [0.5]}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"driver": lambda t, x, y, z: 0.0},
            r"driver\(t, x, y, z\) returns a float: return one array",
        ),
        ({"driver": lambda t, x, y, z: z}, r"has the shape \(2,\): return \(\)"),
        ({"terminal": lambda x: jnp.where(x[0] > 0.0, 1, 0)}, "such as 1.0 for 1"),
        ({"terminal": lambda x: (x[0], x[1])}, r"terminal\(x\) returns a tuple"),
        ({"terminal": lambda x: x[:, None]}, r"terminal\(x\) has the shape \(2, 1\)"),
        ({"drift": lambda t, x: 0.0 * x[0]}, r"drift\(t, x\) has the shape \(\): return \(2,\)"),
        ({"diffusion": lambda t, x: jnp.ones((2, 3))}, r"return \(\) or \(2,\) or \(2, 2\)"),
        ({"step": lambda t, dt, x, dw: x[0]}, r"step\(t, dt, x, dw\) has the shape \(\)"),
        ({"start": lambda u: u[:1]}, r"start\(u\) has the shape \(1,\)"),
        (ENDS | {"is_alive": lambda t, x: x[0]}, r"is_alive\(t, x\) has the type float64"),
        (ENDS | {"is_alive": lambda t, x: x > 0.0}, r"is_alive\(t, x\) has the shape \(2,\)"),
        (
            MAY_EXERCISE | {"exercise_value": lambda t, x: x},
            r"exercise_value\(t, x\) has the shape",
        ),
        (MAY_EXERCISE | {"switch": lambda t, x, y: 1}, r"switch\(t, x, y\) returns a int"),
        ({"jumps": Jumps(0.1, lambda x, z: x[0])}, r"jumps.size\(x, z\) has the shape"),
        ({"reads_gamma": True, "driver": lambda t, x, y, z, gamma: gamma}, "y, z, gamma"),
        ({"diffusion": lambda x, t: x}, r"diffusion has the arguments \(x, t\): it is called as"),
        ({"step": lambda t, x, dt, dw: x + dw}, r"give them in this order"),
        ({"driver": lambda t, x, z, y: 0.0 * y}, r"called as driver\(t, x, y, z\)"),
    ],
)
def test_a_function_with_another_result_is_named(options, message):
    with pytest.raises(TypeError, match=message):
        brownian(**options)


@pytest.mark.parametrize("name", ["drift", "driver", "terminal"])
def test_an_error_of_a_function_names_it(name):
    with pytest.raises(TypeError) as error:
        brownian(**{name: lambda first, second, third: first})
    assert f"This is the problem's {name}(" in error.value.__notes__[-1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_steps": 4.0}, "num_steps=4.0: give a whole number"),
        ({"dim": 2.0}, "dim=2.0: give a whole number"),
        ({"jumps": (0.1, lambda x, z: x)}, "give `Jumps"),
    ],
)
@pytest.mark.usefixtures("without_type_checks")
def test_settings_of_other_types_are_refused(options, message):
    with pytest.raises(TypeError, match=message):
        brownian(**options)


@pytest.mark.parametrize(
    "terminal",
    [lambda x: np.maximum(x[0], 0.0), lambda x: x[0] if x[0] > 0.0 else 0.0 * x[0]],
)
def test_functions_of_numpy_and_conditions_have_a_remedy(terminal):
    with pytest.raises((TracerArrayConversionError, ConcretizationTypeError)) as error:
        brownian(terminal=terminal)
    assert error.value.__notes__[-1] == "Use functions of jax.numpy, and jnp.where instead of if."


@eqx.filter_jit
def there_and_back(problem, t, x, gradient):
    z = problem.z_of(t, x, gradient)
    return z, problem.gradient_of(t, x, z)


def test_z_and_gradient_are_each_others_inverse():
    matrix = jnp.array([[1.0, 0.0], [0.5, 2.0]])
    gradient, x = jnp.array([[3.0, -1.0], [0.2, 0.7]]), jnp.ones(2)
    for s in (0.3, jnp.array([1.0, 2.0]), matrix):
        problem = brownian(diffusion=lambda t, x, s=s: s)
        z, back = there_and_back(problem, problem.times[0], x, gradient)
        full = s * np.eye(2) if np.ndim(s) == 0 else (np.diag(s) if np.ndim(s) == 1 else s)
        np.testing.assert_allclose(z, gradient @ full, rtol=1e-12)
        np.testing.assert_allclose(back, gradient, rtol=1e-12)


def test_milsteins_step_is_closer_to_the_exact_one_than_eulers():
    """Strong errors of a lognormal path, of order 1 and 1/2 in the step."""
    model = {
        "dim": 1,
        "x0": 1.0,
        "drift": lambda t, x: 0.05 * x,
        "diffusion": lambda t, x: 0.4 * x,
        "terminal": lambda x: x[0],
        "num_steps": 64,
    }
    exact = lambda t, dt, x, dw: x * jnp.exp((0.05 - 0.08) * dt + 0.4 * dw)
    key = jax.random.key(0)
    ends = {
        name: simulate(brownian(**model, **options), 512, key=key).states[-1]
        for name, options in (
            ("exact", {"step": exact}),
            ("euler", {}),
            ("milstein", {"scheme": "milstein"}),
        )
    }
    errors = {name: float(jnp.std(end - ends["exact"])) for name, end in ends.items()}
    assert errors["milstein"] < errors["euler"] / 8.0


def test_moves_have_mean_zero_and_explain_the_change():
    """Of second order they leave an error that falls with the step, of first order with its root."""
    key = jax.random.key(1)
    function = lambda x: jnp.stack([jnp.sin(x[0]) * x[1], x[0] ** 3])
    left = []
    for dt in (0.01, 0.0025):
        problem = brownian(maturity=dt, num_steps=1)
        dw = jnp.sqrt(dt) * jax.random.normal(key, (2, 8192))
        x = jnp.broadcast_to(jnp.array([[0.3], [1.1]]), dw.shape)
        after = x + jnp.array([[1.0], [2.0]]) * dw
        rows = []
        for order in (1, 2):
            value, moves = martingale_increments(
                problem, [Composition(function)], problem.times[0], x, dw, order
            )
            error = 4.0 * jnp.std(moves, axis=-1) / 8192**0.5
            assert np.all(np.abs(jnp.mean(moves, axis=-1)) < error)
            rows.append(jnp.std(function(after) - value - moves, axis=-1))
        left.append(rows)
    (first, second), (first_finer, second_finer) = left
    np.testing.assert_array_less(second, 0.5 * first)
    np.testing.assert_array_less(first_finer, 0.35 * first)
    np.testing.assert_array_less(second_finer, 0.18 * second)


@pytest.mark.parametrize("dim", [2, 4])
def test_moves_of_composed_functions_are_those_of_the_whole(dim):
    """By the features' covariance (three of four coordinates), and by columns of s (three of two)."""
    problem = brownian(dim=dim, diffusion=lambda t, x: 0.3 * x, x0=jnp.ones(dim), num_steps=1)
    features = lambda x: jnp.stack([jnp.sum(x, 0), jnp.sum(x**2, 0), x[0] * x[1]])
    outer = lambda f: jnp.stack([f[0] * f[2], jnp.sin(f[1]), f[0] * f[1] * f[2]])
    dice = np.random.default_rng(0)
    x, dw = jnp.asarray(dice.uniform(0.5, 1.5, (dim, 64))), jnp.asarray(dice.normal(size=(dim, 64)))
    at = problem.times[0], x, dw
    whole = martingale_increments(problem, [Composition(lambda x: outer(features(x)))], *at)
    both = martingale_increments(problem, [Composition(features, outer, is_linear=False)], *at)
    for found, known in zip(both, whole, strict=True):
        np.testing.assert_allclose(found, known, rtol=1e-10, atol=1e-10)
    flat = jnp.asarray(dice.normal(size=(5, 3)))
    linear = martingale_increments(problem, [Composition(features, lambda f: flat @ f)], *at)
    alone = martingale_increments(problem, [Composition(lambda x: flat @ features(x))], *at)
    for found, known in zip(linear, alone, strict=True):
        np.testing.assert_allclose(found, known, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(
    "basis",
    [
        Hermite(2),
        Hermite(1, logs=True),
        MeanPolynomials(3),
        SeparableBasis(3, logs=True),
        SmoothMaximum(degree=1),
        SmoothMaximum(degree=2),
        HiddenLayer(5),
    ],
    ids=lambda basis: type(basis).__name__,
)
@pytest.mark.parametrize("is_apart", [False, True])
def test_increments_of_additive_features_are_those_by_column(basis, is_apart):
    """With noise that is correlated and depends on all coordinates; and of each coordinate, as a vector."""
    loads = jnp.asarray([[0.3, 0.0, 0.1], [0.2, 0.4, 0.0], [0.1, -0.2, 0.3]])
    noisy = lambda t, x: loads * x[:, None] * jnp.sqrt(jnp.sum(x))
    apart = lambda t, x: jnp.array([0.3, 0.4, 0.5]) * x**1.5
    matrix = (lambda t, x: jnp.diag(apart(t, x))) if is_apart else noisy
    problem, by_column = (
        brownian(dim=3, diffusion=s, x0=jnp.ones(3), num_steps=1)
        for s in (apart if is_apart else noisy, matrix)
    )
    dice = np.random.default_rng(0)
    x, dw = jnp.asarray(dice.uniform(0.5, 1.5, (3, 64))), jnp.asarray(dice.normal(size=(3, 64)))
    (own,) = jax.tree.map(lambda leaf: leaf[0], (basis.init(problem, x[None]),))
    (part,) = compositions((basis,), problem, (own,), problem.times[0])
    assert part.is_additive
    at = problem.times[0], x, dw
    found = martingale_increments(problem, [part], *at)
    known = martingale_increments(by_column, [Composition(lambda x: part(x))], *at)
    for one, other in zip(found, known, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("logarithm", [-40.0, 40.0])
def test_smooth_maxima_are_finite_far_from_the_paths(logarithm):
    """At 400 standard deviations in float32, with their increments of second order."""
    with jax.enable_x64(False):
        problem = brownian(dim=3, diffusion=lambda t, x: 0.1 * x, x0=jnp.ones(3), num_steps=1)
        x = jnp.exp(0.1 * jnp.linspace(-2.0, 2.0, 48).reshape(3, 16))
        basis = SmoothMaximum()
        (own,) = jax.tree.map(lambda leaf: leaf[0], (basis.init(problem, x[None]),))
        parts = compositions((basis,), problem, (own,), problem.times[0])
        far = jnp.full((3, 1), np.exp(logarithm))
        moves = martingale_increments(problem, parts, problem.times[0], far, 0.1 * jnp.ones((3, 1)))
    assert moves[0].dtype == jnp.float32
    chex.assert_tree_all_finite(moves)


def test_dispersed_coordinates_are_those_of_paths_apart():
    """Each is spread as the equation spreads it; no two are correlated, though their noise is."""
    s = jnp.array([[1.0, 0.0], [1.8, 0.6]])
    problem = brownian(diffusion=lambda t, x: s)
    starts = simulate(problem, 40_000, key=jax.random.key(0), initial_dispersion=0.25).states[0]
    covariance = np.cov(starts.T)
    np.testing.assert_allclose(np.diag(covariance), 0.25 * np.array([1.0, 3.6]), rtol=0.03)
    assert abs(covariance[0, 1]) < 4.0 * 0.25 * 3.6**0.5 / 40_000**0.5


def test_a_published_problem_that_is_made_twice_has_the_same_programs():
    """The functions of a problem, as programs, are what a compiled solve is known by."""
    programs = lambda problem: jax.tree.structure(with_traced_functions(problem))
    assert programs(problems.hjb(4)) == programs(problems.hjb(4))
    assert programs(problems.hjb(4)) != programs(problems.hjb(5))
    assert problems.hjb(4).x0.dtype == jnp.float64
    with jax.enable_x64(False):
        assert problems.hjb(4).x0.dtype == jnp.float32
    traced = jax.jit(lambda scale: scale * problems.hjb(6).x0)(2.0)
    assert isinstance(problems.hjb(6).x0 + traced, jax.Array)  # nothing of a trace is kept


def test_states_are_standardized_date_by_date():
    """Each coordinate alone, today by the deviation of the first step; a point as among others."""
    problem = brownian(x0=jnp.array([3.0, -1.0]))
    states = simulate(problem, 4096, key=jax.random.key(4)).states
    standardizer = standardizer_by_date(states)
    chex.assert_trees_all_close(standardizer.at(0).mean, problem.x0, rtol=1e-12)
    for date in (1, 4):
        found = standardizer.at(date)(states[date].T)
        np.testing.assert_allclose(jnp.mean(found, axis=1), 0.0, atol=1e-12)
        np.testing.assert_allclose(jnp.std(found, axis=1), 1.0, rtol=1e-12)
        np.testing.assert_allclose(standardizer.at(date)(states[date, 7]), found[:, 7], rtol=1e-12)
    first = standardizer.at(0)(problem.x0 + jnp.std(states[1], axis=0))
    np.testing.assert_allclose(first, 1.0, rtol=1e-12)


def test_paths_stop_where_they_are_not_alive():
    problem = brownian(stopping_times=[0.5, 1.0], is_alive=lambda t, x: x[0] > -0.5, num_steps=4)
    states = simulate(problem, 256, key=jax.random.key(2)).states
    alive = survival(problem, states)
    beyond = np.asarray(states[..., 0] <= -0.5)
    np.testing.assert_array_equal(alive[0], True)
    np.testing.assert_array_equal(alive[1], True)  # no date of stopping
    np.testing.assert_array_equal(alive[2], ~beyond[2])
    np.testing.assert_array_equal(alive[4], ~beyond[2] & ~beyond[4])


def test_a_problem_from_a_model_has_its_law_and_its_payoff():
    correlation = np.array([[1.0, 0.4], [0.4, 1.0]])
    model = BlackScholes(
        [100.0, 80.0], 0.05, [0.2, 0.3], [0.01, 0.0], asset_correlation=correlation
    )
    basket = Basket(
        [100.0, 70.0], [1.0, 1.0], "call", average="arithmetic", weights=[[0.5, 0.5], [0.1, 0.9]]
    )
    problem = from_product(basket, model, 4)
    paths = simulate(problem, 65536, key=jax.random.key(3))
    logs = jnp.log(paths.states[-1])
    np.testing.assert_allclose(
        jnp.mean(paths.states[-1], axis=0), model.forward(jnp.asarray(1.0)), rtol=4e-3
    )
    np.testing.assert_allclose(
        jnp.cov(logs.T), correlation * np.outer([0.2, 0.3], [0.2, 0.3]), rtol=0.03
    )
    np.testing.assert_allclose(problem.terminal(jnp.array([120.0, 60.0])), [0.0, 0.0])
    np.testing.assert_allclose(problem.terminal(jnp.array([120.0, 100.0])), [10.0, 32.0])
    y, z = jnp.array([1.0, 2.0]), jnp.zeros((2, 2))
    np.testing.assert_allclose(problem.driver(problem.times[1], problem.x0, y, z), -0.05 * y)
    drift = problem.drift(problem.times[1], problem.x0)
    np.testing.assert_allclose(drift, [0.04 * 100.0, 0.05 * 80.0], rtol=1e-9)


OF_MODELS = pytest.mark.parametrize(
    ("product", "model"),
    [
        (European(100.0, 1.0), BlackScholes(100.0, 0.05, 0.2, 0.02)),
        (European(100.0, 1.0), HESTON),
        (SWAPTION, HULL_WHITE),
    ],
    ids=["Black-Scholes", "Heston", "Hull-White"],
)


@OF_MODELS
def test_models_say_whether_their_steps_are_exact(product, model):
    problem = from_product(product, model, 4)
    assert problem.step_is_exact == has_exact_steps(problem) == (model is not HESTON)
    assert math.isfinite(error_of_dates(problem, driver_forms(problem))) == problem.step_is_exact


@OF_MODELS
def test_short_steps_move_as_drift_and_diffusion_say(product, model):
    """The mean of a step, and its slope in the noise, over the corners of a cube: exact up to order dt."""
    problem, dt = from_product(product, model, 4), 1e-5
    corners = np.array(list(itertools.product((-1.0, 1.0), repeat=problem.dim)))

    @jax.jit
    def found_and_said(t, x, dw):
        moved = jax.vmap(lambda dw: problem.advance(t, x, dw, jnp.asarray(dt)))(dw) - x[None]
        slopes = moved.T @ dw / (dt * len(dw))
        s = jnp.broadcast_to(problem.diffusion(t, x), slopes.shape)
        return (jnp.mean(moved, axis=0) / dt, slopes), (problem.drift(t, x), s)

    x = np.asarray(problem.x0) * 1.1 + 0.01
    found, said = found_and_said(0.4, x, np.sqrt(dt) * corners)
    np.testing.assert_allclose(found[0], said[0], rtol=1e-3)
    np.testing.assert_allclose(found[1], said[1], rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("dates", [[1.0], [0.5, 1.0]])
def test_a_payoff_has_half_of_its_slope_at_the_money(dates):
    """Functions of a regression contain it, and today's Delta is often taken there."""
    problem = from_product(Bermudan(European(100.0, 1.0), dates), BlackScholes(100.0, 0.05, 0.2), 2)
    assert jax.grad(lambda x: problem.terminal(x))(problem.x0) == 0.5
    basis = PayoffBasis()
    (own,) = jax.tree.map(
        lambda leaf: leaf[0], (basis.init(problem, jnp.linspace(80.0, 120.0, 9)[None, None]),)
    )
    features = lambda x: basis.features(problem, own, problem.times[1], x[:, None])[:, 0]
    slopes = jax.jacfwd(features)(problem.x0)
    np.testing.assert_allclose(slopes * np.reshape(own[0], (-1, 1)), 0.5)


def test_a_swaption_pays_what_its_swap_is_worth():
    """On today's curve at date 0; a batch of contracts is its contracts."""
    problem = from_product(SWAPTION, HULL_WHITE, 4)
    assert problem.exercise_dates == ()
    years = jnp.array([1.0, 5.0])
    bonds = jax.jit(lambda t, x: HULL_WHITE.observed(t, x).bonds(years))(0.0, problem.x0)
    np.testing.assert_allclose(bonds, jnp.exp(-0.03 * years), rtol=1e-12)
    rates = Swaption([0.02, 0.03], [1.0, 1.0], 2 * [[2.0, 3.0]], 2 * [[1.0, 1.0]], 2 * ["payer"])
    several = from_product(rates, HULL_WHITE, 4)
    both, alone = jax.jit(lambda x: (several.terminal(x), problem.terminal(x)))(jnp.array([0.01]))
    assert both.shape == (2,)
    np.testing.assert_allclose(both[0], alone, rtol=1e-12)
    dates = [1.0, 2.0]
    right = from_product(BermudanSwaption(0.02, dates, [2.0, 3.0], [1.0, 1.0]), HULL_WHITE, 4)
    assert right.exercise_dates == (2, 4)


def test_rights_and_barriers_of_products_are_on_the_grid():
    model = BlackScholes(100.0, 0.05, 0.2)
    put = from_product(American(100.0, 1.0, "put"), model, 5)
    assert put.exercise_dates == (0, 1, 2, 3, 4, 5)
    put = from_product(Bermudan(European(100.0, 1.0, "put"), [0.5, 1.0]), model, 4)
    assert put.exercise_dates == (2, 4)
    assert list(np.flatnonzero(put.is_exercise_date)) == [2]
    call = from_product(Barrier(100.0, 1.0, 90.0, rebate=1.5, dates=[0.5, 1.0]), model, 4)
    assert call.stopping_dates == (2, 4)
    assert not bool(call.is_alive(call.times[2], jnp.array([89.0])))
    np.testing.assert_allclose(call.stopped_value(call.times[2], jnp.array([89.0])), 1.5)


@pytest.mark.parametrize(
    ("product", "model", "message"),
    [
        (Basket(100.0, 1.0), HESTON, "Basket under Heston has no problem"),
        (SWAPTION, BlackScholes(100.0, 0.02, 0.2), "Swaption under BlackScholes has no problem"),
        (European(100.0, 1.0), HULL_WHITE, "European under HullWhite has no problem"),
        (Asian(100.0, [0.5, 1.0]), BlackScholes(100.0, 0.02, 0.2), "Asian has no problem"),
        (
            Barrier(100.0, 1.0, 90.0, "down-and-in", dates=[1.0]),
            BlackScholes(100.0, 0.02, 0.2),
            "less its knock-out",
        ),
    ],
)
def test_products_and_models_without_a_problem_are_named(product, model, message):
    with pytest.raises(TypeError, match=message):
        from_product(product, model, 4)


def test_contracts_of_one_problem_end_together():
    with pytest.raises(ValueError, match="solve them separately"):
        from_product(European([100.0, 90.0], [1.0, 2.0]), BlackScholes(100.0, 0.02, 0.2), 4)


@pytest.mark.parametrize(
    "name", ["burgers", "reaction_diffusion", "black_scholes_barenblatt", "bounded_example"]
)
def test_known_solutions_solve_their_equation(name):
    """u_t + b . grad u + tr(s s' Hess u) / 2 + f(t, x, u, s' grad u) = 0, at some point."""
    dim = 3
    solutions = {
        "burgers": lambda t, x: jax.nn.sigmoid(t + jnp.mean(x)),
        "reaction_diffusion": lambda t, x: (
            1.6 + jnp.sin(jnp.sum(x) / dim**0.5) * jnp.exp(0.5 * (t - 1.0))
        ),
        "black_scholes_barenblatt": lambda t, x: jnp.exp(0.21 * (1.0 - t)) * jnp.sum(x**2),
        "bounded_example": lambda t, x: jnp.exp(0.5 * (1.0 - t)) * jnp.cos(jnp.sum(x)),
    }
    u, problem = solutions[name], getattr(problems, name)(dim)

    @jax.jit
    def at(t, x):
        s = problem.diffusion(t, x)
        s = s * jnp.eye(dim) if jnp.ndim(s) == 0 else jnp.diag(s)
        slope, gradient = jax.grad(u, (0, 1))(t, x)
        curvature = jnp.trace(s @ s.T @ jax.hessian(u, 1)(t, x))
        moved = slope + problem.drift(t, x) @ gradient + 0.5 * curvature
        driver = problem.driver(t, x, u(t, x), s.T @ gradient)
        return moved + driver, problem.terminal(x), u(problem.maturity, x)

    left, paid, known = at(0.1, jnp.array([0.3, 0.7, -0.2]))
    np.testing.assert_allclose(left, 0.0, atol=1e-10)
    np.testing.assert_allclose(paid, known, rtol=1e-7)


def test_a_drift_and_a_driver_that_are_left_out_are_zero():
    gammas = lambda **options: Problem(
        2, 1.0, 0.5, diffusion=lambda t, x: 1.0, terminal=lambda x: x, num_steps=2, **options
    )
    for problem in (gammas(), gammas(reads_gamma=True), gammas().replace(num_steps=4)):
        t, x, y, z = problem.times[0], problem.x0, jnp.ones(2), jnp.ones((2, 2))
        gamma = (jnp.ones((2, 2, 2)),) * problem.reads_gamma
        np.testing.assert_array_equal(problem.drift(t, x), np.zeros(2))
        np.testing.assert_array_equal(problem.driver(t, x, y, z, *gamma), np.zeros(2))
