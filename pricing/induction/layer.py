"""A value function as a quadrature rule: expectations without interpolation (Nystrom's method)."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ..numerics.gauss_legendre import gauss_legendre
from ..numerics.gauss_transform import gauss_transform
from ..numerics.safe_math import clipped

Scalar = Float[Array, ""]
Points = Float[Array, " points"]

NODES_A_PANEL = 16
STDS = 8.0  # standard deviations of the state covered by nodes
NODES_A_STD = 1.5  # nodes per standard deviation of a step: with fewer, errors exceed 1e-9


class Layer(eqx.Module):
    """The deflated values at one date: nodes y of the state, and quadrature weights times the values there.

    variance: the variance of the state at that date; 0 if nothing comes later.
    """

    variance: Scalar
    nodes: Float[Array, " nodes"]
    weighted: Float[Array, " nodes"]

    @classmethod
    def nothing(cls, num_panels: int, like: Array) -> "Layer":
        """Return the zero layer after the last date, with `num_panels` panels."""
        nodes = jnp.linspace(-1.0, 1.0, num_panels * NODES_A_PANEL, dtype=like.dtype)
        return cls(jnp.zeros((), like.dtype), nodes, jnp.zeros_like(nodes))

    def step_variance(self, variance: Scalar) -> Scalar:
        """Return the variance of the step from a date with the given state variance; 1 if there is no step."""
        step = self.variance - variance
        return jnp.where(step > 0.0, step, 1.0)

    def expectation(self, x: Points, variance: Scalar) -> Points:
        """Return E[value(y)] over y ~ N(x, self.variance - variance); NaN if the nodes are too few."""
        step = self.step_variance(variance)
        scale = jnp.sqrt(0.5 / step)
        sums = gauss_transform(scale * x, scale * self.nodes, self.weighted[:, None])
        total = (scale / np.sqrt(np.pi)) * sums[:, 0]
        return jnp.where(self._resolves(step, variance), total, jnp.nan)

    def _resolves(self, step: Scalar, variance: Scalar) -> Bool[Array, ""]:
        nodes, step = jax.lax.stop_gradient((self.nodes, step))
        fine = jnp.max(jnp.diff(nodes)) <= _WIDEST * jnp.sqrt(step) / NODES_A_STD
        return (fine & (variance < self.variance)) | (self.variance <= 0.0)

    def value_today(self) -> Scalar:
        """Return E[value] from today's state."""
        zero = jnp.zeros_like(self.variance)
        return self.expectation(zero[None], zero)[0]


# the widest gap between two nodes relative to the mean gap
_WIDEST = 0.5 * NODES_A_PANEL * float(np.max(np.diff(gauss_legendre(NODES_A_PANEL)[0])))


def quadrature(
    lower: Scalar, upper: Scalar, breaks: Float[Array, " breaks"], num_panels: int
) -> tuple[Float[Array, " nodes"], Float[Array, " nodes"]]:
    """Return ascending nodes and weights on [lower, upper]: equal panels, split further at `breaks`."""
    steps = jnp.linspace(0.0, 1.0, num_panels + 1, dtype=lower.dtype)
    inside = clipped(breaks, lower, upper)
    edges = jnp.sort(jnp.concatenate([lower + (upper - lower) * steps, inside]))
    abscissae, weights = (jnp.asarray(x, lower.dtype) for x in gauss_legendre(NODES_A_PANEL))
    middle, half = 0.5 * (edges[1:] + edges[:-1]), 0.5 * (edges[1:] - edges[:-1])
    nodes = middle[:, None] + half[:, None] * abscissae[None, :]
    return nodes.ravel(), (half[:, None] * weights[None, :]).ravel()


def panels_for(num_nodes: int) -> int:
    """Return the number of panels that hold at least `num_nodes` nodes."""
    return -(-num_nodes // NODES_A_PANEL)
