"""A method in one file: the payoff of a spot at expiry, integrated over its lognormal law.

1. `unsupported_reason` says in words what it needs of a product and a model, and does not find.
2. `samples` returns today's value of one contract, smooth in every number of the product and of the model.
3. `is_random`: whether `samples` needs a key.
"""

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import norm

from pricing.methods import AbstractMethod, missing_ability
from pricing.models import BlackVol
from pricing.products import TerminalClaim


class GaussLegendre(AbstractMethod):
    """E[payoff] over the paying side of the strike, whose integrand is smooth, by Gauss-Legendre quadrature.

    Abramowitz and Stegun (1964), 25.4.29.
    """

    num_nodes: int = eqx.field(static=True, default=64)
    width: float = eqx.field(static=True, default=10.0)  # standard deviations

    is_random: ClassVar[bool] = False

    def unsupported_reason(self, product, model):
        if not isinstance(product, TerminalClaim):
            return missing_ability("payoff of the spot at expiry alone", product)
        if not isinstance(model, BlackVol):
            return missing_ability("volatility of its own for each expiry and strike", model)
        return None

    def samples(self, product, model, *, key=None):
        del key
        t, side = product.expiry, product.side
        vol, slope = model.smile(t, product.strike)
        std = vol * jnp.sqrt(t)
        edge = (
            jnp.log(product.strike / model.forward(t)) / std + 0.5 * std
        )  # of the normal variable
        nodes, weights = np.polynomial.legendre.leggauss(self.num_nodes)
        x = edge + 0.5 * side * self.width * jnp.asarray(1.0 + nodes, edge.dtype)
        spot = model.forward(t) * jnp.exp(std * x - 0.5 * std**2)
        asset, cash = product.units
        density = norm.pdf(x) * jnp.asarray(0.5 * self.width * weights, x.dtype)
        jump = asset * product.strike + cash  # of the payoff, which sees the slope of the smile
        skew = side * jump * slope * product.strike * norm.pdf(edge) * jnp.sqrt(t)
        return model.discount(t) * (jnp.sum((asset * spot + cash) * density) - skew)
