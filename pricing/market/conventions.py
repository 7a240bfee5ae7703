"""The words for rate conventions in files, and the end dates of tenors."""

import re
from datetime import date, timedelta
from typing import Annotated

import holidays
from pydantic import BeforeValidator

from pricing.ingestion.errors import show
from pricing.ingestion.field_types import choice, problem

from .dates import DAY_COUNTS, advance

_CODES = """
AED AFN ALL AMD AOA ARS AUD AWG AZN BAM BBD BDT BGN BHD BIF BMD BND BOB BRL BSD BTN BWP BYN BZD CAD CDF
CHF CLF CLP CNH CNY COP CRC CUP CVE CZK DJF DKK DOP DZD EGP ERN ETB EUR FJD FKP GBP GEL GHS GIP GMD GNF
GTQ GYD HKD HNL HRK HTG HUF IDR ILS INR IQD IRR ISK JMD JOD JPY KES KGS KHR KMF KPW KRW KWD KYD KZT LAK
LBP LKR LRD LSL LYD MAD MDL MGA MKD MMK MNT MOP MRU MUR MVR MWK MXN MXV MYR MZN NAD NGN NIO NOK NPR NZD
OMR PAB PEN PGK PHP PKR PLN PYG QAR RON RSD RUB RWF SAR SBD SCR SDG SEK SGD SHP SLE SOS SRD SSP STN SVC
SYP SZL THB TJS TMT TND TOP TRY TTD TWD TZS UAH UGX USD UYU UZS VED VES VND VUV WST XAF XCD XOF XPF YER
ZAR ZMW
"""
CURRENCIES = frozenset(_CODES.split())
"""Currency codes (ISO 4217, and CNH): a curve with such a name is in that currency."""

MONTHS = {"annual": 12, "semiannual": 6, "quarterly": 3, "monthly": 1}
"""The months between two payments."""

_TENOR = re.compile(r"([1-9]\d{0,2})([DWMY])", re.ASCII | re.IGNORECASE)
_FORWARD = re.compile(r"(\d{1,3})x(\d{1,3})", re.ASCII | re.IGNORECASE)
_DAYS = {"D": 1, "W": 7, "M": 30, "Y": 365}  # months and years: only to bound a tenor
_MOST_YEARS = 60


def months_of(tenor: str) -> int:
    """Return the length in months of a tenor in months or years."""
    return int(tenor[:-1]) * (12 if tenor[-1] == "Y" else 1)


def end_of(start: date, tenor: str, calendar: str) -> date:
    """Return the end date of a tenor, adjusted by "following" for D and W, else by "modified following"."""
    if tenor[-1] in "DW":
        end = start + timedelta(int(tenor[:-1]) * _DAYS[tenor[-1]])
        return advance(end, calendar=calendar, roll="following")
    return advance(start, months=months_of(tenor), calendar=calendar)


def _tenor(value: object) -> str:
    found = _TENOR.fullmatch(value.strip()) if isinstance(value, str) else None
    remedy = f"give a number and D, W, M or Y, such as 3M, of at most {_MOST_YEARS} years"
    if found is None:
        raise problem(f"{show(value)} is not a tenor", remedy)
    count, unit = int(found[1]), found[2].upper()
    if count * _DAYS[unit] > _MOST_YEARS * 365:
        raise problem(f"{show(value)} is longer than {_MOST_YEARS} years", remedy)
    return f"{count}{unit}"


def _tenor_in_months(value: object) -> str:
    tenor = _tenor(value)
    if tenor[-1] in "DW":
        remedy = "give a number and M or Y, such as 5Y"
        raise problem(f"{show(value)} is not a tenor of whole months", remedy)
    return tenor


def _forward_period(value: object) -> str:
    found = _FORWARD.fullmatch(value.strip()) if isinstance(value, str) else None
    if found is None or not int(found[1]) < int(found[2]) <= _MOST_YEARS * 12:
        remedy = "give the months to its start and to its end, such as 3x6"
        raise problem(f"{show(value)} is not the period of an FRA", remedy)
    return f"{int(found[1])}x{int(found[2])}"


def _calendar(value: object) -> str:
    known = holidays.list_supported_financial()
    code = value.upper() if isinstance(value, str) else None
    if code not in known:
        remedy = "give a market identifier code, such as XECB (TARGET), XLON or XNYS"
        raise problem(f"{show(value)} is not a known calendar", remedy)
    return code


Frequency = Annotated[str, choice(*MONTHS)]
DayCount = Annotated[str, choice(*DAY_COUNTS)]
YesOrNo = Annotated[str, choice("no", "yes")]
Calendar = Annotated[str, BeforeValidator(_calendar)]
Period = Annotated[str, BeforeValidator(_tenor)]
"""A tenor such as 1W, 3M or 5Y."""
ForwardPeriod = Annotated[str, BeforeValidator(_forward_period)]
"""Months to a start and to an end, such as 3x6."""
MonthPeriod = Annotated[str, BeforeValidator(_tenor_in_months)]
"""A tenor of whole months, such as 18M or 5Y."""
