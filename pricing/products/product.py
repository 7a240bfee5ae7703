"""What every product is, and the abilities that a method may ask of it."""

import abc

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..fields import between, positive, real

CALL_OR_PUT = {"call": 1, "put": -1}


class AbstractProduct(eqx.Module):
    """A contract on one underlying. Numbers are array leaves; times are year fractions.

    Arrays in place of numbers make a batch of contracts; methods are written for one contract, and the
    verbs map them over the batch.
    """

    expiry: eqx.AbstractVar[Float[Array, "..."]]

    def aged(self, years: Float[Array, "..."]) -> "AbstractProduct":
        """The same contract when `years` have passed."""
        return eqx.tree_at(lambda product: product.expiry, self, self.expiry - years)

    @property
    def canonical(self) -> "AbstractProduct":
        """The same contract in the most general form of its kind, so that one program serves them all."""
        return self


class TerminalClaim(AbstractProduct):
    """Ability: at expiry, if the spot ends on the paying side of the strike, pays units of asset and cash.

    payoff = (asset_units * S_T + cash_units) * 1{side * (S_T - strike) > 0}, side = +1 (call), -1 (put).
    """

    strike: eqx.AbstractVar[Float[Array, "..."]]

    side: eqx.AbstractVar[Float[Array, "..."]]

    @property
    @abc.abstractmethod
    def units(self) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
        """(asset_units, cash_units) paid on the paying side."""

    @property
    def canonical(self) -> "Claim":
        return Claim(self.strike, self.expiry, self.side, *self.units)


class Claim(TerminalClaim):
    """The general terminal claim: any units of asset and of cash (currency) on either side of the strike.

    side: +1 if it pays above the strike, -1 below; other units as in `TerminalClaim`.
    """

    strike: Float[Array, "..."] = positive("strike")
    expiry: Float[Array, "..."] = positive("expiry")
    side: Float[Array, "..."] = between("side", -1.0, 1.0)
    asset_units: Float[Array, "..."] = real("asset_units")
    cash_units: Float[Array, "..."] = real("cash_units")

    @property
    def units(self) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
        return self.asset_units, self.cash_units


def side_of(option: Array, like: Array) -> Array:
    """The code of "call" or "put" as a real +1 or -1 of the type of `like`."""
    return jnp.asarray(option).astype(like.dtype)
