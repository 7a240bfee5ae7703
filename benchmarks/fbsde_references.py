"""References for the problems of `fbsde_unseen` without simulation: closed forms, quadrature and grids."""

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.interpolate import CubicSpline

from pricing import greeks, price


class Reference(NamedTuple):
    """Value, gradient, and the Hessian or its diagonal at x0."""

    value: Any
    delta: np.ndarray
    gamma: np.ndarray


def of_function(u: Callable, x0: Any, whole: bool = False) -> Reference:
    """Return the reference of a closed form that JAX differentiates; with its whole Hessian if asked for."""
    x0 = jnp.asarray(x0, float)
    slope, second = jax.jacfwd(u)(x0), np.asarray(jax.hessian(u)(x0))
    return Reference(float(u(x0)), np.asarray(slope), second if whole else np.diag(second))


def of_pricing(product: Any, model: Any, method: Any = None) -> Reference:
    """Return the reference of a contract on one asset, by quadrature, finite differences or a closed form."""
    found = greeks(product, model, method)
    value = float(price(product, model, method).value)
    return Reference(value, np.array([float(found.delta)]), np.array([float(found.gamma)]))


def of_geometric(one: Reference, mean: float, dim: int, spot: float) -> Reference:
    """Return the reference on the geometric mean of equal assets, from that on the mean as one asset."""
    slope = mean / (dim * spot)
    delta, gamma = one.delta[0] * slope, one.gamma[0] * slope**2
    gamma += one.delta[0] * mean / (dim * spot) ** 2 * (1.0 - dim)
    return Reference(one.value, np.full(dim, delta), np.full(dim, gamma))


def hjb(dim: int, x0: np.ndarray, maturity: float = 1.0) -> Reference:
    """u = -log E exp(-g(x + sqrt(2 T) N)), g = log((1 + |x|^2) / 2), E by the Laplace transform of |x|^2.

    exp(-g) = 2 / (1 + |X|^2) = 2 int exp(-s (1 + |X|^2)) ds, and |X|^2 has a noncentral chi-squared law.
    """
    logs = np.linspace(-25.0, 5.0, 601)  # of s; the error of the trapezoidal rule is below rounding
    nodes = np.exp(logs)
    weights = (logs[1] - logs[0]) * nodes * np.exp(-nodes)
    variance = 2.0 * maturity

    def u(x):
        spread = 1.0 + 2.0 * variance * nodes
        transform = jnp.exp(-nodes * jnp.sum(x**2) / spread) * spread ** (-0.5 * dim)
        return -jnp.log(2.0 * jnp.sum(jnp.asarray(weights) * transform))

    return of_function(u, x0)


class Lognormal(NamedTuple):
    """One asset, dX = b X dt + s X dW."""

    drift: float
    vol: float


def of_recursion(
    asset: Lognormal, maturity: float, x0: float, terminal: Callable, driver: Callable
) -> Reference:
    """Solve -dY = f(y, z) dt - Z dW on one asset, on a grid of log-states, with Richardson extrapolation."""
    coarse, fine = (_recursion(asset, maturity, x0, terminal, driver, n) for n in (200, 400))
    value, delta, gamma = (2.0 * b - a for a, b in zip(coarse, fine, strict=True))
    return Reference(float(value), np.array([delta]), np.array([gamma]))


def _recursion(asset, maturity, x0, terminal, driver, steps: int) -> np.ndarray:
    dt = maturity / steps
    grid = _grid(asset.vol, maturity)
    law = _law(grid, (asset.drift - 0.5 * asset.vol**2) * dt, asset.vol * dt**0.5)
    noise = (grid[None] - grid[:, None] - (asset.drift - 0.5 * asset.vol**2) * dt) / asset.vol / dt
    of_z = law * noise
    y = terminal(x0 * np.exp(grid))
    for _ in range(steps):
        mean = law @ y
        y = mean + driver(mean, of_z @ y) * dt
    value, slope, second = (float(CubicSpline(grid, y)(0.0, n)) for n in range(3))
    return np.array([value, slope / x0, (second - slope) / x0**2])


def of_assets(
    vols: tuple[float, ...],
    rate: float,
    dividend_yield: float,
    dates: np.ndarray,
    payoff: Callable,
    x0: float,
    points: int = 1201,
) -> Reference:
    """Return the reference of an early-exercise contract on independent assets, on a grid of log-spots."""
    grids = [_grid(vol, dates[-1], points) for vol in vols]
    paid = payoff(*(x0 * np.exp(x) for x in np.meshgrid(*grids, indexing="ij", sparse=True)))
    y, steps = paid, np.diff(np.concatenate([[0.0], dates]))
    for index, dt in reversed(list(enumerate(steps))):
        for axis, (vol, grid) in enumerate(zip(vols, grids, strict=True)):
            law = _law(grid, (rate - dividend_yield - 0.5 * vol**2) * dt, vol * dt**0.5)
            y = np.moveaxis(np.tensordot(law, y, (1, axis)), 0, axis)
        y = np.exp(-rate * dt) * y
        y = np.maximum(y, paid) if index > 0 else y
    middle = tuple([points // 2] * len(vols))
    slope, bend = np.zeros((2, len(vols)))
    for axis, grid in enumerate(grids):
        line = tuple(slice(None) if k == axis else i for k, i in enumerate(middle))
        curve = CubicSpline(grid, y[line])
        slope[axis], bend[axis] = curve(0.0, 1), curve(0.0, 2)
    return Reference(float(y[middle]), slope / x0, (bend - slope) / x0**2)


def bermudan_puts_on_geometric_means(
    spots: np.ndarray,
    covariance: np.ndarray,
    rate: float,
    weights: np.ndarray,
    strikes: np.ndarray,
    dates: np.ndarray,
    points: int = 2001,
) -> Reference:
    """Return references of puts on weighted geometric means, in money: x_i Delta_i and x_i x_j Gamma_ij.
    The logarithm of each mean is a Brownian motion with drift. Normalized by drift and vol, all contracts share
    one motion, with one transition density on one grid. Today's derivatives are those of the first step's
    density.
    """
    vols = np.sqrt(np.einsum("ci,ij,cj->c", weights, covariance, weights))
    drifts, logs = weights @ (rate - 0.5 * np.diag(covariance)), weights @ np.log(spots)
    grid = _grid(1.0, dates[-1], points)

    def paid(t: float) -> np.ndarray:
        means = np.exp((logs + drifts * t)[:, None] + vols[:, None] * grid)
        return strikes[:, None] - means

    y = _larger(paid(dates[-1]), np.zeros((len(strikes), len(grid))))
    for before, after in reversed(list(itertools.pairwise(dates))):
        law = _law(grid, 0.0, (after - before) ** 0.5)
        y = _larger(paid(before), np.exp(-rate * (after - before)) * (y @ law.T))
    first = dates[0]
    today = np.exp(-0.5 * grid**2 / first) * (grid[1] - grid[0]) / (2.0 * np.pi * first) ** 0.5
    today *= np.exp(-rate * first)
    value, slope, bend = (
        y @ today,
        y @ (today * grid / first),
        y @ (today * (grid**2 / first - 1.0) / first),
    )
    delta = weights * (slope / vols)[:, None]
    gamma = weights[:, :, None] * weights[:, None] * (bend / vols**2)[:, None, None]
    return Reference(value, delta, gamma - delta[:, :, None] * np.eye(len(spots)))


def _larger(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return max(a, b) at nodes along the last axis, so that a sum over nodes also integrates its kinks.

    At a kink between two nodes, a share s of their distance after the first, the sum misses the jump of the
    slope times (s^2 - s + 1/6) / 2 to leading order (Euler-Maclaurin). It is added to the two nodes.
    """
    found, difference = np.maximum(a, b), a - b
    left, right = difference[..., :-1], difference[..., 1:]
    jump = np.where(left * right < 0.0, np.abs(left - right), 0.0)
    share = np.abs(left) / np.where(jump > 0.0, jump, 1.0)
    missed = jump * (share**2 - share + 1.0 / 6.0) / 2.0
    found[..., :-1] += (1.0 - share) * missed
    found[..., 1:] += share * missed
    return found


def _grid(vol: float, maturity: float, points: int = 2001) -> np.ndarray:
    reach = 7.0 * vol * maturity**0.5
    return np.linspace(-reach, reach, points)


def _law(grid: np.ndarray, mean: float, std: float) -> np.ndarray:
    """Return the transition probabilities between nodes in a step."""
    density = np.exp(-0.5 * ((grid[None] - grid[:, None] - mean) / std) ** 2)
    return density * (grid[1] - grid[0]) / (std * (2.0 * np.pi) ** 0.5)


def black_scholes(spot: Any, strike: float, rate: float, vol: float, expiry: float) -> Any:
    """Return a call's Black-Scholes value, which JAX can differentiate."""
    std = vol * expiry**0.5
    d = (jnp.log(spot / strike) + rate * expiry) / std + 0.5 * std
    cdf = jax.scipy.special.ndtr
    return spot * cdf(d) - strike * jnp.exp(-rate * expiry) * cdf(d - std)


def margrabe(x: Any, vols: tuple[float, float], expiry: float) -> Any:
    """Return Margrabe's value of the exchange of the second asset for the first."""
    std = (vols[0] ** 2 + vols[1] ** 2) ** 0.5 * expiry**0.5
    d = jnp.log(x[0] / x[1]) / std + 0.5 * std
    cdf = jax.scipy.special.ndtr
    return x[0] * cdf(d) - x[1] * cdf(d - std)


def geometric_law(dim: int, drift: float, vol: float, rho: float) -> tuple[float, float]:
    """Return the drift and vol of the geometric mean of equal correlated assets, as one asset."""
    own = vol * (1.0 / dim + rho * (1.0 - 1.0 / dim)) ** 0.5
    return own, drift - 0.5 * vol**2 + 0.5 * own**2
