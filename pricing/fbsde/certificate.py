"""The verb: how far off are value, Delta and Gamma of today? Figures from fresh paths, with standard errors."""

import math
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from jaxtape import stored_jit

from ..sampling import normals
from .defects import ahead
from .first_step import FirstStep, Parabola, is_coordinatewise
from .problem import Problem
from .results import RESULTS
from .solution import Solution

_FIXED_POINT = 8  # iterations, each of which gains a factor of dt f_y / 2
_NUMBERS = 2**21  # of samples of Gamma in memory at once
_MOST_PAIRS = 1024  # of a block
_SECOND_ORDER_UP_TO = (
    10  # coordinates: Gamma's part of a martingale increment costs a sweep for each
)


class Estimate(eqx.Module):
    """A mean over paths and its standard error.

    Attributes:
        mean: The estimate, of any shape.
        std_error: Its standard error.

    Examples:
        >>> import jax.numpy as jnp
        >>> from pricing.fbsde import Estimate
        >>> float(Estimate(jnp.array(10.0), jnp.array(0.1)).relative_error)
        0.01
    """

    mean: Float[Array, "*shape"]
    std_error: Float[Array, "*shape"]

    @property
    def relative_error(self) -> Float[Array, ""]:
        """The largest standard error, over the largest entry of the mean."""
        return jnp.max(self.std_error) / jnp.max(jnp.abs(self.mean))


class Certificate(eqx.Module):
    """Value, Delta and Gamma of today from fresh paths, which owe to the solution their small noise alone.

    Attributes:
        value: The value, of shape [*contracts].
        delta: The gradient, [*contracts, dim].
        gamma: The Hessian, [*contracts, dim, dim].
        missed: By how much the solution's own value is off, [*contracts]: the value less it.

    Examples:
        >>> from pricing.fbsde import Certificate
        >>> def interval(found: Certificate):
        ...     return found.value.mean - 2 * found.value.std_error, found.value.mean + 2 * found.value.std_error
    """

    value: Estimate
    delta: Estimate
    gamma: Estimate
    missed: Float[Array, "*contracts"]


def certify(solution: Solution, *, key: PRNGKeyArray, num_paths: int = 65536) -> Certificate:
    """Estimate value, Delta and Gamma of today on fresh paths, with standard errors.

    The value is the solution's plus the mean of the defects of its equation along paths (`defects`). So an error
    of the solution does not enter at all where the driver is affine in y and z; where it bends it enters by its
    square, which standard errors do not tell: compare the certificates of two solutions, as `solve` does. A right to exercise is held by the solution's rule, whose errors enter by their square, too, from below. Delta
    and Gamma are derivatives of the first step's density (`first_step`), on pairs of opposite steps: neither the
    solution nor the payoff is differentiated. What is left of error is that of the grid of dates.

    The driver over the first step is the mean of both ends in the value; in Delta and Gamma it is the end alone
    where it reads z.

    Args:
        solution: What `solve` found, with u at all dates and states.
        key: Of the paths, which must not be those of the training.
        num_paths: How many.

    Returns:
        The three figures and their standard errors.

    Raises:
        TypeError: A contract's driver reads the values of others.
        ValueError: The paths are fewer than four.
        RuntimeError: A figure is not finite: the noise of the first step does not move every coordinate.

    Examples:
        >>> from pricing.fbsde import Solution, certify
        >>> def delta(solution: Solution, key):
        ...     found = certify(solution, key=key).delta
        ...     return found.mean, found.std_error
    """
    problem = solution.problem
    if num_paths < 4:
        raise ValueError(f"num_paths={num_paths}: give four or more.")
    if not _is_of_each(problem):
        raise TypeError(
            "the driver of a contract reads the values of others: the defects of such a system are not summed yet"
        )
    dim, count = problem.dim, math.prod(problem.contracts)
    pairs = max(2, min(_MOST_PAIRS, num_paths // 2, _NUMBERS // (count * dim * dim)))
    blocks = -(-num_paths // (2 * pairs))
    first = jnp.asarray(min(1, problem.num_steps - 1))
    known = solution.approximation.result(0, first, problem.x0) == RESULTS.successful
    order = 2 if dim <= _SECOND_ORDER_UP_TO and known else 1
    form = order, is_coordinatewise(problem), bool(known)
    found = _certificate(solution, pairs, blocks, *form, key=key)
    if not jnp.all(jnp.isfinite(found.gamma.mean)):
        raise RuntimeError(
            "Gamma is not finite: the noise of the first step does not move every coordinate, or the solution is "
            "not finite far out; take Delta and Gamma of the solution itself."
        )
    return found


class _Moments(NamedTuple):
    """Sums over pairs of samples, and of their squares."""

    first: tuple[Array, ...]
    second: tuple[Array, ...]


@stored_jit(quick_to_compile=True)
def _certificate(
    solution: Solution,
    pairs: int,
    blocks: int,
    order: int,
    is_coordinatewise: bool,
    knows_values: bool,
    *,
    key: PRNGKeyArray,
) -> Certificate:
    problem = solution.problem
    own = solution.approximation.value(0, problem.x0).reshape(-1)

    def add(sums: _Moments, index):
        key_of_block = jax.random.fold_in(key, index)
        settings = pairs, order, is_coordinatewise, knows_values
        samples = _samples(solution, own, *settings, key=key_of_block)
        first = tuple(jnp.sum(x, axis=1) for x in samples)
        second = tuple(jnp.sum(x**2, axis=1) for x in samples)
        return jax.tree.map(jnp.add, sums, _Moments(first, second)), None

    zero = jnp.zeros_like(own)
    shapes = ((), (), (problem.dim,), (problem.dim, problem.dim))
    empty = tuple(jnp.zeros((*own.shape, *shape), own.dtype) for shape in shapes)
    sums, _ = jax.lax.scan(add, _Moments(empty, empty), jnp.arange(blocks))
    count = pairs * blocks
    means = tuple(x / count for x in sums.first)
    spread = zip(sums.second, means, strict=True)
    errors = tuple(jnp.sqrt(jnp.maximum(x / count - m**2, 0.0) / (count - 1)) for x, m in spread)
    return _with_first_step(problem, own, zero, means, errors)


def _samples(
    solution: Solution,
    own: Array,
    pairs: int,
    order: int,
    is_coordinatewise: bool,
    knows_values: bool,
    *,
    key: PRNGKeyArray,
) -> tuple[Array, ...]:
    """Return samples, [contracts, pairs, ...]: two of the value, one each of Delta and Gamma.

    The value's are of what follows the first step with half its driver, and of the driver at its end.
    """
    problem = solution.problem
    first, later = jax.random.split(key)
    noise = jnp.sqrt(problem.dt) * normals(first, (pairs, problem.dim), problem.x0.dtype)
    dw = jnp.concatenate([noise, -noise])
    step = lambda dw: problem.advance(problem.times[0], problem.x0, dw)  # noqa: E731
    middle = step(jnp.zeros_like(problem.x0))
    steps = jnp.concatenate([jax.vmap(step)(dw), jnp.broadcast_to(middle, noise.shape)])
    z0 = problem.z_of(problem.times[0], problem.x0, solution.approximation.gradient(0, problem.x0))
    z0 = z0.reshape(-1, problem.dim)
    y = None
    if not knows_values:
        driver = problem.flat_driver(problem.times[0], problem.x0, own, z0)
        moved = jnp.pad(z0 @ dw.T, ((0, 0), (0, pairs)))
        y = (own - problem.dt * driver)[:, None] + moved
    here, missing = ahead(solution, steps.T, y, key=later, order=order, copies=3)
    tilts = _tilts(problem, own, z0)
    tilt = tilts @ dw.T
    tilt = jnp.pad(tilt, ((0, 0), (0, pairs)))
    rest = here.worth + (1.0 + tilt) * missing - own[:, None]
    driver = problem.dt * (here.driver + here.slope * missing)
    total = rest + (driver if _reads_z(problem) else 0.5 * driver)
    # the path between the two has no part in the weights' means, which vanish: it takes noise off
    without_middle = lambda x: x[:, : 2 * pairs] - jnp.tile(x[:, 2 * pairs :], 2)  # noqa: E731
    total, missing = without_middle(total), missing[:, : 2 * pairs]
    rest, driver = rest[:, : 2 * pairs], driver[:, : 2 * pairs]

    control = Parabola(middle, *_slopes(solution))

    def of_step(dw, total, missing):
        step = FirstStep(problem, dw, is_coordinatewise)
        slope, curvature = step.weights()
        carried, *along = step.carried(control)
        rest = total - carried
        delta = rest[:, None] * slope[None] + along[0]
        gamma = rest[:, None, None] * curvature[None] + along[1]
        if not _reads_z(problem):
            return delta, gamma
        gradient, second = jax.vmap(step.along)(tilts)
        cross = gradient[:, :, None] * slope[None, None]
        second = second + cross + jnp.swapaxes(cross, 1, 2)
        return delta + missing[:, None] * gradient, gamma + missing[:, None, None] * second

    delta, gamma = jax.vmap(of_step, (0, -1, -1), 1)(dw, total, missing)
    paired = lambda x: 0.5 * (x[:, :pairs] + x[:, pairs:])  # noqa: E731
    return paired(rest + 0.5 * driver), paired(driver), paired(delta), paired(gamma)


def _slopes(solution: Solution) -> tuple[Array, Array]:
    """Return the solution's own Delta and Gamma today; zero for a Gamma that it does not learn."""
    found, x0 = solution.approximation, solution.problem.x0
    slope = found.gradient(0, x0).reshape(-1, x0.size)
    try:
        second = found.hessian(0, x0).reshape(-1, x0.size, x0.size)
    except TypeError:
        second = jnp.zeros((*slope.shape, x0.size), slope.dtype)
    return slope, second


def _tilts(problem: Problem, y: Array, z: Array) -> Float[Array, "contracts dim"]:
    """Return f_z of every contract today; contracts do not read one another's."""
    t, x = problem.times[0], problem.x0
    if not _reads_z(problem):
        return jnp.zeros_like(z)
    _, pull = jax.vjp(lambda z: problem.flat_driver(t, x, y, z), z)
    return pull(jnp.ones_like(y))[0]


def _with_first_step(problem: Problem, own, zero, means, errors) -> Certificate:
    """Return the figures, with the driver at the start of the first step."""
    rest, _, slope, second = means
    shape, dim, t, x0 = problem.contracts, problem.dim, problem.times[0], problem.x0
    half = 0.5 * problem.dt
    reads_z = _reads_z(problem)
    z0 = problem.z_of(t, x0, slope.reshape(*shape, dim)).reshape(-1, dim)

    def today(x, ahead):
        """Return u(0, x), the mean of what is ahead given."""
        y = ahead + own
        for _ in range(_FIXED_POINT):
            y = ahead + own + half * problem.flat_driver(t, x, y, z0)
        return y

    value, stretch = jax.jvp(lambda ahead: today(x0, ahead), (rest,), (zero + 1.0,))
    errors = list(errors)
    errors[0] = jnp.abs(stretch) * errors[0]
    if not reads_z:

        def near(x):
            h = x - x0
            return today(x, rest + slope @ h + 0.5 * (second @ h) @ h)

        slope, second = jax.jacfwd(near)(x0), jax.jacfwd(jax.jacfwd(near))(x0)
        errors[2] = jnp.abs(stretch)[:, None] * errors[2]
        errors[3] = jnp.abs(stretch)[:, None, None] * errors[3]
    second = 0.5 * (second + jnp.swapaxes(second, 1, 2))
    return Certificate(
        Estimate(value.reshape(shape), errors[0].reshape(shape)),
        Estimate(slope.reshape(*shape, dim), errors[2].reshape(*shape, dim)),
        Estimate(second.reshape(*shape, dim, dim), errors[3].reshape(*shape, dim, dim)),
        (value - own).reshape(shape),
    )


def _reads_z(problem: Problem) -> bool:
    """Return whether the driver's program has any use for z."""
    shape = jax.ShapeDtypeStruct(problem.contracts, problem.x0.dtype)
    z = jax.ShapeDtypeStruct((*problem.contracts, problem.dim), problem.x0.dtype)
    program = jax.make_jaxpr(problem.driver)(problem.times[0], problem.x0, shape, z).jaxpr
    *_, of_z = program.invars
    read = [v for equation in program.eqns for v in equation.invars] + list(program.outvars)
    return any(v is of_z for v in read)


def _is_of_each(problem: Problem) -> bool:
    """Return whether the driver of a contract reads its own value alone, by a look at one state."""
    if not problem.contracts:
        return True
    of_y, of_z = jax.random.split(jax.random.key(0))
    y = jax.random.normal(of_y, problem.contracts, problem.x0.dtype).reshape(-1)
    z = jax.random.normal(of_z, (y.size, problem.dim), problem.x0.dtype)
    driver = lambda y: problem.flat_driver(problem.times[0], problem.x0, y, z)  # noqa: E731
    along = lambda v: jax.jvp(driver, (y,), (v,))[1]  # noqa: E731
    return bool(jnp.allclose(along(y), along(jnp.ones_like(y)) * y, rtol=1e-4, atol=1e-6))
