"""A forward-backward stochastic differential equation, with its exercise dates, switches and stops."""

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, InitVar, fields
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ..fields import Number, as_real, positive, real_vector
from ..numerics.safe_math import larger
from .functions import check_functions
from .jumps import JumpNoise, Jumps
from .path_shares import ALL_PATHS, PathShare

_NEAR = 1e-3  # relative to a step: dates may be in single precision

State = Float[Array, " dim"]
Real = Float[Array, ""]
Times = Sequence[float] | Float[np.ndarray, " times"] | None


class Problem(eqx.Module):
    """A forward-backward stochastic differential equation, whose solution is a function u(t, x).

    The solution is represented by Y = u(t, X) and Z = s^T grad u, where

        dX = b(t, X) dt + s(t, X) dW,  X_0 = x0;    -dY = f(t, X, Y, Z) dt - Z dW,  Y_T = g(X_T).

    All functions take a single point. Y is a number, or a vector of the values of several contracts on the same
    X: then y has shape [contracts], z [contracts, dim], and the driver takes all contracts. Values are in the
    currency of the terminal value, times in years.

    Attributes:
        dim: The dimension of X and of W.
        maturity: The time T of the terminal value.
        x0: The state today, of shape [dim], or a number for all coordinates.
        drift: b(t, x), of shape [dim]; None for no drift.
        diffusion: s(t, x): a number (times the identity), a vector (a diagonal) or a matrix [dim, dim].
        driver: f(t, x, y, z), of the shape of y; with `reads_gamma` f(t, x, y, z, gamma), where gamma is the
            Hessian of u, [*contracts, dim, dim]. None for f = 0.
        terminal: g(x), a number or of shape [contracts].
        num_steps: The number of equal time steps of the grid.
        exercise_times: Dates of early exercise, on the grid, at which Y is at least `exercise_value`.
        exercise_value: The exercise value at (t, x), of the shape of the terminal value.
        exercise_in_step: For a right to exercise at any time: exercise_in_step(t, dt, x), an upper bound, at
            (t, x), of the value of exercise at any time within the step dt ending there. Only the upper bound
            of `bounds` uses it. None: exercise only on `exercise_times`.
        switch: The values after a switch at (t, x, y), of the shape of y: on `exercise_times` Y is at least
            that (optimal switching); an alternative to `exercise_value`.
        stopping_times: Dates on the grid; a path ends at the first of them at which `is_alive` is false.
        is_alive: Whether a path continues at (t, x).
        stopped_value: The payment at (t, x) of a path that ends; 0 by default.
        step: The next state, step(t, dt, x, dw); None for a step of `scheme`.
        step_is_exact: Whether `step` has the law of X, or defines X, as for an average on the grid's dates. If
            not, such as for a better scheme of your own, `solve` estimates the error of the number of dates.
        start: The initial state of training paths as a function of dim uniforms on (0, 1), so that u is also
            learned there; None for x0. Figures, bounds and hedges are those at x0.
        scheme: "euler", or "milstein" for a diagonal s whose entries depend on their own coordinate.
        jumps: Jumps of X after each step, or None. Then u_t + b . grad u + tr(s s' Hess u) / 2 +
            rate E[u(size(x, z)) - u] + f = 0.
        reads_gamma: Whether the driver reads the Hessian (a second-order equation: uncertain volatility).
        exercise_dates: The indices of `exercise_times` on the grid.
        stopping_dates: The indices of `stopping_times` on the grid.

    Raises:
        ValueError: A time is off the grid; exercise or stopping is given without its times, or vice versa; both
            exercise and switch are given; or x0 does not have length dim.
        TypeError: A function returns an array of a wrong shape or type, or has its arguments in another order;
            `dim` or `num_steps` is not a whole number.

    Examples:
        >>> from pricing.fbsde import Problem
        >>> heat = Problem(2, 1.0, 0.0, diffusion=lambda t, x: 1.0, terminal=lambda x: x @ x, num_steps=4)
        >>> heat.x0.shape, heat.contracts, f"{heat.dt:.2f}"
        ((2,), (), '0.25')
    """

    dim: int = eqx.field(static=True)
    maturity: Number = positive("maturity")
    x0: Number = real_vector("x0")
    _: KW_ONLY
    drift: Callable = None  # pyright: ignore[reportAssignmentType]
    diffusion: Callable
    driver: Callable = None  # pyright: ignore[reportAssignmentType]
    terminal: Callable
    num_steps: int = eqx.field(static=True)
    exercise_times: InitVar[Times] = None
    exercise_value: Callable | None = None
    exercise_in_step: Callable | None = None
    switch: Callable | None = None
    stopping_times: InitVar[Times] = None
    is_alive: Callable | None = None
    stopped_value: Callable | None = None
    step: Callable | None = None
    start: Callable | None = None
    scheme: str = eqx.field(static=True, default="euler")
    jumps: Jumps | None = None
    reads_gamma: bool = eqx.field(static=True, default=False)
    step_is_exact: bool = eqx.field(static=True, default=True)
    exercise_dates: tuple[int, ...] = eqx.field(static=True, init=False)
    stopping_dates: tuple[int, ...] = eqx.field(static=True, init=False)

    def __post_init__(self, exercise_times: Times, stopping_times: Times):
        dim, num_steps, scheme = self.dim, self.num_steps, self.scheme
        for name, given in (("dim", dim), ("num_steps", num_steps)):
            if not isinstance(given, int | np.integer):
                raise TypeError(f"{name}={given!r}: give a whole number.")
        if num_steps < 1 or dim < 1:
            raise ValueError(f"dim={dim}, num_steps={num_steps}: both must be at least 1.")
        if scheme not in ("euler", "milstein"):
            raise ValueError(f"scheme={scheme!r}: give 'euler' or 'milstein', or an exact step.")
        x0 = as_real(self.x0)
        if x0.shape not in ((), (1,), (dim,)):
            raise ValueError(f"x0 has the shape {x0.shape}: give a number, or dim={dim} numbers.")
        self.x0 = jnp.broadcast_to(x0, (dim,))
        self.drift = self.drift or _no_drift
        self.driver = self.driver or _no_driver
        on_grid = partial(_on_grid, maturity=self.maturity, num_steps=num_steps)
        self.exercise_dates = on_grid("exercise_times", exercise_times)
        self.stopping_dates = on_grid("stopping_times", stopping_times)
        if self.exercise_value is not None and self.switch is not None:
            raise ValueError("exercise_value and switch are both given: give one of them.")
        right = ("switch", self.switch) if self.switch else ("exercise_value", self.exercise_value)
        _require_both("exercise_times", self.exercise_dates, *right)
        if self.exercise_in_step is not None and self.exercise_value is None:
            raise ValueError(
                "exercise_in_step is given without exercise_value: give both, or neither."
            )
        _require_both("stopping_times", self.stopping_dates, "is_alive", self.is_alive)
        if self.jumps is not None:
            if not isinstance(self.jumps, Jumps):
                raise TypeError(f"jumps={self.jumps!r}: give `Jumps(rate, size)`.")
            self.jumps.check(self.maturity / num_steps)
        check_functions(self)

    @property
    def contracts(self) -> tuple[int, ...]:
        """The shape of a value: () for one contract, [contracts] for several."""
        return jax.eval_shape(self.terminal, self.x0).shape

    @property
    def dt(self) -> Real:
        """The length of a time step, in years."""
        return self.maturity / self.num_steps

    @property
    def times(self) -> Float[Array, " dates"]:
        """The num_steps + 1 times of the grid, today first."""
        return jnp.arange(self.num_steps + 1, dtype=self.x0.dtype) * self.dt

    @property
    def is_exercise_date(self) -> np.ndarray:
        """Whether each date is an early-exercise date; the last, with the terminal value, is not."""
        dates = np.arange(self.num_steps + 1)
        return np.isin(dates, self.exercise_dates) & (dates < self.num_steps)

    @property
    def is_stopping_date(self) -> np.ndarray:
        """Whether paths may be stopped at each date."""
        return np.isin(np.arange(self.num_steps + 1), self.stopping_dates)

    @property
    def has_kink(self) -> np.ndarray:
        """Whether u may have a kink at each date: at the end, or at exercise or stopping dates."""
        dates = np.arange(self.num_steps + 1)
        return (dates == self.num_steps) | self.is_exercise_date | self.is_stopping_date

    def with_num_steps(self, num_steps: int) -> "Problem":
        """Return the problem on another grid; an exercise or stopping date off the grid raises ValueError."""
        return self.replace(num_steps=num_steps)

    def replace(self, **changes: Any) -> "Problem":
        """Return the problem with other functions or settings; its dates keep their times."""
        share = float(self.maturity) / self.num_steps
        own: dict[str, Any] = {f.name: getattr(self, f.name) for f in fields(self) if f.init}
        for kind in ("exercise", "stopping"):
            dates = getattr(self, f"{kind}_dates")
            own[f"{kind}_times"] = [share * date for date in dates] or None
        return Problem(**own | changes)

    def advance(self, t: Real, x: State, dw: State, dt: Real | None = None) -> State:
        """Return the state after a step dt (by default the grid's) along the Brownian increments dw."""
        dt = self.dt if dt is None else dt
        if self.step is not None:
            return self.step(t, dt, x, dw)
        moved = x + self.drift(t, x) * dt + self.diffused(t, x, dw)
        if self.scheme == "euler":
            return moved
        diagonal = lambda x: jnp.broadcast_to(self.diffusion(t, x), x.shape)
        s, slope = jax.jvp(diagonal, (x,), (jnp.ones_like(x),))
        return moved + 0.5 * s * slope * (dw**2 - dt)

    def draw_jumps(
        self, key: PRNGKeyArray, shape: tuple[int, ...], share: PathShare = ALL_PATHS
    ) -> JumpNoise | None:
        """Return the noise of the jumps in many steps, for a share of the first axis; None without jumps."""
        return None if self.jumps is None else self.jumps.draw(key, self.dt, shape, self.dim, share)

    def jumped(self, x: State, noise: JumpNoise | None) -> State:
        """Return the state after the jumps of a step."""
        return x if self.jumps is None or noise is None else self.jumps.applied(x, noise)

    def diffused(self, t: Real, x: State, dw: State) -> State:
        """Return s dw."""
        s = self.diffusion(t, x)
        return s @ dw if jnp.ndim(s) == 2 else s * dw

    def column(self, t: Real, x: State, axis: Int[Array, ""]) -> State:
        """Return column `axis` of s, along which Brownian motion `axis` moves x."""
        s = jnp.asarray(self.diffusion(t, x), x.dtype)
        if jnp.ndim(s) == 2:
            return s[:, axis]
        return jnp.where(jnp.arange(self.dim) == axis, s, jnp.zeros_like(s))

    def covariance(self, t: Real, x: State) -> Float[Array, "dim dim"]:
        """Return s s', the covariance of X per year."""
        s = self.diffusion(t, x)
        return s @ s.T if jnp.ndim(s) == 2 else jnp.diag(jnp.broadcast_to(s, (self.dim,)) ** 2)

    def z_of(self, t: Real, x: State, gradient: Float[Array, "*contracts dim"]):
        """Return Z = s^T gradient for every contract."""
        s = self.diffusion(t, x)
        if jnp.ndim(s) == 2:
            return gradient @ s
        return gradient * jnp.broadcast_to(s, (*(1,) * (gradient.ndim - 1), self.dim))

    def gradient_of(self, t: Real, x: State, z: Float[Array, "*contracts dim"]):
        """Return the gradient with s^T gradient = z; s must be invertible."""
        s = self.diffusion(t, x)
        if jnp.ndim(s) == 2:
            return jnp.linalg.solve(s.T, z.reshape(-1, self.dim).T).T.reshape(z.shape)
        return z / jnp.broadcast_to(s, (*(1,) * (z.ndim - 1), self.dim))

    def flat_driver(
        self, t: Real, x: State, y: Array, z: Array, *gamma: Array
    ) -> Float[Array, " contracts"]:
        """Return f of y [contracts], z [contracts, dim], and gamma [contracts, dim, dim] if f reads it.

        For a single contract they are [1], [1, dim] and [1, dim, dim].
        """
        shape, dim = self.contracts, self.dim
        own = (g.reshape(*shape, dim, dim) for g in gamma)
        return self.driver(t, x, y.reshape(shape), z.reshape(*shape, dim), *own).reshape(-1)

    def after_switch(self, date: Int[Array, ""], x: State, y: Array) -> Float[Array, " contracts"]:
        """Return the maximum of y [contracts] and the values after a switch, on switching dates."""
        if self.switch is None:
            return y
        other = self.switch(self.times[date], x, y.reshape(self.contracts)).reshape(-1)
        return jnp.where(jnp.asarray(self.is_exercise_date)[date], larger(y, other), y)

    def paid_at_stop(self, t: Real, x: State) -> Float[Array, "*contracts"]:
        """Return the payment of a path that ends."""
        if self.stopped_value is None:
            return jnp.zeros_like(self.terminal(x))
        return self.stopped_value(t, x)

    def terminal_gradient(self, x: State) -> Float[Array, "*contracts dim"]:
        """Return the gradient of the terminal value."""
        return jax.jacrev(self.terminal)(x)


def _no_drift(t: Real, x: State) -> State:
    del t
    return jnp.zeros_like(x)


def _no_driver(t: Real, x: State, y: Array, z: Array, *gamma: Array) -> Array:
    del t, x, z, gamma
    return jnp.zeros_like(y)


def on_fewer_dates(problem: Problem) -> Problem:
    """Return the problem on half of its dates, or unchanged if the contract needs all dates."""
    try:
        return problem.with_num_steps(max(1, problem.num_steps // 2))
    except ValueError:
        return problem


def ends_of_step(problem: Problem, date: Int[Array, ""]) -> tuple[Real, Real]:
    """Return the weights of f at the end and the start of the step from a date: 1/2 each.

    If f reads Gamma and the end has a kink, where Gamma is not finite, they are 0 and 1.
    """
    is_smooth = ~(jnp.asarray(problem.has_kink)[date + 1] & problem.reads_gamma)
    late = 0.5 * is_smooth.astype(problem.x0.dtype)
    return late, 1.0 - late


def reads_z(problem: Problem) -> bool:
    """Return True if the program of the driver uses z."""
    shape, dim = problem.contracts, problem.dim
    like = partial(jax.ShapeDtypeStruct, dtype=problem.x0.dtype)
    gamma = [like((*shape, dim, dim))] * problem.reads_gamma
    arguments = like(shape), like((*shape, dim)), *gamma
    program = jax.make_jaxpr(problem.driver)(problem.times[0], problem.x0, *arguments).jaxpr
    of_z = program.invars[-1 - len(gamma)]
    read = [v for equation in program.eqns for v in equation.invars] + list(program.outvars)
    return any(v is of_z for v in read)


def _on_grid(name: str, times: Times, maturity: float | Real, num_steps: int) -> tuple[int, ...]:
    """Return the indices of the times on the grid.

    Raises:
        ValueError: A time is off the grid.
    """
    if times is None:
        return ()
    steps = np.asarray(times, float) / float(maturity) * num_steps
    index = np.rint(steps).astype(int)
    wrong = (np.abs(steps - index) > _NEAR) | (index < 0) | (index > num_steps)
    if np.any(wrong):
        raise ValueError(
            f"{name}: {np.asarray(times)[wrong]} are not on the grid of {num_steps} equal steps "
            f"to {maturity}; choose num_steps so that they are."
        )
    return tuple(sorted({int(i) for i in index}))


def _require_both(times_name: str, times: tuple, name: str, function: Callable | None) -> None:
    """Refuse a function without its times, or times without their function.

    Raises:
        ValueError: One is given without the other.
    """
    if bool(times) != (function is not None):
        missing, given = (name, times_name) if times else (times_name, name)
        raise ValueError(f"{given} is given without {missing}: give both, or neither.")
