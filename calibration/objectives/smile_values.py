"""Values of out-of-the-money options at the expiries and strikes of a surface, under a model."""

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from pricing.market import SmileQuotes, VolSurface
from pricing.methods.fourier import Spectrum
from pricing.methods.method import missing_ability
from pricing.models import AbstractEquityModel, BlackVol, CharacteristicFunction
from pricing.numerics.black import black
from pricing.numerics.safe_math import larger

Vols = Float[Array, "expiries strikes"]

_FARTHEST = (
    16.0  # deviations within which a contour rotated against the lognormal part loses five digits
)
_MOST_NODES = 1024
_FLOOR = 1e-10  # in units of sqrt(F K): an option worth less has no meaningful vol under any model


def with_more_nodes(objective: Any) -> Any:
    """Return an objective with a third more nodes; None beyond the useful maximum.

    The error of such an integral decreases exponentially with its nodes: by a factor of 100 for a third more
    than 48.
    """
    num_nodes = 8 * math.ceil(objective.num_nodes / 6)
    return dataclasses.replace(objective, num_nodes=num_nodes) if num_nodes <= _MOST_NODES else None


def log_moneyness_of(model: Any, quotes: VolSurface | SmileQuotes) -> Vols:
    """Return k = log(F / K) of every quote.

    Raises:
        TypeError: If the model has neither Black vols nor a characteristic function, and so no smile.
    """
    if not isinstance(model, BlackVol | CharacteristicFunction):
        raise TypeError(
            missing_ability(
                "Black volatility or characteristic function to take implied vols from", model
            )
        )
    if isinstance(quotes, SmileQuotes):
        return quotes.log_moneyness
    strikes = jnp.broadcast_to(quotes.strikes, quotes.vols.shape)
    return jnp.log(_forwards(model, quotes) / strikes)


def out_of_the_money(k: Float[Array, "..."]) -> Float[Array, "..."]:
    """Return the side of the out-of-the-money option: -1, a put, if the strike is below the forward."""
    return jnp.where(k > 0.0, -jnp.ones_like(k), 1.0)


def smile_values(model: Any, quotes: VolSurface | SmileQuotes, num_nodes: int) -> Vols:
    """Return undiscounted values over sqrt(F K) of the out-of-the-money options."""
    k = log_moneyness_of(model, quotes)
    if isinstance(model, BlackVol):
        return black_values(black_vols(model, quotes), k, quotes.expiries)
    return _spectral_values(model, k, quotes.expiries, num_nodes)


def _spectral_values(
    model: CharacteristicFunction, k: Vols, expiries: Float[Array, " expiries"], num_nodes: int
) -> Vols:
    """Return them from one evaluation of the characteristic function per expiry and node of two contours."""

    def smile(expiry, k):
        std, (_, drift) = jax.lax.stop_gradient(
            (jnp.sqrt(model.total_variance(expiry)), model.tail_rate(expiry))
        )

        def path(side):
            return Spectrum.of(model, expiry, num_nodes, side=side, about=-drift)

        def correction(k):
            """Return a strike's correction, on the contour where the integrand decays (sign of k + drift)."""
            is_above = k + drift > 0.0
            nodes = jnp.where(is_above, paths.nodes[0], paths.nodes[1])
            both = Spectrum(nodes, paths.weighted, std, -drift).corrections(k)
            return jnp.where(is_above, *both)

        near = larger(-larger(-k, -_FARTHEST * std), -_FARTHEST * std)  # beyond, all values vanish
        paths = jax.vmap(path)(jnp.asarray([1.0, -1.0], k.dtype))
        lognormal = black(jnp.exp(0.5 * k), jnp.exp(-0.5 * k), std, out_of_the_money(k))
        return larger(lognormal + jax.vmap(correction)(near), _FLOOR)

    return jax.vmap(smile)(expiries, k)


def black_values(vols: Vols, k: Vols, expiries: Float[Array, " expiries"]) -> Vols:
    """Return undiscounted Black values over sqrt(F K) of the out-of-the-money options at these vols."""
    std = vols * jnp.sqrt(expiries)[:, None]
    return black(jnp.exp(0.5 * k), jnp.exp(-0.5 * k), std, out_of_the_money(k))


def black_vols(model: BlackVol, quotes: VolSurface | SmileQuotes) -> Vols:
    """Return the model's own vols at every quote."""
    if isinstance(quotes, SmileQuotes):
        strikes = _forwards(model, quotes) * jnp.exp(-quotes.log_moneyness)
    else:
        strikes = jnp.broadcast_to(quotes.strikes, quotes.vols.shape)
    of_expiry = jax.vmap(model.black_vol, (None, 0))
    return jax.vmap(of_expiry)(quotes.expiries, strikes)


def _forwards(
    model: AbstractEquityModel, quotes: VolSurface | SmileQuotes
) -> Float[Array, "expiries 1"]:
    return jax.vmap(model.forward)(quotes.expiries)[:, None]
