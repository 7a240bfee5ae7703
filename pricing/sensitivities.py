"""Greeks: the sensitivities of a value to the spot, the volatility, the rates and time."""

import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from jaxtape import stored_jit
from jaxtape.jax_settings.matmul_precision import full_matmul_precision

from .argument_kinds import of_kinds
from .batch_tiles import BUDGET, USUAL_BUDGET, over_batch
from .fields import in_working_precision, rolled
from .methods import AbstractMethod
from .models import AbstractModel
from .numbers_shown import repr_with_numbers
from .products import AbstractProduct
from .results import RESULTS, outcome
from .valuation import METHOD, MODEL, PRODUCT, estimated, mean_and_error, select_method

Real = Float[Array, "*batch"]


class Sensitivities(eqx.Module):
    """A value and its raw derivatives, with the model's other parameters fixed.

    A figure is None if the method cannot compute it without bias: use another method for it.

    Attributes:
        value: The value in currency, in the shape of the batch.
        delta: The derivative per 1.00 of the underlying: the spot; each of several spots, with an axis of
            length assets after the batch; or the parallel level of zero rates under a rate model.
        gamma: The second derivative to the underlying; for several assets, with two axes after the batch.
        vega: The derivative per 1.00 of the level of volatility (`with_vol_shift`).
        theta: The derivative per year of calendar time; curves and surfaces keep their tenors.
        rho: The derivative per 1.00 of all zero rates in parallel.
        vanna: The mixed derivative, per 1.00 of underlying and of volatility.
        volga: The second derivative to the level of volatility.
    """

    __repr__ = repr_with_numbers

    value: Real
    delta: Float[Array, "..."]
    gamma: Float[Array, "..."] | None
    vega: Real
    theta: Real
    rho: Real
    vanna: Float[Array, "..."] | None
    volga: Real | None


class Greeks(Sensitivities):
    """A value and its raw derivatives, as in `Sensitivities`, with standard errors.

    Attributes:
        std_errors: The standard error of each figure; for a grid, the range of its figure and those of other
            grids, as in `Valuation`; 0 for other deterministic methods.
        result: The outcome of the computation.
        stats: "method": the method that was used.

    Examples:
        >>> from pricing import BlackScholes, European, greeks
        >>> found = greeks(European(100.0, 1.0), BlackScholes(100.0, 0.0, 0.2))
        >>> f"{found.delta:.4f} {found.gamma:.4f} {found.vega:.2f}"
        '0.5398 0.0198 39.70'
    """

    std_errors: Sensitivities
    result: RESULTS
    stats: dict[str, Any]


@of_kinds(product=PRODUCT, model=MODEL, method=METHOD, budget=BUDGET)
@full_matmul_precision
def greeks(
    product: AbstractProduct,
    model: AbstractModel,
    method: AbstractMethod | None = None,
    *,
    key: PRNGKeyArray | None = None,
    budget: int = USUAL_BUDGET,
    throw: bool = True,
) -> Greeks:
    """Value a product, or a batch of products, with its Greeks, by differentiating the pricing method.

    A second derivative that the method cannot compute without bias is None, never a silent zero.

    Args:
        product: A contract; arrays in place of its numbers make a batch.
        model: The model of the product's underlyings.
        method: The numerical method; None selects the best one that applies, and doubles a grid with a large
            error, as in `price`. If none applies, or the given one does not, a TypeError names the missing
            ability and methods that work.
        key: The seed of a random method, which raises ValueError without one; a batch shares the seed.
        budget: The bytes of memory for the contracts of a batch. A larger batch is valued in tiles of at least
            one contract, one after another.
        throw: Whether to raise RuntimeError if a figure is not finite or the method fails. Otherwise, and
            within `jax.jit` or `jax.vmap`, `result` reports it.

    Returns:
        The value, its derivatives per 1.00, and their standard errors.

    Examples:
        >>> from pricing import BlackScholes, European, greeks
        >>> found = greeks(European(100.0, 1.0), BlackScholes(100.0, 0.0, 0.2))
        >>> f"{found.theta:.3f} {found.vanna:.3f} {float(found.std_errors.gamma)}"
        '-3.970 0.198 0.0'
    """
    model = in_working_precision(model)
    run = lambda product, method: _greeks(product, model, method, key, budget)
    chosen = select_method(product, model, method, key=key)
    method, (means, errors), refusals = estimated(
        run, product, model, chosen, may_refine=method is None
    )
    known = {"model": model, "batch_shape": product.batch_shape}
    result = outcome(means, refusals, throw=throw, **known)
    return Greeks(**vars(means), std_errors=errors, result=result, stats={"method": method})


@stored_jit
def _greeks(
    product, model, method, key, budget
) -> tuple[tuple[Sensitivities, Sensitivities], RESULTS]:
    zero = jnp.zeros((), model.underlying.dtype)
    _, vol = _slopes(lambda shift: model.shifted(vol=shift), zero)
    _, rate = _slopes(lambda shift: model.shifted(rate=shift), zero)

    def of_one(product):
        first = sensitivities(product, model, method, key, vol, rate)
        volga = _volga(product, model, method, key)
        full = eqx.tree_at(lambda s: s.volga, first, volga, is_leaf=lambda x: x is None)
        return means_and_errors(full, method), method.result(product, model)

    return over_batch(of_one, product, budget=budget)


def sensitivities(
    product: AbstractProduct,
    model: AbstractModel,
    method: AbstractMethod,
    key: PRNGKeyArray | None,
    vol_direction: PyTree,
    rate_direction: PyTree,
) -> Sensitivities:
    """Return samples of the value and of every derivative except volga, for one contract, in forward mode.

    Vega and rho are the derivatives along `vol_direction` and `rate_direction`, tangents of the model. The
    slopes along all directions are computed together, and then their spot derivatives.
    """
    orders = method.second_order(product, model)
    zero, at = jnp.zeros((), model.underlying.dtype), jnp.zeros_like(model.underlying)
    stacked = directions(model, vol_direction, rate_direction)

    def value(model, age):
        return rolled(method, age).samples(rolled(product, age), model, key=key)

    def first(shift):
        """Return the value, and its slopes along every direction."""
        point = model.shifted(underlying=shift), zero
        return jax.vmap(lambda d: jax.jvp(value, point, d), out_axes=(None, 0))(stacked)

    if "gamma" in orders:
        (samples, slopes), (_, cross) = _slopes(first, at)
    else:
        (samples, slopes), cross = first(at), None
    count = at.size
    of_spot = lambda x: jnp.moveaxis(x[:count], 0, samples.ndim) if at.ndim else x[0]
    vega, rho, theta = slopes[count:]
    gamma = None if cross is None else _symmetric(of_spot(cross), at.ndim)
    vanna = cross[count] if cross is not None and "vanna" in orders else None
    return Sensitivities(samples, of_spot(slopes), gamma, vega, theta, rho, vanna, volga=None)


def directions(
    model: AbstractModel, vol: AbstractModel, rate: AbstractModel
) -> tuple[AbstractModel, Array]:
    """Return the stacked tangents of (model, age) for delta (each underlying), vega, rho and theta."""
    zero = jnp.zeros((), model.underlying.dtype)
    still = jax.tree.map(jnp.zeros_like, model)
    spots = [(spot, zero) for spot in _underlying_directions(model)]
    found = [*spots, (vol, zero), (rate, zero), (still, jnp.ones_like(zero))]
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *found)


def _underlying_directions(model: AbstractModel) -> list[PyTree]:
    """Return the tangents of a model along each of its underlyings."""
    at = jnp.zeros_like(model.underlying)
    basis = jnp.eye(at.size, dtype=at.dtype).reshape(at.size, *at.shape)
    shifted = lambda shift: model.shifted(underlying=shift)
    return [jax.jvp(shifted, (at,), (one,))[1] for one in basis]


def with_gamma(
    samples: Callable[[AbstractModel], Array],
    product: AbstractProduct,
    model: AbstractModel,
    method: AbstractMethod,
) -> tuple[Array, Array | None]:
    """Return the method's samples of the value, and the mean gamma if the method provides it."""
    if "gamma" not in method.second_order(product, model):
        return samples(model), None
    at = lambda spot: samples(model.shifted(underlying=spot))
    value, _, gamma = _ladder(at, jnp.zeros_like(model.underlying))
    return value, jnp.mean(gamma, axis=0) if method.is_random else gamma


def _volga(product, model, method, key) -> Array | None:
    """Return the second derivative to the volatility level, if the method provides it."""
    if "volga" not in method.second_order(product, model):
        return None
    zero = jnp.zeros((), model.underlying.dtype)
    return _ladder(lambda vol: method.samples(product, model.shifted(vol=vol), key=key), zero)[2]


def means_and_errors(
    samples: Sensitivities, method: AbstractMethod
) -> tuple[Sensitivities, Sensitivities]:
    """Return the mean of each field's samples and its standard error."""
    leaves, structure = jax.tree.flatten(samples)
    if not method.is_random:
        pairs = [mean_and_error(leaf, method) for leaf in leaves]
        return tuple(jax.tree.unflatten(structure, column) for column in zip(*pairs, strict=True))
    # one row per number, so that a GPU sums all in the kernels of a single sum
    rows = jnp.concatenate([jnp.moveaxis(x, 0, -1).reshape(-1, len(x)) for x in leaves])
    found = jax.vmap(lambda row: mean_and_error(row, method))(rows)
    ends = np.cumsum([math.prod(x.shape[1:]) for x in leaves])[:-1]
    shaped = lambda parts: [
        part.reshape(x.shape[1:]) for part, x in zip(parts, leaves, strict=True)
    ]
    return tuple(jax.tree.unflatten(structure, shaped(jnp.split(x, ends))) for x in found)


def _slopes(function: Callable[[Array], PyTree], at: Array) -> tuple[PyTree, PyTree]:
    """Return f and df/dx of a function of a real or a vector; for a vector, its axis is last."""
    along = lambda direction: jax.jvp(function, (at,), (direction,))
    if at.ndim == 0:
        return along(jnp.ones_like(at))
    return jax.vmap(along, out_axes=(None, -1))(jnp.eye(at.size, dtype=at.dtype))


def _ladder(function: Callable[[Array], Array], at: Array) -> tuple[Array, Array, Array]:
    """Return f, f' and f'' (symmetric if `at` is a vector)."""
    (value, slope), (_, curvature) = _slopes(lambda x: _slopes(function, x), at)
    return value, slope, _symmetric(curvature, at.ndim)


def _symmetric(curvature: Array, of_vector: int) -> Array:
    """Return the symmetric part of second derivatives to a vector, whose estimates may be asymmetric."""
    return 0.5 * (curvature + jnp.swapaxes(curvature, -1, -2)) if of_vector else curvature
