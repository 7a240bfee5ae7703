"""Heston: dS = (r - q) S dt + sqrt(v) S dW, dv = kappa (theta - v) dt + xi sqrt(v) dB, d<W, B> = rho dt."""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero
from jaxtyping import Array, Float, PyTree

import jaxtape

from ..fields import (
    FlatOr,
    Number,
    Numeric,
    between,
    correlations,
    non_negative,
    not_below_zero,
    positive,
)
from ..market import SwaptionVols
from ..numerics.complex_functions import exp, log1p_over, reciprocal, sqrt
from ..results import RESULTS
from .at_the_money import AtTheMoney, with_parameters
from .free_parameters import Calibratable, Exp, FreeParameter, Tanh
from .model import (
    AbstractEquityModel,
    CharacteristicFunction,
    Discounts,
    Joinable,
    Quotes,
    Scalar,
    flat_or_curve,
    stacked,
)
from .quadratic_exponential import QuadraticExponential
from .shapes import Correlation, Frequencies, Numbers
from .stochastic_variance import StochasticVariance


class Heston(StochasticVariance, CharacteristicFunction, Joinable, Calibratable):
    """Mean-reverting stochastic variance, correlated with the spot.

    dS = (r - q) S dt + sqrt(v) S dW, dv = kappa (theta - v) dt + xi sqrt(v) dB, d<W, B> = rho dt. The Feller
    condition is not required. Several assets have arrays in place of numbers (`StochasticVariance`).

    Heston (1993), eq. 1 and 4.

    Attributes:
        spot: The price of the asset, or the prices of several, of shape (assets,), in currency.
        rate: r per year, continuous, a number or a curve.
        initial_variance: v0 per year.
        mean_reversion: kappa per year.
        long_run_variance: theta per year.
        vol_of_vol: xi per year.
        correlation: rho, in [-1, 1].
        dividend_yield: q per year, continuous: the yield of each asset less its cost of borrow, a number or a
            curve.
        asset_correlation: The correlations of several assets, of shape (assets, assets); None if independent.

    Examples:
        >>> from pricing import Heston
        >>> model = Heston(100.0, 0.03, 0.04, 1.5, 0.06, 0.6, -0.7)
        >>> f"{model.mean_variance(0.04, 1.0):.4f}"
        '0.0555'
    """

    spot: Numeric[Float[Array, "*assets"]] = positive("spot")
    rate: FlatOr[Discounts] = flat_or_curve("rate")
    initial_variance: Numeric[Float[Array, "*assets"]] = non_negative("initial_variance")
    mean_reversion: Numeric[Float[Array, "*assets"]] = positive("mean_reversion")
    long_run_variance: Numeric[Float[Array, "*assets"]] = non_negative("long_run_variance")
    vol_of_vol: Numeric[Float[Array, "*assets"]] = positive("vol_of_vol")
    correlation: Numeric[Float[Array, "*assets"]] = between("correlation", -1.0, 1.0)
    dividend_yield: FlatOr[Discounts] = flat_or_curve("dividend_yield", default=0.0)
    asset_correlation: Numeric[Correlation | None] = correlations("asset_correlation", default=None)

    label: ClassVar[str] = "Heston"
    free_parameters: ClassVar[Mapping[str, FreeParameter]] = {
        "initial_variance": FreeParameter(Exp(), start=0.1, low=0.01, high=0.5),
        "mean_reversion": FreeParameter(Exp(), start=1.0, low=0.2, high=20.0),
        "long_run_variance": FreeParameter(Exp(), start=0.1, low=0.01, high=0.5),
        "vol_of_vol": FreeParameter(Exp(), start=0.5, low=0.1, high=4.0),
        "correlation": FreeParameter(Tanh(), start=-0.5, low=-0.9, high=0.5),
    }

    def log_characteristic(self, u: Frequencies, t: Scalar) -> Frequencies:
        """Return log E[exp(i u X)], free of branch cuts (Albrecher et al. 2007), stable as vol_of_vol -> 0.

        With beta = kappa - rho xi i u, D = sqrt(beta^2 + xi^2 (u^2 + i u)), A = (beta - D) / xi^2 and
        g = (beta - D) / (beta + D):
        v0 A (1 - e^{-Dt}) / (1 - g e^{-Dt}) + kappa theta (A t - 2 log((1 - g e^{-Dt}) / (1 - g)) / xi^2).
        """
        v0, kappa, theta, xi, rho, t = (
            x.astype(u.dtype)
            for x in (
                self.initial_variance, self.mean_reversion, self.long_run_variance,
                self.vol_of_vol, self.correlation, t,
            )
        )  # fmt: skip
        iu = u * jnp.asarray(1j, u.dtype)
        of_level, of_start = _exponents(u * u + iu, kappa - rho * xi * iu, xi * xi, t)
        return kappa * theta * of_level + v0 * of_start

    def mean_variance(self, variance: Numbers, t: Numbers) -> Numbers:
        """Return theta + (v - theta) e^{-kappa t}."""
        excess = variance - self.long_run_variance
        return self.long_run_variance + excess * jnp.exp(-self.mean_reversion * t)

    def mean_integral(self, variance: Numbers, t: Numbers) -> Numbers:
        """Return theta t + (v - theta) (1 - e^{-kappa t}) / kappa."""
        excess = variance - self.long_run_variance
        decayed = -jnp.expm1(-self.mean_reversion * t) / self.mean_reversion
        return self.long_run_variance * t + excess * decayed

    def tail_rate(self, t: Scalar) -> tuple[Scalar, Scalar]:
        """Return (sqrt(1 - rho^2), -rho) (v0 + kappa theta t) / xi."""
        scale = self.initial_variance + self.mean_reversion * self.long_run_variance * t
        over = scale / self.vol_of_vol
        return jnp.sqrt(1.0 - self.correlation**2) * over, -self.correlation * over

    def variance_drift(self, v: Numbers) -> Numbers:
        return self.mean_reversion * (self.long_run_variance - v)

    def variance_of_variance(self, v: Numbers) -> Numbers:
        return self.vol_of_vol**2 * v

    def spot_covariance(self, v: Numbers) -> Numbers:
        return self.correlation * self.vol_of_vol * v

    def highest_variance(self, t: Scalar) -> Scalar:
        """Return the larger of v0 and theta plus at least four standard deviations, more if they are small."""
        kappa = self.mean_reversion
        level = jnp.maximum(self.initial_variance, self.long_run_variance)
        scale = -0.5 * self.vol_of_vol**2 * jnp.expm1(-kappa * t) / kappa
        return level + 4.0 * jnp.sqrt(level * scale) + 6.0 * scale

    def variance_scheme(self, dt: Scalar) -> QuadraticExponential:
        """Return Andersen's QE-M scheme, which never differentiates a square root at zero variance.

        Paths are continuous in the parameters except at the scheme's switch, with a kink where the variance
        reaches zero.
        """
        return QuadraticExponential.of(
            self.mean_reversion, self.long_run_variance, self.vol_of_vol, self.correlation, dt
        )

    def why_not_finite(self) -> RESULTS:
        still = bool(jnp.any((self.initial_variance <= 0.0) & (self.long_run_variance <= 0.0)))
        return RESULTS.no_volatility if still else RESULTS.non_finite

    def with_vol_shift(self, vol: Number) -> AbstractEquityModel:
        """Return the model with sqrt(v0) and sqrt(theta) shifted by `vol`, a parallel shift of the level."""
        levels = self.initial_variance, self.long_run_variance
        start, long_run = (not_below_zero("vol", jnp.sqrt(level) + vol) ** 2 for level in levels)
        return replace(self, initial_variance=start, long_run_variance=long_run)

    def starting_for(self, quotes: Quotes) -> "Heston":
        """Return the model with at-the-money variances of first and last expiry, and vol of vol to scale."""
        return with_parameters(self, **starts_at_the_money(self, quotes))

    @classmethod
    def joined(cls, models: Sequence["Heston"], asset_correlation: Correlation) -> "Heston":
        return stacked(models, asset_correlation=asset_correlation)


def starts_at_the_money(model: AbstractEquityModel, quotes: Quotes) -> dict[str, float]:
    """Return field -> start of a stochastic variance from at-the-money vols; empty if there are none.

    The vol of vol is proportional to the vol, so that the vol of log-vol does not depend on the level.
    """
    found = AtTheMoney.of(quotes, model) if not isinstance(quotes, SwaptionVols) else None
    if found is None:
        return {}
    first, last = found.vols[[0, -1]].tolist()
    return {
        "initial_variance": first**2,
        "long_run_variance": last**2,
        "vol_of_vol": _VOL_OF_LOG_VARIANCE * first,
    }


_VOL_OF_LOG_VARIANCE = 1.6  # vol of variance over vol: .5 at a vol of 31 %


class _Exponents(NamedTuple):
    """The factors of kappa theta and of v0 in `Heston.log_characteristic`."""

    of_level: Frequencies
    of_start: Frequencies


@jax.custom_jvp
def _exponents(symbol: Frequencies, beta: Frequencies, xi2: Array, t: Array) -> _Exponents:
    return _exponents_and_slopes((symbol, beta, xi2, t), (False,) * 4)[0]


@functools.partial(_exponents.defjvp, symbolic_zeros=True)
def _exponents_jvp(primals, tangents):
    """Compute each slope once for any number of directions."""
    moves = tuple(not isinstance(tangent, SymbolicZero) for tangent in tangents)
    values, slopes = _exponents_and_slopes(primals, moves)
    return values, _along(values, slopes, tangents)


def _along(values: PyTree, slopes: Sequence[PyTree], tangents: Sequence[Any]) -> PyTree:
    """Return the sum of slopes times tangents, over the tangents that are not zero."""
    dots = [tangent for tangent in tangents if not isinstance(tangent, SymbolicZero)]
    parts = [
        jax.tree.map(lambda x, dot=dot: x * dot, x) for x, dot in zip(slopes, dots, strict=True)
    ]
    still = jax.tree.map(jnp.zeros_like, values)
    return jax.tree.map(lambda *x: functools.reduce(jnp.add, x), *(parts or [still]))


@functools.partial(jax.custom_jvp, nondiff_argnums=(1,))
def _exponents_and_slopes(
    at: tuple[Frequencies, Frequencies, Array, Array], moves: Sequence[bool]
) -> tuple[_Exponents, list[_Exponents]]:
    """Return the exponents, and their slopes in the arguments (symbol, beta, xi^2, t) with `moves`."""
    return _values_and_slopes(at, moves=moves)


@functools.partial(_exponents_and_slopes.defjvp, symbolic_zeros=True)
def _exponents_and_slopes_jvp(moves, primals, tangents):
    (at,), (dots,) = primals, tangents
    bends = tuple(not isinstance(dot, SymbolicZero) for dot in dots)
    found, curvatures = _slopes_and_curvatures(at, moves=moves, bends=bends)
    return found, _along(found, curvatures, dots)


@jaxtape.no_inline(static_argnames=("moves", "bends"))
def _slopes_and_curvatures(at, moves: Sequence[bool], bends: Sequence[bool]):
    """Return the result of `_values_and_slopes`, and its slopes in the entries of `at` with `bends`."""
    ones = [jnp.ones_like(x) for x in at]

    def slope(place: int):
        along = lambda x: _with_slopes((*at[:place], x, *at[place + 1 :]), moves)
        return jax.jvp(along, (at[place],), (ones[place],))[1]

    found = _with_slopes(at, moves)
    return found, [slope(place) for place, bends in enumerate(bends) if bends]


@jaxtape.no_inline(static_argnames="moves")
def _values_and_slopes(at, moves: Sequence[bool]) -> tuple[_Exponents, list[_Exponents]]:
    return _with_slopes(at, moves)


def _with_slopes(
    at: tuple[Frequencies, Frequencies, Array, Array], moves: Sequence[bool]
) -> tuple[_Exponents, list[_Exponents]]:
    symbol, beta, xi2, t = at
    root = sqrt(beta * beta + xi2 * symbol)
    per_sum = reciprocal(beta + root)
    a = -symbol * per_sum
    h = a * per_sum  # g / xi^2, which stays finite
    g = xi2 * h
    decay = exp(-root * t)
    lost = 1.0 - decay
    p, q = reciprocal(1.0 - g), reciprocal(1.0 - g * decay)
    # log((1 - g e) / (1 - g)) / xi^2 through z = g (1 - e) / (1 - g) / xi^2
    z = h * lost * p
    ratio, bend = log1p_over(xi2 * z)
    start = a * lost * q
    values = _Exponents(a * t - 2.0 * z * ratio, start)
    if not any(moves):
        return values, []

    per_root, zero = reciprocal(root), jnp.zeros_like(root)
    half = 0.5 * per_root
    falls = (1.0 + g) * per_sum * half
    ways = (  # the slopes of root, a, h, g, xi^2 and t
        (xi2 * half, -half, -falls, -xi2 * falls, 0.0, 0.0),
        (beta * per_root, -a * per_root, -2.0 * h * per_root, -2.0 * g * per_root, 0.0, 0.0),
        (symbol * half, a * a * half, a * h * per_root, h * beta * per_root, 1.0, 0.0),
        (zero, zero, zero, zero, 0.0, 1.0),
    )

    def slope(root_dot, a_dot, h_dot, g_dot, xi2_dot, t_dot):
        decay_dot = -decay * (t * root_dot + t_dot * root)
        z_dot = p * (h_dot * lost - h * decay_dot + z * g_dot)
        log_dot = q * (1.0 - g) * z_dot + xi2_dot * z * z * bend
        of_start = q * (a_dot * lost - a * decay_dot + start * (g_dot * decay + g * decay_dot))
        return _Exponents(a_dot * t + t_dot * a - 2.0 * log_dot, of_start)

    return values, [slope(*way) for way, moves in zip(ways, moves, strict=True) if moves]
