"""Value a product under a model."""

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from jaxtape import stored_jit
from jaxtape.full_products import with_full_products

from .methods import METHODS, AbstractMethod
from .methods.method import Refined, prepared
from .models import AbstractModel
from .products import AbstractProduct
from .results import RESULTS, outcome


class Valuation(eqx.Module):
    """The value of a product, with its standard error.

    Attributes:
        value: The value in currency, in the shape of the batch of products.
        std_error: The standard error of `value`; for a grid, the difference to a grid of half the counts, about
            three times its error; 0 for another deterministic method.
        result: The outcome of the computation.
        stats: "method": the method that was used.

    Examples:
        >>> from pricing import BlackScholes, European, price
        >>> found = price(European(100.0, 1.0), BlackScholes(100.0, 0.0, 0.2))
        >>> f"{found.value:.3f}", float(found.std_error)
        ('7.966', 0.0)
    """

    value: Float[Array, "*batch"]
    std_error: Float[Array, "*batch"]
    result: RESULTS
    stats: dict[str, Any]


@with_full_products
def price(
    product: AbstractProduct,
    model: AbstractModel,
    method: AbstractMethod | None = None,
    *,
    key: PRNGKeyArray | None = None,
    throw: bool = True,
) -> Valuation:
    """Value a product, or a batch of products, under a model; `jax.grad` gives any sensitivity.

    Args:
        product: A contract; arrays in place of its numbers make a batch.
        model: The model of the product's underlyings.
        method: The numerical method; None takes the best one that applies. Where none does, or the given one
            does not, a TypeError names the missing ability and what would work.
        key: The seed of a random method, which raises ValueError without one; a batch shares it.
        throw: Whether to raise RuntimeError if a value is not finite, or the method fails, where that is known
            (not within `jax.jit` or `jax.vmap`). Otherwise `result` reports it.

    Returns:
        The value in currency, in the shape of the batch, and its standard error.

    Examples:
        >>> from pricing import BlackScholes, European, price
        >>> found = price(European([90.0, 100.0, 110.0], 1.0), BlackScholes(100.0, 0.03, 0.2))
        >>> [f"{value:.2f}" for value in found.value]
        ['15.43', '9.41', '5.29']
    """
    method = applicable(product, model, method, key=key)
    (value, std_error), refusals = _value(product, model, method, key)
    finer = resolving(method, product, model, refusals)
    if finer is not method:
        method = finer
        (value, std_error), refusals = _value(product, model, method, key)
    known = {"model": model, "batch_shape": product.batch_shape}
    result = outcome((value, std_error), refusals, throw=throw, **known)
    return Valuation(value, std_error, result, {"method": method})


@stored_jit
def _value(product, model, method, key) -> tuple[tuple[Array, Array], RESULTS]:
    def of_one(product):
        samples = method.samples(product, model, key=key)
        value, error = mean_and_error(samples, method)
        if isinstance(method, Refined):
            error = jnp.abs(value - method.coarser().samples(product, model, key=key))
        return (value, error), method.result(product, model)

    return over_batch(of_one, product)


def resolving(
    method: AbstractMethod, product: AbstractProduct, model: AbstractModel, refusals: RESULTS
) -> AbstractMethod:
    """Return the method with the nodes that a batch needs, where it is known that they were too few."""
    if refusals.is_traced():
        return method
    found, few = (jax.tree.leaves(code)[0] for code in (refusals, RESULTS.too_few_nodes))
    return prepared(method, product, model, None) if np.any(found == few) else method


def over_batch(function: Callable[[AbstractProduct], PyTree], product: AbstractProduct) -> PyTree:
    """Return `function` of one contract for every contract of a batch, by `jax.vmap`."""
    for _ in product.batch_shape:
        function = jax.vmap(function)
    return function(product.broadcast())


def mean_and_error(samples: Array, method: AbstractMethod) -> tuple[Array, Array]:
    """Return the mean of independent samples (axis 0) and its standard error, 0 for a deterministic method."""
    if not method.is_random:
        return samples, jnp.zeros_like(samples)
    count = samples.shape[0]
    mean = jnp.mean(samples, axis=0)
    variance = jnp.sum((samples - mean[None]) ** 2, axis=0) / (count - 1)
    return mean, jnp.sqrt(variance / count)


def applicable(
    product: AbstractProduct,
    model: AbstractModel,
    method: AbstractMethod | None = None,
    methods: Sequence[AbstractMethod] = METHODS,
    *,
    key: PRNGKeyArray | None = None,
) -> AbstractMethod:
    """Return the given method if it applies, or else the first of `methods` that does.

    Raises:
        TypeError: No method applies, or the given one does not.
        ValueError: The method is random and there is no key.
    """
    working = (m for m in methods if lacking(product, model, m) is None)
    if method is None:
        method = next(working, None)
        if method is None:
            lacks = {type(m).__name__: lacking(product, model, m) for m in methods}
            reasons = "; ".join(f"{name}: {reason}" for name, reason in lacks.items())
            raise TypeError(
                f"no method prices {type(product).__name__} under {type(model).__name__} ({reasons})"
            )
    elif (reason := lacking(product, model, method)) is not None:
        names = ", ".join(type(m).__name__ for m in working) or "no method of this library"
        raise TypeError(f"{type(method).__name__} cannot price this: {reason}; would work: {names}")
    if method.is_random and key is None:
        raise ValueError(
            f"{type(method).__name__} draws random numbers: give key=jax.random.key(seed)"
        )
    return method


def lacking(product: AbstractProduct, model: AbstractModel, method: AbstractMethod) -> str | None:
    """Return the ability that the method needs and the pair lacks, in words; None if the method applies."""
    several = model.underlying.ndim == 1
    if product.multi_asset == several:
        return method.lacks(product, model)
    if several:
        return f"{type(product).__name__} is on one asset, the model has {model.underlying.size}"
    return f"{type(product).__name__} is on several assets, the model has one: give it an array of spots"
