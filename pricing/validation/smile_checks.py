"""Implied vols of the SABR formula against published values."""

from collections.abc import Sequence
from functools import partial
from importlib.resources import files

import numpy as np

from jaxtape.cli.check import Check, Group
from jaxtape.cli.reference_tables import read_tables

_ARGUMENTS = ("forward", "strike", "expiry", "alpha", "beta", "rho", "nu")
_TABLES = files("pricing.validation") / "tables"


def _vols(checks: Sequence[Check]) -> list[Check]:
    """Return checks with their vols; each form of the formula is one call."""
    from ..models import sabr_vol

    form = lambda known: known.method or "obloj"
    vols: dict[str, np.ndarray] = {}
    rows = [[float(known.cells[name]) for name in _ARGUMENTS] for known in checks]
    for leading in {form(known) for known in checks}:
        vols[leading] = np.asarray(sabr_vol(*np.array(rows).T, leading=leading))
    return [
        known.found(float(vols[form(known)][at]), f"sabr_vol, {form(known)}")
        for at, known in enumerate(checks)
    ]


sabr = Group(
    "SABR's implied vols", partial(read_tables, _TABLES / "sabr.toml", {"implied_vol"}), _vols
)
