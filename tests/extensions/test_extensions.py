"""The recipes of CONTRIBUTING are these files: each adds one member from outside the packages."""

import ast
import re
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxtape as jt
from calibration import calibrate, fit
from pricing import (
    American,
    Asian,
    BlackScholes,
    Book,
    Digital,
    European,
    Fourier,
    IntegralEquation,
    LeastSquares,
    MonteCarlo,
    Quadrature,
    VolSurface,
    greeks,
    price,
    risk,
)
from pricing.fbsde import GradientRegression, Problem, from_product, solve
from pricing.market import Observed
from tests.helpers import dax, dax_black_scholes, double

from .decaying_vol import DecayingVol
from .gauss_legendre import GaussLegendre
from .logarithmic import Logarithmic
from .price_error import PriceError
from .regression_scheme import RegressionScheme

pytestmark = double

HERE = Path(__file__).parent
RECIPES = sorted(path for path in HERE.glob("*.py") if not path.name.startswith(("test_", "__")))
PUBLIC = re.compile(r"(jaxtape|pricing|calibration)(\.[a-z]\w*)?|pricing\.ingestion\.fields")
MODEL = DecayingVol(100.0, 0.03, 0.3, 0.4, 0.01)
FLAT = BlackScholes(100.0, 0.03, 0.25, 0.01)
CALL = European(105.0, 1.0)


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_a_recipe_is_told_and_uses_public_names(path):
    told = (HERE.parent.parent / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert f"tests/extensions/{path.name}" in told
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    modules = [node.module for node in nodes if isinstance(node, ast.ImportFrom)]
    ours = [name for name in modules if name.startswith(("jaxtape", "pricing", "calibration"))]
    assert ours
    assert all(PUBLIC.fullmatch(name) for name in ours), ours


def test_methods_agree_on_a_model():
    known = price(CALL, MODEL).value  # in closed form
    np.testing.assert_allclose(price(CALL, MODEL, Fourier()).value, known, rtol=1e-9)
    found = price(CALL, MODEL, MonteCarlo(16384, 4), key=jax.random.key(1))
    assert abs(found.value - known) < 4.0 * found.std_error
    assert greeks(CALL, MODEL).vega > 0.0


@pytest.mark.repeat
def test_early_exercise_under_a_model():
    put = American(105.0, 1.0, "put")
    known = price(put, MODEL, Quadrature(num_nodes=800)).value
    found = price(put, MODEL, LeastSquares(8192, 8192, 16), key=jax.random.key(2))
    assert abs(found.value - known) < 4.0 * found.std_error + 0.01 * known
    with pytest.raises(TypeError, match="DecayingVol has no constant rate and volatility"):
        price(put, MODEL, IntegralEquation())


@pytest.mark.repeat
def test_a_backward_equation_of_a_model_is_solved():
    problem = from_product(CALL, MODEL, 8)
    solution = solve(problem, GradientRegression(num_paths=16384), key=jax.random.key(3))
    known = price(CALL, MODEL).value
    np.testing.assert_allclose(solution.value(0.0, problem.x0), known, rtol=2e-3)


@pytest.mark.parametrize("objective", [None, PriceError()], ids=["default", "own"])
def test_a_model_is_calibrated_by_any_objective(objective):
    """Its own vols give it back."""
    expiries, strikes = jnp.array([0.5, 1.0, 2.0]), jnp.array([90.0, 100.0, 110.0])
    vols = jnp.broadcast_to(
        jax.vmap(MODEL.black_vol, (0, None))(expiries, jnp.zeros(()))[:, None], (3, 3)
    )
    start = DecayingVol(100.0, 0.03, 0.2, 0.1, 0.01)
    quotes = VolSurface(expiries, strikes, vols)
    found = calibrate(quotes, start, objective=objective, num_starts=2)
    for name in MODEL.free_parameters:
        np.testing.assert_allclose(getattr(found.model, name), getattr(MODEL, name), rtol=1e-6)


@pytest.mark.parametrize("side", ["call", "put"])
def test_a_product_is_the_sum_of_its_legs(gap, side):
    """An option on the strike, and cash for the difference of the strikes."""
    sign = 1.0 if side == "call" else -1.0
    found = greeks(gap.Gap(105.0, 1.0, 95.0, side), FLAT)
    option = greeks(European(105.0, 1.0, side), FLAT)
    cash = greeks(Digital(105.0, 1.0, side, amount=10.0), FLAT)
    for measure in ("value", "delta", "gamma", "vega", "theta", "rho"):
        whole = getattr(option, measure) + sign * getattr(cash, measure)
        np.testing.assert_allclose(getattr(found, measure), whole, rtol=1e-11)


def test_a_row_is_read_checked_and_valued(gap):
    book = Book.from_text(
        "id,type,underlying,quantity,option,strike,expiry,payment_strike\n"
        "G1,gap,DAX,-3,call,4500,2003-03-18,4400\n"
        "G2,gap,DAX,2,put,4400,2003-06-20,-1\n"
        "G3,gap,DAX,2,put,4400,2003-06-20,\n"
    )
    assert [(error.field, error.line) for error in book.errors] == [
        ("payment_strike", 3),
        ("payment_strike", 4),
    ]
    assert "give a payment_strike > 0" in book.errors[1].remedy
    result = risk(book, dax(), lambda market: {"DAX": dax_black_scholes()})
    found, *failed = result.trades
    assert found.status == "ok"
    assert [trade.figures for trade in failed] == [None, None]
    (trade,) = book.trades
    contract = gap.Gap(4500.0, dax().time(trade.expiry), 4400.0)
    alone = price(contract, dax_black_scholes()).value
    np.testing.assert_allclose(result.value, -3.0 * alone, rtol=1e-12)


@pytest.mark.parametrize(("spot", "paid"), [(4600.0, 200.0), (4500.0, 0.0), (4450.0, 0.0)])
def test_a_row_that_ended_has_paid(gap, spot, paid):
    row = "G1,gap,DAX,-3,call,4500,2003-03-18,4400"
    header = "id,type,underlying,quantity,option,strike,expiry,payment_strike"
    (trade,) = Book.from_text(f"{header}\n{row}\n").trades
    assert isinstance(trade, gap.GapTrade)
    after = replace(dax().with_quotes({"EQUITY/PRICE/DAX": spot}), asof=trade.expiry)
    assert trade.aged(Observed(dax().asof, after))[:3] == (paid, None, "expired")


@pytest.mark.parametrize("side", ["call", "put"])
def test_a_method_agrees_with_closed_forms(side):
    for product in (European(105.0, 1.5, side), Digital(95.0, 0.5, side, "asset")):
        exact, found = greeks(product, FLAT), greeks(product, FLAT, GaussLegendre())
        for measure in ("value", "delta", "gamma", "vega", "theta", "rho"):
            pair = getattr(found, measure), getattr(exact, measure)
            np.testing.assert_allclose(*pair, rtol=1e-9, atol=1e-9)
    with pytest.raises(TypeError, match="payoff of the spot at expiry alone"):
        price(Asian(100.0, [0.5, 1.0]), FLAT, GaussLegendre())


def test_a_schedule_keeps_as_many_states_as_the_length_has_digits():
    xs = jnp.linspace(0.5, 1.0, 100)

    def last(scan, xs):
        return scan(lambda state, x: (jnp.sin(x * state), None), jnp.asarray(1.0), xs)[0]

    by_schedule = lambda *args: jt.scan(*args, schedule=Logarithmic())
    exact, found = (jax.grad(last, argnums=1)(scan, xs) for scan in (lax.scan, by_schedule))
    np.testing.assert_allclose(found, exact, rtol=1e-12)
    assert Logarithmic().table(100).slots == 8  # one is for the state before the last node
    tape = jt.Tape().append(lambda x, state: jnp.sin(x * state), xs).with_schedule(Logarithmic())
    edited = jax.grad(lambda tape: tape.erase(30, 60)(1.0))(tape).segments[0].params
    rest = jax.grad(last, argnums=1)(lax.scan, jnp.delete(xs, slice(30, 60)))
    np.testing.assert_allclose(jnp.delete(edited, slice(30, 60)), rest, rtol=1e-12)
    np.testing.assert_array_equal(edited[30:60], 0.0)


@pytest.mark.repeat
def test_a_solver_solves_linear_and_quadratic_equations():
    """A call, whose driver discounts; and -dY = Z^2 / 2 dt - Z dW, of which exp(Y) is a martingale."""
    problem = from_product(CALL, FLAT, 8)
    solution, exact = (
        solve(problem, RegressionScheme(65536), key=jax.random.key(3)),
        greeks(CALL, FLAT),
    )
    np.testing.assert_allclose(solution.value(0.0, problem.x0), exact.value, rtol=2e-2)
    np.testing.assert_allclose(solution.delta(0.0, problem.x0)[0], exact.delta, rtol=2e-2)

    quadratic = Problem(
        1,
        1.0,
        0.3,
        drift=lambda t, x: 0.0 * x,
        diffusion=lambda t, x: 1.0,
        driver=lambda t, x, y, z: 0.5 * jnp.vdot(z, z),
        terminal=lambda x: jnp.sin(x[0]),
        num_steps=32,
    )
    found = solve(quadratic, RegressionScheme(65536), key=jax.random.key(4))
    nodes, weights = np.polynomial.hermite_e.hermegauss(40)
    known = np.log(weights @ np.exp(np.sin(0.3 + nodes)) / weights.sum())
    np.testing.assert_allclose(found.value(0.0, quadratic.x0), known, rtol=2e-2)


def test_a_solver_says_what_it_does_not_solve():
    two = from_product(European([90.0, 110.0], 1.0), FLAT, 4)
    with pytest.raises((TypeError, ValueError), match="GradientRegression supports them"):
        solve(two, RegressionScheme(), key=jax.random.key(5))


def test_a_fit_and_a_book_take_what_came_from_outside():
    start = DecayingVol.starting_on(dax(), "DAX")
    models = fit(start)(dax())
    assert isinstance(models["DAX"], DecayingVol)
    assert 0.2 < models["DAX"].vol < 0.4
