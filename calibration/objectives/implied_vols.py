"""Equity options: implied vols of a model that has them, or a characteristic function."""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from pricing.formulas.black import black
from pricing.formulas.implied_vol import implied_std
from pricing.market import SmileQuotes, VolSurface
from pricing.methods.fourier import Spectrum
from pricing.methods.method import missing
from pricing.models import AbstractModel, BlackVol, CharacteristicFunction
from pricing.numerics.safe_math import larger

from .objective import AbstractObjective

Vols = Float[Array, "expiries strikes"]


class ImpliedVolError(AbstractObjective):
    """Model implied vol less quoted vol, per 1.00, every quote weighing the same.

    The vols are the model's own (`BlackVol`), or those of its characteristic function, one evaluation of which
    for each expiry and node of two paths serves all strikes. On 48 nodes an expiry of 13 days on the DAX is
    true to 7e-10.

    Attributes:
        usual_for: Surfaces of implied vols.
        num_nodes: Nodes of the Fourier integral on each of two paths (`pricing.Fourier`), where there is one.

    Examples:
        >>> from calibration import ImpliedVolError
        >>> ImpliedVolError().num_nodes
        48
    """

    usual_for: ClassVar[tuple[type, ...]] = (VolSurface, SmileQuotes)

    num_nodes: int = eqx.field(static=True, default=48)

    def residuals(self, model: AbstractModel, quotes: VolSurface | SmileQuotes) -> Vols:
        errors = model_vols(model, quotes, self.num_nodes) - quotes.vols
        return errors * quotes.weights if isinstance(quotes, SmileQuotes) else errors


_FARTHEST = (
    16.0  # deviations within which a path turned against the lognormal part loses five digits
)
_FLOOR = 1e-10  # of sqrt(F K): an option worth less has no vol to speak of, whatever the model


def model_vols(model: AbstractModel, quotes: VolSurface | SmileQuotes, num_nodes: int) -> Vols:
    """Return the model's implied vols at the expiries and strikes of `quotes`.

    Raises:
        TypeError: The model has neither ability.
    """
    if not isinstance(model, BlackVol | CharacteristicFunction):
        raise TypeError(
            missing("Black volatility or characteristic function to take implied vols from", model)
        )
    forwards = jax.vmap(model.forward)(quotes.expiries)[:, None]
    if isinstance(quotes, SmileQuotes):
        log_moneyness, strikes = quotes.log_moneyness, forwards * jnp.exp(-quotes.log_moneyness)
    else:
        strikes = jnp.broadcast_to(quotes.strikes, quotes.vols.shape)
        log_moneyness = jnp.log(forwards / strikes)
    if isinstance(model, BlackVol):
        of_expiry = jax.vmap(model.black_vol, (None, 0))
        return jax.vmap(of_expiry)(quotes.expiries, strikes)

    def smile(expiry, k):
        std, (_, drift) = jax.lax.stop_gradient(
            (jnp.sqrt(model.total_variance(expiry)), model.tail_rate(expiry))
        )

        def corrections(side):
            """Return those of the strikes with k + drift on a side; with others the integrand would grow."""
            spectrum = Spectrum.of(model, expiry, num_nodes, side=side, about=-drift)
            pull = side * larger(side * (near + drift), 0.0)
            return jax.vmap(spectrum.correction)(pull - drift)

        near = larger(
            -larger(-k, -_FARTHEST * std), -_FARTHEST * std
        )  # beyond, nothing has a value
        above, below = jax.vmap(corrections)(jnp.asarray([1.0, -1.0], k.dtype))
        side = jnp.where(k > 0.0, -jnp.ones_like(k), 1.0)  # out of the money
        lognormal = black(jnp.exp(0.5 * k), jnp.exp(-0.5 * k), std, side)
        value = larger(lognormal + jnp.where(near + drift > 0.0, above, below), _FLOOR)
        return implied_std(value, k, side) / jnp.sqrt(expiry)

    return jax.vmap(smile)(quotes.expiries, log_moneyness)
