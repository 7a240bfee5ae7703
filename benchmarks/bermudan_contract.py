"""The Bermudan swaption of `bermudan`, its model, the pillars of the curve and their bumps."""

import numpy as np

STRIKE, NOTIONAL = 0.0499664907, 1000.0
RATE, MEAN_REVERSION, VOL = 0.04875825, 0.048696, 0.0058904
EXERCISES, PAYMENTS = np.arange(1, 6), np.arange(2, 7)  # years
LAST_DAY = 2200  # the last pillar
BUMP = 1e-4


def days_of(pillars: int) -> np.ndarray:
    """Return the days of `pillars` pillars, as evenly spaced as whole days allow."""
    return np.round(np.linspace(LAST_DAY / pillars, LAST_DAY, pillars)).astype(int)
