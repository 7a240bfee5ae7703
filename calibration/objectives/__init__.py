from typing import Any

from pricing.market import SwaptionVols, VolSurface

from .implied_vols import ImpliedVolError as ImpliedVolError
from .implied_vols import model_vols as model_vols
from .objective import AbstractObjective as AbstractObjective
from .swap_legs import SwapLegs as SwapLegs
from .swaption_vols import SwaptionVolError as SwaptionVolError

DEFAULTS: dict[type, AbstractObjective] = {
    VolSurface: ImpliedVolError(),
    SwaptionVols: SwaptionVolError(),
}


def objective_of(quotes: Any) -> AbstractObjective:
    """Gives what is made small unless the user says otherwise, by the kind of the quotes.

    Raises:
        TypeError: There is nothing to be made small for this kind.
    """
    if type(quotes) not in DEFAULTS:
        known = " or ".join(kind.__name__ for kind in DEFAULTS)
        raise TypeError(
            f"quotes are a {type(quotes).__name__}: give a {known}, one at a time, or an objective for it"
        )
    return DEFAULTS[type(quotes)]
