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
    """What is made small unless the user says otherwise: by the kind of the quotes."""
    return DEFAULTS[type(quotes)]
