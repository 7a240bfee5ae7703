"""Data frames in and out: a book, the figures of its trades, the quotes of a calibration."""

from datetime import date, datetime

import numpy as np
import pyarrow as pa
import pytest

from calibration import calibrate_table, read_jobs
from pricing import Book, Heston, risk
from pricing.ingestion.errors import UnreadableFile
from pricing.models.surface_models import black_scholes
from tests.helpers import sample_market

COLUMNS = {
    "id": ["E1", "B2", "S3"],
    "Type": ["european", "bermudan", "basket"],
    "underlying": ["DAX", "DAX", "DAX|SX5E"],
    "quantity": [2.0, -1.0, 3.0],
    "option": ["call", "put", "call"],
    "strike": [4400.0, 4300.0, 3800.0],
    "expiry": [datetime(2003, 3, 18), None, datetime(2003, 3, 18)],
    "exercise_dates": [None, [date(2002, 12, 17), date(2003, 3, 18)], None],
    "weights": [None, None, [0.6, 0.4]],
    "trader": ["a", "b", "c"],
}


class Frame:
    """A frame of a library that exports Arrow's streams, and has no other face."""

    def __init__(self, columns):
        self._table = pa.table(columns)

    def __arrow_c_stream__(self, requested_schema=None):
        return self._table.__arrow_c_stream__(requested_schema)


@pytest.mark.repeat
def test_a_frame_and_a_file_give_the_same_book_and_a_table_of_figures():
    of_text = Book.from_text(
        "id,type,underlying,quantity,option,strike,expiry,exercise_dates,weights\n"
        "E1,european,DAX,2,call,4400,2003-03-18,,\n"
        "B2,bermudan,DAX,-1,put,4300,,2002-12-17|2003-03-18,\n"
        "S3,basket,DAX|SX5E,3,call,3800,2003-03-18,,0.6|0.4\n"
    )
    book = Book.from_frame(Frame(COLUMNS))
    assert not book.errors
    as_fields = [
        [trade.model_dump(exclude={"line"}) for trade in b.trades] for b in (book, of_text)
    ]
    assert as_fields[0] == as_fields[1]
    found = risk(book.without("B2"), sample_market(), black_scholes)
    table = pa.table(found)  # by Arrow's stream, as a data frame reads it
    assert table.column_names[:5] == ["id", "type", "quantity", "method", "status"]
    assert {row["currency"] for row in table.to_pylist()} == {sample_market().currency}
    assert not found.failed, found.failed
    shown = found._repr_html_()
    assert "<td>E1</td>" in shown and "<td>basket</td>" in shown and "2 trades, value" in shown
    assert repr(found).startswith("RiskResult(2 trades, value=")
    european, basket = table.to_pylist()
    first, second = found.trades
    assert european["value"] == 2.0 * first.figures.value
    assert european["delta"] == 2.0 * first.figures.delta["DAX"]
    assert european["delta:SX5E"] is None and basket["delta"] is None
    assert basket["delta:SX5E"] == second.position.delta["SX5E"]
    assert basket["gamma:DAX:SX5E"] == second.position.gamma["DAX", "SX5E"]
    assert np.isclose(sum(x["value"] for x in (european, basket)), found.value, rtol=1e-14)


def test_a_bad_cell_of_a_frame_is_named_by_row_and_column():
    book = Book.from_frame(pa.table({**COLUMNS, "strike": [-1.0, None, float("nan")]}), "positions")
    assert [str(error) for error in book.errors] == [
        "positions:1: column 'strike': -1.0 is not a positive number; give a strike > 0",
        "positions:2: column 'strike': is missing; give a strike > 0",
        "positions:3: column 'strike': is missing; give a strike > 0",
    ]
    with pytest.raises(UnreadableFile, match="frame: none of its columns 'a, b' belongs to a book"):
        Book.from_frame(pa.table({"a": [1], "b": [2]}))
    with pytest.raises(TypeError, match="a dict is not a data frame: give one of pandas"):
        Book.from_frame(COLUMNS)


def test_a_failed_trade_is_a_row_without_figures():
    book = Book.from_frame(pa.table({**COLUMNS, "strike": [-1.0, 4300.0, 1.0]}).slice(0, 1))
    (row,) = risk(book, sample_market(), black_scholes).table.to_pylist()
    assert row["value"] is None and row["currency"] is None
    assert row["status"].startswith("failed: frame:1: column 'strike'")


@pytest.mark.repeat
def test_quotes_of_a_frame_are_calibrated():
    names = "surface", "spot", "rate", "expiry", "strike", "vol"
    strikes = [80.0, 90.0, 100.0, 110.0, 120.0, 130.0]
    rows = [("A", 100.0, 0.0, 1.0, k, 0.2 + (100.0 - k) / 1000.0) for k in strikes]
    frame = Frame(dict(zip(names, zip(*rows, strict=True), strict=True)))
    (job,) = read_jobs(frame, Heston)
    assert job.id == "A" and np.isclose(np.nanmax(job.quotes.vols), 0.22)
    (name,) = calibrate_table(frame, Heston)["id"].to_pylist()
    assert name == "A"
