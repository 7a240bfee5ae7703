"""The Black-Scholes volatility that a product's value implies."""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from jaxtape import stored_jit
from jaxtape.jax_settings.matmul_precision import full_matmul_precision

from .argument_kinds import of_kinds
from .batch_tiles import over_batch
from .fields import as_real, in_working_precision
from .methods import AbstractMethod
from .models import BlackScholes
from .numerics import implied_vol as of_european
from .numerics.crossing import as_root, outer_crossings
from .numerics.differentiable_once import differentiable_once
from .products import AbstractProduct, European
from .results import RESULTS, outcome
from .valuation import METHOD, PRODUCT, select_method

if TYPE_CHECKING:
    from .fields import Reals

BLACK_SCHOLES = BlackScholes, "BlackScholes(spot, rate, vol)"

_VOLS = np.geomspace(1e-3, 5.0, 48)
_MORE_STEPS = 4  # of Newton's method, after those of the search between two vols
_ONCE = (
    "only the implied vol of a European option has second derivatives: differentiate this one once"
)


@of_kinds(product=PRODUCT, model=BLACK_SCHOLES, method=METHOD)
@full_matmul_precision
def implied_vol(
    value: "Reals",
    product: AbstractProduct,
    model: BlackScholes,
    method: AbstractMethod | None = None,
    *,
    key: PRNGKeyArray | None = None,
    throw: bool = True,
) -> Float[Array, "*batch"]:
    """Return the vol at which Black-Scholes gives a product a value; for a batch, one for each contract.

    The vol of a European option is solved for directly, to machine precision as far as the value determines it:
    out of the money down to values of 1e-200, in the money to the digits of its time value. It has derivatives
    of any order. That of another product is searched between .001 and 5, and has first derivatives. Where
    several vols give the value, as of a digital option, it is the lowest.

    Args:
        value: The value of one contract in currency, of a shape that broadcasts with the batch.
        product: A product on one asset; arrays in place of its numbers make a batch.
        model: The spot, the rate or curve, and the dividend yield. Its vol is not read.
        method: The numerical method, as in `price`.
        key: The seed of a random method; its paths are then the same at every vol.
        throw: Whether to raise RuntimeError where no vol gives the value, where that is known (not within
            `jax.jit` or `jax.vmap`). Otherwise the vol is NaN.

    Returns:
        The vol per square root of a year. It is also NaN where the value does not move with the vol, as that
        of an American option where exercise today is best.

    Raises:
        TypeError: The model has several assets, or no method applies.

    Examples:
        >>> from pricing import American, BlackScholes, European, implied_vol, price
        >>> market = BlackScholes(100.0, 0.03, 0.2)
        >>> f"{implied_vol(10.0, European(100.0, 1.0), market):.4f}"
        '0.2152'
        >>> put = American([90.0, 100.0], 1.0, "put")
        >>> [f"{vol:.6f}" for vol in implied_vol(price(put, market).value, put, market)]
        ['0.200000', '0.200000']
    """
    if model.spot.ndim:
        raise TypeError(
            f"the model has {model.spot.size} assets, which have no one vol: give BlackScholes(...) of one"
        )
    flat, value = in_working_precision(replace(model, vol=0.2)), as_real(value)
    batch: Any = product.broadcast(value.shape)
    value = jnp.broadcast_to(value, batch.batch_shape)
    if type(product) is European:
        found = _of_european(value, batch, flat)
    else:
        chosen = select_method(product, flat, method, key=key).prepared(product, flat)
        found = _searched(value, batch, flat, chosen, key)
    of_one = lambda _, vol: RESULTS.where(
        jnp.isnan(vol), RESULTS.no_implied_vol, RESULTS.successful
    )
    codes = over_batch(of_one, batch, found)
    outcome(found, codes, throw=throw, batch_shape=batch.batch_shape)
    return found


@stored_jit
def _of_european(value: Array, product: European, model: BlackScholes) -> Array:
    each = jnp.vectorize(lambda expiry: (model.discount(expiry), model.forward(expiry)))
    discount, forward = each(product.expiry)
    return of_european.implied_vol(
        value / discount, forward, product.strike, product.expiry, product.side
    )


@stored_jit
def _searched(
    value: Float[Array, "*batch"],
    product: AbstractProduct,
    model: BlackScholes,
    method: AbstractMethod,
    key: PRNGKeyArray | None,
) -> Float[Array, "*batch"]:
    def of_one(product, value, model, method, key) -> Array:
        def miss(log_vols: Array) -> Array:
            def of_vol(log_vol: Array) -> Array:
                moved = replace(model, vol=jnp.exp(log_vol))
                return jnp.mean(method.samples(product, moved, key=key)) - value

            return jax.vmap(of_vol)(log_vols)

        return jnp.exp(_first_root(miss, jnp.abs(value).astype(model.spot.dtype)))

    search = differentiable_once(of_one, _ONCE)
    return over_batch(
        lambda product, value: search(product, value, model, method, key), product, value
    )


def _first_root(miss: Callable[[Array], Array], value: Float[Array, ""]) -> Float[Array, ""]:
    """Return the lowest root between the logarithms of `_VOLS`; NaN if there is none, or the value is flat."""
    scale = jax.lax.stop_gradient(value)
    grid = jnp.asarray(np.log(_VOLS), scale.dtype)
    roots, has_root = outer_crossings(lambda x: jax.lax.stop_gradient(miss(x)), grid)
    root = before = roots[:1]
    for _ in range(_MORE_STEPS):
        root, before = as_root(miss, root), root
    eps = jnp.finfo(grid.dtype).eps
    found = jax.lax.stop_gradient(root)
    slope = jax.jvp(lambda x: miss(x)[0], (found,), (jnp.ones_like(found),))[1]
    # where the value hardly moves with the vol, as where an American option is exercised, many vols give it
    is_determined = jnp.abs(slope) > scale * eps**0.5
    is_known = has_root & is_determined & (jnp.abs(root - before)[0] < eps**0.4)
    return jnp.where(is_known, root[0], jnp.nan)
