"""Published contracts: options on many assets, a barrier, a swaption."""

import numpy as np

from ...models import BlackScholes, HullWhite
from ...products import Barrier, Basket, Bermudan, BermudanSwaption
from ..from_pricing import from_product
from ..problem import Problem


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
    # fields convert numbers to arrays, which the type checker does not see
    call = Bermudan(Basket(100.0, 3.0, average="max"), np.arange(1, 10) / 3.0)  # pyright: ignore[reportCallIssue, reportArgumentType]
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

    Like `geometric_call`, with r = .03, q = 0, sigma = .2, rho = .5.

    Args:
        dim: The number of assets.
        num_steps: The number of time steps.

    Examples:
        >>> geometric_put(2).dim
        2
    """
    return _geometric("put", dim, 0.25, 0.03, 0.0, 0.2, 0.5, num_steps)


def _geometric(option, dim, expiry, rate, dividend_yield, vol, rho, num_steps) -> Problem:
    basket = Basket(100.0, expiry, option, average="geometric")  # pyright: ignore[reportArgumentType]
    put = Bermudan(basket, expiry * np.arange(1, 51) / 50.0)  # pyright: ignore
    correlation = np.full((dim, dim), rho) + (1.0 - rho) * np.eye(dim)
    yields = dim * [dividend_yield]
    model = BlackScholes(dim * [100.0], rate, dim * [vol], yields, asset_correlation=correlation)
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
    """Return a Bermudan payer swaption under the Hull-White short rate, r = .03 + x.

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
