"""What a calibration makes small unless the user says otherwise, by the kind of the quotes."""

from typing import Any

from pricing.market import SwaptionVols, VolSurface

from .implied_vols import ImpliedVolError
from .objective import AbstractObjective
from .swaption_vols import SwaptionVolError

DEFAULTS: dict[type, AbstractObjective] = {
    VolSurface: ImpliedVolError(),
    SwaptionVols: SwaptionVolError(),
}


def objective_of(quotes: Any) -> AbstractObjective:
    """Return the default objective for quotes of this kind.

    Raises:
        TypeError: There is nothing to be made small for this kind.
    """
    if type(quotes) not in DEFAULTS:
        known = " or ".join(kind.__name__ for kind in DEFAULTS)
        raise TypeError(
            f"quotes are a {type(quotes).__name__}: give a {known}, one at a time, or an objective for it"
        )
    return DEFAULTS[type(quotes)]
