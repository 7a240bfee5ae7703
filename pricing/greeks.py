"""The verb: how does a value move with the spot, the volatility, the rates and time?"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from .methods import AbstractMethod
from .models import AbstractModel
from .price import applicable, mean_and_error, over_batch
from .products import AbstractProduct
from .results import RESULTS

Real = Float[Array, "*batch"]


class Sensitivities(eqx.Module):
    """Raw derivatives of the value (currency), the model's other parameters held.

    delta, gamma: per 1.00 of spot; vega, volga: per 1.00 of the volatility level (`with_vol_shift`);
    vanna: per 1.00 of spot and volatility; theta: per year of calendar time, curves and surfaces keeping
    their tenors; rho: per 1.00 of all zero rates in parallel. None: the method's samples cannot give it
    without bias; ask another method.
    """

    value: Real
    delta: Real
    gamma: Real | None
    vega: Real
    theta: Real
    rho: Real
    vanna: Real | None
    volga: Real | None


class Greeks(Sensitivities):
    """`Sensitivities`, and the standard error of each (0 for deterministic methods)."""

    std_errors: Sensitivities
    result: RESULTS
    stats: dict[str, Any]


def greeks(
    product: AbstractProduct,
    model: AbstractModel,
    method: AbstractMethod | None = None,
    *,
    key: PRNGKeyArray | None = None,
    throw: bool = True,
) -> Greeks:
    """Value and Greeks of a product, or of a batch of them, by differentiation of the method itself.

    Arguments and errors as in `price`. A second derivative that the method's samples do not carry
    without bias is None, never a silent zero.
    """
    method = applicable(product, model, method, key)
    means, errors = _greeks(product, model, method, key)
    finite = jnp.all(jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(means)]))
    result = RESULTS.where(finite, RESULTS.successful, RESULTS.non_finite)
    if throw:
        means = result.error_if(means, ~finite)
    return Greeks(**vars(means), std_errors=errors, result=result, stats={"method": method})


@eqx.filter_jit
def _greeks(product, model, method, key) -> tuple[Sensitivities, Sensitivities]:
    vol = _tangent(lambda shift: model.shifted(vol=shift))
    rate = _tangent(lambda shift: model.shifted(rate=shift))

    def of_one(product):
        first = sensitivities(product, model, method, key, vol, rate)
        return means_and_errors(_with_vol_curvature(first, product, model, method, key))

    return over_batch(of_one, product)


def sensitivities(
    product: AbstractProduct,
    model: AbstractModel,
    method: AbstractMethod,
    key: PRNGKeyArray | None,
    vol_direction: PyTree,
    rate_direction: PyTree,
) -> Sensitivities:
    """Samples of the value, and of its derivatives up to gamma, for one contract.

    vol_direction, rate_direction: tangents of the model; what vega and rho are the derivatives along.
    """
    at_spot = lambda shift: method.samples(product, model.shifted(spot=shift), key)  # noqa: E731
    orders = method.second_order(product, model)
    zero = jnp.zeros((), model.spot.dtype)
    if "gamma" in orders:
        value, delta, gamma = _ladder(at_spot, zero)
    else:
        (value, delta), gamma = jax.jvp(at_spot, (zero,), (jnp.ones_like(zero),)), None

    still = jax.tree.map(jnp.zeros_like, model)
    directions = jax.tree.map(
        lambda *leaves: jnp.stack(leaves), vol_direction, rate_direction, still
    )
    time = jnp.asarray([0.0, 0.0, 1.0], zero.dtype)

    def along(direction, time):
        at = lambda model, age: method.samples(product.aged(age), model, key)  # noqa: E731
        return jax.jvp(at, (model, zero), (direction, time))[1]

    vega, rho, theta = jax.vmap(along)(directions, time)
    return Sensitivities(value, delta, gamma, vega, theta, rho, vanna=None, volga=None)


def _with_vol_curvature(first: Sensitivities, product, model, method, key) -> Sensitivities:
    """`first` with vanna and volga, where the method gives them."""
    orders = method.second_order(product, model)
    zero = jnp.zeros((), model.spot.dtype)

    def at(spot, vol):
        return method.samples(product, model.shifted(spot=spot, vol=vol), key)

    def delta(vol):
        return _tangent(lambda spot: at(spot, vol), zero)

    vanna = _tangent(delta, zero) if "vanna" in orders else None
    volga = _ladder(lambda vol: at(zero, vol), zero)[2] if "volga" in orders else None
    return eqx.tree_at(
        lambda s: (s.vanna, s.volga), first, (vanna, volga), is_leaf=lambda x: x is None
    )


def means_and_errors(samples: Sensitivities) -> tuple[Sensitivities, Sensitivities]:
    """The mean of each field's samples and its standard error."""
    leaves, structure = jax.tree.flatten(samples)
    pairs = [mean_and_error(leaf) for leaf in leaves]
    return tuple(jax.tree.unflatten(structure, column) for column in zip(*pairs, strict=True))


def _tangent(function: Callable[[Array], PyTree], at: Array | float = 0.0) -> PyTree:
    """The derivative of a function of one real, in forward mode."""
    at = jnp.asarray(at, dtype=jnp.result_type(float))
    return jax.jvp(function, (at,), (jnp.ones_like(at),))[1]


def _ladder(function: Callable[[Array], Array], at: Array) -> tuple[Array, Array, Array]:
    """(f, f', f'') of a function of one real."""
    one = jnp.ones_like(at)
    first = lambda x: jax.jvp(function, (x,), (one,))  # noqa: E731
    (value, slope), (_, curvature) = jax.jvp(first, (at,), (one,))
    return value, slope, curvature
