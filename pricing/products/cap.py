"""Caps and floors of forward-looking rates."""

from dataclasses import replace

import jax.numpy as jnp
from jaxtyping import Array, Float, Int8

from ..fields import Numeric, Word, accruals, choice, real, real_vector
from ..fields import dates as times
from ..time_order import check_accruals
from .product import Padded, extra_dates, front, side_of

CAP_OR_FLOOR = {"cap": 1, "floor": -1}


class Cap(Padded):
    """A cap pays notional accrual max(F - strike, 0) at the end of each period, a floor max(strike - F, 0).

    F is the simple rate of the period, fixed at its start. A period with accrual 0 pays nothing.

    Attributes:
        strike: The strike, a rate per year of any sign.
        starts: The starts of the periods in years, at least 0, non-decreasing, of shape (periods,).
        ends: The ends of the periods, when caplets are paid, in years, non-decreasing, of shape (periods,).
        accruals: The year fraction of each period, at least 0, of shape (periods,).
        option: The word "cap" or "floor", stored as the code +1 or -1.
        notional: The notional in currency.
        amounts: Known payments in currency at the ends, such as those of rates already fixed, of shape
            (periods,), or None.

    Raises:
        ValueError: The lists differ in length, or an accrual does not fit the length of its period.

    Examples:
        >>> from pricing import Cap, ForwardRates, price
        >>> cap = Cap(0.03, [0.5, 1.0], [1.0, 1.5], [0.5, 0.5], notional=100.0)
        >>> f"{price(cap, ForwardRates(0.03, 0.2)).value:.4f}"
        '0.2081'
    """

    strike: Numeric[Float[Array, "..."]] = real("strike")
    starts: Numeric[Float[Array, "*#batch periods"]] = times("starts", today=True, repeated=True)
    ends: Numeric[Float[Array, "*#batch periods"]] = times("ends", repeated=True)
    accruals: Numeric[Float[Array, "*#batch periods"]] = accruals()
    option: Word[Int8[Array, "..."]] = choice("option", CAP_OR_FLOOR, default="cap")
    notional: Numeric[Float[Array, "..."]] = real("notional", default=1.0)
    amounts: Numeric[Float[Array, "*#batch periods"] | None] = real_vector(
        "amounts", optional=True, default=None
    )

    def __check_init__(self):
        lists = (self.starts, self.ends, self.accruals, self.amounts)
        counts = [x.shape[-1:] for x in lists if x is not None]
        if len(set(counts)) > 1:
            given = ", ".join(str(*count) for count in counts)
            raise ValueError(
                f"starts, ends, accruals (and amounts) have {given} entries: give one of each for each period"
            )
        check_accruals(self.starts, self.ends, self.accruals)

    @property
    def side(self) -> Float[Array, "..."]:
        """+1 for a cap, -1 for a floor."""
        return side_of(self.option, self.strike)

    def padded(self, num_dates: int) -> "Cap":
        """Return the same contract on `num_dates` periods, padded in front with periods of accrual 0."""
        extra = extra_dates(self.starts, num_dates)
        longer = {name: front(getattr(self, name), extra) for name in ("starts", "ends")}
        for name in ("accruals", "amounts"):
            if (own := getattr(self, name)) is not None:
                nothing = jnp.zeros((*own.shape[:-1], extra), own.dtype)
                longer[name] = jnp.concatenate([nothing, own], axis=-1)
        return replace(self, **longer)
