"""Published problems with jumps, and with drivers that read Gamma."""

import math

import jax.numpy as jnp
import numpy as np

from ..jumps import Jumps
from ..problem import Problem


def uncertain_volatility(num_steps: int = 100, vol: float = 0.17) -> Problem:
    """Return a 90-110 call spread under uncertain volatility between .1 and .2, for the seller.

    u_t + max over s in [.1, .2] of s^2 x^2 u_xx / 2 = 0, x0 = 100, one year. Avellaneda, Levy, Paras (1995);
    Guyon, Henry-Labordere, Journal of Computational Finance 14 (2011), section 6.

    Args:
        num_steps: The number of time steps.
        vol: The volatility of the paths; u does not depend on it.

    Examples:
        >>> uncertain_volatility(8).reads_gamma
        True
    """
    terminal = lambda x: jnp.maximum(x[0] - 90.0, 0.0) - jnp.maximum(x[0] - 110.0, 0.0)
    return _uncertain(1, 100.0, terminal, vol, 0.1, 0.2, 0.0, num_steps)


def barenblatt(dim: int = 100, num_steps: int = 20, vol: float = 0.3) -> Problem:
    """Return the second-order Black-Scholes-Barenblatt equation.

    u_t + sum over i of max over s in [.1, .4] of s^2 x_i^2 u_ii / 2 = .05 (u - x . grad u), whose solution is
    u = exp(.21 (1 - t)) |x|^2. Beck, E, Jentzen, Journal of Nonlinear Science 29 (2019), section 4.2.

    Args:
        dim: The number of assets.
        num_steps: The number of time steps.
        vol: The volatility of the paths; u does not depend on it.

    Examples:
        >>> barenblatt(4).dim
        4
    """
    x0 = jnp.where(jnp.arange(dim) % 2 == 0, 1.0, 0.5)
    return _uncertain(dim, x0, lambda x: jnp.sum(x**2), vol, 0.1, 0.4, 0.05, num_steps)


def merton_put(num_steps: int = 20, num_exercises: int = 1) -> Problem:
    """Return a put under Merton's jump-diffusion, exercisable at expiry or on equally spaced dates.

    K = 100, r = .05, sigma = .2, one jump per year, with mean -.1 and standard deviation .2 of the log. Merton,
    Journal of Financial Economics 3 (1976).

    Args:
        num_steps: The number of time steps.
        num_exercises: The number of exercise dates in the year.

    Examples:
        >>> merton_put(20, 10).exercise_dates
        (2, 4, 6, 8, 10, 12, 14, 16, 18, 20)
    """
    rate, vol, mean, deviation = 0.05, 0.2, -0.1, 0.2
    jumps = Jumps(1.0, lambda x, z: x * jnp.exp(mean + deviation * z))
    drift = rate - (math.exp(mean + 0.5 * deviation**2) - 1.0)
    rights = {}
    if num_exercises > 1:
        dates = np.arange(1, num_exercises + 1) / num_exercises
        rights = {"exercise_times": dates, "exercise_value": lambda t, x: 100.0 - x[0]}
    return Problem(
        1,
        1.0,
        100.0,
        drift=lambda t, x: drift * x,
        diffusion=lambda t, x: vol * x,
        driver=lambda t, x, y, z: -rate * y,
        terminal=lambda x: jnp.maximum(100.0 - x[0], 0.0),
        num_steps=num_steps,
        step=lambda t, dt, x, dw: x * jnp.exp((drift - 0.5 * vol**2) * dt + vol * dw),
        jumps=jumps,
        **rights,
    )


def _uncertain(dim, x0, terminal, vol, low, high, rate, num_steps) -> Problem:
    """Return a problem of assets with worst-case volatilities between two bounds, for the seller."""

    def driver(t, x, y, z, gamma):
        bend = 0.5 * x**2 * jnp.diagonal(gamma)
        worst = jnp.maximum((high**2 - vol**2) * bend, (low**2 - vol**2) * bend)
        return jnp.sum(worst) - rate * (y - jnp.sum(z) / vol)

    return Problem(
        dim,
        1.0,
        x0,
        drift=lambda t, x: 0.0 * x,
        diffusion=lambda t, x: vol * x,
        driver=driver,
        terminal=terminal,
        num_steps=num_steps,
        step=lambda t, dt, x, dw: x * jnp.exp(-0.5 * vol**2 * dt + vol * dw),
        reads_gamma=True,
    )
