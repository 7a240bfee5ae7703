"""A weak prior about the start of the search, for parameters that the quotes do not identify."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from jaxtape import stored_jit
from pricing.models import AbstractModel
from pricing.numerics.elimination import eliminate

from .parameters import FreeParameters

Vector = Float[Array, " parameters"]

MORE_STEPS = 2  # factor of the steps of a held search: the valley of the loss is long
_MOST_STD = 4.0  # usual ranges: a parameter with a larger standard error is not identified
_MOST_STD_OF_FAR = 0.5  # usual ranges: for a parameter more than a range from the start
_WIDEST_STD = 10.0  # in usual ranges, if the quotes carry no information at all
_LEAST_NOISE = 1e-4  # with less, the valley of the loss is too narrow to follow
_FARTHEST = 2.0  # usual ranges from the start: a parameter beyond has run away


class WeakPrior(eqx.Module):
    """Independent normal priors of the unconstrained parameters about the start, one usual range wide.

    If the start is outside the range, the width is its distance from the middle of the range.

    The residuals are noise (x - start) / width, a ridge (Hoerl and Kennard 1970) in units of the quotes' own
    noise. A noise of 0 switches them off.

    Attributes:
        start: The start of the search, on the real line, of shape (parameters,).
        widths: The unconstrained usual ranges of the parameters (`FreeParameters.ranges`), or the distances of
            the start from their middles if those are larger, of shape (parameters,); infinite for a parameter
            without a range, which is not held.
        noise: The standard error of a quote, as a residual; 0 switches the prior off.
    """

    start: Vector
    widths: Vector
    noise: Float[Array, ""]

    @classmethod
    def about(cls, parameters: FreeParameters, model: AbstractModel) -> "WeakPrior":
        """Return the prior about the parameters of a model, switched off."""
        start, (low, high) = parameters.free(model), parameters.ranges(model)
        middle = jnp.where(jnp.isfinite(high - low), 0.5 * (low + high), start)
        start = jnp.where(jnp.isfinite(start), start, middle)
        widths = jnp.maximum(high - low, jnp.abs(start - middle))
        return cls(start, widths, jnp.zeros((), start.dtype))

    def switched_on(self, noise: Float[Array, ""]) -> "WeakPrior":
        """Return the prior for quotes with this standard error, but at least 1e-4 (.01 vol points)."""
        return WeakPrior(self.start, self.widths, jnp.maximum(least_noise(noise), _LEAST_NOISE))

    def residual(self, free: Vector) -> Vector:
        """Return the residuals at a point of the real line."""
        return self.noise * (free - self.start) / self.widths

    def not_identified(
        self, free: Vector, jacobian: Float[Array, "residuals parameters"], noise: Float[Array, ""]
    ) -> Bool[Array, " parameters"]:
        """Return the mask of the parameters that the residuals do not identify, or that have run away.

        It includes a parameter whose standard error exceeds four usual ranges (half a range if it is more than
        a range from the start), or that is more than two ranges from the start. The variances are the diagonal
        of (W J'J W / s^2 + 1 / 100)^{-1}, J the Jacobian without this prior's rows, s the noise, W the widths.
        """
        noise, has_range = least_noise(noise), jnp.isfinite(self.widths)
        widths = jnp.where(has_range, self.widths, 1.0)
        scaled = jacobian * (widths / noise)[None, :]
        unit = jnp.eye(free.size, dtype=free.dtype)
        variances = jnp.diagonal(eliminate(scaled.T @ scaled + unit / _WIDEST_STD**2, unit))
        ranges = jnp.abs(free - self.start) / widths
        most = jnp.where(ranges > 1.0, _MOST_STD_OF_FAR, _MOST_STD)
        return has_range & ~((variances <= most**2) & (ranges <= _FARTHEST))


@stored_jit(runs_briefly=True)
def weak_prior(parameters: FreeParameters, model: AbstractModel) -> WeakPrior:
    """Return the prior about the parameters of a model, switched off; one program serves all fits."""
    return WeakPrior.about(parameters, model)


def least_noise(noise: Float[Array, ""]) -> Float[Array, ""]:
    """Return the noise, but at least the smallest that a search resolves: 6e-6 of a vol in double precision."""
    return jnp.maximum(noise, jnp.finfo(noise.dtype).eps ** (1 / 3))
