"""Implied-vol errors of equity options, for models with Black vols or a characteristic function."""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from pricing.market import SmileQuotes, VolSurface
from pricing.models import AbstractModel, BlackVol
from pricing.numerics.implied_vol import implied_std

from .objective import AbstractObjective, as_weights, weighted
from .smile_values import (
    Vols,
    black_vols,
    log_moneyness_of,
    out_of_the_money,
    smile_values,
    with_more_nodes,
)


class ImpliedVolError(AbstractObjective):
    """Model implied vol less quoted vol, per 1.00, equally weighted unless there are weights.

    The vols are the model's own (`BlackVol`), or come from its characteristic function, of which one evaluation
    per expiry and node of two contours serves all strikes. With 48 nodes, an expiry of 13 days on the DAX is
    accurate to 7e-10.

    Attributes:
        usual_for: Surfaces of implied vols.
        num_nodes: Nodes of the Fourier integral on each of two contours (`pricing.Fourier`), if there is one.
        weights: Factors of the residuals, of shape (expiries, strikes); 0 or False to ignore a quote, None for
            all 1.
    """

    usual_for: ClassVar[tuple[type, ...]] = (VolSurface, SmileQuotes)

    num_nodes: int = eqx.field(static=True, default=48)
    weights: Float[Array, "expiries strikes"] | None = eqx.field(converter=as_weights, default=None)

    @property
    def is_of_moneyness(self) -> bool:
        return True

    @property
    def finer(self) -> "ImpliedVolError | None":
        return with_more_nodes(self)

    def residuals(self, model: AbstractModel, quotes: VolSurface | SmileQuotes) -> Vols:
        errors = model_vols(model, quotes, self.num_nodes) - quotes.vols
        return weighted(weighted(errors, quotes.weights), self.weights)


def model_vols(model: AbstractModel, quotes: VolSurface | SmileQuotes, num_nodes: int) -> Vols:
    """Return the model's implied vols at the expiries and strikes of `quotes`."""
    if isinstance(model, BlackVol):
        return black_vols(model, quotes)
    k, values = log_moneyness_of(model, quotes), smile_values(model, quotes, num_nodes)
    of_expiry = jax.vmap(lambda value, k: implied_std(value, k, out_of_the_money(k)))
    return of_expiry(values, k) / jnp.sqrt(quotes.expiries)[:, None]
