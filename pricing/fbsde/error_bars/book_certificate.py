"""Value, Delta and Gamma of thousands of contracts on the same fresh paths, by Hermite moments."""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from jaxtape import stored_jit

from ...regression.polynomials import hermite_polynomials
from ..solution import Solution
from ..solvers.projection_pursuit import RidgeExpansion, figures_of
from .exercise_rule import ExerciseRule, PairedPaths, earned_after, improved

_NUMBERS = 2**19  # entries of an array [contracts, paths] in memory at once
_FEWEST_BLOCKS = 64  # blocks whose means give the standard errors
_SHARE_OF_RULE = 4  # one additional path for every four improves the rule beforehand
_KEY_OF_RULE = 2**31  # key index of these paths, beyond the blocks


class BookFigures(NamedTuple):
    """Means and standard errors of value, Delta and Gamma, and of the value less the solution's value."""

    means: tuple[Array, Array, Array]
    std_errors: tuple[Array, Array, Array]
    missed: Array


def book_figures(
    solution: Solution,
    key: PRNGKeyArray,
    num_paths: int,
    quantities: Float[Array, " contracts"] | None,
) -> BookFigures:
    """Return the figures of every contract of a `ProjectionPursuit` solution, or of a portfolio.

    The solution's exercise rule is improved once on other paths (`exercise_rule`). The gain is included in the
    value's standard error, because the rule may still forgo as much. A path's cash flow under the rule, less
    its martingale, is multiplied by Hermite polynomials of the first step's normals. The moments of the
    solution are known in closed form, and the remainders are means over fresh paths with antithetic first
    steps. Derivatives are combinations of these moments. Standard errors come from the means of independent
    blocks of paths, widened by Student's t distribution for few blocks. They include one more block like the
    largest, because rare events may have been missed.
    """
    from scipy.special import ndtri, stdtrit  # imported here: it takes a quarter of a second

    contracts = math.prod(solution.problem.contracts)
    pairs = max(1, min(num_paths // (2 * _FEWEST_BLOCKS), _NUMBERS // (2 * contracts)))
    blocks = max(2, -(-num_paths // (2 * pairs)))
    wider = float(stdtrit(blocks - 1, 0.975) / ndtri(0.975))
    dtype = solution.problem.x0.dtype
    return _figures(
        solution, quantities, jnp.asarray(blocks), jnp.asarray(wider, dtype), key, pairs=pairs
    )


@stored_jit(quick_to_compile=True)
def _figures(
    solution: Solution,
    quantities: Array | None,
    blocks: Int[Array, ""],
    wider: Array,
    key: PRNGKeyArray,
    *,
    pairs: int,
) -> BookFigures:
    problem, found = solution.problem, solution.approximation
    assert isinstance(found, RidgeExpansion)
    shares = jnp.maximum(1, blocks // _SHARE_OF_RULE)
    rule = improved(solution, pairs, shares, jax.random.fold_in(key, _KEY_OF_RULE))

    def figures(moments: Array) -> tuple[Array, Array, Array]:
        if quantities is not None:
            moments = (quantities @ moments)[None]
        return figures_of(problem, moments @ found.weights)

    def add(index, sums: tuple[Any, Any, Any, Any]):
        moments, gain = _moments(solution, rule, pairs, jax.random.fold_in(key, index))
        of_block = figures(moments)
        squares = jax.tree.map(jnp.square, of_block)
        gain = gain if quantities is None else (quantities @ gain)[None]
        largest = jax.tree.map(jnp.maximum, sums[3], squares)
        return *jax.tree.map(jnp.add, sums[:3], (of_block, squares, gain)), largest

    own = figures(found.moments())
    zero = jax.tree.map(jnp.zeros_like, own)
    first, second, gain, most = jax.lax.fori_loop(0, blocks, add, (zero, zero, zero[0], zero))
    count = blocks.astype(wider.dtype)
    rest = jax.tree.map(lambda a: a / count, first)
    variance = lambda square, mean: jnp.maximum(square / count - mean**2, 0.0) / (count - 1.0)
    unseen = lambda most: most / count**2  # one more block like the largest
    error = lambda square, mean, most: wider * jnp.sqrt(variance(square, mean) + unseen(most))
    errors = jax.tree.map(error, second, rest, most)
    errors = jnp.hypot(errors[0], gain / count), *errors[1:]
    shape = problem.contracts if quantities is None else ()
    shaped = lambda figures: tuple(a.reshape(*shape, *a.shape[1:]) for a in figures)
    means = jax.tree.map(jnp.add, own, rest)
    return BookFigures(shaped(means), shaped(errors), rest[0].reshape(shape))


def _moments(
    solution: Solution, rule: ExerciseRule, pairs: int, key: PRNGKeyArray
) -> tuple[Float[Array, "contracts functions"], Float[Array, " contracts"]]:
    """Return the Hermite moments of the residual of today's fit, and the rule's gain, over a block."""
    problem, found = solution.problem, solution.approximation
    assert isinstance(found, RidgeExpansion)
    paths = PairedPaths.of(problem, pairs, key)
    own = rule._replace(correction=None)
    rules = (rule,) if problem.exercise_value is None else (rule, own)
    earned, _ = earned_after(solution, paths, rules)
    fit = jax.tree.map(lambda rows: rows[0], found.fits)
    noise, discount = paths.noise[0], paths.discounts[0][None]
    value, martingale = fit.both(found.coordinates.at(0)(paths.states[0]), noise)
    rest = discount * earned[0] - value - martingale
    gain = jnp.mean(discount * (earned[0] - earned[-1]), axis=1)
    return rest @ hermite_polynomials(noise, 2).T / rest.shape[1], gain
