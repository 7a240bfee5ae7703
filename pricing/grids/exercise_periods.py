"""The canonical form of exercise rights on a grid: American and Bermudan options share one program."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxtape import stored_jit

from ..fields import between, dates, real_vector
from ..products import EarlyExercise, SpotOption
from ..products.product import AbstractProduct, Real

_LEAST = 4


class ExercisePeriods(AbstractProduct):
    """The right to receive side * (S - strike) at the ends of some periods, or at any time.

    Attributes:
        strike: The strike in units of the spot.
        side: +1 for a call, -1 for a put.
        dates: The ends of the periods in years, the last at expiry, of shape (periods,).
        is_date: 1 if a period ends with a right to exercise, else 0, of shape (periods,).
        any_time: 1 if the right may be exercised at any time, else 0.
    """

    strike: Real
    side: Real
    dates: Float[Array, "*#batch periods"] = dates("dates")
    is_date: Float[Array, "*#batch periods"] = real_vector("is_date")
    any_time: Real = between("any_time", 0.0, 1.0)

    @property
    def ends(self) -> Float[Array, " periods"]:
        """The ends of a contract's periods; equally spaced for a right to exercise at any time."""
        shares = jnp.arange(1, self.dates.size + 1, dtype=self.dates.dtype) / self.dates.size
        return jnp.where(self.any_time > 0.0, self.dates[-1] * shares, self.dates)


@stored_jit(runs_briefly=True)
def exercise_periods(right: EarlyExercise) -> ExercisePeriods:
    """Return exercise rights on the spot of one asset, or a batch of them, in at least four periods."""
    assert isinstance(right, SpotOption)
    times, is_right = _apart(right.exercise_times())
    parts = -(-_LEAST // times.shape[-1])
    before = jnp.concatenate([jnp.zeros_like(times[..., :1]), times[..., :-1]], axis=-1)
    shares = jnp.arange(1, parts + 1, dtype=times.dtype) / parts
    ends = before[..., None] + jnp.multiply.outer(times - before, shares)
    ends = ends.at[..., -1].set(times).reshape(*times.shape[:-1], -1)
    is_last = (shares == 1.0).astype(times.dtype)
    is_date = jnp.multiply.outer(is_right, is_last).reshape(ends.shape)
    any_time = jnp.full_like(right.strike, right.any_time)
    return ExercisePeriods(right.strike, right.side, ends, is_date, any_time)


def _apart(
    times: Float[Array, "*#batch dates"],
) -> tuple[Float[Array, "*#batch dates"], Float[Array, "*#batch dates"]]:
    """Return dates with equal steps to the first, which may be repeated, and 1 for those with a right."""
    is_first = times == times[..., :1]
    place = jnp.cumsum(jnp.ones_like(times), axis=-1)
    count = jnp.sum(is_first.astype(times.dtype), axis=-1, keepdims=True)
    apart = jnp.where(is_first, times * (place / count), times)
    return apart, (~is_first | (place == count)).astype(times.dtype)
