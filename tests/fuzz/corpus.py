"""What once made a traceback or a hang, by name, and the valid files that the fuzzer begins with."""

import json

MARKET = {
    "asof": "2002-07-05",
    "currency": "EUR",
    "curves": {
        "EUR": {
            "day_count": "ACT/365",
            "dates": ["2002-07-05", "2003-07-05"],
            "zero_rates": [0.03, 0.04],
        },
        "CHF": {"zero_rate": 0.02},
    },
    "equities": {
        "DAX": {
            "curve": "EUR",
            "spot": 4468.17,
            "dividend_yield": 0.01,
            "implied_vols": {
                "expiries": ["2002-12-17", "2003-06-15"],
                "days": [165, 345],
                "strikes": [4000.0, 4500.0, 5000.0],
                "vols_by_expiry": [[0.31, 0.28, 0.26], [0.29, 0.27, 0.25]],
            },
        },
        "SX5E": {
            "curve": "EUR",
            "spot": 3200.0,
            "currency": "EUR",
            "implied_vols": {"days": [90], "strikes": [3000, 3500], "vols_by_expiry": [[0.2, 0.3]]},
        },
    },
    "correlations": {"DAX|SX5E": 0.8},
    "swaption_vols": {
        "type": "lognormal",
        "expiries_years": [1, 2],
        "tenors_years": [5],
        "vols_by_expiry": [[0.11], [0.12]],
    },
}
_DATES = "2002-12-17|2003-03-18"
_OPTION = {"underlying": "DAX", "quantity": 2, "option": "call", "strike": 4500}
_SWAP = {"underlying": "EUR", "side": "payer", "fixed_rate": 0.04, "notional": 1000}
_SWAP |= {"maturity": "2006-07-05"}
BOOK: tuple[dict, ...] = (
    {"id": "E1", "type": "european", **_OPTION, "expiry": "2003-03-18"},
    {"id": "D1", "type": "digital", **_OPTION, "expiry": "2003-03-18", "amount": 5},
    {
        "id": "B1",
        "type": "barrier",
        **_OPTION,
        "expiry": "2003-03-18",
        "barrier": 4000,
        "barrier_type": "down-and-out",
        "rebate": 1,
        "monitoring_dates": _DATES,
    },
    {"id": "AM1", "type": "american", **_OPTION, "expiry": "2003-03-18"},
    {"id": "BM1", "type": "bermudan", **_OPTION, "exercise_dates": _DATES},
    {"id": "AS1", "type": "asian", **_OPTION, "averaging_dates": _DATES, "average": "geometric"},
    {
        "id": "DK1",
        "type": "double_knock_out",
        **_OPTION,
        "monitoring_dates": _DATES,
        "lower": 3000,
        "upper": 6000,
    },
    {
        "id": "AC1",
        "type": "autocallable",
        "underlying": "DAX",
        "exercise_dates": _DATES,
        "coupons": "0.05|0.1",
        "barrier": 4400,
        "protection": 3000,
        "initial_spot": 4400,
    },
    {
        "id": "K1",
        "type": "basket",
        **_OPTION,
        "expiry": "2003-03-18",
        "average": "max",
        "underlying": "DAX|SX5E",
        "weights": "0.5|0.5",
    },
    {"id": "S1", "type": "swap", **_SWAP, "start": "2002-10-07", "frequency": "semiannual"},
    {"id": "O1", "type": "swaption", **_SWAP, "expiry": "2003-07-05", "day_count": "ACT/ACT"},
    {
        "id": "BS1",
        "type": "bermudan_swaption",
        **_SWAP,
        "calendar": "XNYS",
        "exercise_dates": "2003-07-05|2004-07-05",
    },
)
COLUMNS = tuple(dict.fromkeys(name for trade in BOOK for name in trade))


def csv_of(trades, columns=COLUMNS) -> bytes:
    """Trades as rows of CSV."""
    rows = [",".join(columns), *(",".join(str(t.get(c, "")) for c in columns) for t in trades)]
    return "\n".join(rows).encode("utf-8", "surrogatepass")


def _market(**changes) -> bytes:
    kept = {name: value for name, value in (MARKET | changes).items() if value is not None}
    return json.dumps(kept).encode()


def _vols(rows, columns, vols) -> dict:
    return {"expiries_years": rows, "tenors_years": columns, "vols_by_expiry": vols}


def _named(name: str) -> bytes:
    """The market with the DAX and the curve of another name."""
    text = json.dumps({**MARKET, "correlations": {}, "swaption_vols": None})
    return text.replace('"DAX"', json.dumps(name)).replace('"EUR"', json.dumps(name)).encode()


_SPOT = {**MARKET["equities"]["DAX"], "spot": 0}
MARKETS: dict[str, bytes] = {
    "nothing but an as-of date": b'{"asof": "2002-07-05"}',
    "the only curve is refused": _market(
        curves={"EUR": {"days": [9, 5], "zero_rates": [0.01, 0.02]}}
    ),
    "no equities": _market(equities={}, correlations=None),
    "an as-of date at the end of the calendar": _market(asof="9999-12-31"),
    "an as-of date in year 1": _market(asof="0001-01-01"),
    "the last as-of date": _market(asof="2199-12-31"),
    "an integer beyond a double": _market(equities={"DAX": _SPOT}).replace(
        b'"spot": 0', b'"spot": ' + b"9" * 400
    ),
    "an integer of too many digits": _market(equities={"DAX": _SPOT}).replace(
        b'"spot": 0', b'"spot": -' + b"9" * 5000
    ),
    "a spot whose square is no number": _market(equities={"DAX": {**_SPOT, "spot": 1e308}}),
    "half of a surrogate pair": _named("\ud800"),
    "bytes of half a surrogate pair": _named("DAX").replace(b"DAX", b"\xed\xa0\x80"),
    "mathtext": _named(r"$\frac$"),
    "markup of the console": _named("[/red]"),
    "markup of the page": _named("</svg><script>alert(1)</script>"),
    "a terminal escape": _named("\x1b[31mred"),
    "a formula": _named("=1+1"),
    "writing from right to left": _named("\u202egnp"),
    "a long name": _named("E" * 5000),
    "a name with a colon": _named("XETR:DAX"),
    "one implied vol": _market(
        equities={
            "DAX": {
                **_SPOT,
                "spot": 4468.0,
                "implied_vols": {"days": [90], "strikes": [4500], "vols_by_expiry": [[0.3]]},
            }
        },
        correlations=None,
    ),
    "one swaption vol": _market(swaption_vols=_vols([1], [5], [[0.1]])),
    "a tenor below the period of payments": _market(swaption_vols=_vols([1], [0.3], [[0.1]])),
    "a curve with the name of an equity": _market(
        curves={"EUR": {"zero_rate": 0.03}, "DAX": {"zero_rate": 0.03}},
        swaption_vols={**_vols([1, 2], [5], [[0.1], [0.1]]), "curve": "DAX"},
    ),
    "a key of many characters": _market(curves={"E" * 2000: {"zero_rate": 9.0}}),
    "many unknown names": json.dumps(
        {"asof": "2002-07-05", **dict.fromkeys(map(str, range(3000)))}
    ).encode(),
    "deep nesting": b'{"asof": "2002-07-05", "curves": ' + b"[" * 900 + b"]" * 900 + b"}",
    "a NUL byte": _market().replace(b"EUR", b"E\0R"),
}

_HEADER = ",".join(COLUMNS).encode()
_JSON = json.dumps(BOOK[:2]).encode()
BOOKS: dict[str, tuple[str, bytes]] = {
    "a swap to the end of the calendar": (
        "t.csv",
        csv_of([{**BOOK[9], "maturity": "9999-12-31", "day_count": "ACT/ACT"}, BOOK[0]]),
    ),
    "a swap from year 1": (
        "t.csv",
        csv_of([{**BOOK[9], "start": "0001-01-01", "maturity": "0002-06-01"}, BOOK[0]]),
    ),
    "a swap of three centuries": (
        "t.csv",
        csv_of([{**BOOK[9], "maturity": "2199-12-31", "frequency": "monthly"}, BOOK[0]]),
    ),
    "an integer beyond a double": (
        "t.json",
        _JSON.replace(b'"strike": 4500', b'"strike": 4500, "rebate": ' + b"1" * 400, 1),
    ),
    "half of a surrogate pair": ("t.json", _JSON.replace(b'"E1"', rb'"\ud800"')),
    "a surrogate in a bad row": (
        "t.json",
        _JSON.replace(b'"E1"', rb'"\ud800\u001b[31m"').replace(b"european", rb"\udfff"),
    ),
    "a kind that is a terminal escape": ("t.csv", csv_of([{**BOOK[0], "type": "\x1b[31m"}])),
    "markup of the console": ("t.csv", csv_of([{**BOOK[0], "id": "[/red]"}, BOOK[1]])),
    "a formula": ("t.csv", csv_of([{**BOOK[0], "id": "=1+1"}, {**BOOK[1], "id": "@SUM(A1)"}])),
    "NUL bytes in a row": ("t.csv", csv_of(BOOK[:2]).replace(b"D1", b"D\0")),
    "NUL bytes in the header": ("t.csv", csv_of(BOOK[:2]).replace(b"strike", b"str\0ike")),
    "NUL bytes in a column of one's own": (
        "t.csv",
        csv_of([{**BOOK[0], "desk": "\0"}], (*COLUMNS, "desk")),
    ),
    "an id that is a deep list": ("t.json", b'[{"id": ' + b"[" * 900 + b"]" * 900 + b"}]"),
    "a key twice but for its case": (
        "t.json",
        _JSON.replace(b'"strike": 4500', b'"strike": 4500, "Strike": 4600', 1),
    ),
    "an endless id": ("t.csv", csv_of([{**BOOK[0], "id": "x" * 100_000}, BOOK[1]])),
    "a quantity that is too large": ("t.csv", csv_of([{**BOOK[0], "quantity": "1e300"}, BOOK[1]])),
    "a barrier at the least number": ("t.csv", csv_of([{**BOOK[2], "barrier": "5e-324"}])),
    "the least barrier of a note": ("t.csv", csv_of([{**BOOK[7], "barrier": "5e-324"}, BOOK[0]])),
    "the header alone": ("t.csv", _HEADER),
    "an empty list": ("t.json", b"[]"),
}
