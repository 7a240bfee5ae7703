"""Implied volatilities: of products under Black-Scholes, and of options on forwards."""

from collections.abc import Callable, Sequence
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
from .fields import as_real, choice, in_working_precision, is_traced
from .methods import AbstractMethod
from .models import BlackScholes
from .numerics import implied_normal_vol as of_normal
from .numerics import implied_vol as of_european
from .numerics.crossing import as_root, outer_crossings
from .numerics.differentiable_once import differentiable_once
from .numerics.safe_math import nan_where
from .products import AbstractProduct, European
from .products.product import CALL_OR_PUT
from .results import RESULTS, outcome
from .valuation import METHOD, PRODUCT, select_method

if TYPE_CHECKING:
    from .fields import Reals

BLACK_SCHOLES = BlackScholes, "BlackScholes(spot, rate, vol)"

_VOLS = np.geomspace(1e-3, 5.0, 48)
_MORE_STEPS = 4  # Newton steps after the bracketed search
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
    """Return the Black-Scholes implied vol of a product's value; for a batch, one per contract.

    For a European option it is solved directly, as precisely as the value determines it: out of the money for
    values down to 1e-200, in the money to the digits of the time value. It has derivatives of any order. For
    other products it is searched between .001 and 5, and has first derivatives. If several vols give the value,
    as for a digital option, it is the lowest.

    Args:
        value: The value of one contract in currency, of a shape that broadcasts with the batch.
        product: A product on one asset; arrays in place of its numbers make a batch.
        model: The spot, the rate or curve, and the dividend yield. Its vol is ignored.
        method: The numerical method, as in `price`.
        key: The seed of a random method, which uses the same paths at every vol.
        throw: Whether to raise RuntimeError if no vol gives the value. Otherwise, and within `jax.jit` or
            `jax.vmap`, the vol is NaN.

    Returns:
        The vol per square root of a year. It is also NaN where the value does not depend on the vol, for
        instance for an American option that is best exercised today.

    Raises:
        TypeError: The model has several assets, or no method applies.

    Examples:
        >>> from pricing import Barrier, BlackScholes, European, implied_vol, price
        >>> market = BlackScholes(100.0, 0.03, 0.2)
        >>> f"{implied_vol(10.0, European(100.0, 1.0), market):.4f}"
        '0.2152'
        >>> put = Barrier([90.0, 100.0], 1.0, 120.0, "up-and-out", "put")
        >>> [f"{vol:.5f}" for vol in implied_vol(price(put, market).value, put, market)]
        ['0.20000', '0.20000']
    """
    if model.spot.ndim:
        raise TypeError(
            f"the model has {model.spot.size} assets, which have no single vol: give "
            f"BlackScholes(...) of one asset"
        )
    flat, value = in_working_precision(replace(model, vol=0.2)), as_real(value)
    batch: Any = product.broadcast(value.shape)
    value = jnp.broadcast_to(value, batch.batch_shape)
    if type(product) is European:
        found = _of_european(value, batch, flat)
    else:
        chosen = select_method(product, flat, method, key=key).prepared(product, flat)
        found = _searched(value, batch, flat, chosen, key)
    codes = over_batch(lambda _, vol: _code(vol), batch, found)
    outcome(found, codes, throw=throw, batch_shape=batch.batch_shape)
    return found


@full_matmul_precision
def implied_black_vol(
    value: "Reals",
    forward: "Reals",
    strike: "Reals",
    expiry: "Reals",
    option: str | Sequence[str] = "call",
    *,
    shift: "Reals" = 0.0,
    throw: bool = True,
) -> Float[Array, "*batch"]:
    """Return the Black implied vol of an option on a forward, optionally shifted.

    It solves value = side ((F + shift) N(side d1) - (K + shift) N(side d2)), with side +1 for a call (a caplet
    divided by its discounted accrual) and -1 for a put. It has derivatives of any order.

    Args:
        value: The undiscounted value, in the units of the forward; all arguments broadcast.
        forward: The forward F, such as a rate as a decimal.
        strike: The strike K.
        expiry: The years to the fixing, above 0.
        option: The word "call" or "put", or a list of words.
        shift: The shift of the lognormal distribution, at least 0.
        throw: Whether to raise RuntimeError if no vol gives the value. Otherwise, and within `jax.jit` or
            `jax.vmap`, the vol is NaN.

    Returns:
        The vol per square root of a year. It is also NaN if F or K is not above -shift. An expiry that is not
        above 0, or an unknown option word, raises ValueError.

    Examples:
        >>> from pricing import implied_black_vol
        >>> f"{implied_black_vol(0.002, -0.001, 0.0, 2.0, shift=0.02):.4f}"
        '0.2253'
    """
    value, forward, strike, expiry, side = _quoted(value, forward, strike, expiry, option)
    by = as_real(shift).astype(forward.dtype)
    forward, strike = (jnp.add(*jnp.broadcast_arrays(x, by)) for x in (forward, strike))
    return _known(_of_black(value, forward, strike, expiry, side), throw)


@full_matmul_precision
def implied_normal_vol(
    value: "Reals",
    forward: "Reals",
    strike: "Reals",
    expiry: "Reals",
    option: str | Sequence[str] = "call",
    *,
    throw: bool = True,
) -> Float[Array, "*batch"]:
    """Return the Bachelier (normal) implied vol of an option on a forward.

    It solves value = side (F - K) N(side d) + s n(d), with d = (F - K) / s, s = vol sqrt(expiry) and the normal
    density n. Out of the money it has full precision for values down to 1e-300; in the money, the digits of the
    time value. It has derivatives of any order.

    Args:
        value: The undiscounted value, in the units of the forward; all arguments broadcast.
        forward: The forward F, such as a rate as a decimal.
        strike: The strike K.
        expiry: The years to the fixing, above 0.
        option: The word "call" or "put", or a list of words.
        throw: Whether to raise RuntimeError if no vol gives the value. Otherwise, and within `jax.jit` or
            `jax.vmap`, the vol is NaN.

    Returns:
        The vol per square root of a year, in the units of the forward: for a rate, 0.0085 is 85 bp. An expiry
        that is not above 0, or an unknown option word, raises ValueError.

    Examples:
        >>> from pricing import implied_normal_vol
        >>> [f"{1e4 * vol:.2f}" for vol in implied_normal_vol([0.002, 0.004], 0.02, 0.025, 2.0)]
        ['71.15', '109.55']
    """
    return _known(_of_normal(*_quoted(value, forward, strike, expiry, option)), throw)


def _quoted(value, forward, strike, expiry, option) -> tuple[Array, ...]:
    """Return the numbers of options on forwards as arrays, with words as +1 and -1.

    Raises:
        ValueError: An expiry is not above 0.
    """
    numbers = in_working_precision([as_real(x) for x in (value, forward, strike, expiry)])
    years = None if is_traced(expiry) else np.asarray(expiry)
    if years is not None and not np.all((years > 0.0) & np.isfinite(years)):
        raise ValueError(f"expiry must be above 0 and finite, in years, got {expiry}")
    code = choice("option", CALL_OR_PUT).metadata["converter"](option)
    return tuple(jnp.broadcast_arrays(*numbers, code.astype(numbers[0].dtype)))


def _code(vol: Array) -> RESULTS:
    return RESULTS.where(jnp.isnan(vol), RESULTS.no_implied_vol, RESULTS.successful)


def _known(found: Array, throw: bool) -> Array:
    """Return vols; if `throw`, a concrete NaN raises RuntimeError."""
    codes_of: Any = _code
    for _ in range(found.ndim):
        codes_of = jax.vmap(codes_of)
    codes = codes_of(found)
    outcome(found, codes, throw=throw, batch_shape=found.shape)
    return found


@stored_jit
def _of_black(value: Array, forward: Array, strike: Array, expiry: Array, side: Array) -> Array:
    has_law = (forward > 0.0) & (strike > 0.0)
    forward, strike = (jnp.where(has_law, x, 1.0) for x in (forward, strike))
    found = of_european.implied_vol(value, forward, strike, expiry, side)
    return nan_where(~has_law, found)


@stored_jit
def _of_normal(value: Array, forward: Array, strike: Array, expiry: Array, side: Array) -> Array:
    return of_normal.implied_normal_vol(value, forward, strike, expiry, side)


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
    """Return the lowest root in log vol within `_VOLS`; NaN if there is none, or the value is flat."""
    scale = jax.lax.stop_gradient(value)
    grid = jnp.asarray(np.log(_VOLS), scale.dtype)
    roots, has_root = outer_crossings(lambda x: jax.lax.stop_gradient(miss(x)), grid)
    root = before = roots[:1]
    for _ in range(_MORE_STEPS):
        root, before = as_root(miss, root), root
    eps = jnp.finfo(grid.dtype).eps
    found = jax.lax.stop_gradient(root)
    slope = jax.jvp(lambda x: miss(x)[0], (found,), (jnp.ones_like(found),))[1]
    # a value that hardly depends on the vol (an American option exercised today) has no unique vol
    is_determined = jnp.abs(slope) > scale * eps**0.5
    is_known = has_root & is_determined & (jnp.abs(root - before)[0] < eps**0.4)
    return jnp.where(is_known, root[0], jnp.nan)
