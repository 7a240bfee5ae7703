"""The second order of a change of value, from the sensitivities on both days."""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from .sweep.trade_risk import TradeRisk
from .totals import CurrencyRisk

DAYS_PER_YEAR = 365.0


def first_order(
    total: CurrencyRisk | None,
    without: CurrencyRisk | None,
    trades: Sequence[TradeRisk],
    moves: Any,
    days: int,
) -> float:
    """Return sensitivities times moves for the trades in one currency, excluding some.

    Args:
        total: The gradient of all trades.
        without: The gradient of the excluded trades, or None.
        trades: The remaining trades, whose thetas are included.
        moves: The moves of the market, a tree with the structure of a gradient.
        days: The number of days that pass.
    """
    signed = [(1.0, total), (-1.0, without)]
    gradients = [(sign, part.gradient) for sign, part in signed if part is not None]
    of_quotes = sum(
        sign * float(np.sum(np.asarray(slope) * move))
        for sign, gradient in gradients
        for slope, move in zip(jax.tree.leaves(gradient), jax.tree.leaves(moves), strict=True)
    )
    theta = sum(trade.position.theta or 0.0 for trade in trades if trade.position)
    return of_quotes + theta * days / DAYS_PER_YEAR
