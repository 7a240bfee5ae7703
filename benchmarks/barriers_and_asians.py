"""The contracts of `simulated_calibration`: 8 barrier and 4 Asian options of up to a year."""

import numpy as np

from pricing import Asian, Barrier, Heston

MARKET = (100.0, 0.03)  # spot and rate
# xi^2 / (2 kappa theta), the scheme's psi at zero variance, is 2; the scheme switches branches at
# 1.5
TRUE = {
    "initial_variance": 0.05,
    "mean_reversion": 1.5,
    "long_run_variance": 0.06,
    "vol_of_vol": 0.6,
    "correlation": -0.7,
}
START = {
    "initial_variance": 0.1,
    "mean_reversion": 1.0,
    "long_run_variance": 0.1,
    "vol_of_vol": 0.5,
    "correlation": -0.5,
}
DATES = np.arange(1, 17) / 16.0


def heston(parameters: dict[str, float]) -> Heston:
    return Heston(*MARKET, **parameters)


def products() -> tuple[Barrier, Asian]:
    """Return barriers monitored on 16 dates up to half a year or a year, and averages of 16 spots."""
    expiries = np.repeat([0.5, 1.0], 4)
    barriers = Barrier(
        [95.0, 105.0, 95.0, 105.0] * 2,
        expiries,
        [85.0, 80.0, 125.0, 120.0] * 2,
        ["down-and-out", "down-and-out", "up-and-out", "up-and-out"] * 2,
        ["put", "call", "call", "put"] * 2,
        dates=expiries[:, None] * DATES,
    )
    puts_and_calls = ["put", "call", "call", "call"]
    return barriers, Asian([90.0, 100.0, 110.0, 120.0], np.stack([DATES] * 4), puts_and_calls)
