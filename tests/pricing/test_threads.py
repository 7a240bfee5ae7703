"""Cases from public threads of pricing libraries' users that are priced; `test_threads_refused` has the others.

A row names the threads (owner/repository#number), what is asked, the lines that a user writes, and the right
value, by a closed form or QuantLib. Facts alone are taken from the threads.
"""

from datetime import date

import jax
import numpy as np
import pytest
from scipy.stats import norm

from pricing import (
    American,
    Asian,
    Autocallable,
    AverageForward,
    Barrier,
    Bermudan,
    BlackScholes,
    Cap,
    Digital,
    DoubleBarrier,
    European,
    ForwardRates,
    ForwardStart,
    Heston,
    LocalVol,
    Lookback,
    Sabr,
    Spread,
    Ssvi,
    Swap,
    Swaption,
    Touch,
    VarianceSwap,
    VolCurve,
    WithDividends,
    ZeroCurve,
    greeks,
    implied_vol,
)
from pricing.market import schedule
from tests.helpers import double
from tests.pricing.threads import (
    BONDS,
    CURVE,
    EARLY,
    FLAT,
    FORWARD_VOL,
    HESTON,
    HESTONS,
    KEY,
    LEG,
    PAID,
    PERIODS,
    RATES,
    SMILE,
    black,
    named,
    peers_american,
    peers_barrier,
    peers_escrowed,
    peers_heston,
    value,
    value_of_row,
)

pytestmark = double

_KINDS = [("up-and-out", 110.0), ("down-and-out", 95.0), ("up-and-in", 110.0)]
_KINDS = [(*k, o) for k in [*_KINDS, ("down-and-in", 95.0)] for o in ("call", "put")]


def of_kinds(model, rebate, kinds=_KINDS):
    words, levels, options = zip(*kinds, strict=True)
    return value(Barrier(100.0, 1.0, levels, words, options, rebate), model)


_WATCHED_DAILY = 0.5826  # Broadie, Glasserman, Kou (1997): the shift of a barrier on dates


def snowball(dates, watched):
    """Return a note of 100 that is never called, with a knock-in at 80."""
    none, never = np.zeros(dates), np.full(dates, np.inf)
    terms = {"call_steps": never, "knock_in": 80.0, "watched": watched}
    return Autocallable(np.arange(1, dates + 1) / dates, none, *[100.0] * 4, **terms)


PRICED = [
    (
        "QuantLib#525 tff#89 quantsbin/Quantsbin#6 Lean#4548 Lean#8461 rgaveiga/optionlab#23",
        "a nanosecond before expiry",
        lambda: value(European([90.0, 100.0, 110.0], 3e-17)),
        [10.0, 0.0, 0.0],
        1e-6,
    ),
    (
        "rquantlib#10",
        "half a day, vol 1e-5",
        lambda: value(European(99.0, 0.5 / 365), BlackScholes(100.0, 0.05, 1e-5)),
        100.0 - 99.0 * np.exp(-0.05 * 0.5 / 365),
        1e-12,
    ),
    (
        "QuantLib#2794 QuantLib#2755 QuantLib#2749 QuantLib#2757",
        "no vol: the forward decides",
        lambda: value(European([100.0, 120.0], 1.0), BlackScholes(100.0, 0.05, 0.0)),
        [100.0 * (1.0 - np.exp(-0.05)), 0.0],
        1e-12,
    ),
    (
        "QuantLib#2794 QuantLib#2749",
        "next to no vol: a probability of 1",
        lambda: value(Digital(100.0, 1.0), BlackScholes(100.0, 0.05, 1e-9)),
        np.exp(-0.05),
        1e-12,
    ),
    (
        "QuantLib#1449 QLNet#47",
        "a curve of negative rates",
        lambda: value(
            European(100.0, 1.0), BlackScholes(100.0, ZeroCurve([0.5, 1.0], [-0.006, -0.004]), 0.2)
        ),
        black(100.0, 100.0, 1.0, -0.004, 0.2),
        1e-12,
    ),
    (
        "MystenLabs/deepbookv3#1212",
        "far wings keep their digits",
        lambda: np.log(value(European([1e-3, 300.0, 1e4], 1.0))),
        np.log(black(100.0, np.array([1e-3, 300.0, 1e4]), 1.0, 0.05, 0.2)),
        1e-9,
    ),
    (
        "pfhedge#528 pfhedge#437",
        "autograd's Delta and Gamma at the money, a second before expiry",
        lambda: [
            f(lambda s: value(European(100.0, 3e-8), BlackScholes(s, 0.0, 0.2)))(100.0)
            for f in (jax.grad, lambda function: jax.grad(jax.grad(function)))
        ],
        [0.5, norm.pdf(0.0) / (20.0 * np.sqrt(3e-8))],
        1e-4,
    ),
    (
        "vollib/py_vollib#23 longbridge/longbridge-terminal#325 mcdallas/wallstreet#27",
        "Theta is a year's, of call and put",
        lambda: (
            greeks(
                European(100.0, 1.0, ["call", "put"]), BlackScholes(100.0, 0.05, 0.2, 0.02)
            ).theta
        ),
        [-5.0893189, -2.2935691],
        1e-7,
    ),
    (
        "QuantLib#721 vollib/py_vollib#18 TheQuantPy/youtube-tutorials#6 QuantLib#2787 "
        "danielhstahl/black_scholes_rust#2 kpmooney/numerical_methods_youtube#1 MibianLib#8 Lean#7505",
        "implied vols of far strikes",
        lambda: implied_vol(
            value(European([60.0, 100.0, 200.0, 300.0], 0.25)),
            European([60.0, 100.0, 200.0, 300.0], 0.25),
            FLAT,
        ),
        [0.2] * 4,
        1e-7,
    ),
    (
        "rquantlib#170",
        "implied vol of a digital",
        lambda: implied_vol(value(Digital(110.0, 1.0)), Digital(110.0, 1.0), FLAT),
        0.2,
        1e-9,
    ),
    (
        "tff#94 QuantLib#1411 QuantLib#1415 Strata#1412 Strata#2613",
        "a spot beyond the barrier has touched it",
        lambda: of_kinds(FLAT, 2.0, [("up-and-out", 95.0, "call"), ("up-and-in", 95.0, "call")]),
        [2.0, black(100.0, 100.0, 1.0, 0.05, 0.2)],
        1e-12,
    ),
    (
        "QuantLib#1592",
        "barriers at a vol of .5 %",
        lambda: of_kinds(BlackScholes(100.0, 0.05, 0.005), 2.0),
        [peers_barrier(100.0, h, k, o, 2.0, 0.05, 0.005) for k, h, o in _KINDS],
        1e-10,
    ),
    (
        "QuantLib#2271",
        "rate and yield are the same",
        lambda: of_kinds(BlackScholes(100.0, 0.05, 0.2, 0.05), 2.0),
        [peers_barrier(100.0, h, k, o, 2.0, 0.05, 0.2, 0.05) for k, h, o in _KINDS],
        1e-10,
    ),
    (
        "Vibe#1203",
        "knock-out and knock-in add up to the option beside the barrier, Gamma too",
        lambda: np.sum(
            greeks(
                Barrier(100.0, 1.0, 120.0, ["up-and-out", "up-and-in"]),
                BlackScholes(119.99, 0.05, 0.2),
            ).gamma
        ),
        norm.pdf((np.log(1.1999) + 0.07) / 0.2) / (119.99 * 0.2),
        1e-9,
    ),
    (
        "Vibe#1163",
        "rebates of each kind",
        lambda: of_kinds(BlackScholes(100.0, 0.05, 0.2, 0.02), 5.0),
        [peers_barrier(100.0, h, k, o, 5.0, 0.05, 0.2, 0.02) for k, h, o in _KINDS],
        1e-10,
    ),
    (
        "QF-Bench/QuantitativeFinance-Bench#163 QuantLib#646 QuantLib#2506",
        "narrow corridors that no path stays in for a year",
        lambda: value(DoubleBarrier(100.0, [99.9, 97.0], [100.1, 103.0], until=1.0)),
        [0.0, 0.0],
        1e-12,
    ),
    (
        "Strata#1010",
        "one touch and no touch add up to the amount",
        lambda: np.sum(value(Touch(110.0, 1.0, ["one-touch-at-expiry", "no-touch"], amount=50.0))),
        50.0 * np.exp(-0.05),
        1e-12,
    ),
    (
        "QuantLib#2728 QuantLib#1291 QuantLib#2754 QuantLib#2505 QuantLib#2492 QuantLib#2737 QuantLib#2739 "
        "FinancePy#261",
        "American options at rates of 0 and below",
        lambda: [
            value(American(100.0, 1.0, o), BlackScholes(100.0, r, 0.2, q)) for o, r, q in EARLY
        ],
        lambda: [peers_american(100.0, *case) for case in EARLY],
        1e-6,
    ),
    (
        "QuantLib#779 QuantLib#332 QuantLib#740",
        "a Bermudan option of one date is European",
        lambda: value(Bermudan(European(100.0, 1.0, "put"), [1.0])),
        black(100.0, 100.0, 1.0, 0.05, 0.2, side=-1),
        1e-8,
    ),
    (
        "tff#70 QuantLib#203 QuantLib#643 QuantLib#615 QuantLib#2701 QuantLib#2752 QLNet#211 QLNet#77 "
        "MibianLib#5 quantraserver#73 rquantlib#72 FLOX-Foundation/flox#354 carlobortolan/quantrs#130 "
        "QuantLib#893 Open-Lemma/options-implied-probability#59",
        "cash dividends on their dates",
        lambda: value(
            European(100.0, 1.0, ["call", "put"]),
            WithDividends(BlackScholes(100.0, 0.05, 0.3), PAID),
        ),
        [peers_escrowed("call"), peers_escrowed("put")],
        1e-10,
    ),
    (
        "FinancePy#64",
        "a curve of yields less borrow",
        lambda: value(
            European(100.0, 1.0),
            BlackScholes(100.0, 0.05, 0.3, ZeroCurve([0.5, 1.0], [0.01, 0.03])),
        ),
        black(100.0, 100.0, 1.0, 0.05, 0.3, 0.03),
        1e-12,
    ),
    (
        "QuantLib#968 QuantLib#1039 QuantLib#241 QuantLib#1561 QuantLib#2381 FinancePy#262",
        "an average whose fixings have passed the strike",
        lambda: value(AverageForward(-5.0, [0.5, 1.0], [0.25, 0.25])),
        np.exp(-0.05) * (25.0 * (np.exp(0.025) + np.exp(0.05)) + 5.0),
        1e-12,
    ),
    (
        "tff#82 QuantLib#2506 Engine#75 Engine#108",
        "an average of one date is European",
        lambda: value(Asian(100.0, [1.0]), key=KEY),
        black(100.0, 100.0, 1.0, 0.05, 0.2),
        1e-12,
    ),
    (
        "finmath#44 QuantLib#1468 QuantLib#1474 rust-dd/stochastic-rs#30 jcfrei/Heston#1 pfhedge#182",
        "Heston: exploding moments, a day, far strikes",
        lambda: [
            value(European(k, days / 365), Heston(100.0, r, *numbers))
            for k, days, r, *numbers in HESTONS
        ],
        lambda: [peers_heston(*case) for case in HESTONS],
        1e-8,
    ),
    (
        "QuantLib#1138 SWIG#189",
        "a curve of rates under Heston: its zero rate at expiry",
        lambda: value(European(100.0, 1.0), Heston(100.0, CURVE, *HESTON)),
        peers_heston(100.0, 365, 0.03, *HESTON),
        1e-8,
    ),
    (
        "QuantLib#1124",
        "local vol reprices the smile it is made of",
        lambda: value(European([80.0, 100.0, 120.0], 1.0), LocalVol(100.0, 0.02, SMILE)),
        black(100.0, np.array([80.0, 100.0, 120.0]), 1.0, 0.02, np.array([0.24, 0.2, 0.19])),
        2e-3,
    ),
    (
        "Strata#939 Strata#894 SWIG#261",
        "SABR's vol at the money; without vol of vol it is Black's",
        lambda: value(
            European([80.0, 120.0], 1.0), Sabr(100.0, 0.0, [1.0], [0.2], [-0.3], [0.0], 1.0)
        ),
        black(100.0, np.array([80.0, 120.0]), 1.0, 0.0, 0.2),
        1e-10,
    ),
    (
        "volsurf#4 volsurf#17 volsurf#26 volsurf#96 volsurf#97 FinancePy#63 FinancePy#76 "
        "FLOX-Foundation/flox#351",
        "SSVI at the money has the vol at the money",
        lambda: value(
            European(100.0, 1.0),
            Ssvi(100.0, 0.0, VolCurve([0.5, 1.0], [0.22, 0.2]), -0.6, 0.5, 0.4),
        ),
        black(100.0, 100.0, 1.0, 0.0, 0.2),
        1e-10,
    ),
    (
        "QuantLib#1087 QuantLib#1082 SWIG#98 rquantlib#86 tff#91 FinancePy#25 FinancePy#26 FinancePy#27 "
        "FinancePy#28",
        "payer less receiver is the swap, at a strike below 0 too",
        lambda: (
            value(Swaption([0.035, -0.01], *LEG), RATES)
            - value(Swaption([0.035, -0.01], *LEG, side="receiver"), RATES)
            - value(Swap([0.035, -0.01], *LEG), RATES)
        ),
        [0.0, 0.0],
        1e-12,
    ),
    (
        "FinancePy#105 FinancePy#69 QuantLib#633",
        "a schedule of months with a stub at the front",
        lambda: [day.toordinal() for day in schedule(date(2025, 1, 2), date(2026, 4, 10), 6)],
        [
            date(*d).toordinal()
            for d in ((2025, 1, 2), (2025, 4, 10), (2025, 10, 10), (2026, 4, 10))
        ],
        0.0,
    ),
    (
        "Strata#1422 Strata#2001 Strata#542 Strata#1400 Strata#758 QuantLib#2705 QuantLib#1334 Engine#276",
        "a cap less a floor is the forward rates less the strike, by each law of the rates",
        lambda: [
            value(Cap(0.03, *PERIODS, "cap"), model) - value(Cap(0.03, *PERIODS, "floor"), model)
            for model in (ForwardRates(CURVE, 0.2), ForwardRates(CURVE, 0.01, law="normal"))
        ],
        [np.sum(BONDS[:-1] - BONDS[1:] * (1.0 + 0.03 * 0.5))] * 2,
        1e-10,
    ),
    (
        "QuantLib#615 OptionStratLib#246 QF-Bench/QuantitativeFinance-Bench#166",
        "a quanto call: the forward moves by the covariance",
        lambda: value_of_row(underlying="X quanto USD"),
        black(100.0 * np.exp(-0.015 + 0.3 * 0.09 * FORWARD_VOL), 100.0, 1.0, 0.045, 0.2),
        1e-10,
    ),
    (
        "QuantLib#525 QuantLib#2296 rateslib#730 rateslib#742 rateslib#721 Strata#1349 FinancePy#194 "
        "Strata#2720 OptionStratLib#397 OptionStratLib#401",
        "a call on a pair: its vol and both curves",
        lambda: value_of_row(underlying="EURUSD", strike=1.08),
        black(1.08, 1.08, 1.0, 0.045, 0.09, 0.03),
        1e-10,
    ),
    (
        "FinancePy#117 FinancePy#221 pfhedge#127 OptionStratLib#243 SWIG#394",
        "variance and volatility swaps of a constant vol",
        lambda: [value(VarianceSwap(0.15, 1.0, measure=m)) for m in ("variance", "volatility")],
        np.exp(-0.05) * np.array([0.04 - 0.0225, 0.05]),
        1e-12,
    ),
    (
        "pfhedge#207 OptionStratLib#275 QuantLib#805",
        "a lookback of floating strike, rate and yield 0",
        lambda: value(Lookback(1.0), BlackScholes(100.0, 0.0, 0.2)),
        100.0 * ((2.02) * norm.cdf(0.1) - 1.02 + 0.2 * norm.pdf(0.1)),
        1e-9,
    ),
    (
        "OptionStratLib#280",
        "a forward start is a call on the return",
        lambda: value(ForwardStart(1.0, 0.5, 1.0)),
        100.0 * black(1.0, 1.0, 0.5, 0.05, 0.2),
        1e-12,
    ),
    (
        "hayden4r4/blackscholes-rust#18",
        "an exchange option is Margrabe's",
        lambda: value(
            Spread(0.0, 1.0),
            BlackScholes([100.0, 90.0], 0.05, [0.2, 0.3], asset_correlation=[[1, 0.4], [0.4, 1]]),
        ),
        black(100.0, 90.0, 1.0, 0.0, np.sqrt(0.04 + 0.09 - 2 * 0.4 * 0.06)),
        1e-12,
    ),
    (
        "PyFENG#148",
        "a snowball never called: its knock-in, watched daily or always, costs a down-and-in put",
        lambda: [
            value(snowball(252, "dates"), key=KEY),
            value(snowball(1, "always"), key=KEY),
        ],
        lambda: [
            100.0 * np.exp(-0.05) - value(Barrier(100.0, 1.0, level, "down-and-in", "put"))
            for level in (80.0 * np.exp(-_WATCHED_DAILY * 0.2 / np.sqrt(252)), 80.0)
        ],
        0.15,
    ),
]


@pytest.mark.costly
@pytest.mark.parametrize(("run", "wanted", "tolerance"), named(PRICED))
def test_case_is_priced(run, wanted, tolerance):
    wanted = wanted() if callable(wanted) else wanted
    np.testing.assert_allclose(np.asarray(run(), float), wanted, rtol=0, atol=tolerance)
