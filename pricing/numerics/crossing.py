"""Sign changes of a smooth function of one variable, differentiated as roots."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

Points = Float[Array, " points"]
Function = Callable[[Points], Points]

_STEPS = 6


def outer_crossings(function: Function, grid: Points) -> tuple[Float[Array, "2"], Bool[Array, ""]]:
    """Return the first and last sign change on an ascending grid, and whether there is one.

    Not differentiable: see `as_root`. Newton's method, safeguarded by bisection between two points of opposite
    sign.
    """
    values = function(grid)
    above = values > 0.0
    changes = above[1:] != above[:-1]
    last = changes.size - 1 - jnp.argmax(changes[::-1])
    left = jnp.stack([jnp.argmax(changes), last])
    rising = above[left + 1]

    slack = 1e-6 * (grid[1] - grid[0])  # steps of the size of rounding may leave the bracket

    def narrow(_, state):
        lower, upper, x = state
        value, slope = _value_and_slope(function, x)
        is_right = (value > 0.0) == rising
        lower, upper = jnp.where(is_right, lower, x), jnp.where(is_right, x, upper)
        newton = x - value / jnp.where(slope == 0.0, 1.0, slope)
        inside = (slope != 0.0) & (lower - slack <= newton) & (newton <= upper + slack)
        middle = 0.5 * (lower + upper)
        return lower, upper, jnp.where(inside, jnp.clip(newton, lower, upper), middle)

    lower, upper = grid[left], grid[left + 1]
    below, rise = values[left], values[left + 1] - values[left]
    secant = lower - (upper - lower) * below / jnp.where(rise == 0.0, 1.0, rise)
    start = lower, upper, jnp.clip(secant, lower, upper)
    *_, x = jax.lax.fori_loop(0, _STEPS, narrow, start)
    return x, jnp.any(changes)


def as_root(function: Function, x: Points) -> Points:
    """Return x, a root of the function, with the derivative of a root to all that the function closes over.

    It is a Newton step with fixed slope: dx = -df / f'(x). Second derivatives are not those of a root.
    """
    x = jax.lax.stop_gradient(x)
    slope = jax.lax.stop_gradient(_value_and_slope(function, x)[1])
    return x - function(x) / jnp.where(slope == 0.0, 1.0, slope)


def _value_and_slope(function: Function, x: Points) -> tuple[Points, Points]:
    return jax.jvp(function, (x,), (jnp.ones_like(x),))
