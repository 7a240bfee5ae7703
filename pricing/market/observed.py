"""Levels on days that have passed: fixings, or a market's own quotes on its day."""

from datetime import date

from .curve import ZeroCurve
from .fixings import Fixings
from .market import Market


class UnknownPast(LookupError):
    """A fact of the past that a trade depends on and the fixings do not give.

    Attributes:
        message: The fact that is not known.
        remedy: The row or cell to give.

    Examples:
        >>> from pricing.market import UnknownPast
        >>> str(UnknownPast("no fixing of DAX on 2002-07-04", "add the row DAX,2002-07-04,VALUE"))
        'no fixing of DAX on 2002-07-04; add the row DAX,2002-07-04,VALUE'
    """

    def __init__(self, message: str, remedy: str):
        super().__init__(f"{message}; {remedy}")
        self.message, self.remedy = message, remedy


class Observed:
    """Levels on days up to a market's own: its fixings, and its quotes on its day.

    A day after `since` that has no fixing takes the market's own quote, and `assumed` records it; a day up to
    `since` raises `UnknownPast`.

    Args:
        since: The day up to which all fixings must be known: that of an earlier market, or the market's own.
        market: The market.

    Attributes:
        since: The day up to which all fixings must be known.
        until: The day of the market.
        assumed: Descriptions of the fixings of earlier days that the market's quotes have replaced.
        quoted: The names whose quotes replaced the fixings of the market's own day.

    Examples:
        >>> from datetime import date
        >>> from pricing.market import Market, Observed
        >>> curve = '{"asof": "2002-07-05", "curves": {"EUR": {"zero_rate": 0.03}}, "equities": {}}'
        >>> observed = Observed(date(2002, 7, 1), Market.from_text(curve))
        >>> observed.discount("EUR", date(2002, 7, 3)), f"{observed.discount('EUR', date(2003, 7, 5)):.4f}"
        (1.0, '0.9704')
    """

    def __init__(self, since: date, market: Market):
        self.since: date = since
        self.until: date = market.asof
        self.assumed: list[str] = []
        self.quoted: set[str] = set()
        self._market, self._fixings = market, Fixings(market.fixings)
        self._curves: dict[str, ZeroCurve] = {}

    def spot(self, name: str, day: date) -> float:
        """Return the spot of an underlying on a day; a day without a fixing that is not after `since` raises.

        Args:
            name: The equity.
            day: The day, not after the market's.
        """
        if (name, day) in self._fixings:
            return self._fixings[name, day]
        self._check_known(name, day)
        return float(self._market.spot(name))

    def rate(self, name: str, months: int, start: date, end: date, accrual: float) -> float:
        """Return the simple rate of a curve that was fixed for a period, per year; it raises as `spot` does.

        Its name in the fixings is that of the curve with the months, as "EUR 6M".

        Args:
            name: The curve.
            months: The months of the period.
            start: The day of the fixing, on which the period begins; not after the market's.
            end: The end of the period.
            accrual: The year fraction of the period.
        """
        fixed = f"{name} {months}M"
        if (fixed, start) in self._fixings:
            return self._fixings[fixed, start]
        self._check_known(fixed, start)
        return (1.0 / self.discount(name, end) - 1.0) / accrual

    def _check_known(self, name: str, day: date) -> None:
        """Record that a quote replaces a fixing.

        Raises:
            UnknownPast: It may not: the day is past.
        """
        if day == self.until:
            self.quoted.add(name)
        elif day > self.since:
            self.assumed.append(f"{name} on {day}")
        else:
            remedy = f"add the row {name},{day},VALUE to the fixings"
            raise UnknownPast(f"there is no fixing of {name} on {day}", remedy)

    def days(self, name: str) -> tuple[date, ...]:
        """Return the days with a known spot of an equity, in order; the last is the market's.

        Args:
            name: The equity.
        """
        fixed = {day for day in self._fixings.days(name) if day < self.until}
        return (*sorted(fixed), self.until)

    def discount(self, name: str, day: date) -> float:
        """Return the discount factor of a curve from the market's day on; 1 for days up to it.

        Args:
            name: The curve.
            day: The day of a payment.
        """
        if day <= self.until:
            return 1.0
        if name not in self._curves:
            self._curves[name] = self._market.curves[name].bootstrapped()
        return float(self._curves[name].discount(self._market.time(day)))
