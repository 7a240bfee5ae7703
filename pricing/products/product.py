"""What every product is, and the abilities that a method may ask of it."""

import abc
import dataclasses
import functools
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..fields import (
    above_zero,
    between,
    core_dims,
    dates,
    non_negative,
    positive,
    real,
    time,
    word,
)

CALL_OR_PUT = {"call": 1, "put": -1}

Real = Float[Array, "..."]


class AbstractProduct(eqx.Module):
    """A contract. Numbers are array leaves; times are year fractions.

    Arrays in place of numbers make a batch of contracts; methods are written for one contract, and the
    verbs map them over the batch.
    """

    multi_asset: ClassVar[bool] = False

    def aged(self, years: Float[Array, ""]) -> "AbstractProduct":
        """The same contract when `years` have passed: every field declared as a time is that much nearer."""
        times = _times(self)
        return eqx.tree_at(_times, self, [when - years for when in times]) if times else self

    @property
    def vol_at(self) -> tuple[Real, Real] | None:
        """(expiry, strike) at which a surface of implied vols is read; None if there is no such place."""
        return None

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """() for one contract."""
        leaves, cores = jax.tree.leaves(self), core_dims(self)
        shapes: list[tuple[int, ...]] = [
            x.shape[: x.ndim - core] for x, core in zip(leaves, cores, strict=True)
        ]
        return jnp.broadcast_shapes(*shapes)

    def broadcast(self) -> "AbstractProduct":
        """The same batch with every leaf in the shape of the batch."""
        leaves, structure = jax.tree.flatten(self)
        shape = self.batch_shape
        full = [
            jnp.broadcast_to(x, shape + x.shape[x.ndim - core :])
            for x, core in zip(leaves, core_dims(self), strict=True)
        ]
        return jax.tree.unflatten(structure, full)

    @property
    def canonical(self) -> "AbstractProduct":
        """The same contract in the most general form of its kind, so that one program serves them all."""
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


def _times(product: eqx.Module) -> list[Any]:
    """The fields of a product, and of products within it, that are times."""
    times = []
    for field in dataclasses.fields(product):
        value = getattr(product, field.name)
        if isinstance(value, eqx.Module):
            times += _times(value)
        elif field.metadata.get("time", False) and value is not None:
            times.append(value)
    return times


class TerminalClaim(AbstractProduct):
    """Ability: at expiry, if the spot ends on the paying side of the strike, pays units of asset and cash.

    payoff = (asset_units * S_T + cash_units) * 1{side * (S_T - strike) > 0}, side = +1 (call), -1 (put).
    """

    strike: eqx.AbstractVar[Real]
    expiry: eqx.AbstractVar[Real]
    side: eqx.AbstractVar[Real]

    @property
    @abc.abstractmethod
    def units(self) -> tuple[Real, Real]:
        """(asset_units, cash_units) paid on the paying side."""

    @property
    def vol_at(self) -> tuple[Real, Real]:
        return self.expiry, self.strike

    @property
    def canonical(self) -> "Claim":
        return Claim(self.strike, self.expiry, self.side, *self.units)


class Claim(TerminalClaim):
    """The general terminal claim: any units of asset and of cash (currency) on either side of the strike.

    side: +1 if it pays above the strike, -1 below; other units as in `TerminalClaim`.
    """

    strike: Real = positive("strike")
    expiry: Real = time("expiry")
    side: Real = between("side", -1.0, 1.0)
    asset_units: Real = real("asset_units")
    cash_units: Real = real("cash_units")

    @property
    def units(self) -> tuple[Real, Real]:
        return self.asset_units, self.cash_units


class Average(AbstractProduct):
    """Ability: pays max(side * (average - strike), 0) at expiry, the average being one of

    "arithmetic" (sum of weights * spots), "geometric" (product of spots ** weights), "max" or "min", over the
    fixing dates of one asset, or over several assets at expiry.
    """

    strike: eqx.AbstractVar[Real]
    side: eqx.AbstractVar[Real]
    average: eqx.AbstractVar[str]

    @property
    @abc.abstractmethod
    def fixings(self) -> Float[Array, "*batch dates"]:
        """The dates the spots are read at, the last one being the expiry."""

    @property
    def vol_at(self) -> tuple[Real, Real]:
        return self.fixings[..., -1], self.strike

    @abc.abstractmethod
    def weights_of(self, num_spots: int) -> Float[Array, "*batch spots"]:
        """The weight of each spot: of each date, or of each asset."""


class AverageClaim(Average):
    """The general average of one asset's spots over dates: the spot at dates[j] has weight weights[j].

    strike: units of the spot; dates: years, not decreasing: a date may come several times, each with its
    share of the weight; side: +1 (call) or -1 (put); weights: above 0; average: "arithmetic" or "geometric".
    """

    strike: Real = positive("strike")
    dates: Float[Array, "*batch dates"] = dates("dates", today=True, repeated=True)
    side: Real = between("side", -1.0, 1.0)
    weights: Float[Array, "*batch dates"] = positive("weights", core=1)
    average: str = word("average", ("arithmetic", "geometric"), default="arithmetic")

    @property
    def fixings(self) -> Float[Array, "*batch dates"]:
        return self.dates

    def weights_of(self, num_spots: int) -> Float[Array, "*batch spots"]:
        del num_spots
        return self.weights

    def padded(self, num_dates: int) -> "AverageClaim":
        """The same contract on `num_dates` dates: the first one repeated, its weight shared."""
        extra = extra_dates(self.dates, num_dates)
        first = self.weights[..., :1] / (extra + 1)
        weights = jnp.concatenate([first, self.weights[..., 1:]], axis=-1)
        return AverageClaim(
            strike=self.strike,
            dates=front(self.dates, extra),
            side=self.side,
            weights=front(weights, extra),
            average=self.average,
        )


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


class Monitored(AbstractProduct):
    """Ends, for a fixed payment, on the first of its dates at which the spot is outside (lower, upper).

    Every barrier contract with dates has this form (`canonical`). dates: years, not decreasing, the last is the
    expiry and comes once; lower, upper: 0 and infinity where there is no barrier; paid_below, paid_above:
    currency, on leaving, at that date. A contract that is still alive after the last date's look pays `alive`
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

        They follow the look at the barrier, so that the step to it keeps its length. The last date is never
        repeated: a contract of one date stays as it is.
        """
        extra = extra_dates(self.dates, num_dates)
        if extra and self.dates.shape[-1] == 1:
            raise ValueError("a contract that looks at its expiry alone cannot be padded")

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


def front(values: Float[Array, "*batch dates"], extra: int) -> Float[Array, "*batch padded"]:
    """The list with its first entry repeated `extra` times more."""
    return jnp.concatenate([*[values[..., :1]] * extra, values], axis=-1)


def extra_dates(dates: Float[Array, "*batch dates"], num_dates: int) -> int:
    """How many dates a list lacks. Raises `ValueError` if it is longer already."""
    if num_dates < dates.shape[-1]:
        raise ValueError(
            f"{dates.shape[-1]} dates cannot be padded to {num_dates}: give at least that"
        )
    return num_dates - dates.shape[-1]


def side_of(option: Array, like: Array) -> Array:
    """The code of "call" or "put" as a real +1 or -1 of the type of `like`."""
    return jnp.asarray(option).astype(like.dtype)
