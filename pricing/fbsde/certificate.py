"""The verb: how far off are value, Delta and Gamma of today? Figures from fresh paths, with standard errors."""

import math
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

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
_SECOND_ORDER_UP_TO = 10  # coordinates: Gamma's part of an increment costs a sweep for each


class Estimate(eqx.Module):
    """A mean over paths and its standard error.

    Attributes:
        mean: The estimate, of any shape.
        std_error: Its standard error.

    Examples:
        >>> import jax.numpy as jnp
        >>> from pricing.fbsde import Estimate
        >>> float(Estimate(jnp.array(8.0), jnp.array(0.5)).relative_error)
        0.0625
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
        ...     value, error = found.value.mean, found.value.std_error
        ...     return value - 2 * error, value + 2 * error
    """

    value: Estimate
    delta: Estimate
    gamma: Estimate
    missed: Float[Array, "*contracts"]


def certify(solution: Solution, *, key: PRNGKeyArray, num_paths: int = 65536) -> Certificate:
    """Estimate value, Delta and Gamma of today on fresh paths, with standard errors.

    The value is the solution's plus the mean of the defects of its equation along paths (`defects`). So an
    error of the solution does not enter at all where the driver is affine in y and z. Where it bends, the error
    enters by its square, which standard errors do not tell: compare the certificates of two solutions, as
    `solve` does. A right to exercise is held by the solution's rule, whose errors enter by their square, too,
    from below. Delta and Gamma are derivatives of the first step's density (`first_step`), on pairs of opposite
    steps: neither the solution nor the payoff is differentiated. The error of the grid of dates is left.

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
            "the driver of a contract reads the values of others: defects of such a system are not summed yet"
        )
    dim, count = problem.dim, math.prod(problem.contracts)
    pairs = max(2, min(_MOST_PAIRS, num_paths // 2, _NUMBERS // (count * dim * dim)))
    blocks = -(-num_paths // (2 * pairs))
    known = solution.approximation.result(0, min(1, problem.num_steps - 1), problem.x0)
    knows_values = bool(known == RESULTS.successful)
    order = 2 if dim <= _SECOND_ORDER_UP_TO and knows_values else 1
    form = _Form(pairs, order, is_coordinatewise(problem), knows_values, _reads_z(problem))
    found = _certificate(solution, form, jnp.asarray(blocks), key=key)
    if not all(bool(jnp.all(jnp.isfinite(leaf))) for leaf in jax.tree.leaves(found)):
        raise RuntimeError(
            "a figure is not finite: the noise of the first step does not move every coordinate, or the "
            "solution is not finite far out; take Delta and Gamma of the solution itself."
        )
    return found


class _Form(NamedTuple):
    """How samples are taken: pairs of paths in a block, order of the martingale increments, what is known.

    knows_values: whether the solution has values at later dates; reads_z: whether the driver has a use for z.
    """

    pairs: int
    order: int
    is_coordinatewise: bool
    knows_values: bool
    reads_z: bool


class _Samples(NamedTuple):
    """Of value, Delta and Gamma, [contracts, pairs, ...], or sums of them."""

    value: Array
    delta: Array
    gamma: Array


@stored_jit(quick_to_compile=True)
def _certificate(
    solution: Solution, form: _Form, blocks: Int[Array, ""], *, key: PRNGKeyArray
) -> Certificate:
    problem = solution.problem
    own = solution.approximation.value(0, problem.x0).reshape(-1)

    def add(index, sums: tuple[_Samples, _Samples]):
        samples = _samples(solution, own, form, key=jax.random.fold_in(key, index))
        first = jax.tree.map(lambda x: jnp.sum(x, axis=1), samples)
        second = jax.tree.map(lambda x: jnp.sum(x**2, axis=1), samples)
        return jax.tree.map(jnp.add, sums, (first, second))

    shapes = (), (problem.dim,), (problem.dim, problem.dim)
    empty = _Samples(*(jnp.zeros((*own.shape, *shape), own.dtype) for shape in shapes))
    first, second = jax.lax.fori_loop(0, blocks, add, (empty, empty))
    count = (form.pairs * blocks).astype(own.dtype)
    means = jax.tree.map(lambda x: x / count, first)
    variance = lambda x, mean: jnp.maximum(x / count - mean**2, 0.0) / (count - 1)  # noqa: E731
    errors = jax.tree.map(lambda x, mean: jnp.sqrt(variance(x, mean)), second, means)
    return _with_first_step(problem, form, own, means, errors)


def _samples(solution: Solution, own: Array, form: _Form, *, key: PRNGKeyArray) -> _Samples:
    """Return samples of what follows the first step, less the solution's own value."""
    problem, pairs = solution.problem, form.pairs
    t, x0, dt = problem.times[0], problem.x0, problem.dt
    first, later = jax.random.split(key)
    noise = jnp.sqrt(dt) * normals(first, (pairs, problem.dim), x0.dtype)
    dw = jnp.concatenate([noise, -noise, jnp.zeros_like(noise)])
    steps = jax.vmap(lambda dw: problem.advance(t, x0, dw))(dw)
    z = problem.z_of(t, x0, solution.approximation.gradient(0, x0)).reshape(-1, problem.dim)
    y = None
    if not form.knows_values:
        y = (own - dt * problem.flat_driver(t, x0, own, z))[:, None] + z @ dw.T
    here, missing = ahead(solution, steps.T, y, key=later, order=form.order, copies=3)
    tilts = _tilts(problem, own, z) if form.reads_z else jnp.zeros_like(z)
    rest = here.worth + (1.0 + tilts @ dw.T) * missing - own[:, None]
    driver = 0.5 * dt * (here.driver + here.slope * missing)
    total = rest + (2.0 if form.reads_z else 1.0) * driver
    # the path between the two has no part in means of weights, which vanish: it takes noise off
    both, middle = slice(2 * pairs), slice(2 * pairs, None)
    total = total[:, both] - jnp.tile(total[:, middle], 2)
    control = Parabola(steps[-1], *_slopes(solution))

    def of_step(dw, total, missing):
        step = FirstStep(problem, dw, form.is_coordinatewise)
        return _weighted(step, control, tilts if form.reads_z else None, total, missing)

    derivatives = jax.vmap(of_step, (0, -1, -1), 1)(dw[both], total, missing[:, both])
    samples = (rest + driver)[:, both], *derivatives
    return _Samples(*(0.5 * (x[:, :pairs] + x[:, pairs:]) for x in samples))


def _weighted(
    step: FirstStep, control: Parabola, tilts: Array | None, total: Array, missing: Array
) -> tuple[Array, Array]:
    """Return samples of Delta and Gamma: of all but a parabola by weights, of that along the path.

    What is missing is discounted by 1 + f_z . dW, which moves with x where X_1 stays.
    """
    slope, curvature = step.weights()
    carried, delta, gamma = step.carried(control)
    rest = total - carried
    delta = delta + rest[:, None] * slope[None]
    gamma = gamma + rest[:, None, None] * curvature[None]
    if tilts is None:
        return delta, gamma
    first, second = jax.vmap(step.along)(tilts)
    cross = first[:, :, None] * slope[None, None]
    second = second + cross + jnp.swapaxes(cross, 1, 2)
    return delta + missing[:, None] * first, gamma + missing[:, None, None] * second


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
    _, pull = jax.vjp(lambda z: problem.flat_driver(t, x, y, z), z)
    return pull(jnp.ones_like(y))[0]


def _with_first_step(
    problem: Problem, form: _Form, own: Array, means: _Samples, errors: _Samples
) -> Certificate:
    """Return the figures, with the driver at the start of the first step."""
    shape, dim, t, x0 = problem.contracts, problem.dim, problem.times[0], problem.x0
    rest, slope, second = means
    z0 = problem.z_of(t, x0, slope.reshape(*shape, dim)).reshape(-1, dim)

    def today(x, ahead):
        """Return u(0, x), the mean of what is ahead given."""
        y = ahead + own
        for _ in range(_FIXED_POINT):
            y = ahead + own + 0.5 * problem.dt * problem.flat_driver(t, x, y, z0)
        return y

    def near(x):
        h = x - x0
        return today(x, rest + slope @ h + 0.5 * (second @ h) @ h)

    value, stretch = jax.jvp(lambda ahead: today(x0, ahead), (rest,), (jnp.ones_like(rest),))
    if not form.reads_z:  # otherwise they have the whole driver already
        slope, second = jax.jacfwd(near)(x0), jax.jacfwd(jax.jacfwd(near))(x0)
        stretched = lambda x: jax.vmap(jnp.multiply)(jnp.abs(stretch), x)  # noqa: E731
        errors = jax.tree.map(stretched, errors)
    second = 0.5 * (second + jnp.swapaxes(second, 1, 2))
    figures = zip((value, slope, second), errors, strict=True)
    shaped = lambda x: x.reshape(*shape, *x.shape[1:])  # noqa: E731
    estimates = (Estimate(shaped(mean), shaped(error)) for mean, error in figures)
    return Certificate(*estimates, missed=shaped(value - own))


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
