"""One set of quotes with the model to fit to it, and why it cannot be fitted, as far as its numbers tell."""

from typing import NamedTuple

import jax
import numpy as np

from pricing.market import SmileQuotes, VolSurface
from pricing.models import AbstractModel, Quotes

from ..prior import Prior


class Job(NamedTuple):
    """One set of quotes, and the model to fit to it, from its own parameters and on its own market.

    Attributes:
        id: The name of the job in the results.
        quotes: A surface or smiles of implied vols, or a matrix of swaption vols. A vol that is NaN is missing.
        model: Its type, its starting parameters, and the market that it stands on.
        prior: What is believed of its parameters, if anything.

    Examples:
        >>> from calibration import Job
        >>> from pricing import Heston, VolSurface
        >>> surface = VolSurface([0.5, 1.0], [90.0, 110.0], [[0.22, 0.2], [0.23, 0.21]])
        >>> Job("DAX", surface, Heston(100.0, 0.03, 0.04, 1.0, 0.04, 0.5, -0.5)).id
        'DAX'
    """

    id: str
    quotes: Quotes
    model: AbstractModel
    prior: Prior | None = None

    @property
    def counts(self) -> np.ndarray:
        """Which quotes are there: those that are not NaN, and weigh something."""
        is_there = ~np.isnan(np.asarray(self.quotes.vols))
        if isinstance(self.quotes, SmileQuotes):
            return is_there & (np.asarray(self.quotes.weights) != 0.0)
        return is_there

    def refusal(self, fewest: int) -> str | None:
        """Return why it cannot be fitted with so many parameters, if its numbers tell."""
        quotes = self.quotes
        vols, expiries = np.asarray(quotes.vols), np.asarray(quotes.expiries)
        if vols.ndim != 2:
            return f"its vols have shape {vols.shape}: give each set of quotes a job of its own"
        bad = ~np.isfinite(expiries) | (expiries <= 0.0)
        if np.any(bad):
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
        if (count := int(np.sum(counts))) < fewest:
            return f"it has {count} quotes for {fewest} parameters: give at least as many"
        return None

    def _unusable_model(self) -> str | None:
        """Return which number of the model or of its market is not finite."""
        for path, leaf in jax.tree_util.tree_leaves_with_path(self.model):
            number = np.asarray(leaf)
            if not np.all(np.isfinite(number)):
                name = jax.tree_util.keystr(path, simple=True, separator=".")
                return f"its model has a {name} of {number[~np.isfinite(number)][0]:g}: give finite numbers"
        return None


def _columns_of(quotes: Quotes) -> np.ndarray:
    """Return the strikes, log-moneyness or tenors."""
    names = {VolSurface: "strikes", SmileQuotes: "log_moneyness"}
    return np.asarray(getattr(quotes, names.get(type(quotes), "tenors")))


def _column_of(quotes: Quotes, row: int, column: int) -> str:
    if isinstance(quotes, VolSurface):
        return f"strike {quotes.strikes[column]:g}"
    if isinstance(quotes, SmileQuotes):
        return f"log-moneyness {quotes.log_moneyness[row, column]:g}"
    return f"tenor {quotes.tenors[column]:g}"
