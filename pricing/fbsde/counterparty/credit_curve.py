"""Default intensities of one party, given or bootstrapped from CDS spreads."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...fields import Converted, Number, Numeric, between, is_traced, non_negative, pillars
from ...market.interpolation import check_shape
from ...models.model import Discounts
from ...numbers_shown import repr_with_numbers
from ...numerics.elimination import eliminate
from ...numerics.safe_math import clipped

_STEPS = 12
_PERIODS_A_YEAR = 4


class CreditCurve(eqx.Module):
    """Piecewise constant default intensities of one party, and its recovery.

    The survival probability to t is exp(-int_0^t h(s) ds), with h piecewise constant, also after the last time.

    Attributes:
        times: The ends of the pieces in years, above 0, strictly increasing, of shape (pillars,).
        hazard_rates: h per year, at least 0, of shape (pillars,).
        recovery: The fraction of a claim that is recovered after a default, in [0, 1].

    Raises:
        ValueError: The shapes do not match, the times do not increase, or a number is out of range.

    Examples:
        >>> from pricing.fbsde import CreditCurve
        >>> curve = CreditCurve([1.0, 5.0], [0.01, 0.03])
        >>> f"{curve.survival(2.0):.4f}"
        '0.9608'
    """

    __repr__ = repr_with_numbers

    times: Converted[Float[Array, " pillars"]] = pillars("times", "in years")
    hazard_rates: Converted[Float[Array, " pillars"]] = non_negative("hazard_rates", core=1)
    recovery: Numeric[Float[Array, ""]] = between("recovery", 0.0, 1.0, default=0.4)

    def __check_init__(self):
        check_shape("a credit curve", "hazard rate", self.hazard_rates, times=self.times)

    def cumulative_hazard(self, t: Number) -> Float[Array, "..."]:
        """Return int_0^t h(s) ds, of the shape of `t` (years)."""
        return _cumulative(self.times, self.hazard_rates, jnp.asarray(t, self.hazard_rates.dtype))

    def survival(self, t: Number) -> Float[Array, "..."]:
        """Return the survival probability to `t` (years), of the shape of `t`."""
        return jnp.exp(-self.cumulative_hazard(t))

    @classmethod
    def from_spreads(
        cls, times: Number, spreads: Number, curve: Discounts | Number, recovery: Number = 0.4
    ) -> "CreditCurve":
        """Return the curve that reprices credit default swaps, differentiable in spreads, rates and recovery.

        (1 - R) sum_j P(m_j) (S_{j-1} - S_j) = s sum_j (t_j - t_{j-1}) P(t_j) (S_{j-1} + S_j) / 2 over quarters
        up to each maturity, with m_j the midpoint of a quarter (O'Kane and Turnbull 2003). Derivatives are
        those of the root (implicit function theorem).

        Args:
            times: The maturities in years, increasing.
            spreads: The par spreads per year, as decimals.
            curve: Zero rates (`ZeroCurve`), or one flat rate.
            recovery: R.

        Raises:
            ValueError: The spreads decrease so fast that an intensity would be negative.
        """
        flat = cls(times, spreads, recovery)  # checks the numbers
        if is_traced(times):
            raise ValueError(
                "the times are traced, but the program depends on them: close over them"
            )
        if not is_traced(flat.recovery) and np.asarray(flat.recovery) == 1.0:
            raise ValueError(
                "recovery is 1, so that spreads do not determine intensities: give one below 1"
            )
        discount = (
            curve.discount
            if isinstance(curve, Discounts)
            else (lambda t: jnp.exp(-jnp.asarray(curve, flat.times.dtype) * t))
        )
        misses = _misses_of(flat, np.asarray(times, float), discount)
        slope = jax.jacfwd(misses)
        held = jax.lax.stop_gradient(flat.hazard_rates / (1.0 - flat.recovery))

        def newton(_, rates):
            return rates - _solved(slope(rates), misses(rates))

        held = jax.lax.stop_gradient(jax.lax.fori_loop(0, _STEPS, newton, held))
        rates = held - _solved(jax.lax.stop_gradient(slope(held)), misses(held))
        if not is_traced(rates) and np.any(np.asarray(rates) < 0.0):
            low = int(np.argmin(np.asarray(rates)))
            raise ValueError(
                f"the spreads {np.asarray(flat.hazard_rates)} imply an intensity of "
                f"{rates[low]:g} up to "
                f"{flat.times[low]:g} years: correct the spread there, or the one before it"
            )
        return cls(flat.times, rates, flat.recovery)


def _misses_of(quoted: CreditCurve, ends: np.ndarray, discount):
    """Return the function hazard rates -> protection less premium of each swap; quoted: holds the spreads."""
    quarters = np.arange(1, np.ceil(_PERIODS_A_YEAR * ends[-1]) + 1) / _PERIODS_A_YEAR
    t = np.unique(np.round(np.concatenate([[0.0], quarters[quarters < ends[-1]], ends]), 9))
    due = jnp.asarray(t[None, 1:] <= ends[:, None] + 1e-9, quoted.times.dtype)
    t = jnp.asarray(t, quoted.times.dtype)
    middle, paid = discount(0.5 * (t[1:] + t[:-1])), discount(t[1:])

    def misses(rates):
        survival = jnp.exp(-_cumulative(quoted.times, rates, t))
        lost = (1.0 - quoted.recovery) * middle * (survival[:-1] - survival[1:])
        premium = 0.5 * jnp.diff(t) * paid * (survival[:-1] + survival[1:])
        return due @ lost - quoted.hazard_rates * (due @ premium)

    return misses


def _cumulative(times: Array, rates: Array, t: Array) -> Array:
    """Return the integrals of piecewise constant rates, also after the last time."""
    begins = jnp.concatenate([jnp.zeros_like(times[:1]), times[:-1]])
    ends = times.at[-1].set(jnp.inf)
    begins, ends = (jnp.expand_dims(x, tuple(range(t.ndim))) for x in (begins, ends))
    return clipped(t[..., None] - begins, 0.0, ends - begins) @ rates


def _solved(slope: Array, right: Array) -> Array:
    return eliminate(slope, right[:, None])[:, 0]
