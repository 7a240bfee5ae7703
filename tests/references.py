"""Reference values by the names that tests use.

They stand in the tables of `jaxtape validate` (`pricing/validation/tables`, `calibration/validation/tables`),
one line a value, each table with its source; docs/validation.md says how. Here are views of them, and what the
command does not ask.
"""

from datetime import date
from typing import Any

from calibration.validation.fit_checks import fits
from jaxtape.cli.check import Check, Group
from pricing import Heston
from pricing.validation.curve_checks import curves
from pricing.validation.price_tables import (
    american,
    averages,
    barriers,
    european,
    exotics,
    heston,
    rates,
)
from pricing.validation.smile_checks import sabr
from tests.helpers import dax

GROUPS: dict[str, Group] = {
    "european": european,
    "barriers": barriers,
    "american": american,
    "averages": averages,
    "exotics": exotics,
    "heston": heston,
    "rates": rates,
    "curves": curves,
    "sabr": sabr,
    "calibration": fits,
}


def of_table(group: Group, *words: str) -> list[Check]:
    """The checks of the tables whose names have all of some words."""
    known = group.checks()
    return [each for each in known if all(word in each.source.name for word in words)]


# --- views ----------------------------------------------------------------------------------------------

_LEVY = of_table(averages, "Levy")
LEVY_PUT = {"strike": float(_LEVY[0].cells["strike"]), "option": _LEVY[0].cells["option"]}
LEVY_MODEL = {
    name: float(_LEVY[0].cells[name]) for name in ("spot", "rate", "vol", "dividend_yield")
}
LEVY_LENGTH = 11 / 12  # years from today, the first fixing, to the last
levy = [(int(each.cells["dates"].split(":")[-1]), each.reference) for each in _LEVY]

# Hagan's vols by (expiry, rho), at strikes .1, .2, ..., 2
ANTONOV_SPECTOR: dict[tuple[float, float], list[float]] = {}
for _each in of_table(sabr, "Antonov"):
    _smile = float(_each.cells["expiry"]), float(_each.cells["rho"])
    ANTONOV_SPECTOR.setdefault(_smile, []).append(_each.reference)

# calls by (v0, kappa, theta, xi, rho, lambda, mu, delta), strike and years: spot 100, rate 3 %, yield 1 %
_BATES = (
    *("initial_variance", "mean_reversion", "long_run_variance", "vol_of_vol", "correlation"),
    *("jump_intensity", "jump_mean", "jump_vol"),
)
BATES_CALLS: dict[tuple[float, ...], dict[tuple[float, float], float]] = {}
for _each in of_table(heston, "Bates"):
    _call = float(_each.cells["strike"]), float(_each.cells["expiry"])
    BATES_CALLS.setdefault(tuple(float(_each.cells[name]) for name in _BATES), {})[_call] = (
        _each.reference
    )

_FITTED = of_table(fits, "Heston")
DAX_START: dict[str, float] = dict(_FITTED[0].source.settings["start"])
DAX_OPTIMUM = {each.figure: each.reference for each in _FITTED if each.figure in DAX_START}
DAX_SSE_AT_OPTIMUM = next(x.reference for x in _FITTED if x.figure == "squared_vol_points")
DAX_SSE_AT_START = of_table(fits, "sum of squares at the standard start")[0].reference


def dax_heston(parameters: dict[str, float] = DAX_OPTIMUM) -> Heston:
    """The DAX under the Heston model that its surface calibrates to, or with other parameters."""
    equity = dax().equities["DAX"]
    market = (equity.spot, dax().curves["EUR"])
    return Heston(*market, **parameters, dividend_yield=equity.dividend_yield)


_SWAPTIONS = of_table(fits, "Hull and White")
HULL_WHITE: dict[str, Any] = {
    **{name: _SWAPTIONS[0].source.settings[name] for name in ("rate", "months", "day_count")},
    **{
        day: date.fromisoformat(_SWAPTIONS[0].source.settings[day])
        for day in ("today", "settlement")
    },
    **{each.figure: each.reference for each in _SWAPTIONS if each.figure != "model_vol"},
    "model_vols": tuple(each.reference for each in _SWAPTIONS if each.figure == "model_vol"),
}

# --- what the command does not ask ------------------------------------------------------------------------

# [P] Andersen (2008): exact less scheme, case I, K = 100, by steps a year.
bias_euler = {1: -6.359, 4: -2.048, 32: -0.255}  # full truncation
bias_qe_m = {1: -0.222, 4: -0.008, 32: 0.015}  # quadratic exponential, martingale corrected

# Without its curve, which is not printed, the command does not ask it.
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
