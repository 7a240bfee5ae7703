"""What every model of one asset is, and the abilities that a method may ask of it."""

import abc
from typing import Any, NamedTuple, Protocol, runtime_checkable

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Complex, Float

from jaxtape import AbstractSchedule

from ..fields import Number, real

Scalar = Float[Array, ""]


@runtime_checkable
class Discounts(Protocol):
    """A curve: anything that discounts, and that can be shifted in parallel."""

    def discount(self, t: Scalar) -> Scalar: ...

    def shifted(self, rate: Scalar) -> "Discounts": ...


def flat_or_curve(name: str, ability: type = Discounts) -> Any:
    """A field holding a constant or an object with the given ability (a curve, a surface)."""
    constant = real(name).metadata["converter"]

    def convert(value: Number):
        return value if isinstance(value, ability) else constant(value)

    return eqx.field(converter=convert)


class AbstractModel(eqx.Module):
    """One asset with spot `spot`, interest rate `rate` and dividend yield, both continuously compounded."""

    spot: eqx.AbstractVar[Scalar]
    rate: eqx.AbstractVar[Any]
    dividend_yield: eqx.AbstractVar[Scalar]

    def discount(self, t: Scalar) -> Scalar:
        """Today's value of 1 paid at t years."""
        return (
            self.rate.discount(t) if isinstance(self.rate, Discounts) else jnp.exp(-self.rate * t)
        )

    def forward(self, t: Scalar) -> Scalar:
        """Forward price of the asset for t years."""
        return self.spot * jnp.exp(-self.dividend_yield * t) / self.discount(t)

    def shifted(
        self, *, spot: Number = 0.0, vol: Number = 0.0, rate: Number = 0.0
    ) -> "AbstractModel":
        """The model after a parallel shift of the spot, of its volatility level, and of all rates."""
        moved = self.rate.shifted(rate) if isinstance(self.rate, Discounts) else self.rate + rate
        there = eqx.tree_at(lambda model: (model.spot, model.rate), self, (self.spot + spot, moved))
        return there.with_vol_shift(vol)

    @abc.abstractmethod
    def with_vol_shift(self, vol: Number) -> "AbstractModel":
        """The model with its volatility level up by `vol` (per 1.00)."""


class BlackVol(AbstractModel):
    """Ability: terminal spots are lognormal with one volatility for each expiry and strike."""

    @abc.abstractmethod
    def black_vol(self, t: Scalar, strike: Scalar) -> Scalar:
        """The implied volatility, annualised, for expiry t (years) and strike."""


class CharacteristicFunction(AbstractModel):
    """Ability: the characteristic function of X = log(S_t / forward(t)) is known."""

    @abc.abstractmethod
    def log_characteristic(
        self, u: Complex[Array, " nodes"], t: Scalar
    ) -> Complex[Array, " nodes"]:
        """log E[exp(i u X)]."""

    @abc.abstractmethod
    def total_variance(self, t: Scalar) -> Scalar:
        """E of the integrated variance up to t: the scale of X squared."""

    @abc.abstractmethod
    def tail_rate(self, t: Scalar) -> tuple[Scalar, Scalar]:
        """(c, d) of E[exp(i u X)] ~ exp((-c + i d) u) for large real u."""


class Walk(NamedTuple):
    """Steps of log(S / forward), each array [steps, paths].

    mean, variance: of a step, Gaussian given the variance path; bridge_variance: the step's integrated
    variance. Between two dates the variance moves as well, so the path between two known positions is a
    bridge with all of it, also where part of `variance` is explained by the variance path.
    """

    mean: Float[Array, "steps paths"]
    variance: Float[Array, "steps paths"]
    bridge_variance: Float[Array, "steps paths"]


class ConditionallyGaussian(AbstractModel):
    """Ability: given its variance path, log(S_t / forward(t)) is a Gaussian walk with known steps."""

    variance_is_random: eqx.AbstractClassVar[bool]

    @abc.abstractmethod
    def walk(
        self,
        noise: Float[Array, "steps paths"],
        dt: Scalar,
        strike: Scalar,
        schedule: AbstractSchedule,
    ) -> Walk:
        """The steps of length dt, given standard normals for the variance path.

        strike: where a model with a vol for each strike reads it; schedule: what the reverse sweep over the
        steps keeps (`jaxtape.scan`).
        """
