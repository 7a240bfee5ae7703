"""The exercise rule of a book, improved once on fresh paths.

A fit is accurate on average over all states, but a rule needs it where exercise pays about as much as waiting.
The cash flow of the rule after a date is known on every path, and a regression on paths near the boundary
estimates the error of the fit.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from ...sampling import normals
from ..dynamics.exercise_floor import exercise_floor
from ..dynamics.ridge_functions import Values, discount_factors
from ..problem import Problem
from ..solution import Solution
from ..solvers.projection_pursuit import RidgeExpansion

_NEAR = 0.4  # width of the boundary region, relative to the mean distance of payment and fit
_FEWEST = 30.0  # fewest paths near the boundary for a regression
_RIDGE = 1e-5  # relative to the variance of a regressor
_PILOT = 8  # one path in eight determines the distances


class ExerciseRule(NamedTuple):
    """Exercise if it pays more than the fit (corrected near the boundary) and more than the floor.

    Attributes:
        floor: The lower bound of the continuation value (`exercise_floor`).
        width: The difference of payment and fit that counts as near.
        correction: Coefficients of `_Near.functions`, in units of `width`; None for the solution's rule.
    """

    floor: Float[Array, " contracts"]
    width: Float[Array, "dates contracts"]
    correction: Float[Array, "dates contracts functions"] | None = None

    @classmethod
    def of_solution(cls, problem: Problem) -> "ExerciseRule":
        """Return the rule of the solution itself."""
        floor = exercise_floor(problem)
        return cls(floor, jnp.ones((problem.num_steps, floor.size), floor.dtype))

    def near(self, date: Array, value: Values, pays: Values) -> "_Near":
        """Return the excess of the payment over the fit, and functions of it."""
        width = self.width[date][:, None]
        excess = (pays - value) / width
        weight = jnp.where(pays > self.floor[:, None], jnp.exp(-0.5 * excess**2), 0.0)
        return _Near(excess, weight, (jnp.ones_like(excess), excess, pays / width))

    def exercises(self, date: Array, value: Values, pays: Values) -> Bool[Array, "contracts paths"]:
        """Return the mask of exercise under the rule, on an exercise date."""
        if self.correction is None:
            return pays > jnp.maximum(value, self.floor[:, None])
        near = self.near(date, value, pays)
        of_each = zip(self.correction[date].T, near.functions, strict=True)
        wrong = sum((c[:, None] * f for c, f in of_each), jnp.zeros_like(value))
        return (near.excess > near.weight * wrong) & (pays > self.floor[:, None])


class _Near(NamedTuple):
    """The excess of the payment over the fit, in units of the rule's width, and functions of it."""

    excess: Values
    weight: Values
    functions: tuple[Values, Values, Values]


class _Sums(NamedTuple):
    """Sums over paths: weighted products of functions with each other and the error, and squared distances."""

    products: Float[Array, "*dates contracts functions functions_and_miss"]
    squares: Float[Array, "*dates contracts"]
    count: Float[Array, "*dates contracts"]

    @classmethod
    def of(cls, near: _Near, miss: Values, is_open: Array) -> "_Sums":
        """Return the sums of one date; miss: the cash flow from waiting less the fit, in units of the width."""
        weight = jnp.where(is_open, near.weight, 0.0)
        columns = jnp.stack([*near.functions, miss], axis=1)
        products = jnp.einsum("cap,cbp->cab", weight[:, None] * columns[:, :3], columns)
        pays = jnp.where(near.weight > 0.0, 1.0, 0.0)
        return cls(products, jnp.sum(pays * near.excess**2, axis=1), jnp.sum(pays, axis=1))

    def correction(self) -> Array:
        """Return the regression of the error on the functions; 0 if few paths are near."""
        gram, right = self.products[..., :3], self.products[..., 3]
        size = jnp.sqrt(jnp.maximum(jnp.diagonal(gram, axis1=-2, axis2=-1), 1e-20))
        ridge = _RIDGE * jnp.eye(3, dtype=gram.dtype)
        scaled = gram / (size[..., :, None] * size[..., None, :])
        scaled = scaled + jnp.broadcast_to(ridge, scaled.shape)
        found = jnp.linalg.solve(scaled, (right / size)[..., None])[..., 0] / size
        return jnp.where((gram[..., 0, 0] > _FEWEST)[..., None], found, 0.0)

    def width(self) -> Array:
        """Return a fraction of the root mean square distance; 1 if exercise never pays."""
        mean = self.squares / jnp.maximum(self.count, 1.0)
        return jnp.where(mean > 0.0, _NEAR * jnp.sqrt(mean), 1.0)


class PairedPaths(NamedTuple):
    """Paths with antithetic first steps: their steps from the first date, and their ends."""

    dates: Int[Array, " steps"]
    states: Float[Array, "steps dim paths"]
    noise: Float[Array, "steps dim paths"]
    discounts: Float[Array, "steps paths"]
    end: Float[Array, "dim paths"]

    @classmethod
    def of(cls, problem: Problem, pairs: int, key: PRNGKeyArray) -> "PairedPaths":
        """Return fresh paths."""
        noise = normals(key, (problem.num_steps, pairs, problem.dim), problem.x0.dtype)
        noise = jnp.swapaxes(noise, 1, 2)
        signs = jnp.where(jnp.arange(problem.num_steps) == 0, -1.0, 1.0).astype(noise.dtype)
        noise = jnp.concatenate([noise, signs[:, None, None] * noise], axis=2)
        start = jnp.broadcast_to(problem.x0[:, None], noise.shape[1:])
        dates = jnp.arange(problem.num_steps)

        def step(x, of_step):
            date, xi = of_step
            t, dw = problem.times[date], jnp.sqrt(problem.dt) * xi
            after = jax.vmap(problem.advance, (None, -1, -1), -1)(t, x, dw)
            return after, (x, discount_factors(problem, t, x, after))

        end, (states, discounts) = jax.lax.scan(step, start, (dates, noise))
        return cls(dates, states, noise, discounts, end)


def earned_after(
    solution: Solution, paths: PairedPaths, rules: tuple[ExerciseRule, ...], with_sums: bool = False
) -> tuple[tuple[Values, ...], Any]:
    """Return each rule's cash flow after today, less the martingale, and sums for the first (`improved`).

    A rule applies from the second date. The sums are over all such dates.
    """
    problem, found = solution.problem, solution.approximation
    assert isinstance(found, RidgeExpansion)
    paid = jax.vmap(problem.terminal, -1, -1)(paths.end)
    paid = paid.reshape(-1, paid.shape[-1])

    def back(earned: tuple[Values, ...], of_date):
        date, x, xi, discount = of_date
        fit = jax.tree.map(lambda rows: rows[date], found.fits)
        value, martingale = fit.both(found.coordinates.at(date)(x), xi)
        earned = tuple(discount[None] * one - martingale for one in earned)
        if problem.exercise_value is None:
            return earned, None
        pays = jax.vmap(problem.exercise_value, (None, -1), -1)(problem.times[date], x)
        pays = pays.reshape(value.shape)
        is_open = jnp.asarray(problem.is_exercise_date)[date]
        miss = (earned[0] - value) / rules[0].width[date][:, None]
        near = rules[0].near(date, value, pays)
        sums = _Sums.of(near, miss, is_open) if with_sums else None
        exercised = (is_open & rule.exercises(date, value, pays) for rule in rules)
        held = (jnp.where(now, pays, one) for now, one in zip(exercised, earned, strict=True))
        return tuple(held), sums

    later = jax.tree.map(lambda a: a[1:], paths[:-1])
    return jax.lax.scan(back, (paid,) * len(rules), later, reverse=True)


def improved(solution: Solution, pairs: int, blocks: Array, key: PRNGKeyArray) -> ExerciseRule:
    """Return the solution's rule after one step of policy improvement, on `blocks` of fresh paths.

    With p the exercise payoff, v the fit and d = p - v, the cash flow from waiting less v is regressed on 1, d
    and p, with weights exp(-d^2 / (2 h^2)). The smooth p corrects ripples of the fit.
    """
    problem = solution.problem
    own = ExerciseRule.of_solution(problem)
    if problem.exercise_value is None or problem.num_steps < 2:
        return own

    def sums_of(index: Array, rule: ExerciseRule) -> _Sums:
        paths = PairedPaths.of(problem, pairs, jax.random.fold_in(key, index))
        return earned_after(solution, paths, (rule,), with_sums=True)[1]

    like = jax.eval_shape(sums_of, jnp.asarray(0), own)
    zero = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), like)

    def of_round(number: Array, found: tuple[Array, Array]) -> tuple[Array, Array]:
        """Return widths, found on few paths in the first round, and corrections, found in the second."""
        rule = own._replace(width=own.width.at[1:].set(found[0]))
        add = lambda index, sums: jax.tree.map(jnp.add, sums, sums_of(index, rule))
        count = jnp.where(number == 0, (blocks + _PILOT - 1) // _PILOT, blocks)
        sums = jax.lax.fori_loop(0, count, add, zero)
        return jnp.where(number == 0, sums.width(), found[0]), sums.correction()

    first = own.width[1:], jnp.zeros((*own.width[1:].shape, 3), own.floor.dtype)
    width, correction = jax.lax.fori_loop(0, 2, of_round, first)
    today = jnp.zeros_like(correction[:1])
    return ExerciseRule(
        own.floor, own.width.at[1:].set(width), jnp.concatenate([today, correction])
    )
