"""Netting sets: trades netted against one party, and their cash flows on shared dates."""

from collections.abc import Sequence
from dataclasses import KW_ONLY
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float

from ...fields import Numeric, between, is_traced, real
from ...products import (
    AbstractProduct,
    BermudanSwaption,
    European,
    Swap,
    SwapEntry,
    SwapOption,
    Swaption,
)

_DIGITS = 6  # decimals of years: times within half a minute are one date
_SAME_DAY = 1e-4  # years, as in `SwapEntry.payments`

_KINDS = Swap, Swaption, BermudanSwaption, European

Numbers = Any  # NumPy arrays, or JAX arrays within a program


class Grid(NamedTuple):
    """Equal intervals between `edges`, (intervals + 1,), and the dates of a path: midpoints and decisions.

    times: (dates,), years; middles: the indices of the intervals' midpoints, (intervals,); may_exercise: for
        each right at each time, (dates, options).
    """

    edges: Numbers
    times: Numbers
    middles: Numbers
    may_exercise: Numbers


class Flows(NamedTuple):
    """The contracts as arrays: J payment dates, O rights to enter a swap, E equity options.

    pays_at: [J]; until: [J], the same time, except for the floating leg's 1, which is received when the swap is
        entered and is its value until the last payment; swaps: [J], all swaps; options: [J, O], each right's
        swap; exercise: [O] lists of times; quantities: [O]. strikes, expiries, sides, assets, units: [E].
    """

    pays_at: Numbers
    until: Numbers
    swaps: Numbers
    options: Numbers
    exercise: tuple[Numbers, ...]
    quantities: Numbers
    strikes: Numbers
    expiries: Numbers
    sides: Numbers
    assets: Numbers
    units: Numbers

    @property
    def horizon(self) -> float:
        """The time of the last payment, in years."""
        return float(max([*self.pays_at, *self.expiries]))

    def grid(self, num_dates: int) -> Grid:
        """Return `num_dates` equal intervals to the last payment, and the dates of a path."""
        edges = np.linspace(0.0, self.horizon, num_dates + 1)
        middles = 0.5 * (edges[1:] + edges[:-1])
        times = np.unique(np.concatenate([middles, *self.exercise, self.expiries]))
        may_exercise = np.zeros((times.size, len(self.exercise)), bool)
        for column, dates in enumerate(self.exercise):
            may_exercise[:, column] = np.isin(times, dates)
        return Grid(edges, times, np.searchsorted(times, middles), may_exercise)


def _as_tuple(trades: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(trades)


class NettingSet(eqx.Module):
    """Trades with one party whose values are netted when it defaults, and their collateral.

    The trades are swaps, swaptions and Bermudan swaptions (physically settled), and European options on the
    assets of a `JointModel`. We hold a right if its quantity is positive. A swap's floating leg pays interest
    as it accrues: it is worth 1 - P(t, last payment) after the start.

    Either side posts collateral C(V) above a threshold, without delay. The uncollateralized part of V is
    V - C = min(max(V, -threshold), threshold).

    Attributes:
        trades: Single contracts: `Swap`, `Swaption`, `BermudanSwaption` or `European`.
        quantities: The number of each trade, negative if short, of shape (trades,); 1 by default.
        assets: The index of each trade's asset in the model, used only for `European`; 0 by default.
        threshold: The value in currency up to which no collateral is posted; 0 for full collateral, infinity
            for none.

    Raises:
        TypeError: A trade has another type.
        ValueError: There is no trade, a trade is a batch, there is not one number for each trade, or a swap
            does not start with a full period on its exercise date.

    Examples:
        >>> from pricing import Swap, Swaption
        >>> from pricing.fbsde import NettingSet
        >>> dates, accruals = [1.0, 2.0, 3.0], [1.0, 1.0, 1.0]
        >>> payer = Swap(0.03, 0.0, dates, accruals, notional=100.0)
        >>> NettingSet([payer, Swaption(0.03, 1.0, dates[1:], accruals[1:])], [1.0, -50.0]).flows.horizon
        3.0
    """

    trades: Sequence[AbstractProduct] = eqx.field(converter=_as_tuple)
    quantities: Numeric[Float[Array, " trades"] | None] = real("quantities", default=1.0)
    _: KW_ONLY
    assets: Sequence[int] | None = eqx.field(static=True, default=None)
    threshold: Numeric[Float[Array, ""]] = between("threshold", 0.0, np.inf, default=np.inf)

    def __check_init__(self):
        count = len(self.trades)
        if not count:
            raise ValueError("trades is empty: give at least one contract")
        numbers: Any = ("quantities", self.quantities), ("assets", self.assets)
        for name, given in numbers:
            shape = np.shape(given)
            if given is not None and shape not in ((), (count,)):
                raise ValueError(
                    f"{name} of shape {shape} for {count} trades: give one for each trade"
                )
        for place, trade in enumerate(self.trades):
            if type(trade) not in _KINDS:  # a subclass may have another payoff
                raise TypeError(
                    f"trade {place + 1} is a {type(trade).__name__}: give Swap, Swaption, BermudanSwaption or "
                    "European, whose values along paths are known"
                )
            later = ("start", "starts", "accrued") if isinstance(trade, SwapOption) else ()
            if any(getattr(trade, name, None) is not None for name in later):
                raise ValueError(
                    f"trade {place + 1} has a swap that starts after its exercise, or within a "
                    f"period: give one that starts on the exercise date with a full period"
                )
            if not is_traced(trade) and trade.batch_shape:
                raise ValueError(
                    f"trade {place + 1} is a batch of shape {trade.batch_shape}: give its contracts one by one"
                )

    @property
    def flows(self) -> Flows:
        """The cash flows as arrays.

        Raises:
            ValueError: A number of a trade is traced: the program depends on its dates.
        """
        if is_traced((self.trades, self.quantities)):
            raise ValueError(
                "the trades of a netting set are traced: close over the netting set, and differentiate in "
                "models and curves"
            )
        with jax.ensure_compile_time_eval():  # also within `jax.jit`
            return self._flows()

    def _flows(self) -> Flows:
        quantities = np.broadcast_to(np.asarray(self.quantities, float), len(self.trades))
        assets = np.zeros(len(self.trades), int) if self.assets is None else np.asarray(self.assets)
        rows = list(zip(self.trades, quantities, assets, strict=True))
        swaps = [(trade, q) for trade, q, _ in rows if isinstance(trade, Swap)]
        rights = [(trade, q) for trade, q, _ in rows if isinstance(trade, SwapOption)]
        equity: Any = [(trade, q, a) for trade, q, a in rows if isinstance(trade, European)]
        keys = sorted({key for trade, _ in (*swaps, *rights) for key in _flows_of(trade)})
        place = {key: i for i, key in enumerate(keys)}
        table = np.zeros((len(keys), len(rights)))
        for column, (trade, _) in enumerate(rights):
            for key, amount in _flows_of(trade).items():
                table[place[key], column] += amount
        total = np.zeros(len(keys))
        for trade, quantity in swaps:
            for key, amount in _flows_of(trade).items():
                total[place[key]] += quantity * amount
        of_equity = lambda name: np.array([float(getattr(trade, name)) for trade, _, _ in equity])
        return Flows(
            np.array([time for time, _ in keys]),
            np.array([until for _, until in keys]),
            total,
            table,
            tuple(np.round(np.asarray(trade.entry_dates, float), _DIGITS) for trade, _ in rights),
            np.array([q for _, q in rights]),
            of_equity("strike"),
            np.round(of_equity("expiry"), _DIGITS),
            of_equity("side"),
            np.array([a for _, _, a in equity], int),
            np.array([q for _, q, _ in equity]),
        )


def _flows_of(trade: SwapEntry) -> dict[tuple[float, float], float]:
    """Return (payment time, time until which it is valued) -> amount, for the entered swap."""
    entry = float(np.asarray(trade.entry_dates)[0])
    at_once = float(np.asarray(trade.sign) * np.asarray(trade.notional))
    times = np.asarray(trade.payment_dates, float)
    amounts = -at_once * float(np.asarray(trade.coupon_rate)) * np.asarray(trade.accruals, float)
    amounts[-1] -= at_once
    due = times > entry + _SAME_DAY
    paid = np.round(times[due], _DIGITS).tolist()
    flows = dict(zip(zip(paid, paid, strict=True), amounts[due].tolist(), strict=True))
    return flows | {(round(entry, _DIGITS), paid[-1]): at_once}
