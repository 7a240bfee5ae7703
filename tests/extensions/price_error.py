"""A calibration's objective in one file: prices in place of implied vols.

`residuals` returns model less market, in the shape of the quotes; it may ask an ability of the model.
"""

import jax
import jax.numpy as jnp

from calibration import AbstractObjective
from pricing import BlackScholes, ClosedForm, European, price


class PriceError(AbstractObjective):
    """The price of a call by the model's Black vol less that by the quoted vol, per unit of the spot."""

    def residuals(self, model, quotes):
        def of_quote(expiry, strike, quoted):
            call = European(strike, expiry)
            vols = jnp.stack([model.black_vol(expiry, strike), quoted])

            def value(vol):
                flat = BlackScholes(model.spot, model.rate, vol, model.dividend_yield)
                return price(call, flat, ClosedForm(), throw=False).value

            ours, market = jax.vmap(value)(vols)
            return (ours - market) / model.spot

        of_expiry = jax.vmap(of_quote, in_axes=(None, 0, 0))
        return jax.vmap(of_expiry, in_axes=(0, None, 0))(
            quotes.expiries, quotes.strikes, quotes.vols
        )
