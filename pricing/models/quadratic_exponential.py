"""Andersen's QE-M scheme for Heston: variance by matched moments, log-spot as a martingale.

Andersen (2008), Simple and efficient simulation of the Heston stochastic volatility model: variance
sec. 3.2, log-spot eq. 33, martingale correction sec. 4.3.
"""

import equinox as eqx
import jax.numpy as jnp
from jax.scipy.special import ndtr
from jaxtyping import Array, Float

Scalar = Float[Array, "..."]  # a number, or [assets, 1]
Paths = Float[Array, "*assets paths"]

_SWITCH = 1.5  # psi above which the exponential branch is taken; Andersen, sec. 3.2.3


class QuadraticExponential(eqx.Module):
    """Constants of one step of length dt."""

    decay: Scalar  # exp(-kappa dt)
    mean_pull: Scalar  # theta (1 - decay)
    variance_slope: Scalar  # of Var[v'] in v
    variance_level: Scalar
    k1: Scalar
    k2: Scalar
    k3: Scalar  # and k4
    half_step: Scalar

    @classmethod
    def of(
        cls, kappa: Scalar, theta: Scalar, xi: Scalar, rho: Scalar, dt: Scalar
    ) -> "QuadraticExponential":
        """Return the constants with gamma_1 = gamma_2 = 1/2: integrated variances by the trapezoidal rule."""
        decay = jnp.exp(-kappa * dt)
        lost = -jnp.expm1(-kappa * dt)
        drift = 0.5 * dt * (kappa * rho / xi - 0.5)
        return cls(
            decay=decay,
            mean_pull=theta * lost,
            variance_slope=xi**2 * decay * lost / kappa,
            variance_level=theta * xi**2 * lost**2 / (2.0 * kappa),
            k1=drift - rho / xi,
            k2=drift + rho / xi,
            k3=0.5 * dt * (1.0 - rho**2),
            half_step=0.5 * dt,
        )

    def step(self, v: Paths, z: Paths) -> tuple[Paths, tuple[Paths, Paths, Paths]]:
        """Return v' from v, by one standard normal z a path, and the log-spot's step.

        The step is (mean, variance) given v and v', and the integrated variance (v + v') dt / 2.
        """
        m = self.mean_pull + v * self.decay
        psi = (self.variance_level + v * self.variance_slope) / m**2
        is_quadratic = psi <= _SWITCH
        quadratic, log_m_quadratic = self._quadratic(m, jnp.where(is_quadratic, psi, 1.0), z)
        exponential, log_m_exponential = self._exponential(m, jnp.where(is_quadratic, 2.0, psi), z)
        new = jnp.where(is_quadratic, quadratic, exponential)
        log_m = jnp.where(is_quadratic, log_m_quadratic, log_m_exponential)
        # E[exp(k2 v' + k4 v' / 2)] = exp(log_m): the drift that makes exp(log-spot) a martingale
        mean = -log_m - 0.5 * self.k3 * v + self.k2 * new
        return new, (mean, self.k3 * v + self.k3 * new, self.half_step * (v + new))

    def _quadratic(self, m: Paths, psi: Paths, z: Paths) -> tuple[Paths, Paths]:
        """Return v' = a (b + z)^2 and log E[exp(A v')], A = k2 + k4 / 2."""
        ratio = 2.0 / psi
        b2 = ratio - 1.0 + jnp.sqrt(ratio * (ratio - 1.0))
        a = m / (1.0 + b2)
        exponent = self.k2 + 0.5 * self.k3
        spread = 1.0 - 2.0 * exponent * a
        exists = spread > 0.0
        spread = jnp.where(exists, spread, 1.0)
        log_m = exponent * b2 * a / spread - 0.5 * jnp.log(spread)
        return a * (jnp.sqrt(b2) + z) ** 2, jnp.where(exists, log_m, exponent * m)

    def _exponential(self, m: Paths, psi: Paths, z: Paths) -> tuple[Paths, Paths]:
        """Return v' = 0 with probability p, else exponential with rate beta; and log E[exp(A v')]."""
        p = (psi - 1.0) / (psi + 1.0)
        beta = (1.0 - p) / m
        survival = ndtr(-z)  # 1 - U
        positive = survival < 1.0 - p
        new = jnp.where(positive, jnp.log((1.0 - p) / jnp.where(positive, survival, 1.0)), 0.0)
        exponent = self.k2 + 0.5 * self.k3
        exists = beta > exponent
        gap = jnp.where(exists, beta - exponent, 1.0)
        log_m = jnp.log(p + beta * (1.0 - p) / gap)
        return new / beta, jnp.where(exists, log_m, exponent * m)
