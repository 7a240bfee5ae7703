"""The default objective for each kind of quotes."""

from typing import Any

from .implied_vols import ImpliedVolError
from .objective import AbstractObjective
from .swaption_vols import SwaptionVolError

OBJECTIVES: tuple[AbstractObjective, ...] = (ImpliedVolError(), SwaptionVolError())


def objective_of(quotes: Any) -> AbstractObjective:
    """Return the default objective for quotes of this kind.

    Raises:
        TypeError: If there is none.
    """
    usual = {kind: objective for objective in OBJECTIVES for kind in objective.usual_for}
    if type(quotes) in usual:
        return usual[type(quotes)]
    known = ", ".join(kind.__name__ for kind in usual)
    raise TypeError(
        f"quotes are a {type(quotes).__name__}: give one of {known}, or an objective for it"
    )
