"""Print the tables of constant-maturity-swap coupons, valued by QuantLib's replication on flat curves.

    python -m benchmarks.quantlib_cms_tables

The pricer is LinearTsrPricer with one swaption vol; times are whole days over 365, and the swap of a coupon
starts on the day of its fixing, with annual fixed payments and floating payments every fifth of a year.
"""

import itertools
import sys

import QuantLib as ql

_TODAY = ql.Date(10, 3, 2026)
_YEAR, _STEP = 365, 73  # days
_NOTIONAL = 10000.0
_SWAP = 'payment_dates = "6:15:10", accruals = "1:1:10", resets = "5:14.8:50"'
_TERMS = f"{_SWAP}, fixing = 5, payment = 6, notional = {_NOTIONAL:g}"
_LAWS = {
    "lognormal": (0.025, 0.03, 0.2, 0.0, (0.01, 0.02, 0.03, 0.05)),
    "shifted lognormal": (-0.004, 0.002, 0.15, 0.03, (-0.01, 0.0, 0.01, 0.02)),
    "normal": (-0.004, 0.002, 0.007, 0.0, (-0.01, 0.0, 0.01, 0.02)),
}
"""Name -> the discount and the forward rate, vol, shift and strikes."""


class Peer:
    """A coupon in QuantLib's objects."""

    def __init__(self, name: str, mean_reversion: float):
        ql.Settings.instance().evaluationDate = _TODAY
        discount, forward, vol, shift, _ = _LAWS[name]
        count, calendar = ql.Actual365Fixed(), ql.NullCalendar()
        flat = lambda rate: ql.YieldTermStructureHandle(ql.FlatForward(_TODAY, rate, count))
        quote = lambda number: ql.QuoteHandle(ql.SimpleQuote(number))
        self.discount = flat(discount)
        rules = ql.EURCurrency(), calendar
        days = lambda number: ql.Period(number, ql.Days)
        own = ql.Unadjusted, False, count, flat(forward)
        index = ql.IborIndex("rate", days(_STEP), 0, *rules, *own)
        fixed = days(_YEAR), ql.Unadjusted, count, index, self.discount
        self.index = ql.SwapIndex("swap", days(10 * _YEAR), 0, *rules, *fixed)
        law = ql.Normal if name == "normal" else ql.ShiftedLognormal
        terms = _TODAY, calendar, ql.Unadjusted, quote(vol), count, law, shift
        vols = ql.SwaptionVolatilityStructureHandle(ql.ConstantSwaptionVolatility(*terms))
        self.pricer = ql.LinearTsrPricer(vols, quote(mean_reversion), self.discount)

    def value(self, option: str, strike: float) -> float:
        """Return the value of a coupon, a caplet or a floorlet."""
        start, end = _TODAY + 5 * _YEAR, _TODAY + 6 * _YEAR
        terms = end, _NOTIONAL, start, end, 0, self.index, 1.0, 0.0
        dates = ql.Date(), ql.Date(), ql.Actual365Fixed()
        found = []
        bounds = (strike, ql.nullDouble()) if option == "cap" else (ql.nullDouble(), strike)
        for coupon in (
            ql.CmsCoupon(*terms, *dates),
            ql.CappedFlooredCmsCoupon(*terms, *bounds, *dates),
        ):
            coupon.setPricer(self.pricer)
            found.append(coupon.amount() * self.discount.discount(end))
        plain, bounded = found
        if option == "rate":
            return plain
        return plain - bounded if option == "cap" else bounded - plain


def tables() -> str:
    """Return all tables."""
    found = []
    for name, (discount, forward, vol, shift, strikes) in _LAWS.items():
        lines = []
        for reversion in (0.0001, 0.05, -0.03):
            peer = Peer(name, reversion)
            cells = [("rate", 0.0), *itertools.product(("cap", "floor"), strikes)]
            lines += [
                f"{reversion:g}  {option}  {strike:g}  {peer.value(option, strike):.9f}"
                for option, strike in cells
            ]
        law = 'law = "normal"' if name == "normal" else f"shift = {shift:g}"
        numbers = f"curve = {discount:g}, forward_curve = {forward:g}, vol = {vol:g}, {law}"
        rows = "\n".join(lines)
        found.append(
            f'[[table]]\nname = "CMS coupons, {name}"\n'
            'source = """QuantLib 1.44\'s LinearTsrPricer. The script is benchmarks/quantlib_cms_tables.py"""\n'
            'kind = "computed"\nproduct = "CmsCoupon"\nmodel = "ForwardRates"\n'
            f"constants = {{ {numbers}, {_TERMS} }}\n"
            f'rows = """\nmean_reversion  option  strike  value\n{rows}\n"""\n'
        )
    return "\n".join(found)


if __name__ == "__main__":
    sys.stdout.write(tables())
