"""Known payments, such as those of a swap that has started or of an ended option not yet settled."""

from dataclasses import replace
from datetime import date

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..fields import Numeric, dates, real_vector
from ..market.observed import Observed
from .product import Padded, extra_dates, front
from .trade import Aged, Trade


class FixedPayments(Padded):
    """Payments known today: amounts[j] in currency at dates[j], under any model that discounts.

    Attributes:
        dates: The payment dates in years, non-decreasing, of shape (payments,).
        amounts: The amounts in currency, of any sign, of shape (payments,).

    Examples:
        >>> from pricing import BlackScholes, price
        >>> f"{price(FixedPayments([1.0], [100.0]), BlackScholes(100.0, 0.05, 0.2)).value:.2f}"
        '95.12'
    """

    dates: Numeric[Float[Array, "*batch payments"]] = dates("dates", repeated=True)
    amounts: Numeric[Float[Array, "*batch payments"]] = real_vector("amounts")

    def padded(self, num_dates: int) -> "FixedPayments":
        """Return the same payments on `num_dates` dates, padded in front with payments of 0."""
        extra = extra_dates(self.dates, num_dates)
        nothing = jnp.zeros((*self.amounts.shape[:-1], extra), self.amounts.dtype)
        amounts = jnp.concatenate([nothing, self.amounts], axis=-1)
        return replace(self, dates=front(self.dates, extra), amounts=amounts)


class PendingTrade(Trade):
    """A payment that is fixed but not yet settled: the remainder of an equity trade that has ended."""

    type = "pending"
    product = FixedPayments
    is_row = False
    dates_name = "payment_dates"

    expiry: date
    amounts: tuple[float, ...]

    @property
    def payment_dates(self) -> tuple[date, ...]:
        """The day of settlement."""
        return (self.expiry,)

    def products(self, column) -> FixedPayments:
        return FixedPayments(column("payment_dates"), column("amounts"))

    def payoff(self, observed: Observed) -> float:
        del observed
        return self.amounts[0]

    def aged(self, observed: Observed) -> Aged:
        found = super().aged(observed)
        return found._replace(event="settled" if found.trade is None else "")


class PendingRateTrade(PendingTrade):
    """A payment, fixed but not yet settled, of a trade on a curve."""

    in_rates = True
