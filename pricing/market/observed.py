"""Levels between the days of two markets: the fixings of the later one, or its own quotes."""

from datetime import date

from .curve import ZeroCurve
from .market import Market


class Observed:
    """Levels on the days after one market, up to the day of a later one.

    If the later market has no fixing of a day before its own, its own quote is used, and `assumed` records it.

    Args:
        since: The day of the market before, whose own levels are no longer needed.
        market: The later market.

    Attributes:
        until: The day of the later market.
        assumed: Descriptions of the fixings that its quotes have replaced.

    Examples:
        >>> from datetime import date
        >>> from pricing.market import Market, Observed
        >>> curve = '{"asof": "2002-07-05", "curves": {"EUR": {"zero_rate": 0.03}}, "equities": {}}'
        >>> observed = Observed(date(2002, 7, 1), Market.from_text(curve))
        >>> observed.discount("EUR", date(2002, 7, 3)), f"{observed.discount('EUR', date(2003, 7, 5)):.4f}"
        (1.0, '0.9704')
    """

    def __init__(self, since: date, market: Market):
        self.until: date = market.asof
        self.assumed: list[str] = []
        self._since, self._market, self._fixings = since, market, dict(market.fixings)
        self._curves: dict[str, ZeroCurve] = {}

    def spot(self, name: str, day: date) -> float:
        """Return the spot of an equity on a day.

        Args:
            name: The equity.
            day: The day, not after the later market's.
        """
        if (name, day) in self._fixings:
            return self._fixings[name, day]
        if day != self.until:
            self.assumed.append(f"{name} on {day}")
        return float(self._market.equities[name].spot)

    def days(self, name: str) -> tuple[date, ...]:
        """Return the days with a known spot of an equity, in order.

        Args:
            name: The equity.
        """
        fixed = {day for other, day in self._fixings if other == name and self._since < day}
        return tuple(sorted(fixed | {self.until}))

    def discount(self, name: str, day: date) -> float:
        """Return the discount factor of a curve from the later market's day on; 1 for days up to it.

        Args:
            name: The curve.
            day: The day of a payment.
        """
        if day <= self.until:
            return 1.0
        if name not in self._curves:
            self._curves[name] = self._market.curves[name].bootstrapped()
        return float(self._curves[name].discount(self._market.time(day)))
