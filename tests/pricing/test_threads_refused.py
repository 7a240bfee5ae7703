"""What users of pricing libraries asked in public threads, and what is refused by name, with the remedy."""

from datetime import date

import numpy as np
import pytest

from pricing import (
    American,
    Barrier,
    Basket,
    Bates,
    Bermudan,
    BlackScholes,
    Digital,
    European,
    Heston,
    LocalVol,
    Sabr,
    Swaption,
    VolCurve,
    ZeroCurve,
    greeks,
    implied_vol,
    price,
)
from pricing.market import leg
from tests.helpers import double
from tests.pricing.threads import (
    FALLING,
    FLAT,
    HESTON,
    KEY,
    LEG,
    SMILE,
    errors_of_market,
    errors_of_row,
    named,
)

pytestmark = double

_NO_KIND = "is not a known kind of trade; "
REFUSED = [
    (
        "QuantLib#525 Lean#8461",
        "an expiry of today",
        lambda: European(100.0, 0.0),
        "expiry must be .* above 0, in years: what expires today is worth its payoff, got 0",
    ),
    (
        "QuantLib#2755 QuantLib#2757",
        "derivatives at the kink of a payoff that has no vol",
        lambda: greeks(European(100.0, 1.0), BlackScholes(100.0, 0.0, 0.0)),
        "volatility is zero, or so small",
    ),
    (
        "QuantLib#2757",
        "early exercise at a vol of 1e-6",
        lambda: price(American(110.0, 1.0, "put"), BlackScholes(100.0, 0.05, 1e-6)),
        "volatility is zero, or so small.*give a larger one",
    ),
    (
        "QuantLib#2794",
        "a vol below 0",
        lambda: BlackScholes(1.0, 0.0, -0.2),
        "not below 0, got -0.2",
    ),
    *(
        (
            "marketcalls/openalgo#1327",
            f"{word!r} for a call or a put",
            lambda word=word: European(100.0, 1.0, word),
            "option must be one of 'call', 'put', got",
        )
        for word in ("CE", None, 0, 2, True, ["call", "CE"])
    ),
    (
        "marketcalls/openalgo#1327",
        "CE in a book",
        lambda: errors_of_row(option="CE"),
        "'option': 'CE' is not one of call, put",
    ),
    (
        "QuantLib#721 kpmooney/numerical_methods_youtube#1",
        "an implied vol below the intrinsic value",
        lambda: implied_vol([3.0, 20.0], European(90.0, 1.0), FLAT),
        "no volatility gives this value.*intrinsic value.*contract 0",
    ),
    (
        "rquantlib#170",
        "an implied vol of a digital worth more than any vol gives it",
        lambda: implied_vol(0.9, Digital(110.0, 1.0), FLAT),
        "no volatility gives this value",
    ),
    (
        "Vibe#1163",
        "a rebate below 0",
        lambda: Barrier(100.0, 1.0, 110.0, rebate=-5.0),
        "rebate must be .* not below 0",
    ),
    (
        "QuantLib#1534",
        "early exercise of a digital",
        lambda: Bermudan(Digital(120.0, 1.0), [0.5, 1.0]),
        "give an option on the spot",
    ),
    (
        "QuantLib#968 QuantLib#1039",
        "an average on a past date without its fixing",
        lambda: errors_of_row(
            type="asian", expiry=None, averaging_dates=["2024-12-02", "2026-01-02"]
        ),
        "no fixing of X on 2024-12-02; add the row",
    ),
    (
        "finmath#42",
        "Heston without vol of vol",
        lambda: Heston(100.0, 0.03, 0.04, 2.0, 0.04, 0.0, -0.7),
        "vol_of_vol must be .* above 0",
    ),
    (
        "stochastic-rs#14",
        "a correlation beyond 1",
        lambda: Heston(100.0, 0.03, 0.04, 2.0, 0.04, 0.5, -1.2),
        "correlation must be a number in .-1, 1.",
    ),
    (
        "QuantLib#1138",
        "Heston's parameters as functions of time",
        lambda: Heston(100.0, 0.03, 0.04, 2.0, VolCurve([0.5, 1.0], [0.2, 0.2]), 0.5, -0.7),
        "long_run_variance must be .*got VolCurve",
    ),
    (
        "QuantLib#233 quantlib-old#320 Strata#1009",
        "an American option under local vol",
        lambda: price(American(100.0, 1.0), LocalVol(100.0, 0.02, SMILE)),
        "no method prices American under LocalVol",
    ),
    (
        "QuantLib#1124",
        "local vol of quotes with an arbitrage",
        lambda: price(European([80.0, 100.0, 120.0], 1.0), LocalVol(100.0, 0.02, FALLING)),
        "arbitrage.*model.arbitrages",
    ),
    (
        "Strata#894",
        "SABR at a correlation of -1",
        lambda: Sabr(100.0, 0.0, [1.0], [0.2], [-1.0], [0.4], 1.0),
        "rho must be a number between -1 and 1, both excluded",
    ),
    (
        "benbenbang/libitofin#582",
        "SABR on a forward below 0",
        lambda: Sabr(-0.01, 0.0, [1.0], [0.01], [-0.3], [0.4], 0.0),
        "spot must be .* above 0",
    ),
    (
        "Strata#939",
        "a knock-out under SABR, which has no law of paths",
        lambda: price(Barrier(100.0, 1.0, 80.0), Sabr(100.0, 0.0, [1.0], [0.2], [-0.3], [0.4])),
        "no method prices Barrier under Sabr",
    ),
    (
        "pfhedge#182",
        "a barrier under jumps",
        lambda: price(Barrier(100.0, 1.0, 80.0), Bates(100.0, 0.03, *HESTON, 0.3, -0.1, 0.2)),
        "no method prices Barrier under Bates",
    ),
    (
        "QuantLib#457 QuantLib#526",
        "a swaption under a model of equities",
        lambda: price(Swaption(0.035, *LEG), FLAT),
        "BlackScholes has no Gaussian short rate",
    ),
    (
        "QuantLib#422 FinancePy#222",
        "a day count of another name",
        lambda: leg(*[date(2025, 1, 2)] * 2, date(2026, 1, 2), 6, day_count="30/360"),
        "day count '30/360' is unknown: use one of",
    ),
    (
        "QuantLib#249 QuantLib#642 QuantLib#437 tff#90 rateslib#145",
        "curves of swaps that overlap, in percent, or that no rate reprices",
        lambda: errors_of_market(
            curves={
                name: {"swaps": {"tenors": tenors, "rates": rates}}
                for name, tenors, rates in (
                    ("A", ["5Y", "2Y"], [0.01, 0.02]),
                    ("B", ["2Y", "5Y"], [3.1, 3.2]),
                    ("C", ["2Y", "5Y", "10Y"], [0.1, 0.1, 0.3]),
                )
            }
        ),
        "A.swaps.tenors.1.*not after the swap 5Y.*B.swaps.rates.0.*1 % is 0.01.*C.swaps.tenors.2.*no zero rate",
    ),
    (
        "QuantLib#2065 QuantLib#2068 QuantLib#2161 QuantLib#1623",
        "pillars that do not increase",
        lambda: ZeroCurve([2.0, 1.0], [0.01, 0.02]),
        "times must be increasing numbers",
    ),
    (
        "iderex/beiblatt#49 equinor/fmu-tools#1",
        "correlations that no assets have",
        lambda: BlackScholes(
            [1.0] * 3, 0.0, 0.2, asset_correlation=[[1, 0.9, -0.9], [0.9, 1, 0.9], [-0.9, 0.9, 1]]
        ),
        "must be positive definite, its smallest eigenvalue is -0.8",
    ),
    (
        "equinor/fmu-tools#1",
        "correlations of another number of assets",
        lambda: price(
            Basket(100.0, 1.0),
            BlackScholes([100.0] * 2, 0.0, [0.2] * 2, asset_correlation=np.eye(3)),
            key=KEY,
        ),
        "asset_correlation is of 3 assets, and spot of 2",
    ),
    (
        "Engine#270 QuantLib#2296 rateslib#730 rateslib#164",
        "a pair of currencies the other way round",
        lambda: errors_of_row(underlying="USDEUR"),
        "'USDEUR' is not an underlying of the market; the underlyings are X, EURUSD",
    ),
    *(
        (threads, f"a {kind}", lambda kind=kind: errors_of_row(type=kind), _NO_KIND)
        for threads, kind in (
            ("Engine#300 QuantLib#1741", "credit_default_swap"),
            ("QuantLib#2454 rateslib#450", "inflation_swap"),
            ("Engine#18 quantraserver#103", "convertible_bond"),
        )
    ),
]


@pytest.mark.parametrize(("run", "words"), named(REFUSED))
def test_case_is_refused_by_name(run, words):
    with pytest.raises((RuntimeError, TypeError, ValueError), match=f"(?s){words}"):
        run()
