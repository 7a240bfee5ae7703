"""Price errors of equity options, instead of implied-vol errors."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from pricing.market import SmileQuotes, VolSurface
from pricing.models import AbstractModel
from pricing.numerics.safe_math import larger

from .objective import AbstractObjective, as_weights, weighted
from .smile_values import Vols, black_values, log_moneyness_of, smile_values, with_more_nodes

_LEAST_VEGA = 1e-4  # of sqrt(F K), per 1.00 vol: below it, a price does not determine its vol


class PriceError(AbstractObjective):
    """Model price less quoted price of out-of-the-money options, as a fraction of the forward.

    Prices are undiscounted: the price in currency divided by D F, with the discount factor D. A quote's price
    is Black's at its vol. Options at the money and with long expiries count most. With `vega_weighted`, each
    error is divided by Black's vega at the quoted vol, so that it is the vol error to first order, without an
    implied-vol search (Cont and Tankov 2004; Christoffersen, Heston and Jacobs 2009).

    Attributes:
        vega_weighted: Whether each error is divided by the vega of its quote, floored at 1e-4 of sqrt(F K) per
            1.00 vol.
        weights: Factors of the residuals, of shape (expiries, strikes); 0 or False to ignore a quote, None for
            all 1.
        num_nodes: Nodes of the Fourier integral on each of two contours (`pricing.Fourier`), if there is one.

    Examples:
        >>> from calibration import PriceError, calibrate
        >>> from pricing import BlackScholes, VolSurface
        >>> surface = VolSurface([0.5, 1.0], [90.0, 110.0], [[0.22, 0.2], [0.23, 0.21]])
        >>> start = BlackScholes(100.0, 0.03, 0.3)
        >>> f"{calibrate(surface, start, objective=PriceError(vega_weighted=True)).model.vol:.4f}"
        '0.2147'
    """

    vega_weighted: bool = eqx.field(static=True, default=False)
    weights: Float[Array, "expiries strikes"] | None = eqx.field(converter=as_weights, default=None)
    num_nodes: int = eqx.field(static=True, default=48)

    @property
    def is_of_moneyness(self) -> bool:
        return True

    @property
    def finer(self) -> "PriceError | None":
        return with_more_nodes(self)

    def residuals(self, model: AbstractModel, quotes: VolSurface | SmileQuotes) -> Vols:
        k = log_moneyness_of(model, quotes)
        quoted = black_values(quotes.vols, k, quotes.expiries)
        errors = smile_values(model, quotes, self.num_nodes) - quoted
        if self.vega_weighted:
            errors = errors / larger(_vegas(quotes, k), _LEAST_VEGA)
        else:
            errors = errors * jnp.exp(-0.5 * k)  # from sqrt(F K) to F
        return weighted(weighted(errors, quotes.weights), self.weights)


def _vegas(quotes: VolSurface | SmileQuotes, k: Vols) -> Vols:
    """Return Black's vegas at the quoted vols, in units of sqrt(F K)."""
    root = jnp.sqrt(quotes.expiries)[:, None]
    std = quotes.vols * root
    return root * jnp.exp(-0.5 * ((k / std) ** 2 + 0.25 * std**2)) / np.sqrt(2.0 * np.pi)
