"""The form of every right to exercise on a grid: one program serves American and Bermudan options."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxtape import stored_jit

from ..fields import between, dates, real_vector
from ..products import EarlyExercise, SpotOption
from ..products.product import AbstractProduct, Real

_LEAST = 4


class ExercisePeriods(AbstractProduct):
    """The right to side * (S - strike) on some of the times that end periods, or at any time.

    Attributes:
        strike: The strike in units of the spot.
        side: +1 for a call, -1 for a put.
        dates: When periods end, in years, the last one at expiry, of shape (periods,).
        is_date: 1 where a period ends with a right to exercise, else 0, of shape (periods,).
        any_time: 1 if the right may be exercised at any time, else 0.
    """

    strike: Real
    side: Real
    dates: Float[Array, "*#batch periods"] = dates("dates")
    is_date: Float[Array, "*#batch periods"] = real_vector("is_date")
    any_time: Real = between("any_time", 0.0, 1.0)

    @property
    def ends(self) -> Float[Array, " periods"]:
        """The times that end one contract's periods: equal ones for a right to exercise at any time."""
        shares = jnp.arange(1, self.dates.size + 1, dtype=self.dates.dtype) / self.dates.size
        return jnp.where(self.any_time > 0.0, self.dates[-1] * shares, self.dates)


@stored_jit
def exercise_periods(right: EarlyExercise) -> ExercisePeriods:
    """Return a right to the spot of one asset, or a batch of them, in at least four periods."""
    assert isinstance(right, SpotOption)
    times = right.exercise_times()
    parts = -(-_LEAST // times.shape[-1])
    before = jnp.concatenate([jnp.zeros_like(times[..., :1]), times[..., :-1]], axis=-1)
    shares = jnp.arange(1, parts + 1, dtype=times.dtype) / parts
    ends = before[..., None] + jnp.multiply.outer(times - before, shares)
    ends = ends.at[..., -1].set(times).reshape(*times.shape[:-1], -1)
    is_date = jnp.broadcast_to(jnp.tile(shares == 1.0, times.shape[-1]), ends.shape)
    any_time = jnp.full_like(right.strike, right.any_time)
    return ExercisePeriods(right.strike, right.side, ends, is_date.astype(ends.dtype), any_time)
