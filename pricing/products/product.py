"""The abstract product."""

import abc
import functools
from typing import TYPE_CHECKING, Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int8

from ..fields import core_dims, is_traced, rolled
from ..numbers_shown import repr_with_numbers

if TYPE_CHECKING:
    from typing import ClassVar as AbstractVar  # for type checkers: not an argument of `__init__`
else:
    from equinox import AbstractVar

CALL_OR_PUT = {"call": 1, "put": -1}
"""The codes of "call" and "put"."""

Real = Float[Array, "..."]


class AbstractProduct(eqx.Module):
    """A contract. Its numbers are array leaves, its times year fractions from today.

    Arrays in place of numbers make a batch of contracts: methods are written for one contract, and verbs such
    as `price` map them over the batch. Abilities of products (`TerminalClaim`, `Exercisable`, ...) are base
    classes that methods require.

    Attributes:
        multi_asset: Whether the contract depends on several assets.

    Examples:
        >>> from pricing import European
        >>> European([90.0, 100.0, 110.0], 1.0).batch_shape
        (3,)
    """

    __repr__ = repr_with_numbers

    multi_asset: ClassVar[bool] = False

    def rolled(self, years: Float[Array, ""]) -> "AbstractProduct":
        """Return the contract after `years` have passed: every time is reduced by that much."""
        return rolled(self, years)

    @property
    def smile_point(self) -> tuple[Real, Real] | None:
        """The (expiry, strike) at which an implied-vol surface is read; None if there is no such point."""
        return None

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """The shape of the batch: () for one contract."""
        pairs = zip(jax.tree.leaves(self), core_dims(self), strict=True)
        shapes: list[tuple[int, ...]] = [x.shape[: x.ndim - core] for x, core in pairs]
        return jnp.broadcast_shapes(*shapes)

    def broadcast(self, shape: tuple[int, ...] = ()) -> "AbstractProduct":
        """Return the same batch with every leaf broadcast to the shape of the batch and `shape`."""
        leaves, structure = jax.tree.flatten(self)
        shape = jnp.broadcast_shapes(self.batch_shape, shape)
        pairs = zip(leaves, core_dims(self), strict=True)
        full = [_broadcast(x, shape + x.shape[x.ndim - core :]) for x, core in pairs]
        return jax.tree.unflatten(structure, full)

    @property
    def canonical(self) -> "AbstractProduct":
        """The same contract in the most general form of its kind, so that all share one program."""
        return self

    @property
    def form(self) -> "AbstractProduct":
        """The canonical form without its numbers: types, words and shapes."""
        leaves, structure = jax.tree.flatten(self)
        return _form(structure, tuple((jnp.shape(x), jnp.result_type(x)) for x in leaves))


@functools.lru_cache(maxsize=4096)
def _form(structure: Any, leaves: tuple) -> AbstractProduct:
    product = structure.unflatten([jax.ShapeDtypeStruct(*leaf) for leaf in leaves])
    return jax.eval_shape(lambda product: product.broadcast().canonical, product)


class CallOrPut(AbstractProduct):
    """The common part of calls and puts: the sign of the payoff.

    Attributes:
        strike: The strike in units of the spot.
        option: The code of the word "call" or "put".
    """

    strike: AbstractVar[Real]
    option: AbstractVar[Int8[Array, "..."]]

    @property
    def side(self) -> Real:
        """+1 for a call, -1 for a put."""
        return side_of(self.option, self.strike)


class Padded(AbstractProduct):
    """Ability: the list of dates can be padded without changing the contract.

    Examples:
        >>> from pricing import Asian
        >>> Asian(100.0, [0.5, 1.0]).canonical.padded(3).dates.tolist()
        [0.5, 0.5, 1.0]
    """

    @abc.abstractmethod
    def padded(self, num_dates: int) -> "Padded":
        """Return the same contract on `num_dates` dates."""


def front(values: Float[Array, "*batch dates"], extra: int) -> Float[Array, "*batch padded"]:
    """Return the list with its first entry repeated `extra` more times."""
    return jnp.concatenate([*[values[..., :1]] * extra, values], axis=-1)


def idle_dates(dates: Float[Array, "*batch dates"], extra: int) -> Float[Array, "*batch padded"]:
    """Return a list of dates with `extra` more dates on which nothing is decided; see `idle`.

    They repeat the first date, which keeps the length of the first step. The last date is never repeated: with
    a single date, the extra dates are half its time.
    """
    if dates.shape[-1] > 1:
        return front(dates, extra)
    return jnp.concatenate([*[0.5 * dates] * extra, dates], axis=-1)


def idle(
    values: Float[Array, "*batch dates"], extra: int, nothing: float | Real
) -> Float[Array, "*batch padded"]:
    """Return the value on each of the `idle_dates`: `nothing` on the extra ones.

    Args:
        values: The value on each date, of shape (dates,) for each contract.
        extra: The number of extra dates.
        nothing: The value without an effect.
    """
    none = jnp.broadcast_to(jnp.asarray(nothing, values.dtype), (*values.shape[:-1], extra))
    decided = 1 if values.shape[-1] > 1 else 0  # the dates before the idle ones
    return jnp.concatenate([values[..., :decided], none, values[..., decided:]], axis=-1)


def extra_dates(dates: Float[Array, "*batch dates"], num_dates: int) -> int:
    """Return the number of dates missing from a list.

    Raises:
        ValueError: The list is already longer.
    """
    if num_dates < dates.shape[-1]:
        raise ValueError(
            f"{dates.shape[-1]} dates cannot be padded to {num_dates}: give at least that"
        )
    return num_dates - dates.shape[-1]


def shared_weights(
    dates: Float[Array, "*batch dates"], weights: Float[Array, "*batch dates"], num_dates: int
) -> tuple[Float[Array, "*batch padded"], int]:
    """Return the weights of a list whose first date is repeated, and the number of repetitions."""
    extra = extra_dates(dates, num_dates)
    first = weights[..., :1] / (extra + 1)
    return front(jnp.concatenate([first, weights[..., 1:]], axis=-1), extra), extra


def check_levels(dates: Array | None, **levels: Array) -> None:
    """Check that no level can be mistaken for one level per date: several numbers are a batch.

    Raises:
        ValueError: A single contract has as many numbers as dates.
    """
    if dates is None or dates.ndim != 1 or dates.size == 1:
        return
    for name, level in levels.items():
        if level.shape == dates.shape:
            raise ValueError(
                f"{name} of {level.size} numbers beside {dates.size} dates: one level applies to "
                f"all dates; use DiscreteBarrier(...) for one per date or, for a batch of "
                f"contracts, give dates of shape (contracts, dates)"
            )


def _broadcast(x: Any, shape: tuple[int, ...]) -> Array:
    """Return a leaf of a batch with this shape; one that has it already compiles no program."""
    return x if isinstance(x, Array) and x.shape == shape else jnp.broadcast_to(x, shape)


def check_last_date(dates: Array | None, expiry: Array) -> None:
    """Check that a list of dates ends with the expiry.

    Raises:
        ValueError: The last date is not the expiry.
    """
    if dates is None or is_traced((dates, expiry)):
        return
    if not np.allclose(np.asarray(dates)[..., -1], expiry, rtol=1e-6):
        raise ValueError(
            f"the last of the dates must be the expiry, got {dates[..., -1]} and {expiry}: end the dates with "
            "the expiry"
        )


def side_of(option: Array, like: Array) -> Array:
    """Return the code of "call" or "put" as a real +1 or -1.

    Args:
        option: The code, as `choice("option", CALL_OR_PUT)` keeps it.
        like: An array of the type to return.

    Returns:
        +1 for a call, -1 for a put, of the shape of `option`.

    Examples:
        >>> float(side_of(jnp.int8(-1), jnp.ones(())))
        -1.0
    """
    return jnp.asarray(option).astype(like.dtype)
