"""Residuals of normal vols are reported in basis points, those of other vols in vol points."""

import json
from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

from calibration import REASONS, RESULTS, Calibration, Calibrations
from calibration.app import fit_report, several
from calibration.surface_fits import surface_fit
from pricing import HullWhite, Market
from pricing.reporting import page
from tests.helpers import double
from tests.test_command_line import MARKET

pytestmark = double


@pytest.fixture(scope="module", params=["normal", "lognormal"])
def fitted(request):
    """A market, and a fit to its vols, one of which it misses by 3 basis points and one by 4."""
    document = json.loads(MARKET.read_text())
    given = document["swaption_vols"]
    vols = [
        [vol * (0.04 if request.param == "normal" else 1.0) for vol in row]
        for row in given["vols_by_expiry"]
    ]
    market = Market.from_text(
        json.dumps(
            document | {"swaption_vols": given | {"type": request.param, "vols_by_expiry": vols}}
        )
    )
    assert not market.errors
    residuals = np.zeros(np.shape(vols))
    residuals[0, 0], residuals[-1, -1] = 3e-4, -4e-4
    stats = {
        "sum_squared_vol_points": 1e4 * np.sum(residuals**2),
        "num_quotes": residuals.size,
        "covariance": np.eye(2) * 1e-6,
        "condition_number": jnp.asarray(2.0),
        "steps": jnp.asarray(4),
        "starts_at_optimum": jnp.asarray(1),
        "reason": REASONS.step_no_longer_matters,
        "not_identified": np.zeros(2, bool),
    }
    model = HullWhite.starting_on(market, "EUR")
    return market, Calibration(model, jnp.asarray(residuals), RESULTS.converged, stats)


def test_a_fit_is_reported_in_the_unit_of_its_vols(fitted, tmp_path):
    market, found = fitted
    quotes, is_normal = market.swaption_vols, market.swaption_vols.kind == "normal"
    written = fit_report.as_json(market, "EUR", found)
    squares = {name: value for name, value in written.items() if name.startswith("sum_squared")}
    assert squares == pytest.approx(
        {"sum_squared_bp": 25.0} if is_normal else {"sum_squared_vol_points": 2.5e-3}
    )
    words = "25.00 bp²" if is_normal else "0.00 vol points²"
    assert fit_report.summary_of(found, "EUR", quotes).endswith(f"4 steps, {words}")
    fits = [page.fit_section(surface_fit(market, "EUR", found))]
    page.write_fit_report(tmp_path / "report.html", market, fits, {})
    text = (tmp_path / "report.html").read_text()
    unit, other = ("bp", "vol points") if is_normal else ("vol points", "bp")
    assert f"Residuals, model minus market, in {unit}" in text
    count = quotes.vols.size
    rms = (25.0 / count) ** 0.5 * (1.0 if is_normal else 0.01)
    assert f"{rms:.3f} {unit} over {count} quotes" in text
    assert f" {other}² " not in text and f" {other} over" not in text
    vol = float(quotes.vols[0, 0])
    assert (f"{1e4 * vol:g} bp" if is_normal else f"{100 * vol:g} %") in text


def test_many_fits_keep_the_unit_of_each(tmp_path):
    """Of a failed fit and of two, one in each unit; and as rounds that are joined."""
    numbers = np.array([np.nan, 4.0, 0.04])
    found = Calibrations(
        ("bad", "A", "B"), {"vol": numbers}, {"vol": numbers}, numbers, np.full(3, 4.0), numbers,
        ("failed: so", "ok", "ok"), np.array([True, False, True]),
    )  # fmt: skip
    columns = found.columns
    np.testing.assert_allclose(columns["sum_squared_vol_points"], [np.nan, 4.0, np.nan])
    np.testing.assert_allclose(columns["sum_squared_bp"], [np.nan, np.nan, 400.0])
    parts = [_part(found, place) for place in range(3)]
    assert [set(part.columns) & {"sum_squared_bp", "sum_squared_vol_points"} for part in parts[1:]] == [
        {"sum_squared_vol_points"}, {"sum_squared_bp"},
    ]  # fmt: skip
    for again in (Calibrations.of_columns(columns), Calibrations.joined(parts)):
        np.testing.assert_allclose(again.sum_squared_vol_points, numbers)
        assert again.is_normal.tolist() == [False, False, True]
    fits = several._fits(found, HullWhite, tmp_path, {})
    page.write_many_fits_report(tmp_path / "report.html", fits, {})
    text = (tmp_path / "report.html").read_text()
    assert "residuals, rms in vol points" in text and "residuals, rms in bp" in text
    np.testing.assert_allclose([np.nanmax(rms) for rms in fits.rms.values()], [1.0, 10.0])


def _part(found: Calibrations, place: int) -> Calibrations:
    """One job of several."""
    cut = lambda x: x[place : place + 1]
    return replace(
        found,
        ids=cut(found.ids),
        parameters={name: cut(x) for name, x in found.parameters.items()},
        std_errors={name: cut(x) for name, x in found.std_errors.items()},
        sum_squared_vol_points=cut(found.sum_squared_vol_points),
        num_quotes=cut(found.num_quotes),
        steps=cut(found.steps),
        status=cut(found.status),
        is_normal=cut(found.is_normal),
    )
