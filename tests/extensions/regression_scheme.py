"""A solver of backward equations in one file: regression on polynomials, date by date.

1. `unsupported_reason` says in words what it does not solve.
2. A training is a chain of `num_stages` stages: `init` makes the first state, arrays all; `stage`, traced once,
   makes the next from it, and hands out what is found of its date and its loss. Checkpoints, progress, seeds
   and failures are the loop's.
3. `postprocess` makes an `AbstractApproximation` of what the stages handed out: `value(date, x)`. Gradient and
   Hessian are its derivatives.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import Mesh
from jaxtyping import Array, Float

from pricing.fbsde import AbstractApproximation, AbstractSolver


class State(NamedTuple):
    """The value of every path at the date that was done last, and the paths."""

    value: Float[Array, " paths"]
    states: Float[Array, "dates paths"]


class Polynomials(eqx.Module):
    """A polynomial of x, centered and scaled, of one date or with an axis of dates in front."""

    coefficients: Float[Array, "*dates powers"]
    center: Float[Array, "*dates"]
    scale: Float[Array, "*dates"]

    def __call__(self, x: Float[Array, ""]) -> Float[Array, ""]:
        return jnp.polyval(self.coefficients, (x - self.center) / self.scale)


class RegressionScheme(AbstractSolver):
    """Y_n = E[Y_{n+1} + f(t_n, X_n, Y_n, Z_n) dt | X_n], the expectation by least squares; one dimension.

    Gobet, Lemor, Warin (2005), "A regression-based Monte Carlo method to solve backward SDEs".
    """

    num_paths: int = eqx.field(static=True, default=8192)
    degree: int = eqx.field(static=True, default=6)
    initial_dispersion: float = eqx.field(static=True, default=0.1)  # share of the maturity
    mesh: Mesh | None = eqx.field(static=True, default=None)

    def unsupported_reason(self, problem):
        if problem.dim > 1 or problem.contracts or problem.exercise_dates or problem.stopping_dates:
            return "more than one asset or contract, exercise, a stop: GradientRegression supports them"
        return None

    def num_stages(self, problem):
        return problem.num_steps

    def init(self, problem, *, key):
        noise = jax.random.normal(key, (problem.num_steps + 1, self.num_paths, 1), problem.x0.dtype)
        before = jnp.sqrt(self.initial_dispersion * problem.maturity)
        first = jax.vmap(
            lambda dw: problem.x0 + problem.diffused(problem.times[0], problem.x0, before * dw)
        )(noise[0])

        def step(x, inputs):
            t, dw = inputs
            x = jax.vmap(problem.advance, (None, 0, 0))(t, x, dw)
            return x, x

        last, states = lax.scan(step, first, (problem.times[:-1], jnp.sqrt(problem.dt) * noise[1:]))
        states = jnp.concatenate([first[None], states])[..., 0]
        return State(jax.vmap(problem.terminal)(last), states)

    def stage(self, problem, state, index, *, key):
        del key
        date = problem.num_steps - 1 - index
        t, x = problem.times[date], state.states[date]
        guess = self._fitted(x, state.value)

        def driver(x):
            z = problem.z_of(t, x[None], jax.grad(guess)(x)[None])
            return problem.driver(t, x[None], guess(x), z)

        target = state.value + problem.dt * jax.vmap(driver)(x)
        found = self._fitted(x, target)
        value = jax.vmap(found)(x)
        return State(value, state.states), found, jnp.mean((target - value) ** 2)[None]

    def _fitted(self, x, target):
        center, scale = jnp.mean(x), jnp.std(x)
        return Polynomials(jnp.polyfit((x - center) / scale, target, self.degree), center, scale)

    def postprocess(self, problem, state, outputs):
        del state
        return Stacked(outputs, problem.num_steps)


class Stacked(AbstractApproximation):
    """The polynomials of all dates, the last date first."""

    polynomials: Polynomials
    num_steps: int = eqx.field(static=True)

    def value(self, date, x):
        return jax.tree.map(lambda leaf: leaf[self.num_steps - 1 - date], self.polynomials)(x[0])

    def portfolio(self, quantities):
        of_one = lambda p: p.coefficients * quantities[0]
        return eqx.tree_at(lambda s: s.polynomials.coefficients, self, of_one(self.polynomials))
