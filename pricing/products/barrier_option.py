"""Barrier options: the abilities."""

import abc
from typing import TYPE_CHECKING

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from .european import European
from .product import AbstractProduct, Real

if TYPE_CHECKING:
    from typing import ClassVar as AbstractVar  # for type checkers: not an argument of `__init__`
else:
    from equinox import AbstractVar


class BarrierOption(AbstractProduct):
    """Ability: a European option that ends (knock-out) or begins (knock-in) when the spot leaves a region.

    Attributes:
        rebate: The payment in currency when a knock-out ends, or at expiry if a knock-in never began.
    """

    rebate: AbstractVar[Real]

    @property
    @abc.abstractmethod
    def vanilla(self) -> European:
        """The option without its barriers."""

    @property
    @abc.abstractmethod
    def monitoring_dates(self) -> Float[Array, "*batch dates"] | None:
        """The monitoring dates in years, the expiry last; None for all times."""

    @property
    @abc.abstractmethod
    def knocks_in(self) -> Bool[Array, "..."]:
        """Whether leaving the region starts the option instead of ending it."""

    @property
    @abc.abstractmethod
    def spot_inside(self) -> Real:
        """A spot well inside the region, at which a formula is harmless if today's spot is outside."""

    @abc.abstractmethod
    def is_inside(self, spot: Float[Array, "..."]) -> Bool[Array, "..."]:
        """Return True where the spot is strictly inside the region."""


class SingleBarrier(BarrierOption):
    """Ability: the region of a barrier option lies above one barrier (down) or below it (up).

    Attributes:
        strike: The strike in units of the spot.
        expiry: The time of payment in years.
        barrier: The barrier in units of the spot.
    """

    strike: AbstractVar[Real]
    expiry: AbstractVar[Real]
    barrier: AbstractVar[Real]

    @property
    @abc.abstractmethod
    def side(self) -> Real:
        """+1 for a call, -1 for a put."""

    @property
    @abc.abstractmethod
    def barrier_direction(self) -> Real:
        """+1 if the region is above the barrier, -1 if below."""

    @property
    def cash(self) -> Real | None:
        """The cash in currency that is paid in place of the option; None if the option itself is paid."""
        return None

    @property
    def far_barrier(self) -> None:
        """The barrier on the other side of the region: None."""

    @property
    def knocked_out(self) -> "SingleBarrier":
        """The same contracts with knock-ins replaced by knock-outs; `self` if there is no knock-in."""
        return self

    @property
    def spot_inside(self) -> Real:
        return self.barrier * (1.0 + 0.1 * self.barrier_direction)

    def is_inside(self, spot: Float[Array, "..."]) -> Bool[Array, "..."]:
        return self.barrier_direction * (spot - self.barrier) > 0.0


class TwoBarriers(BarrierOption):
    """Ability: the region of a barrier option lies between two barriers.

    Attributes:
        strike: The strike in units of the spot.
        expiry: The time of payment in years.
        lower: The lower barrier in units of the spot.
        upper: The upper barrier in units of the spot.
    """

    strike: AbstractVar[Real]
    expiry: AbstractVar[Real]
    lower: AbstractVar[Real]
    upper: AbstractVar[Real]

    @property
    @abc.abstractmethod
    def side(self) -> Real:
        """+1 for a call, -1 for a put."""

    @property
    def cash(self) -> Real | None:
        """The cash in currency that is paid in place of the option; None if the option itself is paid."""
        return None

    @property
    def barrier(self) -> Real:
        """The barrier from which distances are measured: the lower one."""
        return self.lower

    @property
    def far_barrier(self) -> Real:
        """The barrier on the other side of the region: the upper one."""
        return self.upper

    @property
    def barrier_direction(self) -> Real:
        """+1: the region is above the lower barrier."""
        return jnp.ones_like(self.lower)

    @property
    def spot_inside(self) -> Real:
        return jnp.sqrt(self.lower * self.upper)

    def is_inside(self, spot: Float[Array, "..."]) -> Bool[Array, "..."]:
        return (self.lower < spot) & (spot < self.upper)
