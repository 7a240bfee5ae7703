"""The kinds of quotes, and the bounds of their numbers in market files."""

from typing import Any

from pydantic import RootModel

from pricing.ingestion.validation import ValidationIssue, validate

from .cap_records import Premium
from .instrument_records import Price
from .records import Cash, Correlation, NormalVol, Proportion, Rate, Spot, Spread, Vol, Wing, Yield

KINDS: dict[str, Any] = {
    "EQUITY_OPTION/RATE_LNVOL": Vol,
    "SWAPTION/RATE_LNVOL": Vol,
    "SWAPTION/RATE_NVOL": NormalVol,
    "CAPFLOOR/RATE_LNVOL": Vol,
    "CAPFLOOR/RATE_SLNVOL": Vol,
    "CAPFLOOR/RATE_NVOL": NormalVol,
    "CAPFLOOR/PRICE": Premium,
    "ZERO/RATE": Rate,
    "MM/RATE": Rate,
    "FRA/RATE": Rate,
    "OIS/RATE": Rate,
    "MM_FUTURE/PRICE": Price,
    "IR_SWAP/RATE": Rate,
    "BASIS_SWAP/BASIS_SPREAD": Spread,
    "EQUITY_DIVIDEND/RATE": Yield,
    "DIVIDEND/CASH": Cash,
    "DIVIDEND/PROPORTION": Proportion,
    "EQUITY/PRICE": Spot,
    "FX/RATE": Spot,
    "FX_OPTION/RATE_LNVOL": Vol,
    "FX_OPTION/RISK_REVERSAL": Wing,
    "FX_OPTION/BUTTERFLY": Wing,
    "CORRELATION": Correlation,
}
"""Kind of quote, the first part of its id -> the field of its number in a market file."""

_VALIDATED = {kind: RootModel[annotation] for kind, annotation in KINDS.items()}
"""Kind of quote -> the type of its numbers in a market file."""


def kind_of(quote: str) -> str:
    """Return the kind of a quote, the first part of its id, such as "EQUITY/PRICE"."""
    return next(kind for kind in KINDS if quote.startswith(f"{kind}/"))


def read_quote(quote: str, value: object) -> tuple[float | None, tuple[ValidationIssue, ...]]:
    """Return the number of a quote, read like one of a market file, or None and the problems.

    Args:
        quote: The id of the quote.
        value: The number.
    """
    record, problems = validate(_VALIDATED[kind_of(quote)], value)
    return (None if record is None else record.root), tuple(problems)
