"""Contracts that end on the first of their dates with the spot outside a corridor: their general form."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..fields import above_zero, between, dates, non_negative, positive, real
from .product import Padded, Real, extra_dates, front


class Payoff(eqx.Module):
    """A sum of terminal claims, arrays [claims] (or a batch of them); what they mean: see `TerminalClaim`."""

    strike: Float[Array, "*batch claims"] = positive("strike", core=1)
    side: Float[Array, "*batch claims"] = between("side", -1.0, 1.0, core=1)
    asset_units: Float[Array, "*batch claims"] = real("asset_units", core=1)
    cash_units: Float[Array, "*batch claims"] = real("cash_units", core=1)

    @classmethod
    def sum(cls, *claims: tuple[Real, Real, Real, Real]) -> "Payoff":
        """Of (strike, side, asset_units, cash_units), each a number or a batch."""
        columns = zip(*(jnp.broadcast_arrays(*claim) for claim in claims), strict=True)
        return cls(*(jnp.stack(jnp.broadcast_arrays(*column), axis=-1) for column in columns))


class Monitored(Padded):
    """Ends, for a fixed payment, on the first of its dates at which the spot is outside (lower, upper).

    Every barrier contract with dates has this form (`canonical`). dates: years, not decreasing, the last is the
    expiry and comes once; lower, upper: 0 and infinity where there is no barrier; paid_below, paid_above:
    currency, on leaving, at that date. A contract that is still alive after the last date pays `alive`
    then; `always` is paid at the last date in any case. Both are payoffs of the spot at the last date.
    """

    dates: Float[Array, "*batch dates"] = dates("dates", repeated=True)
    lower: Float[Array, "*batch dates"] = non_negative("lower", core=1)
    upper: Float[Array, "*batch dates"] = above_zero("upper", core=1)
    paid_below: Float[Array, "*batch dates"] = real("paid_below", core=1)
    paid_above: Float[Array, "*batch dates"] = real("paid_above", core=1)
    alive: Payoff  # pyright: ignore[reportGeneralTypeIssues]
    always: Payoff  # pyright: ignore[reportGeneralTypeIssues]

    @property
    def vol_at(self) -> tuple[Real, Real]:
        return self.dates[..., -1], self.alive.strike[..., 0]

    def padded(self, num_dates: int) -> "Monitored":
        """The same contract on `num_dates` dates: the first one repeated, with no barrier at its repetitions.

        They follow the date with the barrier, so that the step to it keeps its length. The last date is never
        repeated: a contract of one date stays as it is.
        """
        extra = extra_dates(self.dates, num_dates)
        if extra and self.dates.shape[-1] == 1:
            raise ValueError("a contract that is monitored at its expiry alone cannot be padded")

        def open_at_repetitions(level: Float[Array, "..."], value: float) -> Float[Array, "..."]:
            none = jnp.full((*level.shape[:-1], extra), value, level.dtype)
            return jnp.concatenate([level[..., :1], none, level[..., 1:]], axis=-1)

        return Monitored(
            front(self.dates, extra),
            lower=open_at_repetitions(self.lower, 0.0),
            upper=open_at_repetitions(self.upper, jnp.inf),
            paid_below=open_at_repetitions(self.paid_below, 0.0),
            paid_above=open_at_repetitions(self.paid_above, 0.0),
            alive=self.alive,
            always=self.always,
        )


def monitored(
    when: Float[Array, "*batch dates"],
    *,
    alive: Payoff,
    always: Payoff,
    **levels: Float[Array, "..."],
) -> Monitored:
    """The canonical form with the same corridor and payments at all dates."""
    constant = {name: _on_dates(level, when) for name, level in levels.items()}
    return Monitored(when, **constant, alive=alive, always=always)


def _on_dates(level: Float[Array, "..."], when: Float[Array, "..."]) -> Float[Array, "..."]:
    """One number a contract as one for each of its dates."""
    return jnp.broadcast_to(level[..., None], (*level.shape, when.shape[-1]))
