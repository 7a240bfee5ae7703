"""At-the-money vols, from which a calibration derives its starting point."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxtape import stored_jit

from ..market import SmileQuotes, SwaptionVols, VolSurface
from .model import AbstractEquityModel, AbstractModel


class AtTheMoney(NamedTuple):
    """The at-the-money vol at each quoted expiry.

    Attributes:
        expiries: The expiries in years, increasing.
        vols: The vols per 1.00, interpolated linearly in log-moneyness between the two quotes around the
            forward.
    """

    expiries: np.ndarray
    vols: np.ndarray

    @classmethod
    def of(
        cls, quotes: VolSurface | SmileQuotes, model: AbstractEquityModel
    ) -> "AtTheMoney | None":
        """Return the vols of quotes with the market data of a model; None if no quote is usable."""
        vols, expiries = np.asarray(quotes.vols), np.asarray(quotes.expiries)
        if isinstance(quotes, SmileQuotes):
            k, counts = np.asarray(quotes.log_moneyness), np.asarray(quotes.weights) != 0.0
        else:
            forwards = np.asarray(_forwards(model, quotes.expiries))
            with np.errstate(all="ignore"):
                k = np.log(forwards[:, None] / np.asarray(quotes.strikes))
            counts = quotes.weights is None or np.asarray(quotes.weights) != 0.0
        if vols.ndim != 2 or k.shape != vols.shape:
            return None
        with np.errstate(all="ignore"):
            usable = counts & np.isfinite(k) & (vols > 0.0) & np.isfinite(vols)
        found = {}
        for t, row, at, is_there in zip(expiries.tolist(), vols, k, usable, strict=True):
            if is_there.any() and t > 0.0:
                order = np.argsort(at[is_there], kind="stable")
                found[t] = np.interp(0.0, at[is_there][order], row[is_there][order])
        if not found:
            return None
        times = np.array(sorted(found))
        return cls(times, np.array([found[t] for t in times.tolist()]))


def normal_vol(quotes: SwaptionVols, model: AbstractModel) -> float | None:
    """Return the median normal vol of swaptions; None if no quote is usable.

    A lognormal vol is multiplied by the continuously compounded forward rate over the swap.
    """
    vols = np.asarray(quotes.vols)
    if vols.ndim != 2:
        return None
    if quotes.kind == "lognormal":
        vols = vols * np.asarray(_forward_rates(model, quotes.expiries, quotes.tenors))
    usable = vols[np.isfinite(vols) & (vols > 0.0)]
    return float(np.median(usable)) if usable.size else None


def with_parameters(model: Any, **parameters: Any) -> Any:
    """Return a model with new parameters, as arrays of the same kind and type as the old."""
    old = [getattr(model, name) for name in parameters]
    new = [
        np.asarray(x, was.dtype) if isinstance(was, np.ndarray) else jnp.asarray(x, was.dtype)
        for was, x in zip(old, parameters.values(), strict=True)
    ]
    return eqx.tree_at(lambda m: [getattr(m, name) for name in parameters], model, new)


@stored_jit(runs_briefly=True)
def _forwards(
    model: AbstractEquityModel, expiries: Float[Array, " expiries"]
) -> Float[Array, " expiries"]:
    return jax.vmap(model.forward)(expiries)


@stored_jit(runs_briefly=True)
def _forward_rates(
    model: AbstractModel, expiries: Float[Array, " expiries"], tenors: Float[Array, " tenors"]
) -> Float[Array, "expiries tenors"]:
    def rate(expiry, tenor):
        return jnp.log(model.discount(expiry) / model.discount(expiry + tenor)) / tenor

    return jax.vmap(lambda expiry: jax.vmap(lambda tenor: rate(expiry, tenor))(tenors))(expiries)
