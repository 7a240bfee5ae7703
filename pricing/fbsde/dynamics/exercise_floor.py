"""Lower bounds of the continuation value, below which exercise is never optimal."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ...sampling import normals
from ..problem import Problem

_PATHS = 128
_WIDEST = 3.0  # largest multiple of the noise, so that paths reach into the tails
_EVERY = 16  # the driver is checked on every 16th of these paths


def exercise_floor(problem: Problem) -> Float[Array, " contracts"]:
    """Return a lower bound of each contract's value before the last date.

    A constant c is a lower bound if the terminal and stopped values are at least c and f(t, x, c, 0) >= 0: then
    c is a subsolution (comparison theorem, Pardoux, Peng (1990)). It is 0 for an option with a nonnegative
    payoff, so that a regression whose fit is negative far out of the money does not exercise there. It is minus
    infinity if no bound is known: the holder of a contract that may cost money may also exercise at a negative
    payment.

    Candidates for c, tested on paths with up to three times the noise, are 0 and the smallest terminal value if
    several paths attain it.
    """
    count = problem.terminal(problem.x0).size
    none = jnp.full(count, -jnp.inf, problem.x0.dtype)
    if problem.exercise_value is None:
        return none
    times, states = problem.times, _wide_paths(problem)
    paid = jax.vmap(lambda x: problem.terminal(x).reshape(-1))(states[-1])
    if problem.is_alive is not None:
        paid = jnp.concatenate([paid, _stopped(problem, states)])
    least = jnp.min(jnp.where(jnp.isnan(paid), jnp.inf, paid), axis=0)
    is_tied = jnp.sum(paid == least[None], axis=0) > 1
    both = jnp.stack([jnp.where(least >= 0.0, 0.0, -jnp.inf), jnp.where(is_tied, least, -jnp.inf)])
    both = jnp.where(jnp.isfinite(both), both, -jnp.inf)
    halves = _halves(count)

    def holds(floor: Array) -> Array:
        """Return True if f pushes no contract below its floor, with the others at or above theirs."""
        own = jnp.where(jnp.isfinite(floor), floor, 0.0)
        z = jnp.zeros((count, problem.dim), own.dtype)
        gamma = (jnp.zeros((count, problem.dim, problem.dim), own.dtype),) * problem.reads_gamma

        def at(is_own, t, x):
            y = jnp.where(is_own, own, own + 1.0 + jnp.abs(own))
            return (problem.flat_driver(t, x, y, z, *gamma) >= 0.0) | ~is_own

        over_all = jax.vmap(jax.vmap(at, (None, None, 0)), (None, 0, 0))
        held = jax.lax.map(lambda is_own: over_all(is_own, times, states[:, ::_EVERY]), halves)
        return jnp.all(held, axis=(0, 1, 2))

    return jnp.max(jnp.where(jax.vmap(holds)(both), both, -jnp.inf), axis=0)


def _halves(count: int) -> Bool[np.ndarray, "halves contracts"]:
    """Return sets of contracts that separate any two contracts, in both directions."""
    numbers = np.arange(count)
    bits = [numbers >> place & 1 == 1 for place in range(max(count - 1, 1).bit_length())]
    return np.stack([half for bit in bits for half in (bit, ~bit)])


def _wide_paths(problem: Problem) -> Float[Array, "dates paths dim"]:
    """Return the states of all dates on paths with noise that increases from the first to the last path."""
    key, at_jumps = jax.random.split(jax.random.key(0))
    noise = normals(key, (problem.num_steps, _PATHS, problem.dim), problem.x0.dtype)
    widths = jnp.linspace(1.0, _WIDEST, _PATHS, dtype=noise.dtype)
    noise = jnp.sqrt(problem.dt) * widths[None, :, None] * noise
    start = jnp.broadcast_to(problem.x0, noise.shape[1:])

    def advance(x, of_step):
        date, dw = of_step
        x = jax.vmap(problem.advance, (None, 0, 0))(problem.times[date], x, dw)
        jumps = problem.draw_jumps(jax.random.fold_in(at_jumps, date), (_PATHS,))
        x = jax.vmap(problem.jumped)(x, jumps)
        return x, x

    _, later = jax.lax.scan(advance, start, (jnp.arange(problem.num_steps), noise))
    return jnp.concatenate([start[None], later])


def _stopped(problem: Problem, states: Float[Array, "dates paths dim"]) -> Array:
    """Return the values paid at stops, [dates * paths, contracts]; infinity if no path stops."""

    def at(t, x):
        assert problem.is_alive is not None
        paid = problem.paid_at_stop(t, x).reshape(-1)
        return jnp.where(problem.is_alive(t, x), jnp.inf, paid)

    paid = jax.vmap(jax.vmap(at, (None, 0)))(problem.times, states)
    can_stop = jnp.asarray(problem.is_stopping_date)[:, None, None]
    return jnp.where(can_stop, paid, jnp.inf).reshape(-1, paid.shape[-1])
