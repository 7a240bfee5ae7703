"""The Bermudan swaption of `bermudan`, its model, the pillars of the curve and the bump of each."""

import numpy as np

STRIKE, NOTIONAL = 0.0499664907, 1000.0
RATE, MEAN_REVERSION, VOL = 0.04875825, 0.048696, 0.0058904
EXERCISES, PAYMENTS = np.arange(1, 6), np.arange(2, 7)  # years
DAYS = 11 * np.arange(1, 201)  # of the pillars
BUMP = 1e-4
