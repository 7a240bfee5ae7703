"""Models of several assets, joined from models of one."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..fields import Number
from . import BlackScholes, Heston
from .black_scholes import ImpliedVols
from .model import AbstractEquityModel


class AtTheMoney(eqx.Module):
    """The variances of several assets, each from the vol of its own model at the forward of the time asked for.

    The forwards are those of the models as they were joined: they do not move with a shift of the spots, and so
    spot Greeks hold the vols.
    """

    models: tuple[Any, ...]

    def total_variance(self, t: Float[Array, "..."]) -> Float[Array, "... assets"]:
        """Variance of each log-spot from today to `t` (years)."""
        return jnp.stack([self._variance(model, t) for model in self.models], axis=-1)

    def _variance(self, model: Any, t: Float[Array, "..."]) -> Float[Array, "..."]:
        if isinstance(model.vol, ImpliedVols):
            return model.vol.vol(t, jnp.vectorize(model.forward)(t)) ** 2 * t
        return model.state_variance(t)

    def shifted(self, vol: Number) -> "AtTheMoney":
        """Every vol up by `vol`."""
        return AtTheMoney(tuple(model.shifted(vol=vol) for model in self.models))


def joined(
    models: Sequence[AbstractEquityModel], correlation: Float[Array, "assets assets"]
) -> AbstractEquityModel:
    """One model of several assets from models of one asset each, all of one type, on one curve.

    correlation: of the log-spots under Black and Scholes, `asset_correlation` under Heston. A Black-Scholes
    model that reads a surface is read at the forward of each time (`AtTheMoney`), so without its smile.

    Raises TypeError for models of several types, or of a type that is not known here.
    """
    kinds = {type(model) for model in models}
    if kinds == {Heston}:
        return _stacked(models, asset_correlation=correlation)
    if kinds == {BlackScholes}:
        flat = all(isinstance(getattr(model, "vol", None), Array) for model in models)
        vol = None if flat else AtTheMoney(tuple(models))
        return _stacked(models, correlation=correlation, **({} if flat else {"vol": vol}))
    names = ", ".join(sorted(kind.__name__ for kind in kinds))
    raise TypeError(
        f"models of {names} cannot be joined: give models that are all Heston or all BlackScholes"
    )


def _stacked(models: Sequence[Any], **given: Any) -> Any:
    """A model whose numbers are those of the models in a row; the rate is that of the first."""
    numbers = {
        field.name: jnp.stack([getattr(model, field.name) for model in models])
        for field in dataclasses.fields(models[0])
        if field.name not in ("rate", *given)
    }
    return type(models[0])(**numbers, rate=models[0].rate, **given)
