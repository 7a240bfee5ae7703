"""What a solution holds at a date: its value or what exercise or a stop pays, Z, and the driver there."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from .ito_taylor import States
from .problem import Problem
from .solver import AbstractApproximation

Values = Float[Array, "contracts paths"]


class Held(NamedTuple):
    """What is held on each path at a date.

    value: u, before an exercise or a stop; worth: the same, or what those pay; z; driver, slope: f of the
    worth, and its derivative in it; ends: whether the contract is exercised or stopped.
    """

    value: Values
    worth: Values
    z: Float[Array, "contracts paths dim"]
    driver: Values
    slope: Values
    ends: Bool[Array, "contracts paths"]

    def kept(self, problem: Problem, date: Int[Array, ""], x: States) -> "Held":
        """Return what is held where nobody exercises."""
        if problem.exercise_value is None:
            return self
        driver, slope = _driver(problem, problem.times[date], x, self.value, self.z)
        return self._replace(worth=self.value, driver=driver, slope=slope)


def held(
    problem: Problem,
    found: AbstractApproximation,
    date: Int[Array, ""],
    x: States,
    carried: Values | None = None,
) -> Held:
    """Return what is held at a date; carried: the values there, of an approximation that knows Z alone."""
    t = problem.times[date]
    y, z = _known(problem, found, date, x)
    if carried is not None:
        y = jnp.where(date == problem.num_steps, y, carried)
    worth, ends = y, jnp.zeros(y.shape, bool)
    if problem.exercise_value is not None:
        paid = flat(jax.vmap(problem.exercise_value, (None, -1), -1)(t, x))
        ends = jnp.asarray(problem.is_exercise_date)[date] & (paid > y) & (paid > 0.0)
        worth = jnp.where(ends, paid, worth)
    if problem.is_alive is not None:
        is_dead = ~jax.vmap(problem.is_alive, (None, -1))(t, x)
        is_dead = is_dead & jnp.asarray(problem.is_stopping_date)[date]
        paid = flat(jax.vmap(problem.paid_at_stop, (None, -1), -1)(t, x))
        worth, ends = jnp.where(is_dead[None], paid, worth), ends | is_dead[None]
    return Held(y, worth, z, *_driver(problem, t, x, worth, z), ends)


def still_held(
    problem: Problem, here: Held, date: Int[Array, ""], x: States, blur: Array
) -> Values:
    """Return 1 where the contract is held on, else 0; with a slope where exercise is nearly worth the value.

    Of each contract, `blur` says how nearly. By the slope a path's derivative has the part of the rule, which
    moves with the state: in the mean over paths, as if exercise were by a coin there.
    """
    is_held = jnp.where(here.ends, 0.0, 1.0).astype(here.value.dtype)
    if problem.exercise_value is None:
        return is_held
    paid = flat(jax.vmap(problem.exercise_value, (None, -1), -1)(problem.times[date], x))
    is_open = jnp.asarray(problem.is_exercise_date)[date] & (paid > 0.0)
    chance = jnp.clip(0.5 + 0.5 * (here.value - paid) / blur[:, None], 0.0, 1.0)
    return is_held + jnp.where(is_open, chance - jax.lax.stop_gradient(chance), 0.0)


def _driver(problem: Problem, t, x: States, y: Values, z: Array) -> tuple[Values, Values]:
    """Return f, and its derivative in y where no contract reads another's."""
    along = lambda x, y, z: jax.jvp(  # noqa: E731
        lambda y: problem.flat_driver(t, x, y, z), (y,), (jnp.ones_like(y),)
    )
    return jax.vmap(along, (-1, -1, 1), -1)(x, y, z)


def _known(
    problem: Problem, found: AbstractApproximation, date: Int[Array, ""], x: States
) -> tuple[Values, Float[Array, "contracts paths dim"]]:
    """Return u and Z of every contract."""
    last, t = problem.num_steps, problem.times[date]

    def at(value, gradient):
        y = jax.vmap(value, -1, -1)(x)
        z = jax.vmap(lambda x: problem.z_of(t, x, gradient(x)), -1, -2)(x)
        return flat(y), z.reshape(-1, *z.shape[-2:])

    before = jnp.minimum(date, last - 1)
    return jax.lax.cond(
        date == last,
        lambda: at(problem.terminal, problem.terminal_gradient),
        lambda: at(lambda x: found.value(before, x), lambda x: found.gradient(before, x)),
    )


def flat(values: Float[Array, "*contracts paths"]) -> Values:
    """Return values with one axis for all contracts."""
    return values.reshape(-1, values.shape[-1])
