"""Payoffs of the spot at expiry only: the ability, and the canonical form."""

import abc
from typing import TYPE_CHECKING

from ..fields import Numeric, between, positive, real, time
from .product import AbstractProduct, Real

if TYPE_CHECKING:
    from typing import ClassVar as AbstractVar  # for type checkers: not an argument of `__init__`
else:
    from equinox import AbstractVar


class TerminalClaim(AbstractProduct):
    """Ability: pays units of asset and cash at expiry if the spot ends on the paying side of the strike.

        payoff = (asset_units * S_T + cash_units) * 1{side * (S_T - strike) > 0}

    Attributes:
        strike: The strike in units of the spot.
        expiry: The time of payment in years.
        side: +1 if the claim pays above the strike, -1 below.
    """

    strike: AbstractVar[Real]
    expiry: AbstractVar[Real]
    side: AbstractVar[Real]

    @property
    @abc.abstractmethod
    def units(self) -> tuple[Real, Real]:
        """The units of the asset and of cash (currency) paid on the paying side."""

    @property
    def smile_point(self) -> tuple[Real, Real]:
        return self.expiry, self.strike

    @property
    def canonical(self) -> "Claim":
        return Claim(self.strike, self.expiry, self.side, *self.units)


class Claim(TerminalClaim):
    """A claim that pays units of asset and cash at expiry on one side of the strike.

    Attributes:
        strike: The strike in units of the spot, above 0.
        expiry: The time of payment in years, above 0.
        side: +1 if the claim pays above the strike, -1 below.
        asset_units: The units of the asset that it pays.
        cash_units: The cash that it pays, in currency.

    Examples:
        >>> call = Claim(100.0, 1.0, 1.0, asset_units=1.0, cash_units=-100.0)
        >>> [float(units) for units in call.units]
        [1.0, -100.0]
    """

    strike: Numeric[Real] = positive("strike")
    expiry: Numeric[Real] = time("expiry")
    side: Numeric[Real] = between("side", -1.0, 1.0)
    asset_units: Numeric[Real] = real("asset_units")
    cash_units: Numeric[Real] = real("cash_units")

    @property
    def units(self) -> tuple[Real, Real]:
        return self.asset_units, self.cash_units
