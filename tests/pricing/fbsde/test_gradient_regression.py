"""Gradient-enhanced regression: values, Delta and Gamma beside closed forms and published values; bounds."""

from functools import partial

import chex
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxtape.jax_settings.platform import traced_for
from pricing import (
    American,
    Basket,
    Bermudan,
    BlackScholes,
    ClosedForm,
    European,
    Quadrature,
    price,
)
from pricing.fbsde import (
    CATALOGUE,
    GradientRegression,
    Hermite,
    HiddenLayer,
    MeanPolynomials,
    PayoffBasis,
    SmoothMaximum,
    bounds,
    from_product,
    problems,
    solve,
)
from pricing.fbsde.catalogue import off_diagonal
from pricing.fbsde.dynamics.ito_taylor import martingale_increments
from pricing.fbsde.solvers.bases import compositions

from .backward_problems import apart, figures_of_pricing, single

BLACK_SCHOLES = BlackScholes(100.0, 0.05, 0.2)
CALL = European(100.0, 1.0, "call")
SMOOTH = (Hermite(8), PayoffBasis())


def solved(problem, *bases, num_paths=16384, seed=0, **options):
    solver = GradientRegression(num_paths, bases or SMOOTH, **options)
    return solve(problem, solver, key=jax.random.key(seed))


@pytest.mark.costly
@pytest.mark.parametrize(
    ("product", "method"),
    [
        (CALL, ClosedForm()),
        pytest.param(
            *(Bermudan(European(100.0, 1.0, "put"), [0.25, 0.5, 0.75, 1.0]), Quadrature()),
            marks=pytest.mark.slow,
        ),
    ],
    ids=["European", "Bermudan"],
)
def test_figures_are_those_of_pricing(product, method):
    found = solved(from_product(product, BLACK_SCHOLES, 16), num_paths=65536)
    value, delta, gamma = figures_of_pricing(product, BLACK_SCHOLES, method)
    x0 = jnp.array([100.0])
    np.testing.assert_allclose(found.value(0.0, x0), value, rtol=3e-3)
    np.testing.assert_allclose(found.delta(0.0, x0)[0], delta, rtol=6e-3)
    np.testing.assert_allclose(found.gamma(0.0, x0)[0, 0], gamma, rtol=4e-2)


@pytest.mark.costly
def test_figures_hold_away_from_the_start():
    """In the middle of the time, at several spots."""
    found = solved(from_product(CALL, BLACK_SCHOLES, 16), num_paths=65536)
    later = European(100.0, 0.5, "call")
    for spot in (90.0, 100.0, 110.0):
        model, x = BlackScholes(spot, 0.05, 0.2), jnp.array([spot])
        value, delta, gamma = figures_of_pricing(later, model, ClosedForm())
        np.testing.assert_allclose(found.value(0.5, x), value, atol=0.08)
        np.testing.assert_allclose(found.delta(0.5, x)[0], delta, atol=0.015)
        np.testing.assert_allclose(found.gamma(0.5, x)[0, 0], gamma, rtol=0.12)


@pytest.mark.costly
def test_between_dates_figures_are_linear_in_time():
    found = solved(from_product(European(100.0, 1.0, "call"), BLACK_SCHOLES, 4), num_paths=4096)
    x = jnp.array([105.0])
    for figure in (found.value, found.delta, found.gamma):
        between = 0.25 * figure(0.25, x) + 0.75 * figure(0.5, x)
        np.testing.assert_allclose(figure(0.4375, x), between, rtol=1e-9)
    np.testing.assert_allclose(found.value(1.0, x), 5.0)


@pytest.mark.costly
def test_borrowing_at_another_rate():
    """The driver is nonlinear in y and z; the answer is Black-Scholes at the higher rate."""
    problem, known = problems.different_rates_call(), CATALOGUE["different-rates-call"]
    found = solved(problem, num_paths=65536)
    np.testing.assert_allclose(found.value(0.0, problem.x0), known.value, rtol=2e-3)
    np.testing.assert_allclose(found.delta(0.0, problem.x0)[0], known.delta, rtol=6e-3)
    np.testing.assert_allclose(found.gamma(0.0, problem.x0)[0, 0], known.gamma, rtol=4e-2)


@pytest.mark.costly
@pytest.mark.parametrize("barrier", [90, pytest.param(95, marks=pytest.mark.slow)])
def test_paths_that_are_knocked_out(barrier):
    known = CATALOGUE[f"down-and-out-{barrier}"]
    problem = known.problem()
    found = solved(problem, Hermite(10), PayoffBasis(), num_paths=65536, initial_dispersion=0.01)
    np.testing.assert_allclose(found.value(0.0, problem.x0), known.value, rtol=3e-3)
    np.testing.assert_allclose(found.delta(0.0, problem.x0)[0], known.delta, rtol=1e-2)
    np.testing.assert_allclose(found.gamma(0.0, problem.x0)[0, 0], known.gamma, atol=2e-3)


@pytest.mark.costly
def test_a_swaption_under_a_gaussian_rate():
    problem, known = problems.gaussian_swaption(36), CATALOGUE["gaussian-swaption"]
    found = solved(problem, num_paths=65536)
    np.testing.assert_allclose(found.value(0.0, problem.x0), known.value, rtol=2e-3)
    np.testing.assert_allclose(found.delta(0.0, problem.x0)[0], known.delta, rtol=6e-3)
    np.testing.assert_allclose(found.gamma(0.0, problem.x0)[0, 0], known.gamma, rtol=4e-2)


@pytest.mark.costly
def test_the_best_of_two_and_its_bounds():
    problem, known = problems.max_call(2, num_steps=18), CATALOGUE["max-call-2"]
    bases = Hermite(4), SmoothMaximum(), PayoffBasis()
    found = solved(problem, *bases, num_paths=32768)
    np.testing.assert_allclose(found.value(0.0, problem.x0), known.value, rtol=3e-3)
    np.testing.assert_allclose(found.delta(0.0, problem.x0), known.delta, rtol=2e-2)
    between = bounds(found, key=jax.random.key(1), num_paths=1024, num_inner_paths=64)
    assert between.lower < known.value + 3.0 * between.std_errors.lower
    assert between.upper > known.value - 3.0 * between.std_errors.upper
    assert between.lower > known.value * 0.995 - 3.0 * between.std_errors.lower
    assert between.upper < known.value * 1.005 + 3.0 * between.std_errors.upper


@pytest.mark.costly
@pytest.mark.parametrize(
    ("kind", "rate", "dividends"),
    [("put", 0.03, 0.0), pytest.param("call", 0.01, 0.06, marks=pytest.mark.slow)],
)
def test_bounds_of_a_right_at_any_time_hold_its_value(kind, rate, dividends):
    """On eight dates in ten years the right is worth 2 % less; the bounds leave the interest of a step open."""
    model = BlackScholes(100.0, rate, 0.25, dividends)
    product = American([100.0, 130.0], [10.0, 10.0], 2 * [kind])
    value = price(product, model, Quadrature()).value
    solution = solved(from_product(product, model, 8), num_paths=8192)
    found = bounds(solution, key=jax.random.key(1), num_paths=1024)
    assert np.all(solution.value(0.0, model.state0) < 0.995 * value)
    assert np.all(found.lower < value + 4.0 * found.std_errors.lower)
    assert np.all(found.upper > value - 4.0 * found.std_errors.upper)
    assert np.all(found.gap < 0.02 * value + 130.0 * np.expm1((rate + dividends) * 10.0 / 8.0))


@pytest.mark.costly
def test_bounds_of_a_right_at_any_time_need_a_sum():
    class OnTheRoot(American):
        def exercise_value(self, t, market):
            return jnp.sqrt(market.spot) - self.strike

    problem = from_product(OnTheRoot(9.0, 1.0, "call"), BLACK_SCHOLES, 4)
    solution = solved(problem, Hermite(2), num_paths=4096)
    with pytest.raises(ValueError, match="a sum of spots and cash"):
        bounds(solution, key=jax.random.key(1), num_paths=256)


def best_call(spot):
    """On the best of independent assets, K = 120, T = 1: the integral of P(max > k) over k above K."""
    nodes, weights = np.polynomial.legendre.leggauss(80)
    mean, first, last = jnp.log(spot) + 0.05 - 0.02, np.log(120.0), np.log(100.0) + 8.0 * 0.2
    logs = first + 0.5 * (last - first) * (1.0 + nodes)
    below = jnp.prod(jax.scipy.special.ndtr((logs[:, None] - mean[None]) / 0.2), axis=1)
    return np.exp(-0.05) * 0.5 * (last - first) * jnp.sum(weights * np.exp(logs) * (1.0 - below))


@pytest.mark.costly
@pytest.mark.parametrize("dispersion", [0.05, 0.0])
def test_smooth_maxima_span_the_best_of_five(dispersion):
    """Starts that are dispersed determine Gamma; where all are x0, at least value and Delta are right."""
    spot = jnp.full(5, 100.0)
    problem = from_product(
        Basket(120.0, 1.0, average="max"), BlackScholes(spot, 0.05, 5 * [0.2]), 12
    )
    bases = Hermite(1), SmoothMaximum(), PayoffBasis()
    found = solved(problem, *bases, num_paths=32768, initial_dispersion=dispersion)
    np.testing.assert_allclose(found.value(0.0, spot), best_call(spot), rtol=5e-3)
    assert apart(found.delta(0.0, spot), jax.grad(best_call)(spot)) < 0.02
    if dispersion > 0.0:
        assert apart(found.gamma(0.0, spot), jax.hessian(best_call)(spot)) < 0.1


def book(count: int):
    """Bermudan puts on baskets of four assets: their strikes and weights differ."""
    dice = np.random.default_rng(5)
    weights, strikes = dice.dirichlet(np.ones(4), count), dice.uniform(85.0, 115.0, count)
    dates = np.broadcast_to(np.arange(1, 5) / 4.0, (count, 4))
    puts = Bermudan(Basket(strikes, np.ones(count), "put", weights=weights), dates)
    correlation = 0.3 + 0.7 * np.eye(4)
    vols = np.linspace(0.15, 0.35, 4)
    return puts, BlackScholes(4 * [100.0], 0.05, vols, np.zeros(4), asset_correlation=correlation)


@pytest.mark.costly
def test_contracts_of_a_book_are_what_they_are_alone():
    puts, model = book(5)
    bases = (Hermite(2, logs=True), MeanPolynomials(4, above=2, logs=True))
    whole = solved(from_product(puts, model, 4), *bases, num_paths=4096)
    x0 = model.spot
    figures = whole.value(0.0, x0), whole.delta(0.0, x0), whole.gamma(0.0, x0)
    chex.assert_shape(figures, [(5,), (5, 4), (5, 4, 4)])
    one = jax.tree.map(lambda leaf: leaf[3], puts.broadcast())
    alone = solved(from_product(one, model, 4), *bases, num_paths=4096)
    np.testing.assert_allclose(whole.value(0.0, x0)[3], alone.value(0.0, x0), rtol=1e-7)
    np.testing.assert_allclose(whole.delta(0.0, x0)[3], alone.delta(0.0, x0), rtol=1e-5, atol=1e-9)
    np.testing.assert_allclose(whole.gamma(0.0, x0)[3], alone.gamma(0.0, x0), rtol=1e-4, atol=1e-7)


@pytest.mark.costly
def test_bounds_of_other_drivers_are_refused():
    problem = problems.different_rates_call(4)
    exercised = eqx.tree_at(
        lambda p: p.exercise_value, problem, lambda t, x: x[0] - 100.0, is_leaf=lambda x: x is None
    )
    found = solved(exercised, Hermite(2), num_paths=4096)
    with pytest.raises(ValueError, match="a driver that discounts"):
        bounds(found, key=jax.random.key(0), num_paths=256)
    plain = solved(problem, Hermite(2), num_paths=4096)
    with pytest.raises(ValueError, match="bounds need early exercise"):
        bounds(plain, key=jax.random.key(0), num_paths=256)
    with pytest.raises(ValueError, match="give multiples of 256"):
        bounds(exercised and found, key=jax.random.key(0), num_paths=100)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"order": 3}, "order=3"), ({"num_paths": 5000}, "not a multiple of block=4096")],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        GradientRegression(**options)


@pytest.mark.parametrize("platform", ["cpu", "cuda"])
def test_blocks_that_fit_the_cache_change_no_function(platform):
    """A CPU evaluates 1,024 paths in twenty dimensions at a time, a GPU all 2,048; both give the same."""
    problem = problems.hjb(20)
    solver = GradientRegression(2048, (Hermite(1), MeanPolynomials(3)), block=2048)
    state = solver.init(problem, key=jax.random.key(0))
    parameters = jax.tree.map(lambda leaf: leaf[1], state.basis_parameters)
    at_date = partial(solver._functions, problem, parameters, problem.times[1])
    given = state.states[1], state.increments[1]
    with traced_for([platform]):
        program = jax.make_jaxpr(at_date)(*given)
        found = at_date(*given)
    assert f"length={2 if platform == 'cpu' else 1}\n" in str(program)
    together = martingale_increments(
        problem,
        compositions(solver.bases, problem, parameters, problem.times[1]),
        problem.times[1],
        *given,
    )
    chex.assert_trees_all_close(found, together, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("basis", "message"),
    [
        (lambda: MeanPolynomials(2, above=2), "degree=2, above=2"),
        (lambda: HiddenLayer(0), "width=0: give 1 or more"),
        (lambda: HiddenLayer(4, num_iterations=-1), "num_iterations=-1: give 0 or more"),
    ],
)
def test_bases_of_no_functions_are_refused(basis, message):
    with pytest.raises(ValueError, match=message):
        basis()


# of the value, the gradient, the Hessian's diagonal and the rest of it: distances from what is known, as shares
TOLERANCES = {
    "different-rates-call": (5e-4, 3e-3, 1e-2, None),
    "max-call-2": (1e-3, 5e-3, 3e-2, 3e-2),
    "geometric-call-7": (2e-3, 5e-3, 3e-2, 3e-2),
    "geometric-call-20": (2e-3, 5e-3, 3e-2, 3e-2),
    "gaussian-swaption": (2e-3, 5e-3, 3e-2, None),
    "bounded-5": (5e-3, 3e-2, 3e-2, 3e-2),
    "bounded-10": (5e-3, 3e-2, 3e-2, 3e-2),
    "reaction-diffusion": (1e-2, None, None, None),
    "burgers": (1e-2, 3e-2, None, None),
    "default-risk": (5e-3, None, None, None),
    "different-rates": (5e-3, None, None, None),
    "max-call-5": (3e-3, None, None, None),
    "max-call-10": (3e-3, None, None, None),
    "max-call-20": (3e-3, None, None, None),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", TOLERANCES)
def test_published_values_of_five_seeds(name):
    """Means over seeds: of the value, and of how far the gradient and the Hessian of a seed are."""
    entry, tolerances = CATALOGUE[name], TOLERANCES[name]
    problem = single(entry.problem())
    known, found = entry.figures(problem), []
    if "gamma" in known:
        known["gamma"] = np.diagonal(known["gamma"])
    for seed in range(5):
        solution = solve(problem, entry.solver, key=jax.random.key(seed))
        hessian = np.asarray(solution.gamma(0.0, problem.x0))
        here = {
            "delta": solution.delta(0.0, problem.x0),
            "gamma": np.diagonal(hessian),
            "cross gamma": off_diagonal(hessian),
        }
        value = float(solution.value(0.0, problem.x0)) / entry.value - 1.0
        found.append([value, *(apart(here[f], known[f]) if f in known else 0.0 for f in here)])
    for mean, rtol in zip(np.mean(found, axis=0), tolerances, strict=True):
        assert rtol is None or abs(mean) < rtol


@pytest.mark.costly
def test_a_hidden_layer_learns_what_other_functions_leave():
    """A wave along one direction of five, beside affine functions: as drawn, and learned at every date."""
    problem = single(problems.bounded_example(5, num_steps=12))
    exact = GradientRegression(16384, (Hermite(1), MeanPolynomials(8)), initial_dispersion=0.2)
    key = jax.random.key(1)
    known = solve(problem, exact, key=key)
    drawn, learned = (
        solve(problem, eqx.tree_at(lambda s: s.bases, exact, (Hermite(1), hidden)), key=key)
        for hidden in (HiddenLayer(16, num_iterations=0), HiddenLayer(16))
    )
    left = [float(jnp.mean(found.stats["losses"])) for found in (known, learned, drawn)]
    assert left[0] < left[1] < 0.2 * left[2]
    for figure, rtol in (("value", 5e-3), ("delta", 2e-2), ("gamma", 2e-1)):
        found, here = (getattr(one, figure)(0.0, problem.x0) for one in (learned, known))
        assert apart(found, here) < rtol


@pytest.mark.costly
@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 2))])
def test_a_path_far_out_does_not_feed_itself(seed):
    """A quadratic f of a fit that one path alone decides: without ends, that of seed 0 is not finite."""
    problem = single(problems.bounded_example(5))
    solver = GradientRegression(16384, (Hermite(1), MeanPolynomials(8)), initial_dispersion=0.2)
    solution = solve(problem, solver, key=jax.random.key(seed))
    np.testing.assert_allclose(solution.value(0.0, problem.x0), 0.46768, rtol=5e-3)
