"""Correlated Hull-White rates and Black-Scholes equities as one Gaussian state."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ...argument_kinds import check_kind
from ...fields import Numeric, is_traced, real
from ...models import BlackScholes, HullWhite
from ...models.black_scholes import ImpliedVols
from ...numerics.gauss_legendre import gauss_legendre

_POINTS, _WEIGHTS = gauss_legendre(8)  # exact to rounding over a step


class Step(NamedTuple):
    """Integrals over each step, of shape (steps,), or (steps, assets) for `variance`.

    With x the state of rates, dx = alpha dW, and H the slope of a bond, the integrands are alpha, alpha^2, H
    alpha, H alpha^2 and H^2 alpha^2; `variance` is that of the log-spots.
    """

    length: Array
    alpha: Array
    square: Array
    h_alpha: Array
    h_square: Array
    h_h_square: Array
    variance: Array


class JointModel(eqx.Module):
    """Hull-White rates and lognormal spots S_i, with constant correlations.

    With N the numeraire of `HullWhite` and forwards F_i(t) of today,

        S_i(t) / N(t) = P(0, t) F_i(t) exp(y_i - Var(y_i) / 2),   dy_i = sigma_i dW_i - H(t) dx.

    Brigo and Mercurio, Interest Rate Models (2006), appendix B. sigma_i is the vol of the spot; stochastic
    rates add to the variance of a forward. Each forward uses the rate and dividend yield of the equity. The
    difference between that rate and the curve is a cost of carry.

    Attributes:
        rates: The model of rates, `HullWhite`.
        equities: `BlackScholes` of one or several assets, without a smile; None for rates only.
        rate_correlation: The correlations of each asset's spot with the short rate, of shape (assets,).

    Raises:
        TypeError: A model has another type.
        ValueError: The vol is a surface, or the correlations are not positive semidefinite.

    Examples:
        >>> from pricing import BlackScholes, HullWhite
        >>> from pricing.fbsde import JointModel
        >>> JointModel(HullWhite(0.03, 0.05, 0.01), BlackScholes(100.0, 0.03, 0.2), [0.3]).num_assets
        1
    """

    rates: HullWhite
    equities: BlackScholes | None = None
    rate_correlation: Numeric[Float[Array, " assets"] | None] = real(
        "rate_correlation", core=1, optional=True, default=None
    )

    def __check_init__(self):
        check_kind("rates", self.rates, HullWhite, "a model such as HullWhite(0.03, 0.05, 0.01)")
        if self.equities is None:
            return
        check_kind("equities", self.equities, BlackScholes, "BlackScholes(...), or None")
        if isinstance(self.equities.vol, ImpliedVols):
            raise ValueError(
                "equities has a vol surface, which does not define one process: give a number, "
                "one for each asset, or a VolCurve"
            )
        given = self.correlation
        if given.shape[0] != self.num_assets + 1:
            raise ValueError(
                f"rate_correlation has {given.shape[0] - 1} numbers for {self.num_assets} assets: give one for "
                "each asset"
            )
        if not is_traced(given) and np.linalg.eigvalsh(np.asarray(given))[0] <= 0.0:
            raise ValueError(
                f"rate_correlation {self.rate_correlation} and the assets' correlations are not a "
                f"correlation matrix: give numbers closer to 0"
            )

    @property
    def num_assets(self) -> int:
        """The number of assets; 0 without equities."""
        return 0 if self.equities is None else self.equities.spot.size

    @property
    def correlation(self) -> Float[Array, "factors factors"]:
        """The correlations of the short rate (first) and the assets."""
        of_assets: Any = None if self.equities is None else self.equities.asset_correlation
        dtype = self.rates.vol.dtype
        if of_assets is None:
            of_assets = jnp.eye(self.num_assets, dtype=dtype)
        given = self.rate_correlation
        with_rate = (
            jnp.zeros(self.num_assets, dtype) if given is None else jnp.ravel(given).astype(dtype)
        )
        top = jnp.concatenate([jnp.ones(1, dtype), with_rate])
        if with_rate.shape[0] != self.num_assets:
            return jnp.diag(top)
        return jnp.concatenate([top[None], jnp.concatenate([with_rate[:, None], of_assets], 1)])

    def steps(self, times: Float[Array, " dates"]) -> Step:
        """Return the integrals over the steps to each date, the first from today."""
        before = jnp.concatenate([jnp.zeros_like(times[:1]), times[:-1]])
        length = times - before
        points, weights = (
            jnp.asarray(x, times.dtype) for x in (0.5 + 0.5 * _POINTS, 0.5 * _WEIGHTS)
        )
        at = before[:, None] + length[:, None] * points[None]
        alpha = self.rates.vol * jnp.exp(self.rates.mean_reversion * (at - self.rates.horizon))
        slope = self.rates.slope(at)
        over = lambda values: length * (values @ weights)
        return Step(
            length,
            over(alpha),
            over(alpha**2),
            over(slope * alpha),
            over(slope * alpha**2),
            over(slope**2 * alpha**2),
            jnp.diff(
                self._variance(times), axis=0, prepend=jnp.zeros((1, self.num_assets), times.dtype)
            ),
        )

    def covariances(self, step: Step) -> Float[Array, "dates factors factors"]:
        """Return the covariance of (x, y_1, ...) over each step."""
        correlation = self.correlation
        vol = self._vols(step)
        with_rate = correlation[:1, 1:] * vol
        column = lambda values: values[:, None]
        cross = with_rate * column(step.alpha) - column(step.h_square)
        carried = with_rate * column(step.h_alpha)
        within = (
            correlation[None, 1:, 1:]
            * vol[:, :, None]
            * vol[:, None, :]
            * step.length[:, None, None]
        )
        within = within - carried[:, :, None] - carried[:, None, :] + step.h_h_square[:, None, None]
        top = jnp.concatenate([column(step.square), cross], axis=1)
        below = jnp.concatenate([cross[:, :, None], within], axis=2)
        return jnp.concatenate([top[:, None], below], axis=1)

    def forward_variances(
        self, step: Step, slopes: Float[Array, " options"], assets: Int[Array, " options"]
    ) -> Float[Array, "dates options"]:
        """Return the variance of each option's log forward over each step; slopes: H(expiry)."""
        column = lambda values: values[:, None]
        vol = self._vols(step)[:, assets]
        with_rate = self.correlation[:1, 1:][:, assets] * vol
        moved = slopes[None, :]
        return (
            step.variance[:, assets]
            + 2.0 * with_rate * (moved * column(step.alpha) - column(step.h_alpha))
            + moved**2 * column(step.square)
            - 2.0 * moved * column(step.h_square)
            + column(step.h_h_square)
        )

    def forwards(self, times: Float[Array, " dates"]) -> Float[Array, "dates assets"]:
        """Return today's forward of every asset at each time."""
        if self.equities is None:
            return jnp.zeros((times.size, 0), times.dtype)
        return jax.vmap(self.equities.forward)(times).reshape(times.size, -1)

    def _variance(self, times: Float[Array, " dates"]) -> Float[Array, "dates assets"]:
        if self.equities is None:
            return jnp.zeros((times.size, 0), times.dtype)
        return jax.vmap(self.equities.state_variance)(times).reshape(times.size, -1)

    def _vols(self, step: Step) -> Float[Array, "dates assets"]:
        return jnp.sqrt(step.variance / step.length[:, None])
