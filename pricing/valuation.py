"""Valuation of products under models."""

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from jaxtape import stored_jit
from jaxtape.jax_settings.matmul_precision import full_matmul_precision

from .argument_kinds import of_kinds
from .batch_tiles import BUDGET, USUAL_BUDGET, over_batch
from .methods import METHODS, AbstractMethod
from .methods.under_dividends import for_model
from .models import AbstractModel, AbstractRateModel
from .numbers_shown import repr_with_numbers
from .products import AbstractProduct, European, Exercisable
from .results import RESULTS, outcome

PRODUCT = AbstractProduct, "a product, such as European(100.0, 1.0)"
MODEL = AbstractModel, "a model, such as BlackScholes(100.0, 0.05, 0.2)"
METHOD = AbstractMethod, "a method, such as MonteCarlo(), or None"


class Valuation(eqx.Module):
    """The value of a product, with its standard error.

    Attributes:
        value: The value in currency, in the shape of the batch of products.
        std_error: The standard error of `value`; for a grid, the range of its value and those of other grids
            (`FiniteDifference`), usually more than its error; 0 for other deterministic methods.
        result: The outcome of the computation.
        stats: "method": the method that was used.

    Examples:
        >>> from pricing import BlackScholes, European, price
        >>> found = price(European(100.0, 1.0), BlackScholes(100.0, 0.0, 0.2))
        >>> f"{found.value:.3f}", float(found.std_error)
        ('7.966', 0.0)
    """

    __repr__ = repr_with_numbers

    value: Float[Array, "*batch"]
    std_error: Float[Array, "*batch"]
    result: RESULTS
    stats: dict[str, Any]


@of_kinds(product=PRODUCT, model=MODEL, method=METHOD, budget=BUDGET)
@full_matmul_precision
def price(
    product: AbstractProduct,
    model: AbstractModel,
    method: AbstractMethod | None = None,
    *,
    key: PRNGKeyArray | None = None,
    budget: int = USUAL_BUDGET,
    throw: bool = True,
) -> Valuation:
    """Value a product, or a batch of products, under a model; `jax.grad` computes any sensitivity.

    Args:
        product: A contract; arrays in place of its numbers make a batch.
        model: The model of the product's underlyings.
        method: The numerical method; None selects the best one that applies, and doubles a grid with a large
            error (`is_close`). If none applies, or the given one does not, a TypeError names the missing
            ability and methods that work.
        key: The seed of a random method, which raises ValueError without one; a batch shares the seed.
        budget: The bytes of memory for the contracts of a batch. A larger batch is valued in tiles of at least
            one contract, one after another.
        throw: Whether to raise RuntimeError if a value is not finite or the method fails. Otherwise, and within
            `jax.jit` or `jax.vmap`, `result` reports it.

    Returns:
        The value in currency, in the shape of the batch, and its standard error.

    Examples:
        >>> from pricing import BlackScholes, European, price
        >>> found = price(European([90.0, 100.0, 110.0], 1.0), BlackScholes(100.0, 0.03, 0.2))
        >>> [f"{value:.2f}" for value in found.value]
        ['15.43', '9.41', '5.29']
    """
    run = lambda product, method: _value(product, model, method, key, budget)
    chosen = select_method(product, model, method, key=key)
    method, (value, std_error), refusals = estimated(
        run, product, model, chosen, may_refine=method is None
    )
    known = {"model": model, "batch_shape": product.batch_shape}
    result = outcome((value, std_error), refusals, throw=throw, **known)
    return Valuation(value, std_error, result, {"method": method})


@stored_jit
def _value(product, model, method, key, budget) -> tuple[tuple[Array, Array], RESULTS]:
    def of_one(product):
        samples = method.samples(product, model, key=key)
        return mean_and_error(samples, method), method.result(product, model)

    return over_batch(of_one, product, budget=budget)


def estimated(
    run: Callable[[AbstractProduct, AbstractMethod], tuple[tuple[PyTree, PyTree], RESULTS]],
    product: AbstractProduct,
    model: AbstractModel,
    method: AbstractMethod,
    *,
    may_refine: bool,
) -> tuple[AbstractMethod, tuple[PyTree, PyTree], RESULTS]:
    """Run a method, and run it again if it had too few nodes or too coarse a grid.

    Args:
        run: (product, method) -> ((figures, errors), refusals).
        product: A contract or a batch.
        model: The model of the product's underlyings.
        method: The first method to run. The error of a grid is the range of its figures and those of the grids
            that it is `compared_with`.
        may_refine: Whether a finer grid may replace the first; a method chosen by the caller is kept.

    Returns:
        The method that was used, its figures with their errors, and its refusals.
    """
    found, refusals = run(product, method)
    if (resolved := resolving(method, product, model, refusals)) is not method:
        method = resolved
        found, refusals = run(product, method)
    if not method.compared_with(model):
        return method, found, refusals

    def errors_of(method, figures):
        others = (run(product, grid)[0][0] for grid in method.compared_with(model))
        return _range(figures, *others)

    figures, _ = found
    errors = errors_of(method, figures)
    if may_refine and _is_known(model, errors):
        twin = method.judged(product)
        scale = figures if twin is product else run(twin, method)[0][0]
        if not is_close(model, scale, errors):
            method = method.finer()
            (figures, _), refusals = run(product, method)
            errors = errors_of(method, figures)
    return method, (figures, errors), refusals


def resolving(
    method: AbstractMethod, product: AbstractProduct, model: AbstractModel, refusals: RESULTS
) -> AbstractMethod:
    """Return the method with the nodes that a batch needs, if it is known to have too few."""
    if refusals.is_traced():
        return method
    found, few = (jax.tree.leaves(code)[0] for code in (refusals, RESULTS.too_few_nodes))
    return method.prepared(product, model) if np.any(found == few) else method


def is_close(model: AbstractModel, figures: PyTree, errors: PyTree) -> bool:
    """Return True if errors are below 5 % of their figures, or negligible for a typical move.

    Typical moves are 1 % of the spot, one vol point, one day and ten basis points. An error is negligible below
    .1 % of the value or a millionth of the spot, whichever is larger.
    """
    figures, errors = _by_name(figures), _by_name(errors)
    spot = np.abs(np.asarray(model.underlying))
    move = 0.01 * spot
    moves = {"value": 1.0, "delta": move, "gamma": 0.5 * move**2, "vega": 0.01}
    moves |= {"theta": 1 / 365, "rho": 1e-3, "vanna": 0.01 * move, "volga": 0.5e-4}
    negligible = np.maximum(1e-3 * np.abs(np.asarray(figures["value"])), 1e-6 * spot)
    is_large = (
        moves[name] * error > np.maximum(0.05 * moves[name] * np.abs(figures[name]), negligible)
        for name, error in errors.items()
    )
    return not any(np.any(large) for large in is_large)


def _by_name(figures: PyTree) -> dict[str, np.ndarray]:
    """Return the figures that are not None, by name; a bare array is the value."""
    named = vars(figures) if isinstance(figures, eqx.Module) else {"value": figures}
    return {name: np.asarray(x) for name, x in named.items() if x is not None}


def _is_known(model: AbstractModel, errors: PyTree) -> bool:
    """Return True if the numbers are concrete: not within `jax.jit`, `jax.vmap` or `jax.grad`."""
    leaves = jax.tree.leaves((model.underlying, errors))
    return not any(isinstance(x, Tracer) for x in leaves)


def _range(*figures: PyTree) -> PyTree:
    """Return the largest less the smallest of each figure."""
    return jax.tree.map(
        lambda *found: jnp.max(jnp.stack(found), axis=0) - jnp.min(jnp.stack(found), axis=0),
        *figures,
    )


def mean_and_error(samples: Array, method: AbstractMethod) -> tuple[Array, Array]:
    """Return the mean of independent samples (axis 0) and its standard error, 0 for a deterministic method."""
    if not method.is_random:
        return samples, jnp.zeros_like(samples)
    count = samples.shape[0]
    mean = _sum(samples) / count
    # near the mean, but known before it, so that one pass over the samples takes both sums
    near = jax.lax.stop_gradient(jnp.mean(samples[:_AT_ONCE], axis=0))
    squares = _sum((samples - near[None]) ** 2) - count * (mean - near) ** 2
    variance = jnp.maximum(squares, 0.0) / (count - 1)
    return mean, jnp.sqrt(variance / count)


_AT_ONCE = 1024  # a float32 sum of so few numbers loses only one digit


def _sum(samples: Array) -> Array:
    """Return the sum over axis 0; in float32 in blocks, to keep precision over millions of numbers."""
    count = samples.shape[0]
    if samples.dtype != jnp.float32 or count <= _AT_ONCE:
        return jnp.sum(samples, axis=0)
    padding = [(0, -count % _AT_ONCE), *((0, 0),) * (samples.ndim - 1)]
    return _sum(
        jnp.sum(jnp.pad(samples, padding).reshape(_AT_ONCE, -1, *samples.shape[1:]), axis=0)
    )


def select_method(
    product: AbstractProduct,
    model: AbstractModel,
    method: AbstractMethod | None = None,
    methods: Sequence[AbstractMethod] = METHODS,
    *,
    key: PRNGKeyArray | None = None,
) -> AbstractMethod:
    """Return the given method if it applies; without one, the first of `methods` that applies.

    Raises:
        TypeError: No method applies, or the given one does not.
        ValueError: The method is random and there is no key.
    """
    methods = [for_model(each, model) for each in methods]
    method = None if method is None else for_model(method, model)
    working = (m for m in methods if unsupported_reason(product, model, m) is None)
    if method is None:
        method = next(working, None)
        if method is None:
            by_reason: dict[str | None, list[str]] = {}
            for m in methods:
                by_reason.setdefault(unsupported_reason(product, model, m), []).append(m.name)
            pairs = ((", ".join(names), reason) for reason, names in by_reason.items())
            reasons = "; ".join(f"{names}: {reason}" for names, reason in pairs)
            pair = f"{type(product).__name__} under {type(model).__name__}"
            raise TypeError(f"no method prices {pair} ({_mismatch(product, model) or reasons})")
    elif (reason := unsupported_reason(product, model, method)) is not None:
        names = ", ".join(m.name for m in working) or "no method of this library"
        raise TypeError(f"{method.name} cannot price this: {reason}; would work: {names}")
    if method.is_random and key is None:
        raise ValueError(f"{method.name} draws random numbers: give key=jax.random.key(seed)")
    return method


def unsupported_reason(
    product: AbstractProduct, model: AbstractModel, method: AbstractMethod
) -> str | None:
    """Return the ability that the method needs and the pair lacks, in words; None if the method applies."""
    adapted = for_model(method, model)
    return _mismatch(product, model) or adapted.unsupported_reason(product, model)


def _mismatch(product: AbstractProduct, model: AbstractModel) -> str | None:
    """Return the reason why no method values a product under a model, if it does not depend on the method."""
    name, several = type(product).__name__, model.underlying.ndim == 1
    if _has_own_payoff(product):
        return (
            f"{name} overrides exercise_value, but methods use strike and side: inherit "
            f"Exercisable or EarlyExercise for a custom payoff"
        )
    if product.multi_asset == several or (
        isinstance(model, AbstractRateModel) and not product.multi_asset
    ):
        return None
    if several:
        return f"{name} is on one asset, the model has {model.underlying.size}"
    return f"{name} is on several assets, the model has one: give it an array of spots"


def _has_own_payoff(product: AbstractProduct) -> bool:
    """Return True if strike and side do not give the payoff; the `units` of a European option may do so."""
    if isinstance(product, European) and type(product).units is not European.units:
        return False
    return isinstance(product, Exercisable) and product.has_own_payoff
