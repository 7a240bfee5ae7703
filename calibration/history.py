"""The trials of a search, step by step."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int


class History(eqx.Module):
    """The trials of a search in order, the start first; NaN beyond the last one.

    Attributes:
        loss: Half the sum of squared residuals of each trial, of shape (trials,); a trial above the lowest loss
            so far is rejected by an optimizer that compares.
        step_length: Distance of each trial from the lowest point before it, in the space of the free numbers.
        damping: The `damping` in the optimizer's state with which the trial was made; NaN if it has none.

    Examples:
        >>> from calibration import calibrate
        >>> from pricing import BlackScholes, VolSurface
        >>> surface = VolSurface([0.5, 1.0], [90.0, 110.0], [[0.22, 0.2], [0.23, 0.21]])
        >>> found = calibrate(surface, BlackScholes(100.0, 0.03, 0.3))
        >>> history, steps = found.stats["history"], int(found.stats["steps"])
        >>> bool(history.loss[steps] < history.loss[0]), history.loss.shape
        (True, (101,))
    """

    loss: Float[Array, "*starts trials"]
    step_length: Float[Array, "*starts trials"]
    damping: Float[Array, "*starts trials"]

    @classmethod
    def empty(cls, num_trials: int, dtype: Any) -> "History":
        """Return an empty history with room for `num_trials` trials."""
        return cls(*(jnp.full(num_trials, jnp.nan, dtype) for _ in range(3)))

    def with_trial(
        self, trial: Int[Array, ""], loss: Array, step_length: Array, optimizer_state: Any
    ) -> "History":
        """Return the history with one more trial."""
        found = optax.tree_utils.tree_get_all_with_path(optimizer_state, "damping")
        damping = found[0][1] if len(found) == 1 else jnp.full_like(loss, jnp.nan)
        return History(
            self.loss.at[trial].set(loss),
            self.step_length.at[trial].set(step_length),
            self.damping.at[trial].set(damping),
        )

    def first(self, num_trials: int) -> "History":
        """Return the history of the first `num_trials` trials."""
        return History(*(x[..., :num_trials] for x in (self.loss, self.step_length, self.damping)))
