"""How functions depend on the coordinates of a state, by their programs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pricing.fbsde.dynamics.coordinates import Dependence, dependence
from pricing.fbsde.dynamics.ito_taylor import martingale_increments
from pricing.fbsde.solvers.bases import PayoffBasis, compositions
from pricing.numerics.safe_math import larger, maximum

from .test_problem import brownian

X = jnp.array([0.5, 1.0, 1.5])
WEIGHTS = jnp.array([0.2, 0.3, 0.5])
FUNCTIONS = {
    "a number": (lambda x: jnp.float64(2.0), Dependence.NONE),
    "constants": (lambda x: 0.2 * WEIGHTS + jnp.linspace(0.0, 1.0, 3), Dependence.NONE),
    "shapes alone": (lambda x: jnp.ones_like(x) / x.size, Dependence.NONE),
    "proportional": (lambda x: 0.2 * x, Dependence.EACH),
    "powers": (lambda x: WEIGHTS * jnp.sqrt(x) ** 3 + x**0.7, Dependence.EACH),
    "calls": (lambda x: maximum(x - 1.0, 0.0), Dependence.EACH),
    "in a call": (lambda x: jax.jit(jax.nn.relu)(x - 1.0), Dependence.EACH),
    "chosen": (lambda x: jnp.where(x > 1.0, x, x**2), Dependence.EACH),
    "squares": (lambda x: jnp.sum(x**2) / 3.0, Dependence.SUM),
    "a basket of calls": (lambda x: 0.5 * (WEIGHTS @ larger(x, 1.0)) - 2.0, Dependence.SUM),
    "two sums": (lambda x: jnp.sum(x) - jnp.sum(jnp.log(x)), Dependence.SUM),
    "a mean": (lambda x: jnp.mean(x), Dependence.SUM),
    "a call on a mean": (lambda x: maximum(jnp.mean(x) - 1.0, 0.0), Dependence.ANY),
    "a product of sums": (lambda x: jnp.sum(x) * jnp.sum(x), Dependence.ANY),
    "a quotient": (lambda x: 1.0 / jnp.sum(x), Dependence.ANY),
    "shares": (lambda x: x / jnp.sum(x), Dependence.ANY),
    "mixed": (lambda x: jnp.array([[0.0, 1.0, 0.0]] * 3) @ x, Dependence.ANY),
    "reversed": (lambda x: x[::-1], Dependence.ANY),
    "the largest": (lambda x: jnp.max(x), Dependence.ANY),
    "running": (lambda x: jnp.cumsum(x), Dependence.ANY),
    "one of them": (lambda x: x[0], Dependence.ANY),
    "a loop": (lambda x: jax.lax.fori_loop(0, 2, lambda i, y: y * x, x), Dependence.ANY),
    "two outputs": (lambda x: (x, x), Dependence.ANY),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_dependence(name):
    function, expected = FUNCTIONS[name]
    assert dependence(function, X) is expected


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name != "two outputs"])
def test_dependence_is_that_of_derivatives(name):
    """Where a program says that coordinates are apart, Jacobian and Hessians are diagonal."""
    function, expected = FUNCTIONS[name]
    jacobian, hessian = (np.asarray(f(function)(X)) for f in (jax.jacfwd, jax.hessian))
    off = ~np.eye(3, dtype=bool)
    if expected is Dependence.NONE:
        assert not jacobian.any()
    if expected is Dependence.EACH:
        assert not jacobian[off].any()
    if expected is not Dependence.ANY:
        assert not hessian[..., off].any()


@pytest.mark.parametrize(
    ("pays", "is_additive"), [("squares", True), ("calls", True), ("a call on a mean", False)]
)
def test_increments_of_payoffs(pays, is_additive):
    """Those of an additive payoff are those of the payoff as a function that nothing is known of."""
    terminal, _ = FUNCTIONS[pays]
    problem = brownian(dim=3, diffusion=lambda t, x: 0.3 * x, x0=X, num_steps=1, terminal=terminal)
    dice = np.random.default_rng(0)
    x, dw = jnp.asarray(dice.uniform(0.5, 1.5, (3, 64))), jnp.asarray(dice.normal(size=(3, 64)))
    basis = PayoffBasis()
    (own,) = jax.tree.map(lambda leaf: leaf[0], (basis.init(problem, x[None]),))
    (part,) = compositions((basis,), problem, (own,), problem.times[0])
    assert part.is_additive == is_additive
    at = problem.times[0], x, dw
    found = martingale_increments(problem, [part], *at)
    known = martingale_increments(problem, [part._replace(is_additive=False)], *at)
    for one, other in zip(found, known, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)
