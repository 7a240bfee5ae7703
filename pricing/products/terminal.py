"""Payoffs of the spot at expiry alone: the ability, and the general form of all who have it."""

import abc

import equinox as eqx

from ..fields import between, positive, real, time
from .product import AbstractProduct, Real


class TerminalClaim(AbstractProduct):
    """Ability: at expiry, if the spot ends on the paying side of the strike, pays units of asset and cash.

    payoff = (asset_units * S_T + cash_units) * 1{side * (S_T - strike) > 0}, side = +1 (call), -1 (put).
    """

    strike: eqx.AbstractVar[Real]
    expiry: eqx.AbstractVar[Real]
    side: eqx.AbstractVar[Real]

    @property
    @abc.abstractmethod
    def units(self) -> tuple[Real, Real]:
        """(asset_units, cash_units) paid on the paying side."""

    @property
    def vol_at(self) -> tuple[Real, Real]:
        return self.expiry, self.strike

    @property
    def canonical(self) -> "Claim":
        return Claim(self.strike, self.expiry, self.side, *self.units)


class Claim(TerminalClaim):
    """The general terminal claim: any units of asset and of cash (currency) on either side of the strike.

    side: +1 if it pays above the strike, -1 below; other units as in `TerminalClaim`.
    """

    strike: Real = positive("strike")
    expiry: Real = time("expiry")
    side: Real = between("side", -1.0, 1.0)
    asset_units: Real = real("asset_units")
    cash_units: Real = real("cash_units")

    @property
    def units(self) -> tuple[Real, Real]:
        return self.asset_units, self.cash_units
