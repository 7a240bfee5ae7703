"""Bounds by change of variables: an unconstrained pytree in place of a model's free parameters."""

import abc
from collections.abc import Mapping

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from pricing.models import AbstractModel, Heston, HullWhite

Real = Float[Array, "..."]


class AbstractTransform(eqx.Module):
    """A smooth one-to-one map from the whole real line onto an open interval."""

    @abc.abstractmethod
    def to_parameter(self, free: Real) -> Real:
        """The parameter at a point of the real line."""

    @abc.abstractmethod
    def to_free(self, parameter: Real) -> Real:
        """The inverse map; infinite on the interval's ends."""


class Exp(AbstractTransform):
    """(0, inf): parameter = exp(free)."""

    def to_parameter(self, free: Real) -> Real:
        return jnp.exp(free)

    def to_free(self, parameter: Real) -> Real:
        return jnp.log(parameter)


class Tanh(AbstractTransform):
    """(-1, 1): parameter = tanh(free)."""

    def to_parameter(self, free: Real) -> Real:
        return jnp.tanh(free)

    def to_free(self, parameter: Real) -> Real:
        return jnp.arctanh(parameter)


class Identity(AbstractTransform):
    """The whole line."""

    def to_parameter(self, free: Real) -> Real:
        return free

    def to_free(self, parameter: Real) -> Real:
        return parameter


class Parameters(eqx.Module):
    """Which fields of a model are free, and the transform of each: model <-> unconstrained vector."""

    names: tuple[str, ...] = eqx.field(static=True)
    transforms: tuple[AbstractTransform, ...]

    def free(self, model: AbstractModel) -> Float[Array, " parameters"]:
        """The model's free parameters on the real line, in the order of `names`."""
        pairs = zip(self.names, self.transforms, strict=True)
        return jnp.stack([transform.to_free(getattr(model, name)) for name, transform in pairs])

    def values(self, free: Float[Array, " parameters"]) -> Float[Array, " parameters"]:
        """The parameters themselves at a point of the free space, in the order of `names`."""
        pairs = zip(self.transforms, free, strict=True)
        return jnp.stack([transform.to_parameter(x) for transform, x in pairs])

    def model(self, template: AbstractModel, free: Float[Array, " parameters"]) -> AbstractModel:
        """`template` with its free parameters replaced."""
        where = lambda model: [getattr(model, name) for name in self.names]  # noqa: E731
        return eqx.tree_at(where, template, list(self.values(free)))


HESTON = {
    "initial_variance": Exp(),
    "mean_reversion": Exp(),
    "long_run_variance": Exp(),
    "vol_of_vol": Exp(),
    "correlation": Tanh(),
}

HULL_WHITE = {"mean_reversion": Identity(), "vol": Exp()}

DEFAULTS: dict[type, dict[str, AbstractTransform]] = {Heston: HESTON, HullWhite: HULL_WHITE}


def parameters_of(
    model: AbstractModel, transform: Mapping[str, AbstractTransform] | None = None
) -> Parameters:
    """The free parameters of a model: those of `transform` if given, or the model's defaults."""
    if transform is None:
        transform = DEFAULTS.get(type(model))
    if not transform:
        known = ", ".join(kind.__name__ for kind in DEFAULTS)
        raise TypeError(
            f"no default transforms for {type(model).__name__} (there are for {known}): "
            "give transform={'field': calibration.Exp(), ...} for its free parameters"
        )
    for name in transform:
        if not hasattr(model, name):
            raise ValueError(f"{type(model).__name__} has no parameter {name!r} to calibrate")
    return Parameters(tuple(transform), tuple(transform.values()))
