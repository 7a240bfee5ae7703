"""Errors are told in money, entry by entry and contract by contract: units of the states change nothing."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pricing.fbsde import (
    Certificate,
    Estimate,
    GridQuadrature,
    Problem,
    certify,
    solve,
)
from pricing.fbsde.dynamics.step_density import StepDensity, noise_form
from pricing.fbsde.error_bars.certificate_samples import cover
from pricing.fbsde.error_bars.relative_errors import errors, in_units, known_to

from .backward_problems import single

OWN, OTHER = jax.random.key(0), jax.random.key(1)
VOLS, RHO = np.array([0.2, 0.3]), 0.5


@functools.cache
def exchange(unit: float) -> Problem:
    """The right to one unit of an asset for another whose price is in a small unit, at no rate."""
    root = np.linalg.cholesky(np.array([[1.0, RHO], [RHO, 1.0]]))

    def step(t, dt, x, dw):
        vols = jnp.asarray(VOLS, x.dtype)
        return x * jnp.exp(-0.5 * vols**2 * dt + vols * (jnp.asarray(root, x.dtype) @ dw))

    return Problem(
        2,
        1.0,
        np.array([1.0, unit]),
        drift=lambda t, x: 0.0 * x,
        diffusion=lambda t, x: jnp.asarray(VOLS[:, None] * root, x.dtype) * x[:, None],
        driver=lambda t, x, y, z: 0.0 * y,
        terminal=lambda x: jnp.maximum(unit * x[0] - x[1], 0.0),
        num_steps=4,
        step=step,
    )


def margrabe(x, unit: float):
    """The value of `exchange` at x."""
    vol = np.sqrt(VOLS @ VOLS - 2.0 * RHO * VOLS[0] * VOLS[1])
    d = jnp.log(unit * x[0] / x[1]) / vol + 0.5 * vol
    ndtr = jax.scipy.special.ndtr
    return unit * x[0] * ndtr(d) - x[1] * ndtr(d - vol)


@pytest.mark.costly
@pytest.mark.parametrize("unit", [1e4, pytest.param(1e-4, marks=pytest.mark.slow)])
def test_single_precision_has_gamma_in_unlike_units(unit):
    """Of spots 1 and 10,000, where the second's Gamma is 1e-8 of the first's: it was 26 % off."""
    problem = single(exchange(unit))
    found = certify(solve(problem, GridQuadrature(33, 17), key=OWN), key=OTHER, num_paths=16384)
    x0 = np.array([1.0, unit])
    for figure, order in ((found.delta, jax.grad), (found.gamma, jax.hessian)):
        true = np.asarray(order(functools.partial(margrabe, unit=unit))(x0))
        off = np.abs(np.asarray(figure.mean) / true - 1.0)
        noise = np.asarray(figure.std_error) / np.abs(true)
        assert np.all(off < 4.0 * noise) and np.all(noise < 0.04)


@pytest.mark.costly
@pytest.mark.parametrize("has_mixing", [True, False])
def test_weights_are_rounded_alike_in_all_units(has_mixing):
    problem = exchange(1e4)
    dw = np.array([0.3, -0.4])

    def weights(problem: Problem):
        form = noise_form(problem)
        assert form.factor is not None
        form = form if has_mixing else form._replace(factor=None)
        noise = jnp.asarray(dw, problem.x0.dtype)
        return StepDensity(problem, problem.times[0], problem.x0, noise, form).weights()

    for ours, other in zip(weights(single(problem)), weights(problem), strict=True):
        np.testing.assert_allclose(ours, other, rtol=2e-5)


def figures(delta, gamma, delta_error, gamma_error) -> Certificate:
    """Two contracts on two states."""
    zero = jnp.zeros(2)
    value = Estimate(jnp.array([10.0, 1e-2]), zero)
    estimate = lambda *pair: Estimate(*map(jnp.asarray, pair))
    both = estimate(delta, delta_error), estimate(gamma, gamma_error)
    return Certificate(value, *both, missed=zero, left=zero)


def test_errors_are_of_money_by_entry_and_by_contract():
    """The same book in two units: x in euros or in thousandths of one. The small contract has its own size."""
    delta, gamma = np.array([[0.5, -0.5], [1e-3, 0.0]]), np.stack([np.eye(2), 1e-3 * np.eye(2)])
    noise = np.full((2, 2), 1e-4), np.full((2, 2, 2), 1e-4)
    scale, unit = np.array([10.0, 20.0]), np.array([1.0, 1e-3])
    one = errors(figures(delta, gamma, *noise), scale=scale)
    squares = unit[:, None] * unit
    changed = delta / unit, gamma / squares, noise[0] / unit, noise[1] / squares
    other = errors(figures(*changed), scale=scale * unit)
    for ours, theirs in zip(one, other, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)
    # the second contract's Delta in money is 1e-2, its error 2e-3 a standard error
    assert one.delta[1, 1] > 3.0 * 0.2 and one.delta[0].max() < 1e-2
    assert one.worst().delta == one.delta[1, 1]
    # a Gamma of the first state that is 4 times better known in money than that of the second
    np.testing.assert_allclose(one.gamma[:, 1, 1], 4.0 * one.gamma[:, 0, 0], rtol=1e-6)


def test_a_difference_from_another_solution_counts_though_it_may_be_noise():
    """The other solution has a noise ten times larger, within which the figures differ."""
    delta, gamma = np.array([[0.5, -0.5], [1e-3, 0.0]]), np.stack([np.eye(2), 1e-3 * np.eye(2)])
    noise = np.full((2, 2), 1e-4), np.full((2, 2, 2), 1e-4)
    found = figures(delta, gamma, *noise)
    other = figures(
        delta + np.array([[0.0, 0.01], [0.0, 0.0]]), gamma, *(10.0 * error for error in noise)
    )
    alone, beside = errors(found).delta, errors(found, other).delta
    np.testing.assert_allclose(beside[0], [alone[0, 0], 0.02], rtol=1e-6)
    np.testing.assert_allclose(beside[1], alone[1])


def test_the_worst_entry_is_named():
    gamma = np.full((2, 2, 2), 0.01)
    gamma[1, 0, 1] = 0.26
    assert (
        known_to(gamma, (2,)) == "known to 26 % of its size, least in entry [0, 1] of contract [1]"
    )
    assert known_to(gamma[1], ()) == "known to 26 % of its size, least in entry [0, 1]"
    assert known_to(np.array(0.26), ()) == "known to 26 % of its size"
    assert known_to(np.array([0.26, np.inf]), (2,)) == "not known"


def test_no_delta_is_known_exactly():
    """Where value has no Delta, an error of Delta is measured by the value."""
    zero = jnp.zeros(2)
    gamma = Estimate(jnp.zeros((2, 2)), jnp.zeros((2, 2)))
    found = Certificate(
        Estimate(jnp.array(-0.4), jnp.array(0.0)), Estimate(zero, zero), gamma, zero[0], zero[0]
    )
    assert errors(found, scale=np.ones(2)).worst() == (0.0, 0.0, 0.0)


def test_errors_of_entries_in_their_own_units_are_those_of_their_noise():
    """Two contracts on a price and a rate; a contract whose figures are 0 has no known size."""
    noise = np.random.default_rng(0).uniform(0.5, 1.0, (2, 7))
    shapes = (2,), (2, 2), (2, 2, 2)
    parts = (noise[:, 0], noise[:, 1:3], noise[:, 3:].reshape(2, 2, 2))
    sizes = np.array([3.0, 0.0])
    means = (sizes.reshape(2, *(1,) * (len(shape) - 1)) * np.ones(shape) for shape in shapes)
    figures = (Estimate(jnp.asarray(m), jnp.asarray(p)) for m, p in zip(means, parts, strict=True))
    found, scale = (
        Certificate(*figures, missed=jnp.zeros(2), left=jnp.zeros(2)),
        np.array([100.0, 0.02]),
    )
    own = in_units(errors(found, scale=scale), found, scale)
    for error, std_error in zip(own, parts, strict=True):
        np.testing.assert_allclose(error[0], cover(std_error.size) * std_error[0], rtol=1e-12)
        assert np.all(np.isinf(error[1]))
