"""A term structure of implied volatilities."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, ArrayLike, Float, Num

from .interpolation import as_floats, as_leaf, interpolate


class VolCurve(eqx.Module):
    """Implied vols at pillar times, the same for every strike.

    The total variance vol^2 t is linear in time between the pillars and from zero today; beyond the last
    pillar the vol is flat. Shapes that do not fit raise ValueError, and so does a total variance that falls:
    no volatility between two dates has a negative square.

    Attributes:
        times: Years (ACT/365), above 0, strictly increasing, of shape (pillars,).
        vols: Decimals per square root of a year, of shape (pillars,).

    Examples:
        >>> from pricing import VolCurve
        >>> curve = VolCurve([1.0, 2.0], [0.2, 0.25])
        >>> f"{curve.total_variance(1.5):.4f}"
        '0.0825'
    """

    times: Float[Array, " pillars"] = eqx.field(converter=as_leaf)
    vols: Float[Array, " pillars"] = eqx.field(converter=as_leaf)

    def __check_init__(self):
        if self.times.ndim != 1 or self.times.shape != self.vols.shape or not self.times.size:
            raise ValueError(
                f"a term structure with times of shape {self.times.shape} and vols of shape "
                f"{self.vols.shape}: give one vol for each of one or more times"
            )

        known = not isinstance(self.vols, Tracer) and not isinstance(self.times, Tracer)
        totals = np.asarray(self.vols) ** 2 * np.asarray(self.times) if known else np.zeros(1)
        if np.any(np.diff(totals, prepend=0.0) < 0.0):
            raise ValueError(
                f"the total variance vol^2 t falls between the times {self.times}, it is {totals}: such "
                "quotes have an arbitrage; correct the vol that is too low"
            )

    def total_variance(self, t: Num[ArrayLike, "..."]) -> Float[Array, "..."]:
        """Return the variance of the log-spot from today to `t`, in years, in the shape of `t`."""
        zero = jnp.zeros_like(self.times[:1])
        pillars = jnp.concatenate([zero, self.times])
        totals = jnp.concatenate([zero, self.vols**2 * self.times])
        between = interpolate(t, pillars, totals)
        beyond = jnp.maximum(as_floats(t) - self.times[-1], 0.0)
        return between + self.vols[-1] ** 2 * beyond

    def shifted(self, vol: Num[ArrayLike, ""]) -> "VolCurve":
        """Return the term structure with every vol up by `vol` (per 1.00)."""
        return VolCurve(self.times, self.vols + vol)
