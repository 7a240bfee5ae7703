"""Rounding errors in single precision are part of the stated errors of today's figures."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pricing.fbsde import Certificate, Estimate, GridQuadrature, Problem, solve
from pricing.fbsde.dynamics.active_subspace import OnSubspace, active_subspace
from pricing.fbsde.error_bars.relative_errors import Rounding, errors

from .test_active_subspace import LAST, mean, on_assets, positive

KEY = jax.random.key(0)


@functools.cache
def call(is_log: bool) -> Problem:
    """A call under Black-Scholes, on the price or, if its states may be negative, under Bachelier."""
    vol = 0.2 if is_log else 20.0
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
def test_stated_errors_cover_rounding_in_single_precision():
    """The figures of one grid in single and in double precision differ by less than rounding may."""
    with jax.enable_x64(True):
        exact = solve(call(True), GridQuadrature(257, 513), key=KEY)
        figures = exact.value(0.0, exact.problem.x0), exact.gamma(0.0, exact.problem.x0)
        figures = [np.asarray(figure) for figure in figures]
    with jax.enable_x64(False):
        problem = call.__wrapped__(True)
        found = solve(problem, GridQuadrature(257, 513), key=KEY)
        own = found.value(0.0, problem.x0), found.gamma(0.0, problem.x0)
        rounding = Rounding.of(found)
        x = np.array([100.0])
        zero = lambda figure: Estimate(figure, jnp.zeros_like(figure))
        delta = found.delta(0.0, problem.x0)
        told = Certificate(*map(zero, (own[0], delta, own[1])), missed=own[0], left=own[0])
        value, _, gamma = rounding.of_figures(told, x)
    assert problem.x0.dtype == jnp.float32
    off = [np.abs(np.asarray(a, float) - b) for a, b in zip(own, figures, strict=True)]
    assert off[0] < value < 1e-4 * figures[0]
    assert off[1][0, 0] * 1e4 < gamma[0, 0] < 0.01 * figures[1][0, 0] * 1e4
