"""One set of quotes with the model to fit to it, and checks of their validity."""

import itertools
from collections.abc import Iterator
from dataclasses import fields
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np

from pricing.market import SmileQuotes, VolSurface
from pricing.models import AbstractModel, Quotes

from ..prior import Prior


class Job(NamedTuple):
    """One set of quotes, and the model to fit to it, with its starting parameters and its market data.

    Attributes:
        id: The name of the job in the results.
        quotes: A surface or smiles of implied vols, or a matrix of swaption vols. NaN means a missing vol.
        model: The model, which gives the type, the starting parameters and the market data; None if unreadable.
        prior: The prior of its parameters, if any.
        unreadable: The reason why the quotes could not be read, if they could not.
        place: Its place in a file, such as "quotes.csv:17"; empty if unknown.

    Examples:
        >>> from calibration import Job
        >>> from pricing import Heston, VolSurface
        >>> surface = VolSurface([0.5, 1.0], [90.0, 110.0], [[0.22, 0.2], [0.23, 0.21]])
        >>> Job("DAX", surface, Heston(100.0, 0.03, 0.04, 1.0, 0.04, 0.5, -0.5)).id
        'DAX'
    """

    id: str
    quotes: Quotes
    model: AbstractModel | None
    prior: Prior | None = None
    unreadable: str = ""
    place: str = ""

    @property
    def inputs(self) -> tuple[Quotes, AbstractModel | None, Prior | None]:
        """The inputs of the program."""
        return self.quotes, self.model, self.prior

    @property
    def counts(self) -> np.ndarray:
        """The mask of the quotes used: those that are not NaN and have a nonzero weight."""
        is_there = ~np.isnan(np.asarray(self.quotes.vols))
        weights = getattr(self.quotes, "weights", None)
        return is_there if weights is None else is_there & (np.asarray(weights) != 0.0)

    @property
    def num_bid_ask(self) -> int:
        """The number of quotes used that have a bid and an ask."""
        sides = [getattr(self.quotes, name, None) for name in ("bids", "asks")]
        if any(side is None for side in sides):
            return 0
        known = [~np.isnan(np.asarray(side)) for side in sides]
        return int(np.sum(self.counts & known[0] & known[1]))

    def at_its_place(self, why: str) -> str:
        """Return the reason of a failure, prefixed by the job's place unless it already names one."""
        file = self.place.rpartition(":")[0] or self.place
        has_place = not file or file in why or why.startswith("row ")
        return why if has_place else f"{self.place}: {why}"

    def refusal(self, fewest: int) -> str | None:
        """Return the reason why its numbers cannot be fitted with `fewest` parameters, or None."""
        if self.unreadable:
            return self.unreadable
        quotes = self.quotes
        vols, expiries = np.asarray(quotes.vols), np.asarray(quotes.expiries)
        if vols.ndim != 2:
            return f"its vols have shape {vols.shape}: give each set of quotes its own job"
        bad = ~np.isfinite(expiries) | (expiries <= 0.0)
        if bad.any():
            return f"an expiry is {expiries[bad][0]:g}: give years above 0"
        if (unusable := self._unusable_model()) is not None:
            return unusable
        if isinstance(quotes, VolSurface) and not np.all(np.asarray(quotes.strikes) > 0.0):
            return f"a strike is {np.min(quotes.strikes):g}: give prices above 0"
        places = _columns_of(quotes)
        if not np.all(np.isfinite(places)):
            name = "strike" if isinstance(quotes, VolSurface) else "log-moneyness or tenor"
            return f"a {name} is {places[~np.isfinite(places)][0]:g}: give finite numbers"
        counts = self.counts
        wrong = counts & ~((vols > 0.0) & np.isfinite(vols))
        if np.any(wrong):
            row, column = np.argwhere(wrong)[0].tolist()
            at = f"expiry {expiries[row]:g} at {_column_of(quotes, row, column)}"
            return f"the vol of {at} is {vols[row, column]:g}: give one above 0, or NaN where there is none"
        if (count := int(np.sum(counts))) < fewest and self.prior is None:
            return f"it has {count} quotes for {fewest} parameters: give at least as many"
        return None

    def _unusable_model(self) -> str | None:
        """Return a message about a non-finite number in the model or its market, or None."""
        numbers = list(map(np.asarray, jax.tree.leaves(self.model)))
        unusable = [not np.isfinite(number).all() for number in numbers]
        if not any(unusable):
            return None
        place = unusable.index(True)
        path, _ = jax.tree_util.tree_leaves_with_path(self.model)[place]
        name = jax.tree_util.keystr(path, simple=True, separator=".")
        first = numbers[place][~np.isfinite(numbers[place])][0]
        return f"its model has a {name} of {first:g}: give finite numbers"


def _columns_of(quotes: Quotes) -> np.ndarray:
    names = {VolSurface: "strikes", SmileQuotes: "log_moneyness"}
    return np.asarray(getattr(quotes, names.get(type(quotes), "tenors")))


def _column_of(quotes: Quotes, row: int, column: int) -> str:
    if isinstance(quotes, VolSurface):
        strikes = np.broadcast_to(quotes.strikes, quotes.vols.shape)
        return f"strike {strikes[row, column]:g}"
    if isinstance(quotes, SmileQuotes):
        return f"log-moneyness {quotes.log_moneyness[row, column]:g}"
    return f"tenor {quotes.tenors[column]:g}"


_CORES = {"expiries": 1, "strikes": 1, "tenors": 1}  # axes of these arrays; others have two


def jobs_of(quotes: Any, model: Any = None) -> tuple[int | None, Iterator[Job]]:
    """Return the number of jobs, if known, and the jobs; see `calibrate_many`.

    Raises:
        ValueError: If the quotes have no batch axis, or the numbers of models and of quotes differ.
    """
    if model is None:
        return _count(quotes), iter(quotes)
    if hasattr(quotes, "vols"):
        if np.ndim(quotes.vols) != 3:
            raise ValueError(
                f"{type(quotes).__name__} has vols of shape {np.shape(quotes.vols)}: give many, of shape "
                "(batch, expiries, strikes), or use calibrate for one"
            )
        quotes = list(_unstacked(quotes))
    models = itertools.repeat(model) if isinstance(model, AbstractModel) else model
    counts = _count(quotes), _count(models)
    if None not in counts and counts[0] != counts[1]:
        raise ValueError(
            f"there are {counts[1]} models for {counts[0]} sets of quotes: give one for each"
        )
    pairs = zip(quotes, models)  # noqa: B905 - a model may be repeated
    return counts[0], (Job(str(n), *pair) for n, pair in enumerate(pairs))


def _count(items: Any) -> int | None:
    return len(items) if hasattr(items, "__len__") else None


def _unstacked(quotes: Any) -> Iterator[Quotes]:
    """Yield the members of a batch; an array without the batch axis is shared by all."""
    names = [
        field.name for field in fields(quotes) if eqx.is_array_like(getattr(quotes, field.name))
    ]
    arrays = {name: np.asarray(getattr(quotes, name)) for name in names}
    arrays = {name: array for name, array in arrays.items() if array.ndim > _CORES.get(name, 2)}
    for index in range(len(quotes.vols)):
        of_one = [array[index] for array in arrays.values()]
        yield eqx.tree_at(lambda q: [getattr(q, name) for name in arrays], quotes, of_one)
