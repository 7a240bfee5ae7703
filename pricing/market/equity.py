"""The market data of equities."""

from typing import Any, NamedTuple

import equinox as eqx
from jaxtyping import Array, Float

from ..fields import Converted, FlatOr, finite_numbers, positive, real
from ..numbers_shown import repr_with_numbers
from .curve import ZeroCurve
from .dividends import Dividends
from .fx_vols import DeltaSurface
from .surface import VolSurface


def _number_or_curve(name: str) -> Any:
    """Return a field for a finite number or a curve of zero rates."""
    of_number, of_curve = real(name).metadata["converter"], finite_numbers(name)
    convert = lambda value: (of_curve if isinstance(value, ZeroCurve) else of_number)(value)
    return eqx.field(converter=convert)


class Equity(eqx.Module):
    """The market data of one share or index.

    Attributes:
        spot: The price of one share, or the level of the index, above 0, in `currency`.
        dividend_yield: The dividend yield less the cost of borrowing the share, continuously compounded, as a
            decimal per year: a number, or a `ZeroCurve` of yields.
        surface: The implied vols of its options.
        curve: The name of its discount curve in the market.
        currency: The ISO code of its currency.
        dividends: The dividends on known dates, or None.

    Examples:
        >>> from pricing.market import Equity, VolSurface
        >>> surface = VolSurface([0.5, 1.0], [90.0, 110.0], [[0.24, 0.2], [0.23, 0.21]])
        >>> Equity(100.0, 0.01, surface, "EUR").curve
        'EUR'
    """

    __repr__ = repr_with_numbers

    spot: Converted[Float[Array, ""]] = positive("spot")
    dividend_yield: FlatOr[ZeroCurve] = _number_or_curve("dividend_yield")
    surface: VolSurface | DeltaSurface  # pyright: ignore[reportGeneralTypeIssues]
    curve: str = eqx.field(static=True)  # pyright: ignore[reportGeneralTypeIssues]
    currency: str = eqx.field(static=True, default="")
    dividends: Dividends | None = None

    @property
    def dividend_quotes(self) -> tuple[Any, ...]:
        """The leaves of dividend quotes; in a gradient, the derivatives to them."""
        is_curve = isinstance(self.dividend_yield, ZeroCurve)
        yields = self.dividend_yield.quotes if is_curve else (self.dividend_yield,)
        return yields if self.dividends is None else (*yields, *self.dividends.quotes)

    @property
    def times(self) -> tuple[Any, ...]:
        """The leaves of pillar times, which come nearer day by day; ex-dates are part of theta."""
        is_curve = isinstance(self.dividend_yield, ZeroCurve)
        return self.surface.expiries, *((self.dividend_yield.times,) if is_curve else ())


class DerivedEquity(NamedTuple):
    """Derived market data with the attributes of an `Equity`, for models.

    It is an equity paid in another currency, or the part of an equity above its cash dividends.

    Attributes:
        spot: The level of the modelled quantity.
        dividend_yield: The yield that gives the right forward, as a curve or a number.
        surface: The implied vols of that level.
        curve: The name of the discount curve of the payments.
        currency: The ISO code of the payments.
        dividends: Always None: no dividends on known dates.
    """

    spot: Float[Array, ""]
    dividend_yield: Any
    surface: Any
    curve: str
    currency: str
    dividends: None = None
