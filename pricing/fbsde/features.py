"""Features of contracts as inputs: one training for all strikes, or vols, or rates, of a range."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..fields import Number, as_real
from .problem import Problem, State

Features = Float[Array, " features"]


def with_features(make: Callable[[Features], Problem], low: Number, high: Number) -> Problem:
    """All problems make(features), low <= features <= high, as one: u(t, (x, features)).

    The features are coordinates of the state that stay as they are: paths of a training start with features
    that are uniform between the bounds, x0 has their middle, and derivatives to them (of a strike, a vol) are
    the last entries of Delta and Gamma. A figure outside of the bounds is an extrapolation.

    make is called with arrays that are not known before run time: of what it returns, dim, maturity,
    num_steps and dates may not depend on them; functions and x0 may. Nothing moves a feature, so a solver must
    not divide by the diffusion: GradientRegression does not, the others refuse.

    Raises ValueError for bounds that are no two vectors, each entry of the first below that of the second.
    """
    low, high = (jnp.atleast_1d(as_real(bound)) for bound in (low, high))
    if low.shape != high.shape or low.ndim != 1 or not bool(jnp.all(low < high)):
        raise ValueError(f"low={low}, high={high}: give two vectors, the first below the second.")
    middle = 0.5 * (low + high)
    one = make(middle)
    extended = _Extended(make, low, high, one.dim)

    def on_grid(dates: tuple[int, ...]):
        return np.asarray(dates) * float(one.maturity) / one.num_steps if dates else None

    def if_given(name: str) -> Callable | None:
        return None if getattr(one, name) is None else extended.of_state(name)

    return Problem(
        one.dim + low.size,
        one.maturity,
        jnp.concatenate([one.x0, middle]),
        drift=extended.drift,
        diffusion=extended.diffusion,
        driver=extended.driver,
        terminal=extended.terminal,
        num_steps=one.num_steps,
        exercise_times=on_grid(one.exercise_dates),
        exercise_value=if_given("exercise_value"),
        stopping_times=on_grid(one.stopping_dates),
        is_alive=if_given("is_alive"),
        stopped_value=if_given("stopped_value"),
        step=None if one.step is None else extended.step,
        scheme=one.scheme,
        start=extended.start,
    )


class _Extended(eqx.Module):
    """The functions of all problems make(features), of states (x, features)."""

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
        """A function of time and state, of the problem that the state's features make."""

        def function(t, state: State):
            problem, x = self._parts(state)
            return getattr(problem, name)(t, x)

        return function

    def _parts(self, state: State) -> tuple[Problem, Array]:
        return self._made(state[self.dim :]), state[: self.dim]

    def _made(self, features: Features) -> Problem:
        with jax.ensure_compile_time_eval():  # what does not depend on features is known
            return self.make(features)
