"""The time grids of variance paths, for a contract or a batch."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

_ROUND = 16  # grids have a multiple of this length, so that similar books share programs


def refined(dates: Float[Array, " dates"], substeps: int) -> Float[Array, " steps"]:
    """Return the dates with equal substeps between each and the previous one (today for the first).

    Args:
        dates: The dates in years, increasing, of shape (dates,).
        substeps: The number of steps to each date.

    Returns:
        Times in years, of shape (dates * substeps,).

    Examples:
        >>> import jax.numpy as jnp
        >>> from pricing.sampling import refined
        >>> refined(jnp.asarray([1.0, 2.0]), 2).tolist()
        [0.5, 1.0, 1.5, 2.0]
    """
    before = jnp.concatenate([jnp.zeros_like(dates[:1]), dates[:-1]])
    shares = jnp.arange(1, substeps + 1, dtype=dates.dtype) / substeps
    return (before[:, None] + (dates - before)[:, None] * shares[None, :]).ravel()


def grid_through(dates: np.ndarray, num_steps: int) -> Float[Array, " steps"]:
    """Return increasing times that include all `dates`, with steps <= last date / num_steps."""
    dates = np.unique(dates[dates > 0.0])
    edges = np.concatenate([[0.0], dates])
    counts = np.ceil(np.diff(edges) / (dates[-1] / num_steps) - 1e-9).astype(int)
    spare = -counts.sum() % _ROUND
    for _ in range(spare):
        counts[np.argmax(np.diff(edges) / counts)] += 1
    gaps = zip(edges[:-1], edges[1:], counts, strict=True)
    pieces = [left + (right - left) * np.arange(1, n) / n for left, right, n in gaps]
    inner = np.concatenate(pieces) if pieces else np.zeros(0)
    return jnp.asarray(np.sort(np.concatenate([inner, dates])), dates.dtype)


def between(
    grid: Float[Array, " steps"], dates: Float[Array, " dates"], steps: Float[Array, "steps ..."]
) -> Float[Array, "dates ..."]:
    """Return the sums of the grid's steps between consecutive dates, which must be on the grid."""
    total = jnp.cumsum(steps, axis=0)
    total = jnp.concatenate([jnp.zeros_like(total[:1]), total])
    middle = 0.5 * (grid[1:] + grid[:-1])
    middle = jnp.concatenate([0.5 * grid[:1], middle])
    place = jnp.searchsorted(middle, dates, method="compare_all")
    return jnp.diff(total[place], axis=0, prepend=jnp.zeros_like(total[:1]))
