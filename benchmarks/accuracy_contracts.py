"""The contracts of `equal_accuracy`, with their market and the bumps of finite differences."""

from dataclasses import dataclass

import numpy as np

from pricing import Asian, Barrier, BlackScholes, European

FIRST = ("value", "delta", "vega")
SPOT, STRIKE, LEVEL = 100.0, 100.0, 90.0
BUMPS = {"spot": 1.0, "vol": 0.01}

Figures = dict[str, float]


@dataclass(frozen=True)
class Contract:
    """A contract; `kind` names PyTorch's payoff, and `is_continuous` says whether it may be differentiated."""

    kind: str
    name: str
    product: European | Asian | Barrier
    rate: float
    vol: float
    dates: np.ndarray
    is_continuous: bool

    @property
    def model(self) -> BlackScholes:
        return BlackScholes(SPOT, self.rate, self.vol)


def contracts() -> list[Contract]:
    year, month, days = np.ones(1), np.arange(1, 13) / 12.0, 0.2 * np.arange(1, 51) / 50.0
    out = Barrier(STRIKE, 0.2, LEVEL, dates=days)
    call, average = European(STRIKE, 1.0), Asian(STRIKE, month)
    return [
        Contract("European", "European call", call, 0.05, 0.2, year, True),
        Contract("Asian", "Asian call, 12 dates", average, 0.05, 0.2, month, True),
        Contract("barrier", "call, out below 90 on 50 dates", out, 0.1, 0.3, days, False),
    ]
