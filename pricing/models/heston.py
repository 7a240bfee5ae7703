"""Heston: dS = (r - q) S dt + sqrt(v) S dW, dv = kappa (theta - v) dt + xi sqrt(v) dB, d<W, B> = rho dt."""

from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Complex, Float

import jaxtape
from jaxtape import AbstractSchedule

from ..fields import Number, between, correlations, non_negative, positive, real
from ..numerics import complex_functions
from ..numerics.differentiable_once import differentiable_once
from .model import (
    AbstractEquityModel,
    CharacteristicFunction,
    MeanVariance,
    Scalar,
    Walk,
    correlation_of,
    flat_or_curve,
)
from .quadratic_exponential import QuadraticExponential

_WHY_ONCE = (
    "Paths of the variance have a kink where it reaches zero: their second derivative in the model's "
    "parameters is wrong. Differentiate once, or take Fourier() for volga."
)


class Heston(CharacteristicFunction, MeanVariance):
    """Stochastic variance, mean reverting, correlated with the spot.

    spot: currency; rate: per year, continuous, a number or a curve; initial_variance (v0) and
    long_run_variance (theta): per year; mean_reversion (kappa): per year; vol_of_vol (xi): per year;
    correlation (rho): in [-1, 1]; dividend_yield: per year, continuous. The Feller condition is not asked for.

    Several assets: arrays in place of numbers, and `asset_correlation` R. With B the drivers of the variances,
    of correlation R, W_i = rho_i B_i + sqrt(1 - rho_i^2) Z_i, Z also of correlation R and independent of B.

    Heston (1993), eq. 1 and 4.
    """

    spot: Float[Array, "*assets"] = positive("spot")
    rate: Any = flat_or_curve("rate")
    initial_variance: Float[Array, "*assets"] = non_negative("initial_variance")
    mean_reversion: Float[Array, "*assets"] = positive("mean_reversion")
    long_run_variance: Float[Array, "*assets"] = non_negative("long_run_variance")
    vol_of_vol: Float[Array, "*assets"] = positive("vol_of_vol")
    correlation: Float[Array, "*assets"] = between("correlation", -1.0, 1.0)
    dividend_yield: Float[Array, "*assets"] = real("dividend_yield", default=0.0)
    asset_correlation: Float[Array, "assets assets"] | None = correlations(
        "asset_correlation", default=None
    )

    variance_is_random: ClassVar[bool] = True

    def log_characteristic(
        self, u: Complex[Array, " nodes"], t: Scalar
    ) -> Complex[Array, " nodes"]:
        """log E[exp(i u X)], free of branch cuts (Albrecher et al. 2007), stable as vol_of_vol -> 0.

        With beta = kappa - rho xi i u, D = sqrt(beta^2 + xi^2 (u^2 + i u)), A = (beta - D) / xi^2 and
        g = (beta - D) / (beta + D):
        v0 A (1 - e^{-Dt}) / (1 - g e^{-Dt}) + kappa theta (A t - 2 log((1 - g e^{-Dt}) / (1 - g)) / xi^2).
        """
        v0, kappa, theta, xi, rho, t = (
            x.astype(u.dtype)
            for x in (
                self.initial_variance, self.mean_reversion, self.long_run_variance,
                self.vol_of_vol, self.correlation, t,
            )
        )  # fmt: skip
        iu = u * jnp.asarray(1j, u.dtype)
        symbol = u * u + iu
        beta = kappa - rho * xi * iu
        root = complex_functions.sqrt(beta * beta + xi * xi * symbol)
        a = -symbol / (beta + root)
        g_over_xi2 = a / (beta + root)
        g = xi * xi * g_over_xi2
        decay = complex_functions.exp(-root * t)
        # log((1 - g e) / (1 - g)) / xi^2 through z = g (1 - e) / (1 - g), where g / xi^2 stays finite
        z_over_xi2 = g_over_xi2 * (1.0 - decay) / (1.0 - g)
        log_term = z_over_xi2 * complex_functions.log1p_over(xi * xi * z_over_xi2)
        return kappa * theta * (a * t - 2.0 * log_term) + v0 * a * (1.0 - decay) / (1.0 - g * decay)

    def total_variance(self, t: Scalar) -> Scalar:
        return self.mean_integral(self.initial_variance, t)

    def mean_variance(
        self, variance: Float[Array, "..."], t: Float[Array, "..."]
    ) -> Float[Array, "..."]:
        """theta + (v - theta) e^{-kappa t}."""
        excess = variance - self.long_run_variance
        return self.long_run_variance + excess * jnp.exp(-self.mean_reversion * t)

    def mean_integral(
        self, variance: Float[Array, "..."], t: Float[Array, "..."]
    ) -> Float[Array, "..."]:
        """theta t + (v - theta) (1 - e^{-kappa t}) / kappa."""
        excess = variance - self.long_run_variance
        aged = -jnp.expm1(-self.mean_reversion * t) / self.mean_reversion
        return self.long_run_variance * t + excess * aged

    def tail_rate(self, t: Scalar) -> tuple[Scalar, Scalar]:
        """(sqrt(1 - rho^2), -rho) (v0 + kappa theta t) / xi."""
        scale = self.initial_variance + self.mean_reversion * self.long_run_variance * t
        over = scale / self.vol_of_vol
        return jnp.sqrt(1.0 - self.correlation**2) * over, -self.correlation * over

    @property
    def residual_correlation(self) -> Float[Array, "assets assets"]:
        return correlation_of(self.asset_correlation, self.spot)

    def walk(
        self,
        noise: Float[Array, "steps *assets paths"],
        times: Float[Array, " steps"],
        schedule: AbstractSchedule,
    ) -> Walk:
        """Andersen's QE-M: no square root at zero variance is ever differentiated.

        Paths are continuous in the parameters but for the scheme's switch, with a kink where the variance
        reaches zero: they may be differentiated once. Variances of several assets are driven by normals
        with the assets' correlation.
        """
        parameters = (
            self.initial_variance,
            self.mean_reversion,
            self.long_run_variance,
            self.vol_of_vol,
            self.correlation,
        )

        def variance_walk(parameters, lengths, noise):
            start, kappa, theta, xi, rho = (_beside_paths(x) for x in parameters)

            def step(v, of_step):
                z, dt = of_step
                moves = dt > 0.0  # a date that comes twice is a step of no length
                scheme = QuadraticExponential.of(kappa, theta, xi, rho, jnp.where(moves, dt, 1.0))
                new, steps = scheme.step(v, z)
                return jnp.where(moves, new, v), tuple(
                    jnp.where(moves, x, 0.0) for x in (*steps, new - v)
                )

            paths = jnp.broadcast_to(start, noise.shape[1:])
            return jaxtape.scan(step, paths, (noise, lengths), schedule=schedule)[1]

        if self.asset_correlation is not None:
            noise = jnp.einsum("ij,sjp->sip", jnp.linalg.cholesky(self.asset_correlation), noise)
        lengths = jnp.diff(times, prepend=jnp.zeros_like(times[:1]))
        rounding = 8.0 * float(jnp.finfo(times.dtype).eps) * times[-1]
        lengths = jnp.where(lengths > rounding, lengths, 0.0)
        walk = differentiable_once(variance_walk, _WHY_ONCE)
        return Walk(*walk(parameters, lengths, noise), length=lengths)

    def with_vol_shift(self, vol: Number) -> AbstractEquityModel:
        """sqrt(v0) and sqrt(theta) both up by `vol`: the parallel shift of the volatility level."""
        levels = (self.initial_variance, self.long_run_variance)
        return eqx.tree_at(
            lambda model: (model.initial_variance, model.long_run_variance),
            self,
            tuple((jnp.sqrt(level) + vol) ** 2 for level in levels),
        )


def _beside_paths(parameter: Array) -> Array:
    """One number for each asset, with an axis for the paths; a single number as it is."""
    return parameter[..., None] if parameter.ndim else parameter
