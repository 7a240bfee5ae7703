"""Published values, each to what its source is known to."""

import pytest

import pricing
from pricing import greeks, price
from tests import references
from tests.helpers import double

pytestmark = double
ROWS = [*references.black_scholes, *references.barriers, *references.american, *references.heston]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_published_values(row):
    product = getattr(pricing, row.product)(**row.terms)
    model = getattr(pricing, row.model)(**row.parameters)
    with_greeks = set(row.figures) != {"value"}
    found = (greeks if with_greeks else price)(product, model)
    for name, figure in row.figures.items():
        assert abs(getattr(found, name) - figure) <= row.atol[name], name


def test_no_row_is_lost():
    assert len(references.barriers) == 13
    assert len(references.american) == 6
    assert len(references.heston) == 14
