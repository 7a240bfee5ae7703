"""Errors of quotes with a bid and an ask, in units of half the spread."""

import dataclasses
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from pricing.fields import positive, word
from pricing.models import AbstractModel, BlackVol, CharacteristicFunction

from ..results import RESULTS
from .implied_vols import ImpliedVolError, model_vols
from .objective import AbstractObjective, check_per_quote

_WIDTH = 0.2  # w, in half spreads: the width over which a free quote begins to cost


class BidAskError(AbstractObjective):
    """Residuals of another objective in units of half the bid-ask spread: 1 at the ask, -1 at the bid.

    Quotes are the mids. The residual is x = 2 residual / spread ("weighted": each quote by the inverse of its
    spread, the usual choice) or, if any model within the spread is equally good ("free"),
    d(x) = x + (sqrt((x - 1)^2 + w^2) - sqrt((x + 1)^2 + w^2)) / 2, w = .2: smooth and increasing,
    w / 2 at bid and ask, about w^2 x / 2 within and |x| - 1 well outside. Gauss-Newton steps need this slope,
    which Vapnik's dead zone with corners lacks.

    Attributes:
        spreads: Ask less bid of each quote, in the units of the other objective's residuals (for
            `ImpliedVolError` vols per 1.00), in the shape of the quotes.
        objective: The residuals.
        inside: Cost of a residual within the spread: "weighted" or "free".

    Examples:
        >>> from calibration import BidAskError, calibrate
        >>> from pricing import BlackScholes, VolSurface
        >>> surface = VolSurface([0.5, 1.0], [100.0], [[0.2], [0.24]])
        >>> tight_and_wide = BidAskError([[0.002], [0.02]])
        >>> f"{calibrate(surface, BlackScholes(100.0, 0.0, 0.3), objective=tight_and_wide).model.vol:.4f}"
        '0.2004'
    """

    spreads: Float[Array, "rows columns"] = positive("spreads", core=2)
    objective: AbstractObjective = ImpliedVolError()
    inside: str = word("inside", ("weighted", "free"), default="weighted")

    @property
    def is_of_moneyness(self) -> bool:
        return self.objective.is_of_moneyness

    def quoted(self, quotes: Any) -> Any:
        return self.objective.quoted(quotes)

    @property
    def finer(self) -> "BidAskError | None":
        inner = self.objective.finer
        return None if inner is None else dataclasses.replace(self, objective=inner)

    def residuals(self, model: AbstractModel, quotes: Any) -> Float[Array, "rows columns"]:
        errors = self.objective.residuals(model, quotes)
        check_per_quote("spreads", self.spreads, errors)
        x = 2.0 * errors / self.spreads
        return x if self.inside == "weighted" else _beyond_one(x)

    def result(self, quotes: Any) -> RESULTS:
        return self.objective.result(quotes)


def bid_ask_counts(quotes: Any, model: AbstractModel) -> dict[str, Int[Array, ""]]:
    """Count the quotes with a bid and an ask, and those for which the model's vol lies between them.

    The counts are `num_bid_ask` and `num_within_bid_ask`, left out if the quotes or the model have no such
    vols.
    """
    bids, asks = (getattr(quotes, name, None) for name in ("bids", "asks"))
    if bids is None or asks is None or not isinstance(model, BlackVol | CharacteristicFunction):
        return {}
    counts = ~(jnp.isnan(quotes.vols) | jnp.isnan(bids) | jnp.isnan(asks))
    if quotes.weights is not None:
        counts = counts & (quotes.weights != 0.0)
    vols = model_vols(model, quotes, ImpliedVolError().num_nodes)
    is_within = counts & (vols >= bids) & (vols <= asks)
    return {"num_bid_ask": jnp.sum(counts), "num_within_bid_ask": jnp.sum(is_within)}


def _beyond_one(x: Float[Array, "..."]) -> Float[Array, "..."]:
    to_ask, to_bid = (jnp.sqrt((x - sign) ** 2 + _WIDTH**2) for sign in (1.0, -1.0))
    return x + 0.5 * (to_ask - to_bid)
