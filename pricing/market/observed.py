"""Observed levels on past days: fixings, or a market's own quotes on its day."""

import itertools
from datetime import date

from .curve import ZeroCurve
from .dates import business_days, year_fraction
from .fixings import Fixings
from .market import Market


class UnknownPast(LookupError):
    """A trade depends on a past level that the fixings lack.

    Attributes:
        message: The missing level, in words.
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
    """Levels on days up to the market's: its fixings, and its quotes on its own day.

    If a fixing is missing after `since`, the market's own quote replaces it and `assumed` records it; if it is
    missing on or before `since`, `UnknownPast` is raised.

    Args:
        since: The day up to which all fixings must be known: that of an earlier market, or the market's own.
        market: The market.

    Attributes:
        since: The day up to which all fixings must be known.
        until: The day of the market.
        assumed: Descriptions of missing fixings of earlier days that the market's quotes replaced.
        quoted: The names whose quotes served as fixings of the market's own day.

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
        self._days: dict[str, tuple[date, ...]] = {}
        self._curves: dict[str, ZeroCurve] = {}

    def spot(self, name: str, day: date) -> float:
        """Return the spot of an underlying on a day; a missing fixing on or before `since` raises.

        Args:
            name: The underlying. An equity in another currency uses the fixings of the equity and, for a compo,
                also those of the FX pair.
            day: The day, not after the market's.
        """
        if (name, day) in self._fixings:
            return self._fixings[name, day]
        if found := self._market.conversion(name):
            asset, *pair = self._market.parts_of(name)
            spot = self.spot(asset, day)
            if found.kind == "quanto":
                return spot
            rate = self.spot(pair[0], day)
            is_direct = self._market.fx[pair[0]].domestic == found.currency
            return spot * (rate if is_direct else 1.0 / rate)
        self._check_known(name, day)
        return float(self._market.spot(name))

    def rate(self, name: str, months: int, start: date, end: date, accrual: float) -> float:
        """Return the simple rate per year that was fixed for a period of a curve; it raises like `spot`.

        Its name in the fixings is the curve and the tenor, such as "EUR 6M".

        Args:
            name: The curve.
            months: The length of the period in months.
            start: The fixing day, on which the period begins; not after the market's day.
            end: The end of the period.
            accrual: The year fraction of the period.
        """
        fixed = f"{name} {months}M"
        if (fixed, start) in self._fixings:
            return self._fixings[fixed, start]
        self._check_known(fixed, start)
        return (1.0 / self.discount(name, end) - 1.0) / accrual

    def is_fixed(self, name: str, months: int, start: date) -> bool:
        """Return True if the rate of a period is known: it starts in the past, or today with a fixing.

        Args:
            name: The curve.
            months: The length of the period in months.
            start: The first day of the period.
        """
        return start < self.until or (f"{name} {months}M", start) in self._fixings

    def has_cap_vols(self, name: str) -> bool:
        """Return True if the market quotes caps on the rates of a curve.

        Args:
            name: The curve.
        """
        return name in self._market.cap_vols

    def compounded(self, name: str, start: date, end: date, calendar: str, day_count: str) -> float:
        """Return the growth of 1 at a curve's overnight rates between two days; it raises like `spot`.

        It is prod_i (1 + r_i accrual_i) over the business days from `start` to the one before `end`. Their name
        in the fixings is the curve and 1D, such as "EUR 1D". A missing rate after `since` is taken from the
        market.

        Args:
            name: The curve.
            start: The first day; the growth is 1 if it is not before `end`.
            end: The last day, not after the market's day.
            calendar: The calendar of the business days.
            day_count: The day count of each accrual.
        """
        found = 1.0
        days = business_days(start, end, calendar) if start < end else []
        if days and days[-1] < end:  # the rate of the last business day applies up to the end
            days.append(end)
        for day, after in itertools.pairwise(days):
            if (fixing := self._fixings.get((f"{name} 1D", day))) is not None:
                found *= 1.0 + fixing * year_fraction(day, after, day_count)
            else:
                self._check_known(f"{name} 1D", day)
                found /= self.discount(name, self.until + (after - day))
        return found

    def _check_known(self, name: str, day: date) -> None:
        """Record that a quote replaces a fixing.

        Raises:
            UnknownPast: It may not, because the day is not after `since`.
        """
        if day == self.until:
            self.quoted.add(name)
        elif day > self.since:
            self.assumed.append(f"{name} on {day}")
        else:
            remedy = f"add the row {name},{day},VALUE to the fixings"
            raise UnknownPast(f"there is no fixing of {name} on {day}", remedy)

    def days(self, name: str) -> tuple[date, ...]:
        """Return the days with a known spot of an equity, in order; the last is the market's day.

        Args:
            name: The equity.
        """
        if name not in self._days:
            found, parts = self._market.conversion(name), self._market.parts_of(name)
            read = parts[:1] if found is not None and found.kind == "quanto" else parts
            known = (set(self._fixings.days(part)) for part in read)
            fixed = {day for day in set.intersection(*known) if day < self.until}
            self._days[name] = (*sorted(fixed), self.until)
        return self._days[name]

    def discount(self, name: str, day: date) -> float:
        """Return the discount factor of a curve from the market's day to `day`; 1 for days up to it.

        Args:
            name: The curve.
            day: The day of a payment.
        """
        if day <= self.until:
            return 1.0
        if name not in self._curves:
            self._curves[name] = self._market.curve(name)
        return float(self._curves[name].discount(self._market.time(day)))
