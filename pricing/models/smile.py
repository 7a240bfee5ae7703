"""Total variances of a vol surface, smooth in strike: a natural cubic spline at each expiry."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..numerics.safe_math import clipped, divisor, larger, smaller
from ..numerics.tridiagonal import Tridiagonal

Scalar = Float[Array, ""]
Points = Float[Array, " points"]
Expiries = Float[Array, " expiries"]
Quotes = Float[Array, "expiries strikes"]


class Smile(eqx.Module):
    """w(t, k), the total implied variance to t years at k = log(strike / forward(t)), linear in t.

    At expiry i, w_i(k) = level + slope k + sum_j bends_j |k - nodes_j|^3, whose second derivative is
    continuous and vanishes at the outer quotes. Beyond these, w continues with their slope and levels off like
    edge + width tanh((k - edge) / width), to at least half of the outer quote. Before the first and after the
    last expiry the vol is flat in t.
    """

    expiries: Expiries
    nodes: Quotes
    bends: Quotes
    level: Expiries
    slope: Expiries
    widths: Float[Array, "2 expiries"]

    @classmethod
    def through(cls, expiries: Expiries, nodes: Quotes, variances: Quotes) -> "Smile":
        """Interpolate quotes; nodes: log(strike / forward); variances: vol^2 t.

        An expiry with fewer quotes than others repeats its last quote.
        """
        bends, level, slope = jax.vmap(_spline)(nodes, variances)
        free = cls(expiries, nodes, bends, level, slope, jnp.zeros((2, expiries.size), level.dtype))
        edges = nodes[:, 0], nodes[:, -1]
        slopes = [jax.vmap(_slope_of)(bends, nodes, slope, edge) for edge in edges]
        reach = 0.5 * (edges[1] - edges[0])
        falls = [larger(slopes[0], 0.0), larger(-slopes[1], 0.0)]
        most = [
            variances[:, i] / larger(2.0 * f, 1e-6) for i, f in zip((0, -1), falls, strict=True)
        ]
        widths = jnp.stack([smaller(reach, x) for x in most])
        return eqx.tree_at(lambda smile: smile.widths, free, widths)

    def variances(self, k: Points) -> Float[Array, "expiries points"]:
        """Return w_i(k) for every expiry."""

        def of_expiry(nodes, bends, level, slope, widths):
            low, high = nodes[0], nodes[-1]
            below, above = smaller(0.0, k - low), larger(0.0, k - high)
            inside = clipped(k, low, high)
            at = (
                inside
                + widths[0] * jnp.tanh(below / widths[0])
                + widths[1] * jnp.tanh(above / widths[1])
            )
            cubes = jnp.abs(at[:, None] - nodes[None, :]) ** 3
            return level + slope * at + cubes @ bends

        return jax.vmap(of_expiry)(self.nodes, self.bends, self.level, self.slope, self.widths.T)

    def weights(self, t: Scalar) -> Expiries:
        """Return the weights of the expiries in w(t, k) = sum_i weights_i w_i(k)."""
        zero = jnp.zeros_like(self.expiries[:1])
        pillars = jnp.concatenate([zero, self.expiries])
        right = jnp.clip(jnp.searchsorted(pillars, t, side="left"), 1, self.expiries.size)
        left = right - 1
        share = smaller((t - pillars[left]) / (pillars[right] - pillars[left]), 1.0)
        places = jnp.arange(pillars.size, dtype=left.dtype)
        hats = jnp.where(places == right, share, 0.0) + jnp.where(places == left, 1.0 - share, 0.0)
        return hats[1:] * larger(1.0, t / self.expiries[-1])

    def total_variance(self, t: Scalar, k: Points) -> Points:
        """Return w(t, k)."""
        return self.weights(t) @ self.variances(k)

    def step(self, start: Scalar, end: Scalar, k: Points) -> tuple[Points, Points]:
        """Return the numerator and denominator of Dupire's local variance over a step: (growth, density).

        growth: the growth of w from `start` to `end` (years) at k; density: the ratio of the density of the
            log-spot to a lognormal one at the midpoint of the step, (1 - k w' / 2 w)^2 - (w' / 2)^2 (1 / w + 1
            / 4) + w'' / 2 (Gatheral 2006, eq. 1.10). Both are positive if the quotes have no arbitrage.
        """
        middle = self.weights(0.5 * (start + end))
        growing = self.weights(end) - self.weights(start)
        one = jnp.ones_like(k)

        def slope(k):
            return jax.jvp(self.variances, (k,), (one,))

        (all_w, all_slope), (_, all_bend) = jax.jvp(slope, (k,), (one,))
        w, w1, w2 = (middle @ x for x in (all_w, all_slope, all_bend))
        density = (1.0 - 0.5 * k * w1 / w) ** 2 - 0.25 * w1**2 * (1.0 / w + 0.25) + 0.5 * w2
        return growing @ all_w, density

    def local_variance(self, start: Scalar, end: Scalar, k: Points) -> Points:
        """Return the integral of sigma^2 from `start` to `end` at k; NaN where quotes have an arbitrage."""
        growth, density = self.step(start, end, k)
        exists = (growth > 0.0) & (density > 0.0)
        return jnp.where(exists, growth / divisor(density), jnp.nan)


def _spline(nodes: Float[Array, " n"], values: Float[Array, " n"]):
    """Return bends, level and slope; linear ends make the sum and first moment of the bends 0.

    The second derivatives at the nodes solve a tridiagonal system; a bend is a jump of the third derivative
    over 12. Both are 0 at a repeated last node.
    """
    repeats = jnp.diff(nodes) == 0.0
    gaps = jnp.where(repeats, 1.0, jnp.diff(nodes))
    rises = jnp.diff(values) / gaps
    is_inner = ~repeats[1:]
    ends = lambda inner: jnp.pad(jnp.where(is_inner, inner, 0.0), 1)
    lower, upper = ends(gaps[:-1]) / 6.0, ends(gaps[1:]) / 6.0
    inner = jnp.where(is_inner, (gaps[:-1] + gaps[1:]) / 3.0, 1.0)
    diagonal = jnp.pad(inner, 1, constant_values=1.0)
    matrix = Tridiagonal(lower[:, None], diagonal[:, None], upper[:, None])
    curvatures = matrix.factored().solve(ends(jnp.diff(rises))[:, None])[:, 0]
    bends = jnp.diff(jnp.pad(jnp.diff(curvatures) / gaps, 1)) / 12.0
    line = values - jnp.abs(nodes[:, None] - nodes[None, :]) ** 3 @ bends
    slope = (line[-1] - line[0]) / (nodes[-1] - nodes[0])
    return bends, line[0] - slope * nodes[0], slope


def _slope_of(bends, nodes, slope, at: Scalar) -> Scalar:
    distance = at - nodes
    return slope + jnp.sum(3.0 * bends * distance * jnp.abs(distance))
