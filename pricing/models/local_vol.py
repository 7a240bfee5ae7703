"""Local volatility: dS = (r - q) S dt + sigma(t, S) S dW, with sigma implied by a vol surface."""

import abc
from dataclasses import replace
from typing import ClassVar, NamedTuple, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

import jaxtape
from jaxtape import AbstractSchedule

from ..fields import FlatOr, Number, Numeric, are_known, finite_numbers, positive
from ..market import VolSurface
from ..numerics.differentiable_once import differentiable_once
from ..numerics.safe_math import safe_sqrt
from ..results import RESULTS
from .model import (
    AbstractEquityModel,
    ConditionallyGaussian,
    Discounts,
    LogSpotSteps,
    Scalar,
    flat_or_curve,
)
from .shapes import Correlation, Steps, Times
from .smile import Smile

Points = Float[Array, " points"]

_WHY_ONCE = (
    "Paths under a local volatility have kinks where they pass a quoted strike: their second derivative is "
    "wrong. Differentiate once, or use FiniteDifference() for Gamma, where it applies."
)


@runtime_checkable
class LocalVariance(Protocol):
    """Variances of the log-spot as functions of time (years) and log-moneyness k = log(spot / forward(t))."""

    def local_variance(self, start: Scalar, end: Scalar, k: Points) -> Points:
        """Return the integral of sigma^2 from `start` to `end` at k; NaN where there is none."""
        ...

    def total_variance(self, t: Scalar, k: Points) -> Points:
        """Return the implied variance to t at k, which sets the width of a grid."""
        ...


class LocalVolatility(ConditionallyGaussian):
    """Ability: one asset whose volatility is a function of time and spot.

    A walk takes Euler steps of the log-spot. The noise determines all steps except the last, which is returned
    as mean and variance.

    Attributes:
        moves_with_spot: Whether `local_variances` depends on the spot; if not, samples are smooth in the spot.
    """

    moves_with_spot: ClassVar[bool] = True

    @property
    @abc.abstractmethod
    def local_variances(self) -> LocalVariance:
        """The variances by time and log-moneyness."""

    @property
    def residual_correlation(self) -> Correlation:
        return jnp.ones((1, 1), self.spot.dtype)

    def walk(self, noise: Steps, times: Times, schedule: AbstractSchedule) -> LogSpotSteps:
        """Return Euler steps with time-integrated variances. Samples may be differentiated once."""
        starts = jnp.concatenate([jnp.zeros_like(times[:1]), times[:-1]])

        def positions(variances, starts, times, noise):
            def step(x, of_step):
                start, end, z = of_step
                moves = end > start
                variance = variances.local_variance(start, jnp.where(moves, end, start + 1.0), x)
                variance = jnp.where(moves, variance, 0.0)
                move = safe_sqrt(variance) * z - 0.5 * variance
                return x + move, (move, variance)

            origin = jnp.zeros_like(noise[0])
            return jaxtape.scan(step, origin, (starts, times, noise), schedule=schedule)[1]

        moves, variances = differentiable_once(positions, _WHY_ONCE)(
            self.local_variances, starts, times, noise
        )
        is_last = (jnp.arange(times.size) == times.size - 1)[:, None]
        mean = jnp.where(is_last, -0.5 * variances, moves)
        still = jnp.zeros_like(variances)
        return LogSpotSteps(
            mean, jnp.where(is_last, variances, 0.0), variances, still, times - starts
        )

    def marginals(self, walk: LogSpotSteps) -> tuple[Steps, Steps]:
        """Return mean and variance of log(S / forward) at the end of each step, given the path to its start."""
        before = jnp.cumsum(walk.mean, axis=0) - walk.mean
        return before - 0.5 * walk.bridge_variance, walk.bridge_variance


class Arbitrage(NamedTuple):
    """A point at which quotes admit no local volatility.

    Attributes:
        kind: "calendar" (the total variance decreases in time) or "butterfly" (the density is negative).
        time: The time, in years.
        strike: The strike, in units of the spot.
    """

    kind: str
    time: float
    strike: float


class LocalVol(LocalVolatility):
    """One asset whose volatility is a function of time and spot that reprices all quotes of a surface.

    sigma^2(t, K) = dw/dt / ((1 - k w' / 2 w)^2 - (w' / 2)^2 (1 / w + 1 / 4) + w'' / 2), with w the implied
    total variance at k = log(K / forward(t)) and w' its slope in k: Dupire (1994), in the form of Gatheral
    (2006), eq. 1.10. Quotes are interpolated by natural cubic splines of w in k at each expiry, and linearly in
    time (`Smile`). If they have an arbitrage, there is no local volatility: values are NaN
    (`RESULTS.arbitrage`), and `arbitrages` locates it. When the spot moves, the implied vol at each strike is
    unchanged.

    Attributes:
        spot: The price of the asset, in currency.
        rate: The interest rate per year, continuous, a number or a curve.
        surface: The quotes, with at least two strikes at each expiry.
        dividend_yield: The dividend yield less the cost of borrow per year, continuous, a number or a curve.

    Raises:
        ValueError: An expiry has a single strike, or a vol in a row of strikes is missing.

    Examples:
        >>> from pricing import LocalVol, VolSurface
        >>> surface = VolSurface([0.5, 1.0], [90.0, 110.0], [[0.22, 0.2], [0.23, 0.21]])
        >>> LocalVol(100.0, 0.03, surface).residual_correlation.shape
        (1, 1)
    """

    spot: Numeric[Float[Array, ""]] = positive("spot")
    rate: FlatOr[Discounts] = flat_or_curve("rate")
    surface: VolSurface = eqx.field(converter=finite_numbers("surface"))  # pyright: ignore[reportGeneralTypeIssues]
    dividend_yield: FlatOr[Discounts] = flat_or_curve("dividend_yield", default=0.0)

    def __check_init__(self):
        if self.surface.vols.shape[-1] < 2:
            raise ValueError(
                "a surface with one strike has no slope: give LocalVol at least two strikes"
            )
        known = are_known(self.surface.vols)
        alone = np.isnan(np.asarray(self.surface.vols)[..., 1]) if known else np.zeros(1, bool)
        if np.any(alone):
            expiry = self.surface.expiries[int(np.argmax(alone))]
            raise ValueError(
                f"the expiry {expiry:g} has one quote and no slope: give LocalVol at least two"
            )

    @property
    def local_variances(self) -> Smile:
        """The total variances of the surface, smooth in strike."""
        surface = self.surface
        dtype = self.spot.dtype
        expiries = surface.expiries.astype(dtype)
        forwards = jax.vmap(self.forward)(expiries)
        strikes, vols = (x.astype(dtype) for x in surface.rows)
        nodes = jnp.log(strikes / forwards[:, None])
        return Smile.through(expiries, nodes, vols**2 * expiries[:, None])

    def arbitrages(self) -> list[Arbitrage]:
        """Return the arbitrages of the quotes, at and between strikes, and between and before expiries."""
        times, strikes, growth, middle, late = _arbitrage_numbers(self)
        tests = (
            ("calendar", growth, times),
            ("butterfly", middle, times - 0.5 * np.diff(times, prepend=0.0)),
            ("butterfly", late, times),
        )
        return [
            Arbitrage(kind, float(when[i]), float(strikes[j]))
            for kind, number, when in tests
            for i, j in np.argwhere(~(number > 0.0))
        ]

    def why_not_finite(self) -> RESULTS:
        return RESULTS.arbitrage if self.arbitrages() else RESULTS.non_finite

    def with_vol_shift(self, vol: Number) -> AbstractEquityModel:
        return replace(self, surface=self.surface.shifted(vol))


def _arbitrage_numbers(model: LocalVol) -> tuple[np.ndarray, ...]:
    """Return expiries and strikes, and at each pair the growth and the densities midway and at the expiry."""

    @eqx.filter_jit
    def numbers(model, strikes):
        smile = model.local_variances
        starts = jnp.concatenate([jnp.zeros_like(smile.expiries[:1]), smile.expiries[:-1]])

        def at(start, end):
            k = jnp.log(strikes / model.forward(end))
            return *smile.step(start, end, k), smile.step(end, end, k)[1]

        return jax.vmap(at)(starts, smile.expiries)

    strikes = model.surface.all_strikes.astype(model.spot.dtype)
    strikes = np.sort(np.concatenate([strikes, 0.5 * (strikes[1:] + strikes[:-1])]))
    found = (model.surface.expiries, strikes, *numbers(model, strikes))
    return tuple(np.asarray(x) for x in found)
