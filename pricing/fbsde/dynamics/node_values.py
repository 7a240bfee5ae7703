"""The values of a solution at a date, including exercise and stops, with Z and the driver."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from ..problem import Problem
from ..solver import AbstractApproximation
from .ito_taylor import States

Values = Float[Array, "contracts paths"]


class NodeValues(NamedTuple):
    """The values on each path at a date.

    value: u, before exercise or a stop; worth: the same, or the payment; z; gamma: a tuple with one array
    [contracts, paths, dim, dim], empty if f does not read it; driver, slope: f at the worth, and its derivative
    to it; ends: whether the contract is exercised or stopped.
    """

    value: Values
    worth: Values
    z: Float[Array, "contracts paths dim"]
    gamma: tuple[Array, ...]
    driver: Values
    slope: Values
    ends: Bool[Array, "contracts paths"]

    def kept(self, problem: Problem, date: Int[Array, ""], x: States) -> "NodeValues":
        """Return the values without exercise."""
        if problem.exercise_value is None:
            return self
        own = self.value, self.z, *self.gamma
        driver, slope = _driver(problem, problem.times[date], x, *own)
        return self._replace(worth=self.value, driver=driver, slope=slope)


def node_values(
    problem: Problem,
    found: AbstractApproximation,
    date: Int[Array, ""],
    x: States,
    carried: Values | None = None,
    driver: Callable[[States], Values] | None = None,
    *,
    floor: Float[Array, " contracts"],
) -> NodeValues:
    """Return the values at a date.

    carried: the values there for an approximation that only knows Z; driver: f there, if known as a function of
    the state; floor: lower bound of the continuation value of each contract (`exercise_floor`).
    """
    t = problem.times[date]
    y, z, *gamma = _known(problem, found, date, x, problem.reads_gamma and driver is None)
    if carried is not None:
        y = jnp.where(date == problem.num_steps, y, carried)
    worth = jax.vmap(partial(problem.after_switch, date), -1, -1)(x, y)
    on_paths = lambda function: jax.vmap(function, (None, -1), -1)(t, x)

    def exercise(worth, ends):
        paid = flat(on_paths(problem.exercise_value))
        is_better = paid > jnp.maximum(y, floor[:, None])
        return jnp.where(is_better, paid, worth), ends | is_better

    def stop(worth, ends):
        is_dead = ~on_paths(problem.is_alive)[None]
        return jnp.where(is_dead, flat(on_paths(problem.paid_at_stop)), worth), ends | is_dead

    ends = jnp.zeros(y.shape, bool)
    if problem.exercise_value is not None:
        worth, ends = _on_dates(problem.is_exercise_date, date, exercise, worth, ends)
    if problem.is_alive is not None:
        worth, ends = _on_dates(problem.is_stopping_date, date, stop, worth, ends)
    own = (worth, z, *gamma)
    both = _driver(problem, t, x, *own) if driver is None else (driver(x), jnp.zeros_like(y))
    return NodeValues(y, worth, z, tuple(gamma), *both, ends)


def _on_dates(on_dates: np.ndarray, date: Int[Array, ""], event: Callable, *values: Array) -> Any:
    """Return the values after an event at a date, which is not computed on other dates."""
    return jax.lax.cond(jnp.asarray(on_dates)[date], event, lambda *values: values, *values)


def alive_weight(
    problem: Problem, here: NodeValues, date: Int[Array, ""], x: States, blur: Array, floor: Array
) -> Values:
    """Return 1 where the contract is alive, else 0, with a derivative where exercise is nearly optimal.

    `blur` is the width of that region for each contract. Through this derivative, pathwise derivatives include
    the dependence of the rule on the state: in the mean over paths, as if exercise were random there.
    """
    is_alive = jnp.where(here.ends, 0.0, 1.0).astype(here.value.dtype)
    if problem.exercise_value is None:
        return is_alive
    paid = flat(jax.vmap(problem.exercise_value, (None, -1), -1)(problem.times[date], x))
    is_open = jnp.asarray(problem.is_exercise_date)[date] & (paid > floor[:, None])
    chance = jnp.clip(0.5 + 0.5 * (here.value - paid) / blur[:, None], 0.0, 1.0)
    return is_alive + jnp.where(is_open, chance - jax.lax.stop_gradient(chance), 0.0)


def _driver(problem: Problem, t, x: States, y: Values, *more: Array) -> tuple[Values, Values]:
    """Return f at y, z and gamma, and its derivative to y for contracts that do not depend on each other."""

    def along(x, y, *more):
        return jax.jvp(lambda y: problem.flat_driver(t, x, y, *more), (y,), (jnp.ones_like(y),))

    return jax.vmap(along, (-1, -1, *(1,) * len(more)), -1)(x, y, *more)


def _known(
    problem: Problem, found: AbstractApproximation, date: Int[Array, ""], x: States, has_gamma: bool
) -> tuple[Array, ...]:
    """Return u and Z of every contract, and Gamma if requested."""
    last, t, dim = problem.num_steps, problem.times[date], problem.dim
    count = len(x.T)

    def at(value, gradient, hessian):
        y = jax.vmap(value, -1, -1)(x)
        z = jax.vmap(lambda x: problem.z_of(t, x, gradient(x)), -1, -2)(x)
        known = flat(y), z.reshape(-1, count, dim)
        if not has_gamma:
            return known
        return *known, jax.vmap(hessian, -1, -3)(x).reshape(-1, count, dim, dim)

    before = jnp.minimum(date, last - 1)
    return jax.lax.cond(
        date == last,
        lambda: at(problem.terminal, problem.terminal_gradient, jax.hessian(problem.terminal)),
        lambda: at(*(partial(f, before) for f in (found.value, found.gradient, found.hessian))),
    )


def flat(values: Float[Array, "*contracts paths"]) -> Values:
    """Return values with one axis for all contracts."""
    return values.reshape(-1, values.shape[-1])
