"""The models of a market in scenarios: fitted once for each move of the quotes, then shifted to each spot."""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...market import Market
from ..sweep.fitted_models import Fit, Models, fit_models
from .scenario import Scenario

NOW = Scenario("now")


class States:
    """The models of a market in scenarios; scenarios that move the same quotes share a fit."""

    def __init__(self, fit: Fit, market: Market, underlyings: Sequence[tuple[str, ...]]):
        self._fit, self._market, self._underlyings = fit, market, underlyings
        self._known: dict[tuple, Models] = {}

    def fitted(self, scenario: Scenario) -> Models:
        """Return the models fitted to the moved quotes of a scenario; spots do not move."""
        kinds = "vols", "rates", "cap_vols"
        named = {kind: tuple(sorted(getattr(scenario, kind).items())) for kind in kinds}
        state = *named.values(), scenario.swaption_vols
        if state not in self._known:
            market = scenario.moved(self._market)
            found = fit_models(self._fit, market, self._underlyings, derivatives=False)
            self._known[state] = found.models
        return self._known[state]

    def level(self, scenario: Scenario, names: tuple[str, ...]) -> Float[Array, "*assets"]:
        """Return the spots of some equities in a scenario; for a curve, the unchanged level of its rates."""
        now = self.fitted(scenario)[names].underlying
        moves = [scenario.spot_move(self._market, name) for name in names]
        return now * jnp.asarray(1.0 + np.reshape(moves, now.shape), now.dtype)

    def at(self, scenario: Scenario) -> Models:
        """Return the models in a scenario, with spots moved and parameters fixed."""
        models = self.fitted(scenario)
        shifts = {n: self.level(scenario, n) - m.underlying for n, m in models.items()}
        return {names: m.shifted(underlying=shifts[names]) for names, m in models.items()}
