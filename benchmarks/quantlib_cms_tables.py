"""Print the tables of constant-maturity-swap coupons, valued by QuantLib's replication.

    python -m benchmarks.quantlib_cms_tables

The pricer is LinearTsrPricer. The swap of a coupon starts on the day of its fixing. With one swaption vol and
flat curves, times are whole days over 365, fixed payments annual, and floating payments every fifth of a year.
With a skew, vols are linear in strike, and swaps, fixings and payments vary.
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

_YEARS, _FLOATING = (1, 5, 10, 31), 6  # of the curves; months of a floating period
_RATES = (0.01, 0.02, 0.025, 0.028), (0.015, 0.026, 0.03, 0.031)
_CENTER, _LEAST = 0.03, 0.0001
_SKEWS = {"lognormal": (0.25, -0.3, 0.8, 0.0), "shifted lognormal": (0.2, -0.2, 0.8, 0.03)}
"""Name -> the vol at 0.03, its slope in strike, the largest strike, and the shift."""
_SWAPS = {"2 years": (12, 2, 12, 12), "5 years": (6, 10, 36, 42), "20 years": (12, 20, 60, 63)}
"""Swap -> months of a fixed period, number of these, and months to the fixing and to the payment."""
_REVERSIONS = {"2 years": 0.03, "5 years": -0.02, "20 years": 0.01}


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
        return _value(option, strike, terms, dates, self.pricer, self.discount)


class SkewPeer:
    """A coupon on curves that are not flat, with vols linear in strike."""

    def __init__(self, law: str, swap: str):
        ql.Settings.instance().evaluationDate = _TODAY
        self.count = ql.Thirty360(ql.Thirty360.BondBasis)  # its times are whole months
        vol, slope, most, shift = _SKEWS[law]
        self.months, reversion, calendar = _SWAPS[swap], _REVERSIONS[swap], ql.NullCalendar()
        step, count, *_ = self.months
        period = lambda months: ql.Period(months, ql.Months)
        quote = lambda number: ql.QuoteHandle(ql.SimpleQuote(number))
        self.discount, forward = map(self._curve, _RATES)
        rules = ql.EURCurrency(), calendar
        own = ql.Unadjusted, False, self.count, forward
        index = ql.IborIndex("rate", period(_FLOATING), 0, *rules, *own)
        fixed = period(step), ql.Unadjusted, self.count, index, self.discount
        self.index = ql.SwapIndex("swap", period(step * count), 0, *rules, *fixed)
        self.fixing = _TODAY + period(self.months[2])
        rate = self.index.fixing(self.fixing, True)
        terms = quote(vol + slope * (rate - _CENTER)), self.count, ql.ShiftedLognormal, shift
        at_the_money = ql.ConstantSwaptionVolatility(_TODAY, calendar, ql.Unadjusted, *terms)
        ends, spreads = [period(12), period(360)], [_LEAST - shift - _CENTER, most - _CENTER]
        cube = ql.InterpolatedSwaptionVolatilityCube(
            ql.SwaptionVolatilityStructureHandle(at_the_money),
            *(ends, ends, spreads, 4 * [[quote(slope * spread) for spread in spreads]]),
            *(self.index, self.index, False),
        )
        cube.enableExtrapolation()
        settings = ql.LinearTsrPricerSettings()
        settings.withRateBound(_LEAST, most)
        vols = ql.SwaptionVolatilityStructureHandle(cube)
        self.pricer = ql.LinearTsrPricer(vols, quote(reversion), self.discount, settings)

    def _curve(self, rates: tuple[float, ...]) -> ql.YieldTermStructureHandle:
        dates = [_TODAY, *(_TODAY + ql.Period(year, ql.Years) for year in _YEARS)]
        rules = self.count, ql.NullCalendar(), ql.Linear(), ql.Continuous
        return ql.YieldTermStructureHandle(ql.ZeroCurve(dates, [rates[0], *rates], *rules))

    def value(self, option: str, strike: float) -> float:
        """Return the value of a coupon, a caplet or a floorlet over a year."""
        end, payment = (
            _TODAY + ql.Period(months, ql.Months)
            for months in (self.months[2] + 12, self.months[3])
        )
        terms = payment, _NOTIONAL, self.fixing, end, 0, self.index, 1.0, 0.0
        dates = ql.Date(), ql.Date(), self.count
        return _value(option, strike, terms, dates, self.pricer, self.discount)


def _value(option: str, strike: float, terms, dates, pricer, discount) -> float:
    """Return the value of a coupon, a caplet or a floorlet; QuantLib values capped and floored coupons."""
    found = []
    bounds = (strike, ql.nullDouble()) if option == "cap" else (ql.nullDouble(), strike)
    for coupon in (
        ql.CmsCoupon(*terms, *dates),
        ql.CappedFlooredCmsCoupon(*terms, *bounds, *dates),
    ):
        coupon.setPricer(pricer)
        found.append(coupon.amount() * discount.discount(terms[0]))
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
    found += [_on_skew(law, swap) for law in _SKEWS for swap in _SWAPS]
    return "\n".join(found)


def _on_skew(law: str, swap: str) -> str:
    """Return the table of a swap with vols linear in strike."""
    peer, (vol, slope, most, shift) = SkewPeer(law, swap), _SKEWS[law]
    step, count, fixing, payment = (
        x / 12 if place != 1 else x for place, x in enumerate(_SWAPS[swap])
    )
    ends = _LEAST - shift, most
    words = lambda numbers: ",".join(f"{number:.12g}" for number in numbers)
    resets = round(12 * step * count / _FLOATING)
    last = fixing + (resets - 1) * _FLOATING / 12
    constants = {
        "curve_times": words(_YEARS),
        "curve_rates": words(_RATES[0]),
        "forward_rates": words(_RATES[1]),
        "smile_strikes": words(ends),
        "smile_vols": words(vol + slope * (end - _CENTER) for end in ends),
        "payment_dates": f"{fixing + step:g}:{fixing + count * step:g}:{count}",
        "accruals": f"{step:g}:{step:g}:{count}",
        "resets": f"{fixing:g}:{last:g}:{resets}",
    }
    numbers = {"shift": shift, "mean_reversion": _REVERSIONS[swap], "fixing": fixing}
    numbers |= {"payment": payment, "notional": _NOTIONAL}
    texts = [f'{name} = "{text}"' for name, text in constants.items()]
    texts += [f"{name} = {number:g}" for name, number in numbers.items()]
    cells = [("rate", 0.0), *itertools.product(("cap", "floor"), (0.01, 0.02, 0.03, 0.05))]
    rows = "\n".join(
        f"{option}  {strike:g}  {peer.value(option, strike):.9f}" for option, strike in cells
    )
    return (
        f'[[table]]\nname = "CMS coupons on swaps of {swap}, {law} with a skew"\n'
        'source = """QuantLib 1.44\'s LinearTsrPricer. The script is benchmarks/quantlib_cms_tables.py"""\n'
        'kind = "computed"\nproduct = "CmsCoupon"\nmodel = "ForwardRates on a smile"\n'
        f'constants = {{ {", ".join(texts)} }}\nrows = """\noption  strike  value\n{rows}\n"""\n'
    )


if __name__ == "__main__":
    sys.stdout.write(tables())
