"""Published values, and values computed for this project by two methods that agree.

[P] printed, or cached, in the source named; [C] computed independently: two methods, or a fine quadrature.
`atol` is what a row is known to, or what this library promises on it, whichever is wider.
"""

from datetime import date
from typing import Any, NamedTuple


class Reference(NamedTuple):
    """A contract, a model, and the figures it should have (by the names of `pricing.Greeks`)."""

    name: str
    product: str
    terms: dict[str, Any]
    model: str
    parameters: dict[str, float]
    figures: dict[str, float]
    atol: dict[str, float]


def _every(figures: dict[str, float], atol: float) -> dict[str, float]:
    return dict.fromkeys(figures, atol)


# --- Black-Scholes ------------------------------------------------------------------------------------

_BASE = {"spot": 100.0, "rate": 0.05, "vol": 0.2}
_CALL = {"value": 10.450583572, "delta": 0.636830651, "gamma": 0.018762017, "vega": 37.524034692}
_CASH = {"value": 0.532324815, "delta": 0.018762017, "gamma": -0.000328335, "vega": -0.656670607}

black_scholes = [  # [C] nine decimals
    Reference(
        name,
        product,
        {"strike": 100.0, "expiry": 1.0},
        "BlackScholes",
        _BASE,
        row,
        _every(row, 1e-9),
    )
    for name, product, row in (("call", "European", _CALL), ("cash digital", "Digital", _CASH))
]

# [P] Haug, The Complete Guide to Option Pricing Formulas (1998), p. 72. Rebate 3: paid at the hit by a
# knock-out, at expiry by a knock-in. Strikes 90, 100, 110.
_HAUG_MODEL = {"spot": 100.0, "rate": 0.08, "vol": 0.25, "dividend_yield": 0.04}
_HAUG = (
    ("down-and-out", "call", 95.0, (9.0246, 6.7924, 4.8759)),
    ("up-and-out", "call", 105.0, (2.6789, 2.3580, 2.3453)),
    ("down-and-out", "put", 95.0, (2.2798, 2.2947, 2.6252)),
    ("down-and-in", "call", 95.0, (7.7627, 4.0109, 2.0576)),
)
_BENCHOP = {"strike": 100.0, "expiry": 1.0, "barrier": 125.0, "kind": "up-and-out"}
_BENCHOP_MODEL = {"spot": 100.0, "rate": 0.03, "vol": 0.15}

barriers = [
    Reference(
        f"Haug {kind} {option} {strike:g}",
        "Barrier",
        {
            "strike": strike,
            "expiry": 0.5,
            "barrier": h,
            "kind": kind,
            "option": option,
            "rebate": 3.0,
        },
        "BlackScholes",
        _HAUG_MODEL,
        {"value": value},
        {"value": 1e-4},
    )
    for kind, option, h, values in _HAUG
    for strike, value in zip((90.0, 100.0, 110.0), values, strict=True)
] + [
    # [P] value: BENCHOP, von Sydow et al., Int. J. Computer Math. 92 (2015), problem 1 c) with these
    # parameters; [C] Delta and Gamma, seven decimals, cut off.
    Reference(
        "BENCHOP up-and-out call",
        "Barrier",
        _BENCHOP,
        "BlackScholes",
        _BENCHOP_MODEL,
        {"value": 3.294086516281595, "delta": 0.0947722, "gamma": -0.0169062},
        {"value": 1e-9, "delta": 1e-7, "gamma": 1e-7},
    )
]

# [C] Down-and-out call on 50 equal dates, ten decimals.
_FIFTY_DATES = [0.2 * k / 50 for k in range(1, 51)]
discrete_barriers = [
    Reference(
        f"down-and-out on dates {level:g}",
        "Barrier",
        {"strike": 100.0, "expiry": 0.2, "barrier": level, "dates": _FIFTY_DATES},
        "BlackScholes",
        {"spot": 100.0, "rate": 0.1, "vol": 0.3},
        {"value": value},
        {"value": 1e-9},
    )
    for level, value in ((90.0, 6.0981961431), (95.0, 4.9067890354))
]

# [C] American puts, the set of Longstaff and Schwartz, Rev. Fin. Studies 14 (2001), table 1: K = 40, r = .06.
# Values to six decimals. Delta and Gamma are up to 4.6e-5 and 3e-6 from differences of the values of QuantLib's
# QdFpAmericanEngine (with which ours agree to 1e-7): `atol` is that distance.
_LONGSTAFF_SCHWARTZ = (
    (36.0, 0.2, 1.0, 4.4778, 4.486674, -0.69676, 0.086722),
    (36.0, 0.4, 2.0, 8.5068, 8.514185, -0.44332, 0.024643),
    (40.0, 0.2, 1.0, 2.3141, 2.319574, -0.40471, 0.059723),
    (40.0, 0.4, 2.0, 6.9171, 6.923458, -0.35539, 0.019533),
    (44.0, 0.2, 1.0, 1.1099, 1.112962, -0.21404, 0.036515),
    (44.0, 0.4, 2.0, 5.6412, 5.646731, -0.28560, 0.015523),
)
american = [
    Reference(
        f"American put {spot:g} {vol:g} {expiry:g}y",
        "American",
        {"strike": 40.0, "expiry": expiry, "option": "put"},
        "BlackScholes",
        {"spot": spot, "rate": 0.06, "vol": vol},
        {"value": value, "delta": delta, "gamma": gamma},
        {"value": 1e-6, "delta": 4.7e-5, "gamma": 3e-6},
    )
    for spot, vol, expiry, _, value, delta, gamma in _LONGSTAFF_SCHWARTZ
]

# [C] Their Bermudan puts, with 50 dates a year, four decimals: (spot, vol, expiry, value).
BERMUDAN_PUT = {"strike": 40.0, "rate": 0.06, "dates_a_year": 50}
bermudan_puts = [row[:4] for row in _LONGSTAFF_SCHWARTZ]

# --- Asian ------------------------------------------------------------------------------------------

asians = [  # [P] ten decimals: QuantLib, test-suite/asianoptions.cpp, after Clewlow and Strickland, p. 118
    Reference(
        "Asian, geometric",
        "Asian",
        {
            "strike": 100.0,
            "dates": [k / 10 for k in range(1, 11)],
            "average": "geometric",
        },
        "BlackScholes",
        {"spot": 100.0, "rate": 0.06, "vol": 0.2, "dividend_yield": 0.03},
        {"value": 5.3425606635},
        {"value": 1e-9},
    )
]

# [P] Arithmetic puts of Levy (1997), by simulation, (fixings, value); QuantLib's test holds them to 2e-3. Our
# values are 1.3e-3 and 5e-4 above, and QuantLib's Monte Carlo with 400,000 paths agrees with ours.
LEVY_PUT = {"strike": 87.0, "option": "put"}
LEVY_MODEL = {"spot": 90.0, "rate": 0.025, "vol": 0.13, "dividend_yield": 0.06}
LEVY_LENGTH = 11 / 12  # years from today, the first fixing, to the last
levy = [(12, 1.6980019214), (52, 1.7401553533)]

# --- Rates --------------------------------------------------------------------------------------------

# [C] An idealised payer swaption, quadrature, ten decimals: annual coupons, flat rate.
_SWAPTION = {
    "strike": 0.0499664907,
    "payment_dates": [2.0, 3.0, 4.0, 5.0, 6.0],
    "accruals": [1.0] * 5,
    "notional": 1000.0,
}
swaptions = [
    Reference(
        name,
        product,
        _SWAPTION | dates,
        "HullWhite",
        {"curve": 0.04875825, "mean_reversion": 0.048696, "vol": 0.0058904},
        {"value": value},
        {"value": 1e-8},
    )
    for name, product, dates, value in (
        ("Swaption", "Swaption", {"exercise_date": 1.0}, 8.8569972471),
        (
            "Bermudan swaption",
            "BermudanSwaption",
            {"exercise_dates": [1.0, 2.0, 3.0, 4.0, 5.0]},
            12.9258599208,
        ),
    )
]

# --- Heston -------------------------------------------------------------------------------------------


def _heston(spot, rate, v0, kappa, theta, xi, rho, q=0.0) -> dict[str, float]:
    return {
        "spot": spot,
        "rate": rate,
        "initial_variance": v0,
        "mean_reversion": kappa,
        "long_run_variance": theta,
        "vol_of_vol": xi,
        "correlation": rho,
        "dividend_yield": q,
    }


# [P] Alan Lewis' reference prices, many digits (as in QuantLib, hestonmodel.cpp, testAlanLewisReferencePrices).
LEWIS = _heston(100.0, 0.01, 0.04, 4.0, 0.25, 1.0, -0.5, 0.02)
# [P] Fang and Oosterlee, SIAM J. Sci. Comput. 31 (2008), sec. 5, Heston.
FANG_OOSTERLEE = _heston(100.0, 0.0, 0.0175, 1.5768, 0.0398, 0.5751, -0.5711)
# [P] Broadie and Kaya, Operations Research 54 (2006), first Heston case.
BROADIE_KAYA = _heston(100.0, 0.0319, 0.010201, 6.21, 0.019, 0.61, -0.70)
# [C] cases I and II of Andersen, J. Comput. Finance 11 (2008); two codes agree to 1e-9.
ANDERSEN_I = _heston(100.0, 0.0, 0.04, 0.5, 0.04, 1.0, -0.9)
ANDERSEN_II = _heston(100.0, 0.0, 0.04, 0.3, 0.04, 0.9, -0.5)

_HESTON_CALLS = (
    ("Lewis", LEWIS, 1.0, 90.0, 20.933349000596710, 1e-8),
    ("Lewis", LEWIS, 1.0, 100.0, 16.070154917028834, 1e-8),
    ("Lewis", LEWIS, 1.0, 110.0, 12.132211516709845, 1e-8),
    ("Fang-Oosterlee", FANG_OOSTERLEE, 1.0, 100.0, 5.785155434, 1e-8),
    ("Fang-Oosterlee", FANG_OOSTERLEE, 10.0, 100.0, 22.318945791, 1e-8),
    ("Broadie-Kaya", BROADIE_KAYA, 1.0, 100.0, 6.806113313, 1e-8),
    ("Andersen I", ANDERSEN_I, 10.0, 60.0, 44.329975070, 1e-6),
    ("Andersen I", ANDERSEN_I, 10.0, 100.0, 13.084670137, 1e-6),
    ("Andersen I", ANDERSEN_I, 10.0, 140.0, 0.295774436, 1e-6),
    ("Andersen II", ANDERSEN_II, 15.0, 60.0, 45.286863970, 1e-6),
    ("Andersen II", ANDERSEN_II, 15.0, 100.0, 16.649222920, 1e-6),
    ("Andersen II", ANDERSEN_II, 15.0, 140.0, 5.138190494, 1e-6),
)
_AT_100 = {"strike": 100.0, "expiry": 1.0}

heston = [
    Reference(
        f"{name} {expiry:g}y {strike:g}",
        "European",
        {"strike": strike, "expiry": expiry},
        "Heston",
        parameters,
        {"value": value},
        {"value": atol},
    )
    for name, parameters, expiry, strike, value, atol in _HESTON_CALLS
] + [
    Reference(  # [C] eight and seven decimals
        "Lewis call Greeks",
        "European",
        _AT_100,
        "Heston",
        LEWIS,
        {"delta": 0.59947133, "gamma": 0.0092875},
        {"delta": 5e-9, "gamma": 5e-8},
    ),
    Reference(  # [C] eight decimals
        "Lewis digital", "Digital", _AT_100, "Heston", LEWIS, {"value": 0.43876978}, {"value": 5e-9}
    ),
]

# Up-and-out call under Heston by finite differences: [P] four decimals; [C] on a finer grid, the row below.
# `atol` is the distance of the two.
UP_AND_OUT_PARAMETERS = _heston(100.0, 0.05, 0.04, 2.5, 0.04, 0.66, -0.8)
heston_up_and_out_published = {"value": 9.1530, "delta": 0.5218, "gamma": -0.0354}
heston_barriers = [
    Reference(
        "up-and-out call",
        "Barrier",
        {"strike": 100.0, "expiry": 1.0, "barrier": 135.0, "kind": "up-and-out"},
        "Heston",
        UP_AND_OUT_PARAMETERS,
        {"value": 9.1593, "delta": 0.52119, "gamma": -0.03750},
        {"value": 6.3e-3, "delta": 6.1e-4, "gamma": 2.1e-3},
    )
]

# [P] Andersen (2008): exact less scheme, case I, K = 100, by steps a year.
bias_euler = {1: -6.359, 4: -2.048, 32: -0.255}  # full truncation
bias_qe_m = {1: -0.222, 4: -0.008, 32: 0.015}  # quadratic exponential, martingale corrected

# --- Calibration --------------------------------------------------------------------------------------

# [C] DAX, 5 July 2002, 104 quotes, T = days / 365: sum of (100 (model vol - quote))^2, vol points squared.
# Quotes: A. Sepp's, also the calibration set of QuantLib's Heston tests.
DAX_START = {
    "initial_variance": 0.1,
    "mean_reversion": 1.0,
    "long_run_variance": 0.1,
    "vol_of_vol": 0.5,
    "correlation": -0.5,
}
DAX_SSE_AT_START = 3281.04  # two decimals
DAX_SSE_AT_OPTIMUM = 181.5147  # four decimals
DAX_OPTIMUM = {  # five decimals
    "initial_variance": 0.19122,
    "mean_reversion": 15.56191,
    "long_run_variance": 0.07459,
    "vol_of_vol": 3.29523,
    "correlation": -0.51202,
}

# [P] Hull-White on the co-terminal swaptions 1x5 ... 5x1 of 15 February 2002: the example BermudanSwaption of
# QuantLib 1.44. `SwaptionHelper(expiry, tenor, vol, Euribor6M, tenor and day count of the index)`, the formula
# of Jamshidian, least squares on relative price errors, times from the settlement date, variances from today.
# Its optimizer stops 3e-5 of the parameters away from the optimum, its implied vols are true to 1e-5.
HULL_WHITE = {
    "today": date(2002, 2, 15),
    "settlement": date(2002, 2, 19),
    "rate": 0.04875825,
    "months": 6,
    "day_count": "ACT/360",
    "mean_reversion": 0.0464162,
    "vol": 0.00586933,
    "model_vols": (0.10620, 0.10630, 0.10634, 0.10644, 0.10661),  # of 1x5, 2x4, ... 5x1
}

# Antonov and Spector, Advanced Analytics for the SABR Model (2012), tables 1 and 13: Hagan's vols by (expiry,
# rho); forward 1, alpha .25, beta .3, nu .3, strikes .1, .2, ..., 2
ANTONOV_SPECTOR = {
    (10.0, -0.8): """.7176 .5725 .4886 .4293 .3835 .3462 .3148 .2876 .2638 .2427
                     .2238 .2068 .1916 .1781 .1663 .1562 .1478 .1412 .1360 .1322""",
    (20.0, -0.5): """.7603 .5973 .5078 .4463 .3997 .3626 .3320 .3063 .2844 .2658
                     .2498 .2364 .2251 .2158 .2083 .2023 .1976 .1941 .1914 .1895""",
}

# QuantLib 1.44, BatesEngine (Gauss-Lobatto, 1e-13) [C]: calls, spot 100, rate 3 %, dividend yield 1 %, by (v0,
# kappa, theta, xi, rho, lambda, mu, delta), strike and years
BATES_CALLS = {
    (0.04, 1.5, 0.06, 0.6, -0.7, 0.4, -0.1, 0.15): {
        (80.0, 0.2): 20.56361463442,
        (80.0, 1.0): 23.90247426263,
        (80.0, 3.0): 30.15539922476,
        (100.0, 0.2): 4.06496945606,
        (100.0, 1.0): 9.95277175141,
        (100.0, 3.0): 18.58700080321,
        (125.0, 0.2): 0.02355381129,
        (125.0, 1.0): 1.33740118382,
        (125.0, 3.0): 8.71155267171,
    },
    (0.09, 3.0, 0.05, 0.9, -0.4, 1.5, -0.05, 0.08): {
        (80.0, 0.2): 20.78047583625,
        (80.0, 1.0): 24.17958768366,
        (80.0, 3.0): 30.00507054930,
        (100.0, 0.2): 5.34566721362,
        (100.0, 1.0): 11.00897133744,
        (100.0, 3.0): 18.98982844447,
        (125.0, 0.2): 0.19219161207,
        (125.0, 1.0): 2.79930451449,
        (125.0, 3.0): 9.89650059753,
    },
}

# Brigo and Mercurio, Interest Rate Models (2006), sec. 4.2 [P]: at-the-money euro swaptions of 13 February
# 2001, Black's vols by expiry and tenor (table 4.2), those of the fitted model (table 4.3) and its parameters,
# found by the least squares of relative price errors. The curve is only drawn (fig. 1.1). `zero_rates` [C],
# annual from 1 to 20 years, are those with which G2 of the printed parameters has the printed model vols: to
# 3.0e-5, root mean square of 70, where the rounding of the four printed digits leaves 2.9e-5.
G2_EURO = {
    "expiries": (1.0, 2.0, 3.0, 4.0, 5.0, 7.0, 10.0),
    "vols": """.164 .155 .143 .131 .124 .119 .116 .112 .110 .107
               .160 .150 .139 .129 .122 .119 .116 .113 .110 .108
               .157 .145 .134 .124 .119 .115 .113 .110 .108 .106
               .148 .136 .126 .119 .114 .112 .109 .107 .105 .103
               .140 .128 .121 .114 .110 .107 .105 .103 .102 .100
               .130 .119 .113 .105 .101 .099 .097 .096 .095 .093
               .116 .107 .100 .093 .090 .089 .087 .086 .085 .084""",
    "model_vols": """.1870 .1529 .1395 .1327 .1276 .1231 .1190 .1154 .1120 .1085
                     .1603 .1427 .1348 .1295 .1251 .1210 .1174 .1139 .1103 .1068
                     .1509 .1376 .1307 .1258 .1216 .1180 .1146 .1109 .1073 .1041
                     .1422 .1311 .1252 .1210 .1175 .1142 .1106 .1069 .1037 .1005
                     .1335 .1247 .1199 .1165 .1134 .1098 .1062 .1030 .0998 .0968
                     .1218 .1161 .1124 .1087 .1050 .1018 .0986 .0954 .0928 .0902
                     .1090 .1029 .0997 .0965 .0934 .0909 .0884 .0858 .0833 .0809""",
    "parameters": {
        "mean_reversion": 0.773511777,
        "vol": 0.022284644,
        "second_mean_reversion": 0.082013014,
        "second_vol": 0.010382461,
        "correlation": -0.701985206,
    },
    "zero_rates": """0.049299 0.047263 0.047330 0.047741 0.048459 0.049378 0.050301
                     0.051138 0.051798 0.052372 0.053003 0.053648 0.054154 0.054676
                     0.055187 0.055545 0.055891 0.056259 0.056617 0.056973""",
}
