from typing import Any

from .implied_vols import ImpliedVolError as ImpliedVolError
from .implied_vols import model_vols as model_vols
from .objective import AbstractObjective as AbstractObjective
from .swap_legs import SwapLegs as SwapLegs
from .swaption_vols import SwaptionVolError as SwaptionVolError

OBJECTIVES: tuple[AbstractObjective, ...] = (ImpliedVolError(), SwaptionVolError())


def objective_of(quotes: Any) -> AbstractObjective:
    """Return what is made small unless the user says otherwise, by the kind of the quotes.

    Raises:
        TypeError: There is nothing to be made small for this kind.
    """
    usual = {objective.usual_for: objective for objective in OBJECTIVES}
    if type(quotes) in usual:
        return usual[type(quotes)]
    known = " or ".join(kind.__name__ for kind in usual if kind is not None)
    raise TypeError(
        f"quotes are a {type(quotes).__name__}: give a {known}, one at a time, or an objective for it"
    )
