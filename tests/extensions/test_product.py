"""A product of another distribution, with its row in a book: its own file, and nothing else."""

from datetime import date

import numpy as np
import pytest
from jaxtyping import Array, Float
from pydantic import Field

from pricing import Book, ClosedForm, European, price
from pricing.fields import positive, time
from pricing.products import Claim, TerminalClaim
from pricing.products import trade as rows
from pricing.products.trade import IsoDate, Level, OptionTrade, Trade
from pricing.trades.contracts import products_of
from tests.helpers import dax, dax_black_scholes


class Gap(TerminalClaim):
    """Pays S - paid at expiry if the spot ends above the strike."""

    strike: Float[Array, "..."] = positive("strike")
    paid: Float[Array, "..."] = positive("paid")
    expiry: Float[Array, "..."] = time("expiry")

    @property
    def side(self) -> Float[Array, "..."]:
        return self.strike / self.strike

    @property
    def units(self) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
        return self.side, -self.paid


@pytest.fixture
def kinds():
    """The registry with a kind of trade that came later."""
    before = list(rows.COLUMNS)

    class GapTrade(Trade):
        type = "gap"
        product = Gap

        strike: Level = Field(description="a strike > 0")
        paid: Level = Field(description="a paid > 0, what is paid for the asset")
        expiry: IsoDate = Field(description="an expiry, YYYY-MM-DD")

    yield rows.TRADE_TYPES
    del rows.TRADE_TYPES["gap"]
    rows.COLUMNS[:] = before


def test_a_kind_of_trade_registers_itself(kinds):
    assert kinds["gap"].__name__ == "GapTrade"
    assert rows.COLUMNS[-1] == "paid"
    assert "OptionTrade" not in {kind.__name__ for kind in kinds.values()}
    assert issubclass(kinds["european"], OptionTrade)


def test_its_rows_are_read_and_valued(kinds):
    book = Book.from_text(
        "id,type,underlying,strike,expiry,paid\n"
        "G1,gap,DAX,4500,2003-03-18,4400\nG2,gap,DAX,4400,2003-06-20,4400\n"
    )
    assert book.errors == ()
    batch = products_of(book.trades, dax())
    assert isinstance(batch, Gap) and isinstance(batch.canonical, Claim)
    expiry = dax().time(date(2003, 6, 20))
    call = price(European(4400.0, expiry), dax_black_scholes(), ClosedForm()).value
    values = price(batch, dax_black_scholes(), ClosedForm()).value
    np.testing.assert_allclose(values[1], call, rtol=1e-5)


def test_its_mistakes_are_told_as_those_of_others(kinds):
    book = Book.from_text("id,type,underlying,strike,expiry\nG1,gap,DAX,4500,2003-03-18\n")
    (error,) = book.errors
    assert (error.field, error.line) == ("paid", 1)
    assert "gap trades need it" in str(error)
    (error,) = Book.from_text(
        "id,type,underlying,strike,expiry,paid\nG1,gap,DAX,4500,2003-03-18,-1\n"
    ).errors
    assert (error.field, error.line) == ("paid", 2)
    assert "give a barrier > 0" in error.remedy
