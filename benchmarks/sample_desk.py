"""The trades of the sample book from earlier days, in other currencies and on a payer of dividends.

Trades with a past use the fixings of the sample market. The remaining contracts have the shapes of the book's
other trades, so that most need no extra program.
"""

from collections.abc import Iterator

PAST_MONTHS = "2002-06-05|2002-07-01"
NEXT_MONTHS = "2002-08-05|2002-09-05|2002-10-07|2002-11-05|2002-12-05|2003-01-06"
NEXT_QUARTERS = "2002-10-07|2003-01-06|2003-04-07|2003-07-07|2003-10-06|2004-01-05"
PAST = "PA"
"""The first letters of the ids of trades on the DAX with a past."""

COLUMNS = (
    *("settlement_lag", "exercised", "frequency", "floating_frequency"),
    *("vol_strike", "payment_lag", "currency"),
)
"""The columns used by no other trade of the sample book."""


def trades() -> Iterator[dict]:
    """Yield the trades in the order of the book."""
    yield from _on_currencies()
    yield from _with_a_past()
    yield from _rates()
    yield from _on_a_payer()


def _on_currencies() -> Iterator[dict]:
    terms = [
        ("EURUSD", "call", 0.98, "2002-12-17", 2_000_000),
        ("EURUSD", "put", 0.95, "2003-03-18", -1_500_000),
        ("EURUSD", "call", 1.05, "2003-06-17", -1_000_000),
        ("EURUSD", "put", 0.97, "2002-09-18", 3_000_000),
        ("EURUSD", "call", 1.0, "2002-12-17", 1_250_000),
        ("EURUSD", "put", 0.92, "2003-06-17", 2_500_000),
        ("GBPUSD", "call", 1.55, "2002-12-17", 1_000_000),
        ("GBPUSD", "put", 1.48, "2003-03-18", -500_000),
        ("GBPUSD", "put", 1.52, "2003-06-17", 750_000),
    ]
    for index, (pair, option, strike, expiry, quantity) in enumerate(terms):
        yield {
            "id": f"FX{index + 1:03d}",
            "type": "european",
            "underlying": pair,
            "quantity": quantity,
            "option": option,
            "strike": strike,
            "expiry": expiry,
            "currency": "USD",
        }
    digitals = [("EURUSD", "call", 1.0), ("EURUSD", "put", 0.95), ("GBPUSD", "put", 1.45)]
    for index, (pair, option, strike) in enumerate(digitals):
        yield {
            "id": f"FX{len(terms) + index + 1:03d}",
            "type": "digital",
            "underlying": pair,
            "quantity": 1 - 2 * (index % 2),
            "option": option,
            "strike": strike,
            "expiry": "2002-12-17",
            "payout": "cash",
            "amount": 50_000,
        }


def _with_a_past() -> Iterator[dict]:
    """Yield trades on the DAX that fixings have changed, and some that fixings have ended."""
    on_dax = {"underlying": "DAX", "option": "put", "strike": 4500}
    dates = f"{PAST_MONTHS}|{NEXT_MONTHS}"
    watched = f"2002-06-05|2002-06-26|{NEXT_MONTHS}"
    note = {
        "type": "autocallable",
        "underlying": "DAX",
        "exercise_dates": f"2002-06-05|{NEXT_QUARTERS}",
        "coupons": "0.02|0.04|0.06|0.08|0.1|0.12|0.14",
        "protection": 3700,
        "initial_spot": 4850,
        "notional": 1000,
    }
    rows: list[dict] = [
        {**on_dax, "type": "asian", "quantity": 8, "averaging_dates": dates},
        {**on_dax, "type": "asian", "quantity": -6, "option": "call", "averaging_dates": dates},
        {**on_dax, "type": "asian", "quantity": 4, "strike": 4800, "averaging_dates": dates},
        {**note, "quantity": 12, "barrier": 4900},  # not yet called
        {**note, "quantity": -7, "barrier": 4850},
        {**note, "quantity": 9, "barrier": 5000, "protection": 3500},
        {**note, "quantity": 5, "barrier": 4700},  # called on the first date
        {
            **on_dax,
            "type": "barrier",
            "quantity": 9,
            "barrier": 4200,
            "barrier_type": "down-and-out",  # on 26 June
            "monitoring_dates": watched,
            "expiry": watched[-10:],
            "rebate": 50,
        },
        {
            **on_dax,
            "type": "barrier",
            "quantity": -4,
            "barrier": 4200,
            "barrier_type": "down-and-in",  # on 26 June
            "monitoring_dates": watched,
            "expiry": watched[-10:],
        },
        {**on_dax, "type": "european", "quantity": 11, "expiry": "2002-06-21"},
        {
            **on_dax,
            "type": "european",
            "quantity": 3,
            "expiry": "2002-07-04",
            "settlement_lag": 2,  # it has expired, and has yet to pay
        },
        {
            "type": "variance_swap",
            "underlying": "DAX",
            "quantity": 1,
            "vol_strike": 0.3,
            "start": "2002-06-24",
            "expiry": "2002-12-17",
            "notional": 200_000,
        },
    ]
    for index, row in enumerate(rows):
        yield {"id": f"{PAST}{index + 1:03d}", **row}


def _rates() -> Iterator[dict]:
    """Yield started swaps, a swaption that was exercised into one, and rates of other currencies.

    The swaps are padded to the same number of remaining payments, and so are the others.
    """
    in_euros = {"underlying": "EUR", "notional": 100_000, "floating_frequency": "semiannual"}
    started = {**in_euros, "type": "swap", "start": "2001-10-05", "maturity": "2006-10-05"}
    exercised = {
        **in_euros,
        "type": "swaption",
        "expiry": "2001-02-06",
        "exercised": "2001-02-06",
        "maturity": "2007-02-06",
    }
    overnight = {
        "type": "overnight_swap",
        "notional": 1_000_000,
        "start": "2002-07-09",
        "maturity": "2003-07-09",
        "payment_lag": 2,
    }
    forward = {
        "type": "fra",
        "notional": 1_000_000,
        "start": "2002-10-07",
        "maturity": "2003-01-07",
    }
    rows: list[dict] = [
        {**started, "quantity": 3, "side": "payer", "fixed_rate": 0.045},
        {**started, "quantity": -2, "side": "receiver", "fixed_rate": 0.0475},
        {**exercised, "quantity": 2, "side": "payer", "fixed_rate": 0.04},
        {**overnight, "underlying": "USD", "quantity": 2, "side": "payer", "fixed_rate": 0.02},
        {**overnight, "underlying": "GBP", "quantity": 1, "side": "receiver", "fixed_rate": 0.043},
        {**forward, "underlying": "USD", "quantity": 2, "side": "payer", "fixed_rate": 0.019},
        {**forward, "underlying": "USD", "quantity": -1, "side": "payer", "fixed_rate": 0.022},
        {**forward, "underlying": "GBP", "quantity": 1, "side": "payer", "fixed_rate": 0.042},
    ]
    for index, row in enumerate(rows):
        yield {"id": f"RA{index + 1:03d}", **row}


def _on_a_payer() -> Iterator[dict]:
    """Yield trades on a share that pays dividends, with expiries before, between and after its ex-dates.

    The fall on an ex-date of the past has knocked in the last one.
    """
    terms = [
        ("call", 65, "2002-09-18", 400),
        ("put", 60, "2002-09-18", -300),
        ("call", 62.5, "2002-12-17", 500),
        ("put", 57.5, "2002-12-17", 250),
        ("call", 70, "2003-03-18", -600),
        ("put", 65, "2003-03-18", 350),
        ("call", 60, "2003-06-17", 450),
        ("put", 55, "2003-06-17", -700),
        ("call", 72.5, "2003-12-11", -200),
        ("put", 62.5, "2003-12-11", 300),
        ("call", 65, "2004-06-07", 250),
        ("put", 50, "2004-06-07", 150),
    ]
    on_share: dict = {"underlying": "RHEIN"}
    rows: list[dict] = [
        {
            **on_share,
            "type": "european",
            "quantity": quantity,
            "option": option,
            "strike": strike,
            "expiry": expiry,
        }
        for option, strike, expiry, quantity in terms
    ]
    digitals = [("call", 62.5, "2002-12-17"), ("put", 60, "2003-06-17"), ("call", 70, "2004-06-07")]
    rows += [
        {
            **on_share,
            "type": "digital",
            "quantity": 10 - 20 * (index % 2),
            "option": option,
            "strike": strike,
            "expiry": expiry,
            "payout": "cash",
            "amount": 100,
        }
        for index, (option, strike, expiry) in enumerate(digitals)
    ]
    rows.append(
        {
            **on_share,
            "type": "barrier",
            "quantity": 200,
            "option": "put",
            "strike": 65,
            "expiry": "2003-06-17",
            "barrier": 62,
            "barrier_type": "down-and-in",
            "monitoring_dates": "2002-05-16|2002-05-17|2002-11-15|2003-06-17",
        }
    )
    for index, row in enumerate(rows):
        yield {"id": f"DV{index + 1:03d}", **row}
