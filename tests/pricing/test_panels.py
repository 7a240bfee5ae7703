"""Pictures of the report: round labels, and marks where their numbers are."""

import math
import re

import numpy as np
import pytest
from matplotlib.ticker import MaxNLocator

from pricing.reporting.panels import Axis, Bars, Curve, Panel, picture, ticks


@pytest.mark.parametrize("most", [4, 5, 24])
def test_ticks_are_those_of_matplotlib(most):
    """Where the range is not far from zero; elsewhere theirs are multiples above another number."""
    rng = np.random.default_rng(most)
    lows = rng.normal(size=200) * 10.0 ** rng.integers(-6, 9, 200)
    for low, width in zip(lows, np.abs(lows) * 10.0 ** rng.uniform(-1.5, 4, 200), strict=True):
        wanted = MaxNLocator(most).tick_values(low, low + width)
        np.testing.assert_allclose(ticks(low, low + width, most), wanted, atol=1e-9 * width)


@pytest.mark.parametrize("high", [0.7, 3.0, 17.0, 2501.0])
def test_whole_ticks_are_whole_numbers(high):
    found = ticks(0.0, high, 4, whole=True)
    assert found[0] == 0.0 and found[-1] >= high and len(found) <= 5
    assert all(tick.is_integer() for tick in found.tolist())


@pytest.mark.parametrize(
    "values", [[], [math.nan], [0.0, 0.0], [5.0], [-1e-9, 1e-9], [1e12, 1e12 + 1.0]]
)
def test_an_axis_has_its_numbers_between_its_ends(values):
    axis = Axis.over(values, 5, fixed=0.0)
    known = [value for value in values if math.isfinite(value)] or [0.0]
    assert axis.low <= min(known) <= max(known) <= axis.high
    assert axis.low < axis.high and all(axis.low <= at <= axis.high for at, _ in axis.labels)


def test_an_end_that_is_fixed_has_no_margin():
    axis = Axis.over([0.0, 10.0], 5, fixed=0.0)
    assert (axis.low, axis.high) == (0.0, 10.5)
    assert Axis.over([0.0, 10.0], 5)[:2] == (-0.5, 10.5)


def test_bars_start_at_zero_and_are_as_high_as_their_numbers():
    bars = Bars([0.0, 1.0, 2.0], [0.5, 1.5, 2.5], [2.0, -1.0, math.nan], ["a & b", "c", "d"])
    found = bars.svg(lambda x: 10.0 * x, lambda y: 100.0 - 10.0 * y)
    shapes = re.findall(
        r'x="([\d.]+)" y="([\d.]+)" width="([\d.]+)" height="([\d.]+)" fill="var\(--(\w+)\)"', found
    )
    assert shapes == [
        ("0.00", "80.00", "5.00", "20.00", "up"),
        ("10.00", "100.00", "5.00", "10.00", "down"),
    ]
    assert re.findall("<title>(.*?)</title>", found) == ["a &amp; b", "c"]


def test_a_curve_has_a_gap_where_it_is_not_known():
    found = Curve([0.0, 1.0, 2.0, 3.0], [1.0, 2.0, math.nan, 4.0]).svg(float, float)
    assert re.findall('points="(.*?)"', found) == ["0.00,1.00 1.00,2.00", "3.00,4.00"]


@pytest.mark.parametrize("slanted", [False, True])
def test_all_of_a_picture_is_within_it(slanted):
    names = tuple((float(place), f"to 18 Jul 200{place}") for place in range(8))
    across = Axis.over([-0.4, 7.4], 1)._replace(labels=names, is_slanted=slanted)
    bars = Bars(*np.array([[-0.4], [7.4], [-12345.0]]).tolist())
    panel = Panel("P&L", [bars], across, Axis.over([0.0, -12345.0], 5, fixed=0.0), zero=True)
    found = picture([panel] * 6, 3, 300.0, "six")
    assert found.count("<rect") == 6
    for name, most in (("x", 792.0), ("x1", 792.0), ("x2", 792.0), ("y1", 300.0), ("y2", 300.0)):
        places = [float(at) for at in re.findall(rf' {name}="(-?[\d.]+)"', found)]
        assert places and 0.0 <= min(places) <= max(places) <= most
