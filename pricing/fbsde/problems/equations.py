"""Published equations with nonlinear drivers; f is the driver of -dY = f dt - Z dW."""

import math

import jax
import jax.numpy as jnp

from ..problem import Problem
from .building import assets, brownian

_SQRT_2 = math.sqrt(2.0)


def allen_cahn(dim: int = 100, num_steps: int = 20) -> Problem:
    """Return the Allen-Cahn equation, u_t + Laplacian u + u - u^3 = 0, g = .5 / (1 + .2 |x|^2).

    E, Han, Jentzen (2017), section 4.2.

    Args:
        dim: The dimension.
        num_steps: The number of time steps.

    Examples:
        >>> allen_cahn(5).dim
        5
    """
    driver = lambda t, x, y, z: y - y**3
    terminal = lambda x: 0.5 / (1.0 + 0.2 * jnp.sum(x**2))
    return brownian(dim, 0.3, _SQRT_2, driver, terminal, num_steps)


def hjb(dim: int = 100, num_steps: int = 20) -> Problem:
    """Return a Hamilton-Jacobi-Bellman equation, u_t + Laplacian u - |grad u|^2 = 0, g = ln((1 + |x|^2) / 2).

    E, Han, Jentzen (2017), section 4.3.

    Args:
        dim: The dimension.
        num_steps: The number of time steps.

    Examples:
        >>> hjb(5).dim
        5
    """
    driver = lambda t, x, y, z: -0.5 * jnp.sum(z**2)
    terminal = lambda x: jnp.log(0.5 * (1.0 + jnp.sum(x**2)))
    return brownian(dim, 1.0, _SQRT_2, driver, terminal, num_steps)


def hjb_riccati(dim: int = 100, num_steps: int = 20) -> Problem:
    """Return the equation of `hjb` for g = |x|^2.

    Its solution is u = p |x|^2 + (d / 2) ln(1 + 4 (T - t)), p = 1 / (1 + 4 (T - t)).

    Args:
        dim: The dimension.
        num_steps: The number of time steps.

    Examples:
        >>> hjb_riccati(5).dim
        5
    """
    driver, terminal = hjb(dim, num_steps).driver, lambda x: jnp.sum(x**2)
    return brownian(dim, 1.0, _SQRT_2, driver, terminal, num_steps)


def default_risk(dim: int = 100, num_steps: int = 40) -> Problem:
    """Return the worst of many assets, with a default intensity that depends on the value.

    E, Han, Jentzen (2017), section 4.1: recovery 2/3, rates .02, intensity .2 below 50, .02 above 70, linear
    between.

    Args:
        dim: The number of assets.
        num_steps: The number of time steps.

    Examples:
        >>> default_risk(5).dim
        5
    """
    low, high, most, least = 50.0, 70.0, 0.2, 0.02
    slope = (most - least) / (low - high)

    def driver(t, x, y, z):
        between = jnp.maximum((y - low) * slope + most - least, 0.0) + least
        intensity = jnp.where(y < low, most, between)
        return -((1.0 - 2.0 / 3.0) * intensity + 0.02) * y

    return assets(dim, 1.0, 0.02, driver, jnp.min, num_steps)


def different_rates(dim: int = 100, num_steps: int = 20) -> Problem:
    """Return a call on the best of many assets less two on a higher strike, under two rates.

    Borrowing costs .06, lending earns .04. Bergman (1995); E, Han, Jentzen (2017), section 4.4.

    Args:
        dim: The number of assets.
        num_steps: The number of time steps.

    Examples:
        >>> different_rates(5).dim
        5
    """

    def terminal(x):
        best = jnp.max(x)
        return jnp.maximum(best - 120.0, 0.0) - 2.0 * jnp.maximum(best - 150.0, 0.0)

    return assets(dim, 0.5, 0.06, _two_rates, terminal, num_steps)


def different_rates_call(num_steps: int = 20) -> Problem:
    """Return a call on one asset under the two rates of `different_rates`.

    The seller always borrows, so its price is Black-Scholes at .06.

    Args:
        num_steps: The number of time steps.

    Examples:
        >>> different_rates_call(8).num_steps
        8
    """
    terminal = lambda x: jnp.maximum(x[0] - 100.0, 0.0)
    return assets(1, 0.5, 0.06, _two_rates, terminal, num_steps)


def burgers(dim: int = 50, num_steps: int = 30) -> Problem:
    """Return a Burgers equation whose solution is a logistic function of t + mean x.

    u_t + (d^2 / 2) Laplacian u + (u - (2 + d) / 2d) d sum_i u_i = 0. Chassagneux (2014); E, Han, Jentzen
    (2017), section 4.5.

    Args:
        dim: The dimension.
        num_steps: The number of time steps.

    Examples:
        >>> burgers(5).dim
        5
    """
    maturity = 0.2
    driver = lambda t, x, y, z: (y - (2.0 + dim) / (2.0 * dim)) * jnp.sum(z)
    terminal = lambda x: jax.nn.sigmoid(maturity + jnp.mean(x))
    return brownian(dim, maturity, float(dim), driver, terminal, num_steps)


def reaction_diffusion(dim: int = 100, num_steps: int = 30) -> Problem:
    """Return an equation with an oscillating solution and f = min(1, (y - u)^2).

    u = 1.6 + sin(l sum x) exp(l^2 d (t - T) / 2), l = 1 / sqrt(d). Gobet, Turkedjiev (2017), section 6.1; E,
    Han, Jentzen (2017), section 4.6.

    Args:
        dim: The dimension.
        num_steps: The number of time steps.

    Examples:
        >>> reaction_diffusion(5).dim
        5
    """
    wave = 1.0 / math.sqrt(dim)

    def solution(t, x):
        return 1.6 + jnp.sin(wave * jnp.sum(x)) * jnp.exp(0.5 * (t - 1.0))

    driver = lambda t, x, y, z: jnp.minimum(1.0, (y - solution(t, x)) ** 2)
    terminal = lambda x: solution(1.0, x)
    return brownian(dim, 1.0, 1.0, driver, terminal, num_steps)


def black_scholes_barenblatt(dim: int = 100, num_steps: int = 50) -> Problem:
    """Return the Black-Scholes-Barenblatt equation.

    u = exp((r + s^2) (T - t)) |x|^2, r = .05, s = .4. Raissi (2018), section 4.1.

    Args:
        dim: The number of assets.
        num_steps: The number of time steps.

    Examples:
        >>> black_scholes_barenblatt(5).dim
        5
    """
    x0 = jnp.where(jnp.arange(dim) % 2 == 0, 1.0, 0.5)
    driver = lambda t, x, y, z: -0.05 * (y - jnp.sum(z) / 0.4)
    terminal = lambda x: jnp.sum(x**2)
    return assets(dim, 1.0, 0.0, driver, terminal, num_steps, x0, vol=0.4)


def bounded_example(dim: int = 10, num_steps: int = 120) -> Problem:
    """Return an equation with a quadratic driver and the solution u = exp((T - t) / 2) cos(sum x).

    Huré, Pham, Warin (2020), section 5.1.

    Args:
        dim: The dimension.
        num_steps: The number of time steps.

    Examples:
        >>> bounded_example(5).dim
        5
    """

    def driver(t, x, y, z):
        total, left = jnp.sum(x), 1.0 - t
        known = (jnp.cos(total) + 0.2 * jnp.sin(total)) * jnp.exp(0.5 * left)
        square = 0.5 * (jnp.sin(total) * jnp.cos(total) * jnp.exp(left)) ** 2
        return known - square + (y * jnp.sum(z)) ** 2 / (2.0 * dim)

    vol, drift, terminal = 1.0 / math.sqrt(dim), 0.2 / dim, lambda x: jnp.cos(jnp.sum(x))
    return brownian(dim, 1.0, vol, driver, terminal, num_steps, x0=1.0, drift=drift)


def _two_rates(t, x, y, z):
    """Return f for an excess return of .02 / .2 of every asset; lending earns .04, borrowing costs .06."""
    lend, borrow, vol, drift = 0.04, 0.06, 0.2, 0.06
    held = jnp.sum(z) / vol
    return -lend * y - (drift - lend) * held + (borrow - lend) * jnp.maximum(held - y, 0.0)
