"""Problems with known solutions for the backward schemes, in single precision as users have them."""

import functools
import math
from functools import partial
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import norm

from pricing import BlackScholes, ClosedForm, European, price
from pricing.fbsde import CATALOGUE, Problem, Solution, problems

RATE, VOL, SPOT = 0.05, 0.2, 100.0


class Known(NamedTuple):
    """A problem, and u, its gradient and its Hessian at x0."""

    problem: Problem
    value: np.ndarray
    delta: np.ndarray
    gamma: np.ndarray


def single(problem: Problem) -> Problem:
    """In float32."""
    return jax.tree.map(
        lambda leaf: leaf.astype(jnp.float32) if eqx.is_array(leaf) else leaf, problem
    )


@eqx.filter_jit
def figures_of_pricing(product, model, method) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Value, Delta and Gamma of a contract by `pricing`, and no other sensitivity."""

    at = jnp.zeros_like(model.underlying)
    axes = jnp.eye(at.size).reshape(at.size, *at.shape)

    def value(shift):
        return price(product, model.shifted(underlying=shift), method, throw=False).value

    def with_slopes(function, at):
        return jax.vmap(lambda axis: jax.jvp(function, (at,), (axis,)), out_axes=(None, -1))(axes)

    (found, delta), (_, gamma) = with_slopes(partial(with_slopes, value), at)
    shape = found.shape
    return found, delta.reshape(*shape, *at.shape), gamma.reshape(*shape, *at.shape, *at.shape)


def asset(terminal, num_steps: int, maturity: float = 1.0, **kwargs) -> Problem:
    """Contracts on one lognormal asset, with its exact step and the driver -r y."""
    problem = Problem(
        1,
        maturity,
        jnp.full(1, SPOT, jnp.float32),
        drift=lambda t, x: RATE * x,
        diffusion=lambda t, x: VOL * x,
        driver=lambda t, x, y, z: -RATE * y,
        terminal=terminal,
        num_steps=num_steps,
        step=lambda t, dt, x, dw: x * jnp.exp((RATE - 0.5 * VOL**2) * dt + VOL * dw),
        **kwargs,
    )
    return single(problem)


@functools.cache  # one problem, so that tests share its programs
def calls(*strikes: float, num_steps: int = 10) -> Known:
    """Calls on one asset by Black-Scholes: a number for one strike, a vector for many."""
    strike = np.asarray(strikes, np.float32) if len(strikes) > 1 else np.float32(min(strikes))
    product, model = (
        European(jnp.asarray(strikes, float), 1.0, "call"),
        BlackScholes(SPOT, RATE, VOL),
    )
    found = figures_of_pricing(product, model, ClosedForm())
    shaped = lambda x, *axes: np.reshape(np.asarray(x), (*strike.shape, *axes))
    return Known(
        asset(lambda x: jnp.maximum(jnp.squeeze(x) - strike, 0.0), num_steps),
        shaped(found[0]),
        shaped(found[1], 1),
        shaped(found[2], 1, 1),
    )


@functools.cache
def put(num_steps: int, exercise_dates: int) -> Problem:
    """Exercised on so many equal dates of a year."""
    pays = lambda x: jnp.maximum(SPOT - x[0], 0.0)
    times = [(i + 1) / exercise_dates for i in range(exercise_dates)]
    return asset(pays, num_steps, exercise_times=times, exercise_value=lambda t, x: pays(x))


@functools.cache
def gate(rebate: float | None, num_steps: int = 8) -> tuple[Problem, float]:
    """A Brownian motion pays itself at 1 if it is above 0 at 1/2, or else the rebate there; and its value."""
    problem = Problem(
        1,
        1.0,
        jnp.zeros(1),
        drift=lambda t, x: jnp.zeros_like(x),
        diffusion=lambda t, x: 1.0,
        driver=lambda t, x, y, z: jnp.zeros_like(y),
        terminal=lambda x: x[0],
        num_steps=num_steps,
        stopping_times=[0.5],
        is_alive=lambda t, x: x[0] > 0.0,
        stopped_value=None if rebate is None else lambda t, x: jnp.full_like(x[0], rebate),
    )
    above = math.sqrt(0.5) * float(norm.pdf(0.0))
    return single(problem), above + 0.5 * (rebate or 0.0)


@functools.cache
def riccati(dim: int, num_steps: int) -> Known:
    problem = single(problems.hjb_riccati(dim, num_steps))
    return Known(problem, 0.5 * dim * math.log(5.0), np.zeros(dim), 0.4 * np.eye(dim))


def listed(name: str) -> Known:
    """A problem of the catalogue, and what is known of it."""
    entry = CATALOGUE[name]
    problem = entry.problem()
    figures = entry.figures(problem)
    delta = figures.get("delta", np.zeros(problem.dim))
    return Known(single(problem), figures["value"], delta, figures["gamma"])


def today(solution: Solution, x0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Value, Delta and Gamma at x0."""
    t = jnp.zeros((), jnp.float32)
    value, delta, gamma = solution.value(t, x0), solution.delta(t, x0), solution.gamma(t, x0)
    return np.asarray(value), np.asarray(delta), np.asarray(gamma)


def apart(found, known) -> float:
    """The distance, as a share of what is known, or itself if that is zero."""
    size = np.linalg.norm(known)
    return float(np.linalg.norm(np.asarray(found) - known) / (size if size > 0.0 else 1.0))
