"""A forward-backward stochastic differential equation, and what is asked of it."""

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ..fields import Number, as_real, positive

_NEAR = 1e-3  # of a step: dates may be single numbers

State = Float[Array, " dim"]
Real = Float[Array, ""]
Times = Sequence[float] | Float[np.ndarray, " times"] | None


class Problem(eqx.Module):
    """A solution u(t, x), by its stochastic representation Y = u(t, X), Z = s^T grad u:

        dX = b(t, X) dt + s(t, X) dW,  X_0 = x0;    -dY = f(t, X, Y, Z) dt - Z dW,  Y_T = g(X_T).

    All functions are of one point: drift(t, x) [dim]; diffusion(t, x): s, a number (times the identity), a
    vector (a diagonal) or a matrix [dim, dim]; driver(t, x, y, z); terminal(x): a number, or one for each of
    many contracts on the same X. Then y is [contracts], z is [contracts, dim], and the driver is of them all.

    Early exercise: at `exercise_times` Y is at least exercise_value(t, x), shaped as the terminal value.
    Stopping: paths end at the first of `stopping_times` at which is_alive(t, x) is false, and are worth
    stopped_value(t, x) (default 0) there. Both kinds of times must be on the grid of num_steps equal steps.

    step(t, dt, x, dw): the next state, where it is known exactly; otherwise Euler's step, or Milstein's for a
    diagonal s whose entries depend on their own coordinate (`scheme="milstein"`).

    start(u): where a path of a training begins, from dim uniforms on (0, 1), so that u is learned there, too;
    None: at x0. Figures, bounds and hedges are of x0.

    Raises ValueError for times off the grid, for an exercise or a stop without its times, or the reverse.
    """

    dim: int = eqx.field(static=True)
    maturity: Real = positive("maturity")
    _: KW_ONLY  # after a field with a converter; `__init__` has the order of arguments
    x0: State
    drift: Callable
    diffusion: Callable
    driver: Callable
    terminal: Callable
    num_steps: int = eqx.field(static=True)
    exercise_dates: tuple[int, ...] = eqx.field(static=True)
    exercise_value: Callable | None
    stopping_dates: tuple[int, ...] = eqx.field(static=True)
    is_alive: Callable | None
    stopped_value: Callable | None
    step: Callable | None
    start: Callable | None
    scheme: str = eqx.field(static=True)

    def __init__(
        self,
        dim: int,
        maturity: Number,
        x0: Number,
        drift: Callable,
        diffusion: Callable,
        driver: Callable,
        terminal: Callable,
        num_steps: int,
        exercise_times: Times = None,
        exercise_value: Callable | None = None,
        *,
        stopping_times: Times = None,
        is_alive: Callable | None = None,
        stopped_value: Callable | None = None,
        step: Callable | None = None,
        start: Callable | None = None,
        scheme: str = "euler",
    ):
        if num_steps < 1 or dim < 1:
            raise ValueError(f"dim={dim}, num_steps={num_steps}: both must be at least 1.")
        if scheme not in ("euler", "milstein"):
            raise ValueError(f"scheme={scheme!r}: give 'euler' or 'milstein', or an exact step.")
        self.dim, self.maturity, self.num_steps = dim, maturity, num_steps
        self.x0 = jnp.broadcast_to(as_real(x0), (dim,))
        self.drift, self.diffusion = drift, diffusion
        self.driver, self.terminal = driver, terminal
        self.exercise_dates = _on_grid("exercise_times", exercise_times, maturity, num_steps)
        self.stopping_dates = _on_grid("stopping_times", stopping_times, maturity, num_steps)
        self.exercise_value, self.is_alive = exercise_value, is_alive
        self.stopped_value, self.step, self.scheme = stopped_value, step, scheme
        self.start = start
        _both("exercise_times", self.exercise_dates, "exercise_value", exercise_value)
        _both("stopping_times", self.stopping_dates, "is_alive", is_alive)

    @property
    def contracts(self) -> tuple[int, ...]:
        """The shape of a value: () for one contract."""
        return jax.eval_shape(self.terminal, self.x0).shape

    @property
    def dt(self) -> Real:
        return self.maturity / self.num_steps

    @property
    def times(self) -> Float[Array, " dates"]:
        """num_steps + 1 dates, today first."""
        return jnp.arange(self.num_steps + 1, dtype=self.x0.dtype) * self.dt

    @property
    def is_exercise_date(self) -> np.ndarray:
        """Of every date, the last excepted: there the terminal value is all."""
        found = _marked(self.exercise_dates, self.num_steps)
        found[-1] = False
        return found

    @property
    def is_stopping_date(self) -> np.ndarray:
        return _marked(self.stopping_dates, self.num_steps)

    def advance(self, t: Real, x: State, dw: State, dt: Real | None = None) -> State:
        """The state a step later; dw: increments of the Brownian motions over it. dt: None is the grid's."""
        dt = self.dt if dt is None else dt
        if self.step is not None:
            return self.step(t, dt, x, dw)
        moved = x + self.drift(t, x) * dt + self.diffused(t, x, dw)
        if self.scheme == "euler":
            return moved
        diagonal = lambda x: jnp.broadcast_to(self.diffusion(t, x), x.shape)  # noqa: E731
        s, slope = jax.jvp(diagonal, (x,), (jnp.ones_like(x),))
        return moved + 0.5 * s * slope * (dw**2 - dt)

    def diffused(self, t: Real, x: State, dw: State) -> State:
        """s dw."""
        s = self.diffusion(t, x)
        return s @ dw if jnp.ndim(s) == 2 else s * dw

    def column(self, t: Real, x: State, axis: Int[Array, ""]) -> State:
        """The column of s that a Brownian motion moves x along."""
        s = jnp.asarray(self.diffusion(t, x), x.dtype)
        if jnp.ndim(s) == 2:
            return s[:, axis]
        return jnp.where(jnp.arange(self.dim) == axis, s, jnp.zeros_like(s))

    def z_of(self, t: Real, x: State, gradient: Float[Array, "*contracts dim"]):
        """s^T gradient, of every contract."""
        s = self.diffusion(t, x)
        if jnp.ndim(s) == 2:
            return gradient @ s
        return gradient * jnp.broadcast_to(s, (*(1,) * (gradient.ndim - 1), self.dim))

    def gradient_of(self, t: Real, x: State, z: Float[Array, "*contracts dim"]):
        """The gradient of which z is s^T times it; s must have an inverse."""
        s = self.diffusion(t, x)
        if jnp.ndim(s) == 2:
            return jnp.linalg.solve(s.T, z.reshape(-1, self.dim).T).T.reshape(z.shape)
        return z / jnp.broadcast_to(s, (*(1,) * (z.ndim - 1), self.dim))

    def flat_driver(self, t: Real, x: State, y: Array, z: Array) -> Float[Array, " contracts"]:
        """f of y [contracts] and z [contracts, dim], [1] and [1, dim] for one contract."""
        shape = self.contracts
        return self.driver(t, x, y.reshape(shape), z.reshape(*shape, self.dim)).reshape(-1)

    def terminal_gradient(self, x: State) -> Float[Array, "*contracts dim"]:
        return jax.jacrev(self.terminal)(x)


def _on_grid(name: str, times: Times, maturity: float | Real, num_steps: int) -> tuple[int, ...]:
    """The indices of dates."""
    if times is None:
        return ()
    steps = np.asarray(times, float) / float(maturity) * num_steps
    index = np.rint(steps).astype(int)
    wrong = (np.abs(steps - index) > _NEAR) | (index < 0) | (index > num_steps)
    if np.any(wrong):
        raise ValueError(
            f"{name}: {np.asarray(times)[wrong]} are not dates of {num_steps} equal steps to {maturity}; "
            "choose num_steps so that they are."
        )
    return tuple(sorted({int(i) for i in index}))


def _marked(index: tuple[int, ...], num_steps: int) -> np.ndarray:
    marks = np.zeros(num_steps + 1, bool)
    marks[list(index)] = True
    return marks


def _both(times_name: str, times: tuple, name: str, function: Callable | None) -> None:
    if bool(times) != (function is not None):
        missing, given = (name, times_name) if times else (times_name, name)
        raise ValueError(f"{given} is given without {missing}: give both, or neither.")
