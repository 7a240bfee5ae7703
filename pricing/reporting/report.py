"""The report of a book: one self-contained page."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..market import Market
from ..portfolio.book import Book
from ..portfolio.book_risk import RiskResult
from .surface_fit import SurfaceFit


def write_report(
    path: str | os.PathLike,
    result: RiskResult,
    book: Book,
    market: Market,
    fits: Sequence[SurfaceFit] = (),
    seconds: Mapping[str, float] | None = None,
    stress: Any = None,
) -> None:
    """Write the page of a book: its value, its risk by group and by quote, its fits, and its failures.

    Args:
        path: The file, in HTML.
        result: The result of `risk`.
        book: The book that was valued.
        market: The market in which it was valued.
        fits: The fits to show, such as `MarketModels.surface_fits()`.
        seconds: Stage -> duration in seconds, for display.
        stress: The book in scenarios (`pricing.reporting.stress.Stress`), or None.

    Examples:
        >>> import tempfile
        >>> from pricing import Book, Market, risk, write_report
        >>> market = Market.from_text('{"asof": "2002-07-05", "curves": {"EUR": {"zero_rate": 0.03}}}')
        >>> book = Book.from_text("id,type,underlying,option,strike,expiry")
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write_report(f"{folder}/report.html", risk(book, market, lambda m: {}), book, market)
    """
    from .page import risk_page  # jinja2: not before it is needed

    page = risk_page(result, book, market, fits, seconds or {}, stress)
    Path(path).write_text(page, encoding="utf-8")
