"""Andersen's QE-M scheme for Heston: moment-matched variance, martingale-corrected log-spot.

Andersen (2008), Simple and efficient simulation of the Heston stochastic volatility model: variance
sec. 3.2, log-spot eq. 33, martingale correction sec. 4.3.
"""

import functools
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero
from jaxtyping import Array, Float

from ..numerics import normal_law

Scalar = Float[Array, "..."]  # a number, or [assets, 1]
Paths = Float[Array, "*assets paths"]

_SWITCH = 1.5  # psi above which the exponential branch is taken; Andersen, sec. 3.2.3


class QuadraticExponential(eqx.Module):
    """The constants of a step of length dt."""

    decay: Scalar  # exp(-kappa dt)
    mean_pull: Scalar  # theta (1 - decay)
    variance_slope: Scalar  # slope of Var[v'] in v
    variance_level: Scalar
    k1: Scalar
    k2: Scalar
    k3: Scalar  # and k4
    half_step: Scalar

    @classmethod
    def of(
        cls, kappa: Scalar, theta: Scalar, xi: Scalar, rho: Scalar, dt: Scalar
    ) -> "QuadraticExponential":
        """Return the constants with gamma_1 = gamma_2 = 1/2 (trapezoidal rule for integrated variance)."""
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
        """Return v' from v and one standard normal z per path, and the step of the log-spot.

        The step consists of its mean and variance given v and v', and the integrated variance (v + v') dt / 2.
        """
        m = self.mean_pull + v * self.decay
        psi = (self.variance_level + v * self.variance_slope) / m**2
        # E[exp(k2 v' + k4 v' / 2)] = exp(log_m): the drift that makes exp(log-spot) a martingale
        unit, log_m = _matched(psi, (self.k2 + 0.5 * self.k3) * m, z)
        new = m * unit
        mean = -log_m - 0.5 * self.k3 * v + self.k2 * new
        return new, (mean, self.k3 * v + self.k3 * new, self.half_step * (v + new))


class _Moments(NamedTuple):
    """v' over its mean m as a function of the normal z; log E[exp(A v')] of x = A m; and their slopes."""

    unit: Paths
    log_m: Paths
    unit_psi: Paths
    unit_z: Paths
    log_m_psi: Paths
    log_m_x: Paths


@jax.custom_jvp
def _matched(psi: Paths, x: Paths, z: Paths) -> tuple[Paths, Paths]:
    """Return `unit` and `log_m` for v' with variance psi m^2.

    With a custom derivative, a reverse sweep stores these few numbers per step instead of both branches.
    """
    return _moments(psi, x, z)[:2]


@functools.partial(_matched.defjvp, symbolic_zeros=True)
def _matched_jvp(primals, tangents):
    moments = _moments(*primals)
    d_psi, dx, dz = (None if isinstance(d, SymbolicZero) else d for d in tangents)

    def moved(*terms: tuple[Paths, Paths | None]) -> Paths:
        found = [slope * d for slope, d in terms if d is not None]
        return sum(found[1:], found[0]) if found else jnp.zeros_like(moments.unit)

    d_unit = moved((moments.unit_psi, d_psi), (moments.unit_z, dz))
    return moments[:2], (d_unit, moved((moments.log_m_psi, d_psi), (moments.log_m_x, dx)))


def _moments(psi: Paths, x: Paths, z: Paths) -> _Moments:
    is_quadratic = psi <= _SWITCH
    quadratic = _quadratic(jnp.where(is_quadratic, psi, 1.0), x, z)
    exponential = _exponential(jnp.where(is_quadratic, 2.0, psi), x, z)
    return jax.tree.map(lambda a, b: jnp.where(is_quadratic, a, b), quadratic, exponential)


def _quadratic(psi: Paths, x: Paths, z: Paths) -> _Moments:
    """Return the moments of v' = a (b + z)^2, with q = a / m."""
    ratio = 2.0 / psi
    root = jnp.sqrt(ratio * (ratio - 1.0))
    b2 = ratio - 1.0 + root
    q, b = 1.0 / (1.0 + b2), jnp.sqrt(b2)
    b2_psi = -ratio / psi * (1.0 + (ratio - 0.5) / root)
    q_psi = -jnp.square(q) * b2_psi
    away = b + z
    spread = 1.0 - 2.0 * x * q
    exists = spread > 0.0
    per_spread = 1.0 / jnp.where(exists, spread, 1.0)
    tilt = x * b2 * q * per_spread
    log_m = tilt + 0.5 * jnp.log(per_spread)
    return _Moments(
        q * away**2,
        jnp.where(exists, log_m, x),
        (q_psi * away + q * b2_psi / b) * away,
        2.0 * q * away,
        jnp.where(exists, 2.0 * x * tilt * per_spread * q_psi, 0.0),
        jnp.where(exists, per_spread * (1.0 + 2.0 * q * tilt), 1.0),
    )


def _exponential(psi: Paths, x: Paths, z: Paths) -> _Moments:
    """Return the moments of v', which is 0 with probability p, else exponential with mean m / (1 - p)."""
    p, alive = (psi - 1.0) / (psi + 1.0), 2.0 / (psi + 1.0)
    survival = normal_law.cdf(-z)  # 1 - U
    positive = survival < alive
    survival = jnp.where(positive, survival, 1.0)
    log_ratio = jnp.where(positive, jnp.log(alive / survival), 0.0)
    exists = alive > x
    per_gap = alive / jnp.where(exists, alive - x, 1.0)
    mean = p + alive * per_gap
    return _Moments(
        log_ratio / alive,
        jnp.where(exists, jnp.log(mean), x),
        jnp.where(positive, 0.5 * (log_ratio - 1.0), 0.0),
        jnp.where(positive, normal_law.density(z) / (survival * alive), 0.0),
        jnp.where(exists, 0.5 * jnp.square(alive * (per_gap - 1.0)) / mean, 0.0),
        jnp.where(exists, jnp.square(per_gap) / mean, 1.0),
    )
