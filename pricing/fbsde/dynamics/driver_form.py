"""The form of a driver, and the error bars that it allows.

The form is, for instance, affine, discounting, separate for each contract, or diagonal in Gamma.

A driver is arbitrary code, so its form is tested at sample points: dates and states of some paths, with random
y, z and Gamma of both signs, between a thousandth and the full size that the payoff reaches on paths with three
times the noise. Points where f is not finite are ignored.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from jaxtape import stored_jit

from ..jumps import Jumps
from ..problem import Problem, Real, State
from .forward_paths import simulate
from .step_density import moves_every_coordinate

_PATHS = 8
_ROUNDING = 1e-4  # rounding of f in single precision
_LEAST = 64.0  # tolerance of a derivative, in rounding errors
_SMALLEST = 1e-3  # relative to the payoff's size
_FAR = 3.0  # factor of the noise of paths that reach payoffs far out of the money
_SMALL_OF_DATES = 1e-4  # relative error of dates that is added to others in place of a check

Deviation = tuple[Array, Array]  # deviation of f from a form, and the scale of f: [kinds, ...]


class DriverForms(NamedTuple):
    """The forms of a driver.

    is_affine: f is affine in y and z; discounts: f is -r(t, x) y with one rate for all contracts (both False if
    f reads Gamma). is_of_each: f of each contract only depends on its own y, z and Gamma.
    """

    is_affine: bool
    discounts: bool
    is_of_each: bool


def driver_forms(problem: Problem, *names: str) -> DriverForms:
    """Return the forms of a driver at all sample points; only those named, if names are given."""
    tests: dict[str, Callable[..., Deviation]] = {}
    if not problem.reads_gamma:
        tests |= {"is_affine": _from_affine, "discounts": _from_discounting}
    if problem.contracts:
        tests |= {"is_of_each": _from_own_contract}
    default = DriverForms(is_affine=False, discounts=False, is_of_each=True)
    tests = {name: test for name, test in tests.items() if not names or name in names}
    if not tests:
        return default
    found = _are_small(problem, tuple(tests.values()), jnp.asarray(_ROUNDING, problem.x0.dtype))
    return default._replace(**dict(zip(tests, map(bool, found), strict=True)))


def reads_diagonal(problem: Problem) -> bool:
    """Return True if f only reads the diagonal of Gamma."""
    small = _LEAST * jnp.finfo(problem.x0.dtype).eps
    return bool(_are_small(problem, (_from_diagonal,), jnp.asarray(small, problem.x0.dtype))[0])


def no_certificate_reason(problem: Problem, forms: DriverForms) -> str | None:
    """Return the reason why an equation has no certificate, in words; None if it has one."""
    if problem.reads_gamma and problem.contracts:
        return "the driver reads Gamma: the errors of each contract need paths with their own diffusion"
    if problem.reads_gamma and bool(problem.has_kink[1]):
        return "the driver reads Gamma, which has a kink at the first date: there are too few dates"
    if problem.switch is not None or not forms.is_of_each:
        return (
            "a contract depends on the values of others, through its driver or a switch: such "
            "systems have no certificate"
        )
    return None


def no_bounds_reason(problem: Problem, forms: DriverForms) -> str | None:
    """Return the reason why a value has no bounds, in words; None if it has."""
    if problem.stopping_dates or problem.exercise_value is None:
        return "bounds need early exercise, and paths that are not stopped."
    if problem.jumps is not None or problem.reads_gamma:
        return (
            "bounds need a diffusion and a driver that discounts: this problem has jumps, or a "
            "driver that reads "
            "Gamma; compare GridQuadrature and GradientRegression"
        )
    if not forms.discounts:
        return (
            "bounds need a driver that discounts, f = -r(t, x) y: otherwise the value of a rule "
            "is not a bound."
        )
    return None


class ErrorSources(NamedTuple):
    """The available error estimates of an equation's figures.

    has_defects: a certificate sums defects; otherwise figures come from grids; has_bound: an upper bound
    limits the value of a right to exercise; of_dates: a bound of the relative error of the number of dates,
    infinite if there is none; needs_check: a second solution reveals the remaining errors.
    """

    has_defects: bool
    has_bound: bool
    of_dates: float
    needs_check: bool

    @property
    def needs_other_dates(self) -> bool:
        """Whether the second solution must have other dates."""
        return self.of_dates > _SMALL_OF_DATES


def error_sources(problem: Problem, has_grid: bool) -> ErrorSources:
    """Return the available error estimates of an equation's figures, with or without a grid.

    Raises:
        TypeError: There is neither a certificate nor a grid.
    """
    forms = driver_forms(problem)
    has_bound = no_bounds_reason(problem, forms) is None
    of_driver = reason = no_certificate_reason(problem, forms)
    if reason is None and not problem.reads_gamma and not moves_every_coordinate(problem):
        reason = "the noise of the first step does not move every coordinate"
    if reason is not None and not has_grid:
        raise TypeError(
            f"{reason}; in {problem.dim} dimensions, without a grid, the error of a solution cannot be "
            "estimated: name a solver, and compare solutions with other functions and on other dates"
        )
    has_defects = reason is None
    has_bound = has_defects and has_bound
    is_open = problem.exercise_value is not None and not has_bound
    needs_check = of_driver is not None or is_open
    sources = ErrorSources(has_defects, has_bound, error_of_dates(problem, forms), needs_check)
    return sources._replace(needs_check=needs_check or sources.needs_other_dates)


def error_of_dates(problem: Problem, forms: DriverForms) -> float:
    """Return a bound of the relative error of the number of dates, infinite if it is unknown.

    It is known if `step` is exact, jumps may also come before them, and f discounts at a rate r. If r is
    constant, n steps of length h of the trapezoidal rule are off by at most n |r h|^3 / 6.
    """
    if problem.step is None or not problem.step_is_exact or not forms.discounts:
        return math.inf
    if problem.jumps is not None and not bool(_commute(problem, problem.jumps)):
        return math.inf
    rates = np.asarray(_rates(problem), float)
    of_rule = problem.num_steps * np.max(np.abs(rates * float(problem.dt))) ** 3 / 6.0
    bound = float(np.ptp(rates)) * float(problem.maturity) + float(of_rule)
    return bound if math.isfinite(bound) else math.inf


@stored_jit
def _rates(problem: Problem) -> Float[Array, "dates paths"]:
    """Return the discount rate on some paths, of a driver that discounts."""
    states = simulate(problem, _PATHS, key=jax.random.key(0)).states
    one = jnp.ones(math.prod(problem.contracts), problem.x0.dtype)
    none = jnp.zeros((one.size, problem.dim), one.dtype)
    rate = lambda t, x: -problem.flat_driver(t, x, one, none)[0]
    return jax.vmap(jax.vmap(rate, (None, 0)), (0, 0))(problem.times, states)


@stored_jit
def _commute(problem: Problem, jumps: Jumps) -> Bool[Array, ""]:
    """Return True if a jump before a step has the effect of a jump after it, on some paths."""
    size, states = jumps.size, simulate(problem, _PATHS, key=jax.random.key(0)).states
    shape = (*states[:-1].shape, 2)
    noise = jax.random.normal(jax.random.key(1), shape, states.dtype)

    def both(t, x, noise):
        move = lambda x: problem.advance(t, x, jnp.sqrt(problem.dt) * noise[:, 0])
        return jnp.stack([size(move(x), noise[:, 1]), move(size(x, noise[:, 1]))])

    after, before = jnp.moveaxis(
        jax.vmap(jax.vmap(both, (None, 0, 0)))(problem.times[:-1], states[:-1], noise), 2, 0
    )
    small = _LEAST * jnp.finfo(states.dtype).eps
    return jnp.all(jnp.abs(after - before) <= small * (jnp.abs(after) + jnp.abs(before)))


def _from_affine(f: Callable, x: State, y: Array, z: Array) -> Deviation:
    """Return the deviation from being affine: f(y) + 2 f(-y / 2) - 3 f(0) vanishes if f is."""
    del x
    values = f(y, z), 2.0 * f(-0.5 * y, -0.5 * z), -3.0 * f(0.0 * y, 0.0 * z)
    stacked = jnp.stack(values)
    return jnp.sum(stacked, axis=0)[None], jnp.sum(jnp.abs(stacked), axis=0)[None]


def _from_discounting(f: Callable, x: State, y: Array, z: Array) -> Deviation:
    del x
    found, discounted = f(y, z), f(jnp.ones_like(y), 0.0 * z)[0] * y
    return (found - discounted)[None], (jnp.abs(found) + jnp.abs(discounted))[None]


def _from_own_contract(f: Callable, x: State, *at: Array) -> Deviation:
    """Test by derivatives along y, z and Gamma, and along multiples that differ by contract."""
    weights = 1.0 + jnp.arange(at[0].size, dtype=x.dtype) / at[0].size

    def along(place, direction):
        rest = [jnp.zeros_like(a) for a in at]
        return jax.jvp(f, at, (*rest[:place], direction, *rest[place + 1 :]))[1]

    own = [along(place, a) for place, a in enumerate(at)]
    weighted = [
        along(place, a * weights.reshape(-1, *(1,) * (a.ndim - 1))) for place, a in enumerate(at)
    ]
    return jnp.stack(weighted) - weights[None] * jnp.stack(own), jnp.stack(own)


def _from_diagonal(f: Callable, x: State, y: Array, z: Array, gamma: Array) -> Deviation:
    slopes = jax.grad(lambda gamma: jnp.sum(f(y, z, gamma)))(gamma)
    off = ~jnp.eye(x.size, dtype=bool)[None]
    return jnp.where(off, slopes, jnp.zeros_like(slopes))[None], slopes[None]


@stored_jit
def _are_small(
    problem: Problem, tests: tuple[Callable[..., Deviation], ...], share: Real
) -> tuple[Bool[Array, ""], ...]:
    """Return for each form whether the deviation is below a fraction of f at every point."""
    paths, numbers = jax.random.split(jax.random.key(0))
    states = jnp.swapaxes(simulate(problem, _PATHS, key=paths).states, 0, 1)[:, :-1]  # by path
    count, dim = math.prod(problem.contracts), problem.dim
    width = 1 + dim + (dim**2 if problem.reads_gamma else 0)
    far = simulate(problem, _PATHS, key=paths, spread=_FAR).states[-1]
    paid = jnp.abs(jax.vmap(problem.terminal)(jnp.concatenate([problem.x0[None], far])))
    size = 1.0 + jnp.max(jnp.where(jnp.isfinite(paid), paid, 0.0))
    sizes = size * jnp.geomspace(1.0, _SMALLEST, _PATHS, dtype=size.dtype)
    probes = jax.random.normal(numbers, (_PATHS, count, width), problem.x0.dtype)

    def on_path(given: tuple[Array, Array, Array]) -> list[Deviation]:
        states, size, probe = given
        y, z, gamma = jnp.split(size * probe, (1, 1 + dim), axis=1)
        at = (y[:, 0], z, gamma.reshape(count, dim, dim)) if problem.reads_gamma else (y[:, 0], z)

        def on_date(t, x):
            f = lambda *at: problem.flat_driver(t, x, *at)
            most = lambda a: jnp.max(jnp.abs(a).reshape(len(a), -1), axis=1)

            def on_side(sign):
                deviations = [test(f, x, *(sign * a for a in at)) for test in tests]
                return [(most(deviation), most(scale)) for deviation, scale in deviations]

            return jax.vmap(on_side)(jnp.array([1.0, -1.0], x.dtype))

        return jax.vmap(on_date)(problem.times[:-1], states)

    found = jax.lax.map(on_path, (states, sizes, probes))
    are_small = []
    for deviation, whole in found:
        is_finite = jnp.isfinite(deviation) & jnp.isfinite(whole)
        is_small = ~is_finite | (deviation <= share * whole)
        are_small.append(jnp.any(is_finite) & jnp.all(is_small))
    return tuple(are_small)
