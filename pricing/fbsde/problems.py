"""Published problems by name; `catalogue.py` has what is known of them.

f is the driver of -dY = f dt - Z dW.
"""

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..models import BlackScholes, HullWhite
from ..products import Barrier, Basket, Bermudan, BermudanSwaption
from .from_pricing import from_product
from .problem import Problem

_SQRT_2 = math.sqrt(2.0)


def _cached(make: Callable[..., Problem]) -> Callable[..., Problem]:
    """Make one problem, with one set of functions, for the same arguments: a second solve compiles nothing."""

    @functools.cache
    def kept(dtype: jnp.dtype, *args, **kwargs) -> Problem:
        del dtype  # of x0
        with jax.ensure_compile_time_eval():
            return make(*args, **kwargs)

    @functools.wraps(make)
    def named(*args, **kwargs) -> Problem:
        return kept(jnp.result_type(float), *args, **kwargs)

    return named


@_cached
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
    driver = lambda t, x, y, z: y - y**3  # noqa: E731
    terminal = lambda x: 0.5 / (1.0 + 0.2 * jnp.sum(x**2))  # noqa: E731
    return _brownian(dim, 0.3, _SQRT_2, driver, terminal, num_steps)


@_cached
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
    driver = lambda t, x, y, z: -0.5 * jnp.sum(z**2)  # noqa: E731
    terminal = lambda x: jnp.log(0.5 * (1.0 + jnp.sum(x**2)))  # noqa: E731
    return _brownian(dim, 1.0, _SQRT_2, driver, terminal, num_steps)


@_cached
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
    return _brownian(dim, 1.0, _SQRT_2, driver, terminal, num_steps)


@_cached
def default_risk(dim: int = 100, num_steps: int = 40) -> Problem:
    """Return the worst of many assets, with an intensity of default that depends on the value.

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

    return _assets(dim, 1.0, 0.02, driver, jnp.min, num_steps)


@_cached
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

    return _assets(dim, 0.5, 0.06, _two_rates, terminal, num_steps)


@_cached
def different_rates_call(num_steps: int = 20) -> Problem:
    """Return a call on one asset under the two rates of `different_rates`.

    Its seller always borrows, so Black-Scholes at .06 is its price.

    Args:
        num_steps: The number of time steps.

    Examples:
        >>> different_rates_call(8).num_steps
        8
    """
    terminal = lambda x: jnp.maximum(x[0] - 100.0, 0.0)  # noqa: E731
    return _assets(1, 0.5, 0.06, _two_rates, terminal, num_steps)


@_cached
def burgers(dim: int = 50, num_steps: int = 30) -> Problem:
    """Return an equation of Burgers, whose solution is a logistic function of t + mean x.

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
    driver = lambda t, x, y, z: (y - (2.0 + dim) / (2.0 * dim)) * jnp.sum(z)  # noqa: E731
    terminal = lambda x: jax.nn.sigmoid(maturity + jnp.mean(x))  # noqa: E731
    return _brownian(dim, maturity, float(dim), driver, terminal, num_steps)


@_cached
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

    driver = lambda t, x, y, z: jnp.minimum(1.0, (y - solution(t, x)) ** 2)  # noqa: E731
    terminal = lambda x: solution(1.0, x)  # noqa: E731
    return _brownian(dim, 1.0, 1.0, driver, terminal, num_steps)


@_cached
def black_scholes_barenblatt(dim: int = 100, num_steps: int = 50) -> Problem:
    """Return the equation of Black, Scholes and Barenblatt.

    u = exp((r + s^2) (T - t)) |x|^2, r = .05, s = .4. Raissi (2018), section 4.1.

    Args:
        dim: The number of assets.
        num_steps: The number of time steps.

    Examples:
        >>> black_scholes_barenblatt(5).dim
        5
    """
    x0 = jnp.where(jnp.arange(dim) % 2 == 0, 1.0, 0.5)
    driver = lambda t, x, y, z: -0.05 * (y - jnp.sum(z) / 0.4)  # noqa: E731
    terminal = lambda x: jnp.sum(x**2)  # noqa: E731
    return _assets(dim, 1.0, 0.0, driver, terminal, num_steps, x0, vol=0.4)


@_cached
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
    return _brownian(dim, 1.0, vol, driver, terminal, num_steps, x0=1.0, drift=drift)


def max_call(dim: int = 5, spot: float = 100.0, num_steps: int = 36) -> Problem:
    """Return a Bermudan call on the best of independent assets: nine dates in three years.

    Andersen, Broadie (2004), table 2: K = 100, r = .05, q = .1, sigma = .2.

    Args:
        dim: The number of assets.
        spot: The spot of every asset (currency).
        num_steps: The number of time steps.

    Examples:
        >>> max_call(2, num_steps=9).exercise_dates
        (1, 2, 3, 4, 5, 6, 7, 8, 9)
    """
    # fields of contracts and models turn numbers into arrays, which the checker does not see
    call = Bermudan(Basket(100.0, 3.0, kind="max"), np.arange(1, 10) / 3.0)  # pyright: ignore[reportCallIssue, reportArgumentType]
    model = BlackScholes(dim * [spot], 0.05, dim * [0.2], dim * [0.1])  # pyright: ignore[reportArgumentType]
    return from_product(call, model, num_steps)


def geometric_call(dim: int = 7, num_steps: int = 50) -> Problem:
    """Return a Bermudan call on the geometric mean of correlated assets: fifty dates in two years.

    K = 100, r = 0, q = .02, sigma = .25, rho = .75, as in Chen, Wan, "Deep neural network framework based on
    backward stochastic differential equations for pricing and hedging American options" (2021).

    Args:
        dim: The number of assets.
        num_steps: The number of time steps.

    Examples:
        >>> geometric_call(2).dim
        2
    """
    return _geometric("call", dim, 2.0, 0.0, 0.02, 0.25, 0.75, num_steps)


def geometric_put(dim: int = 10, num_steps: int = 50) -> Problem:
    """Return a Bermudan put on the geometric mean of correlated assets: fifty dates in a quarter of a year.

    As `geometric_call` with r = .03, q = 0, sigma = .2, rho = .5.

    Args:
        dim: The number of assets.
        num_steps: The number of time steps.

    Examples:
        >>> geometric_put(2).dim
        2
    """
    return _geometric("put", dim, 0.25, 0.03, 0.0, 0.2, 0.5, num_steps)


def _geometric(option, dim, expiry, rate, dividend_yield, vol, rho, num_steps) -> Problem:
    basket = Basket(100.0, expiry, option, kind="geometric")  # pyright: ignore[reportArgumentType]
    put = Bermudan(basket, expiry * np.arange(1, 51) / 50.0)  # pyright: ignore
    correlation = np.full((dim, dim), rho) + (1.0 - rho) * np.eye(dim)
    yields = dim * [dividend_yield]
    model = BlackScholes(dim * [100.0], rate, dim * [vol], yields, correlation=correlation)
    return from_product(put, model, num_steps)


def down_and_out_call(barrier: float = 90.0, num_steps: int = 50) -> Problem:
    """Return a call that ends when the spot is below the barrier on one of fifty dates.

    K = 100, r = .1, sigma = .3, a fifth of a year.

    Args:
        barrier: The barrier (currency).
        num_steps: The number of time steps.

    Examples:
        >>> len(down_and_out_call(90.0).stopping_dates)
        50
    """
    dates = 0.2 * np.arange(1, 51) / 50.0
    call = Barrier(100.0, 0.2, barrier, "down-and-out", dates=dates)  # pyright: ignore[reportCallIssue, reportArgumentType]
    return from_product(call, BlackScholes(100.0, 0.1, 0.3), num_steps)  # pyright: ignore[reportArgumentType]


def gaussian_swaption(num_steps: int = 72) -> Problem:
    """Return a Bermudan payer swaption under Hull and White's short rate, r = .03 + x.

    Ten annual payments of .0304545, exercisable after 1, ..., 9 years; a = .03, sigma = .01. Andersen,
    Piterbarg (2010), section 10.1.

    Args:
        num_steps: The number of time steps.

    Examples:
        >>> gaussian_swaption(9).num_steps
        9
    """
    years = np.arange(1.0, 11.0)
    swaption = BermudanSwaption(0.0304545, years[:-1], years, np.ones(10))  # pyright: ignore[reportArgumentType]
    return from_product(swaption, HullWhite(0.03, 0.03, 0.01), num_steps)  # pyright: ignore[reportArgumentType]


def _two_rates(t, x, y, z):
    """Return f for an excess return of .02 / .2 of every asset; lending earns .04, borrowing costs .06."""
    lend, borrow, vol, drift = 0.04, 0.06, 0.2, 0.06
    held = jnp.sum(z) / vol
    return -lend * y - (drift - lend) * held + (borrow - lend) * jnp.maximum(held - y, 0.0)


def _assets(dim, maturity, drift, driver, terminal, num_steps, x0: Any = 100.0, vol=0.2) -> Problem:
    """Return a problem on independent lognormal assets, stepped exactly."""
    return Problem(
        dim,
        maturity,
        x0,
        drift=lambda t, x: drift * x,
        diffusion=lambda t, x: vol * x,
        driver=driver,
        terminal=terminal,
        num_steps=num_steps,
        step=lambda t, dt, x, dw: x * jnp.exp((drift - 0.5 * vol**2) * dt + vol * dw),
    )


def _brownian(dim, maturity, vol, driver, terminal, num_steps, x0=0.0, drift=0.0) -> Problem:
    """Return a problem on independent Brownian motions of one vol and drift."""
    return Problem(
        dim,
        maturity,
        x0,
        drift=lambda t, x: jnp.full_like(x, drift),
        diffusion=lambda t, x: vol,
        driver=driver,
        terminal=terminal,
        num_steps=num_steps,
    )
