"""Published values, each to what its source is known to."""

import numpy as np
import pytest

import pricing
from pricing import Bermudan, BlackScholes, European, greeks, price
from tests import references
from tests.helpers import double

pytestmark = double
ROWS = [
    *references.black_scholes,
    *references.barriers,
    *references.discrete_barriers,
    *references.american,
    *references.swaptions,
    *references.heston,
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_published_values(row):
    product = getattr(pricing, row.product)(**row.terms)
    model = getattr(pricing, row.model)(**row.parameters)
    with_greeks = set(row.figures) != {"value"}
    found = (greeks if with_greeks else price)(product, model)
    for name, figure in row.figures.items():
        assert abs(getattr(found, name) - figure) <= row.atol[name], name


@pytest.mark.parametrize(("spot", "vol", "expiry", "value"), references.bermudan_puts)
def test_bermudan_puts(spot, vol, expiry, value):
    terms = references.BERMUDAN_PUT
    dates = np.arange(1.0, terms["dates_a_year"] * expiry + 1.0) / terms["dates_a_year"]
    put = Bermudan(European(terms["strike"], expiry, "put"), dates)
    found = price(put, BlackScholes(spot, terms["rate"], vol)).value
    assert abs(found - value) <= 5e-5  # four decimals are given


def test_no_row_is_lost():
    assert len(references.barriers) == 13
    assert len(references.discrete_barriers) == 2
    assert len(references.american) == len(references.bermudan_puts) == 6
    assert len(references.swaptions) == 2
    assert len(references.heston) == 14
