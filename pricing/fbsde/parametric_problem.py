"""Contract features as state coordinates: one training for a range of strikes, vols or rates."""

from collections.abc import Callable
from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..fields import Number, as_real
from .problem import Problem, State

Features = Float[Array, " features"]


def parametric(make: Callable[[Features], Problem], low: Number, high: Number) -> Problem:
    """Join all problems make(features), low <= features <= high, into one with u(t, (x, features)).

    The features are constant coordinates of the state. Training paths start with features uniform between the
    bounds; x0 has their midpoints; derivatives to features (such as strikes or vols) are the last entries of
    Delta and Gamma. Figures outside the bounds are extrapolations. Because features have no diffusion, a solver
    must not divide by it: GradientRegression does not, and the others refuse.

    Args:
        make: A function that returns a problem for an array of features. Features are only known at run time:
            dim, maturity, num_steps and dates of the problem may not depend on them; functions and x0 may.
        low: The lower bounds of the features, a number or a vector.
        high: The upper bounds, of the same length.

    Returns:
        The joint problem, whose dimension is x's plus the number of features.

    Raises:
        ValueError: The bounds are not two vectors of equal length with `low` below `high`, or the problem has
            jumps, a switch, or a driver that reads Gamma.

    Examples:
        >>> from pricing import BlackScholes, European
        >>> from pricing.fbsde import parametric, from_product
        >>> market = BlackScholes(100.0, 0.05, 0.2)
        >>> call = lambda strike: from_product(European(strike[0], 1.0), market, 8)
        >>> parametric(call, 85.0, 115.0).x0.tolist()
        [100.0, 100.0]
    """
    low, high = (jnp.atleast_1d(as_real(bound)) for bound in (low, high))
    if low.shape != high.shape or low.ndim != 1 or not bool(jnp.all(low < high)):
        raise ValueError(f"low={low}, high={high}: give two vectors, the first below the second.")
    middle = 0.5 * (low + high)
    one = make(middle)
    if one.jumps is not None or one.reads_gamma or one.switch is not None:
        raise ValueError(
            "a parametric problem has no jumps, no switch, and a driver of y and z: solve one for each feature"
        )
    functions = _ParametricFunctions(make, low, high, one.dim)

    def on_grid(dates: tuple[int, ...]):
        return np.asarray(dates) * float(one.maturity) / one.num_steps if dates else None

    def if_given(name: str) -> Callable | None:
        return None if getattr(one, name) is None else functions.of_state(name)

    return replace(
        one,
        dim=one.dim + low.size,
        x0=jnp.concatenate([one.x0, middle]),
        drift=functions.drift,
        diffusion=functions.diffusion,
        driver=functions.driver,
        terminal=functions.terminal,
        exercise_times=on_grid(one.exercise_dates),
        exercise_value=if_given("exercise_value"),
        exercise_in_step=if_given("exercise_in_step"),
        stopping_times=on_grid(one.stopping_dates),
        is_alive=if_given("is_alive"),
        stopped_value=if_given("stopped_value"),
        step=None if one.step is None else functions.step,
        step_is_exact=one.step_is_exact,
        start=functions.start,
    )


class _ParametricFunctions(eqx.Module):
    """The functions of all problems make(features), as functions of states (x, features)."""

    make: Callable = eqx.field(static=True)
    low: Features
    high: Features
    dim: int = eqx.field(static=True)

    def drift(self, t, state: State):
        return jnp.pad(self.of_state("drift")(t, state), (0, self.low.size))

    def diffusion(self, t, state: State):
        s = self.of_state("diffusion")(t, state)
        if jnp.ndim(s) < 2:
            s = jnp.broadcast_to(jnp.asarray(s, state.dtype), (self.dim,))
        return jnp.pad(s, (0, self.low.size))

    def driver(self, t, state: State, y, z):
        problem, x = self._parts(state)
        return problem.driver(t, x, y, z[..., : self.dim])

    def terminal(self, state: State):
        problem, x = self._parts(state)
        return problem.terminal(x)

    def step(self, t, dt, state: State, dw: State):
        problem, x = self._parts(state)
        return jnp.concatenate([problem.advance(t, x, dw[: self.dim], dt), state[self.dim :]])

    def start(self, u: State) -> State:
        features = self.low + u[self.dim :] * (self.high - self.low)
        return jnp.concatenate([self._made(features).x0, features])

    def of_state(self, name: str) -> Callable:
        """Return the named function of the problem given by the state's features."""

        def function(*arguments):
            *times, state = arguments
            problem, x = self._parts(state)
            return getattr(problem, name)(*times, x)

        return function

    def _parts(self, state: State) -> tuple[Problem, Array]:
        return self._made(state[self.dim :]), state[: self.dim]

    def _made(self, features: Features) -> Problem:
        with jax.ensure_compile_time_eval():  # values independent of features are concrete
            return self.make(features)
