"""Closed forms under lognormal spots: terminal claims, continuous barriers, geometric averages."""

import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from ..black import exercise_probabilities
from ..models import AbstractModel, BlackVol
from ..products import AbstractProduct, Average, Barrier, TerminalClaim
from .barrier_formula import barrier_value
from .geometric_average import geometric_average_value
from .method import AbstractMethod, missing


class ClosedForm(AbstractMethod):
    """Black's formula for terminal claims and geometric averages; Reiner and Rubinstein's for barriers.

    A barrier under a curve, a term structure or a surface takes the flat rate and vol of its expiry (and
    strike); so does an average under a surface.
    """

    @property
    def is_random(self) -> bool:
        return False

    @property
    def trade_bytes(self) -> int:
        return 2**14

    def lacks(self, product: AbstractProduct, model: AbstractModel) -> str | None:
        if not isinstance(model, BlackVol):
            return missing("Black volatility (lognormal terminal spots)", model)
        if isinstance(product, Average) and product.average == "geometric":
            return None
        continuous = isinstance(product, Barrier) and product.dates is None
        if not (continuous or isinstance(product, TerminalClaim)):
            return missing("closed form", product)
        return None

    def samples(
        self,
        product: TerminalClaim | Barrier | Average,
        model: BlackVol,
        key: PRNGKeyArray | None,
    ) -> Float[Array, ""]:
        del key
        if isinstance(product, Average):
            return geometric_average_value(product, model.read_at(product.vol_at))
        if isinstance(product, TerminalClaim):
            return _terminal_value(product, model)
        return _barrier_value(product, model)


def _terminal_value(product: TerminalClaim, model: BlackVol) -> Float[Array, ""]:
    """discount * (asset_units F N(side d1) + cash_units N(side d2))."""
    t, strike = product.expiry, product.strike
    forward, std = model.forward(t), model.black_vol(t, strike) * jnp.sqrt(t)
    share, cash = exercise_probabilities(forward, strike, std, product.side)
    asset_units, cash_units = product.units
    return model.discount(t) * (asset_units * forward * share + cash_units * cash)


def _barrier_value(product: Barrier, model: BlackVol) -> Float[Array, ""]:
    t = product.expiry
    rate = -jnp.log(model.discount(t)) / t
    return barrier_value(
        product, model.spot, rate, model.dividend_yield, model.black_vol(t, product.strike)
    )
