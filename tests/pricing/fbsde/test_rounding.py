"""Rounding errors in single precision are part of the stated errors of today's figures."""

import dataclasses
import functools
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pricing.fbsde import Certificate, Estimate, GridQuadrature, Problem, solve
from pricing.fbsde.dynamics.active_subspace import OnSubspace, active_subspace
from pricing.fbsde.error_bars.relative_errors import Rounding, Tolerance, errors, excess

from .test_active_subspace import LAST, mean, on_assets, positive

KEY = jax.random.key(0)


@functools.cache
def call(is_log: bool, vol: float = 0.2) -> Problem:
    """A call under Black-Scholes, on the price or, if its states may be negative, under Bachelier."""
    vol = vol if is_log else 100.0 * vol
    size = (lambda x: x) if is_log else jnp.ones_like
    return Problem(
        1,
        1.0,
        [100.0],
        drift=lambda t, x: 0.0 * x,
        diffusion=lambda t, x: vol * size(x)[:, None],
        driver=lambda t, x, y, z: -0.03 * y,
        terminal=lambda x: positive(x[0] - 100.0),
        num_steps=8,
        step=lambda t, dt, x, dw: (
            x * jnp.exp(-0.5 * vol**2 * dt + vol * dw) if is_log else x + vol * dw
        ),
    )


@pytest.mark.parametrize("is_log", [True, False])
def test_rounding_of_gamma_covers_what_rounded_nodes_change(is_log):
    """Coefficients off by up to three rounding errors of single precision, in 32 draws."""
    problem = call(is_log)
    found = solve(problem, GridQuadrature(129, 257), key=KEY).approximation
    eps = float(jnp.finfo("float32").eps)
    bound = found.hessian_rounding(0, problem.x0) * eps / jnp.finfo("float64").eps

    def gamma(key):
        share = 3.0 * jax.random.uniform(key, found.coefficients.shape, minval=-1.0)
        rounded = found.coefficients * (1.0 + eps * share)
        return dataclasses.replace(found, coefficients=rounded).hessian(0, problem.x0)

    moved = jax.vmap(gamma)(jax.random.split(KEY, 32)) - found.hessian(0, problem.x0)[None]
    worst = jnp.max(jnp.abs(moved), axis=0)
    assert bool(jnp.all(worst < bound)) and bool(jnp.all(bound < 20.0 * worst))


def test_rounding_of_gamma_in_directions():
    """u on a grid of one direction moves Gamma of each pair of assets by the products of its slopes."""
    problem = on_assets(lambda x: positive(mean(LAST, x) - 100.0))
    subspace = active_subspace(problem, 2)
    assert subspace is not None
    inner = solve(subspace.reduced(problem), GridQuadrature(65, 129), key=KEY).approximation
    found = OnSubspace(inner, subspace).hessian_rounding(0, problem.x0)
    w, slopes = subspace.project(problem.x0), np.abs(subspace.slopes(problem.x0))
    expected = slopes.T @ np.asarray(inner.hessian_rounding(0, w)) @ slopes
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert np.all(found[:2] == 0.0) and np.all(found[2:, 2:] > 0.0)


def test_rounding_is_added_to_stated_errors():
    """Of ten steps, each off by 1e-6 of a state and of u, and of Gamma on a grid."""
    x, gap = np.array([2.0, 5.0]), 1e-3
    exact = lambda mean: Estimate(jnp.asarray(mean), gap / 3.0 * jnp.ones_like(jnp.asarray(mean)))
    gamma = jnp.array([[0.5, 0.1], [0.1, -0.2]])
    own = exact(10.0), exact(jnp.array([3.0, -1.0])), exact(gamma)
    found = Certificate(*own, missed=jnp.array(0.0), left=jnp.array(0.0))
    rounding = Rounding(10 * 1e-6, np.full((2, 2), 1e-4))
    before, after = errors(found, scale=x), errors(found, scale=x, rounding=rounding)
    # in money: value 10, Delta 6 and -5, Gamma 2 and 1, 1 and -5
    money = np.array([[2.0, 1.0], [1.0, 5.0]])
    np.testing.assert_allclose(after.value - before.value, 1e-5 * (10.0 + 11.0) / 10.0)
    np.testing.assert_allclose(after.delta - before.delta, 1e-5 * np.array([9.0, 11.0]) / 6.0)
    of_grid = 1e-4 * np.array([[4.0, 10.0], [10.0, 25.0]])
    np.testing.assert_allclose(after.gamma - before.gamma, (1e-5 * money + of_grid) / 5.0)


@pytest.mark.costly
@pytest.mark.parametrize("vol", [0.2, 0.002])
def test_stated_errors_cover_rounding_in_single_precision(vol):
    """The figures of one grid in single and in double precision differ by less than rounding may.

    With a vol of .2 % nodes are so near to each other that the rounding of their states decides.
    """
    spots = np.float32(100.0 * (1.0 + vol * np.linspace(-0.5, 0.5, 9)))[:, None]
    solver = GridQuadrature(257, 513)

    def figures():
        found = solve(call.__wrapped__(True, vol), solver, key=KEY)
        x = jnp.asarray(spots, found.problem.x0.dtype)
        u = found.approximation
        of_each = (u.value, u.gradient, u.hessian, u.hessian_rounding)
        return found, *(np.asarray(jax.vmap(partial(of, 0))(x), float) for of in of_each)

    with jax.enable_x64(True):
        _, *exact, _ = figures()
    with jax.enable_x64(False):
        found, *own, of_gamma = figures()
        assert found.problem.x0.dtype == jnp.float32
        of_steps = Rounding.of(found).of_steps
    off = [np.abs(a - b).ravel() for a, b in zip(own, exact, strict=True)]
    value, delta, gamma = (np.abs(figure).ravel() for figure in exact)
    assert np.all(off[0] < of_steps * (value + 100.0 * delta))
    assert np.all(of_steps * (value + 100.0 * delta) < 0.002 * value)
    assert np.all(off[2] < of_gamma.ravel())
    assert np.all(of_gamma.ravel() < 0.05 * gamma)


def test_paths_leave_room_for_rounding_and_dates():
    """Noise of .1 % beside another error of .15 % is twice what a tolerance of .2 % leaves."""
    of = lambda mean, error: Estimate(jnp.asarray(mean), jnp.full_like(jnp.asarray(mean), error))
    of_value, exact = of(1.0, 0.001 / 3.0), (of([1.0], 0.0), of([[1.0]], 0.0))
    zero = jnp.array(0.0)
    pilot = Certificate(of_value, *exact, missed=zero, left=zero)
    asked = Tolerance(0.002, 0.01, 0.05)
    above = lambda of_steps, *of_dates: excess(
        pilot, asked, np.ones(1), Rounding(of_steps, np.zeros((1, 1))), *of_dates
    )
    np.testing.assert_allclose(above(0.0), 0.5, rtol=1e-4)
    np.testing.assert_allclose(above(0.00075), 2.0, rtol=1e-4)  # of the value and of Delta
    np.testing.assert_allclose(above(1.0), 2.0, rtol=1e-4)  # more paths would not help
    np.testing.assert_allclose(above(0.0, Tolerance(0.0015, 0.0, 0.0)), 2.0, rtol=1e-4)
