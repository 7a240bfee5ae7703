"""The errors of a model on a surface: a calibration as plain numbers, for reports."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date

import numpy as np

from ..market.vol_unit import VOL_POINTS, VolUnit
from .formats import day


@dataclass(frozen=True)
class SurfaceFit:
    """A model compared with the implied vols of one underlying: options by strike, or swaptions by tenor.

    `across`: "strike" or "tenor"; with tenors, `strikes` are tenors (years) and there is no `spot`. `expiries`:
    dates, or text such as "5Y". `residuals`: model less market, per 1.00 vol, shape [expiries, strikes] like
    `market_vols`. `curve_vols`: the model's vols at `curve_strikes`, shape [expiries, curve_strikes].
    `parameters`: name to (value, standard error), empty for a model that reads the surface. `facts`: other
        facts of the fit, label to text. `unit`: the unit in which residuals are shown.
    """

    underlying: str
    model: str
    spot: float | None
    expiries: tuple[date | str, ...]
    strikes: np.ndarray
    market_vols: np.ndarray
    residuals: np.ndarray
    curve_strikes: np.ndarray
    curve_vols: np.ndarray
    result: str
    parameters: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    facts: Mapping[str, str] = field(default_factory=dict)
    across: str = "strike"
    unit: VolUnit = VOL_POINTS

    @property
    def rows(self) -> list[str]:
        """The expiries as text for the report."""
        return [expiry if isinstance(expiry, str) else day(expiry) for expiry in self.expiries]

    @property
    def is_calibrated(self) -> bool:
        """Whether there were parameters to fit."""
        return bool(self.parameters)


@dataclass(frozen=True)
class ManyFits:
    """Fits of one model to many surfaces, as columns for the report.

    `source`: the name of the file or folder. `parameters`: name to the fitted values, NaN where a fit failed.
    `rms`: unit to the root mean square of the residuals, NaN where a fit has another unit or failed. `failed`:
    surface to the reason. `facts`: other facts, label to text.
    """

    model: str
    source: str
    parameters: Mapping[str, np.ndarray]
    rms: Mapping[VolUnit, np.ndarray]
    failed: Mapping[str, str]
    facts: Mapping[str, str] = field(default_factory=dict)

    @property
    def columns(self) -> dict[str, np.ndarray]:
        """The parameters and residuals, by name."""
        residuals = {f"residuals, rms in {unit.words}": rms for unit, rms in self.rms.items()}
        return {**self.parameters, **residuals}
