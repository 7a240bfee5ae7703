"""Building blocks of problems on assets and Brownian motions."""

from typing import Any

import jax.numpy as jnp

from ..problem import Problem


def assets(dim, maturity, drift, driver, terminal, num_steps, x0: Any = 100.0, vol=0.2) -> Problem:
    """Return a problem on independent lognormal assets, stepped exactly."""
    return Problem(
        dim,
        maturity,
        x0,
        drift=lambda t, x: drift * x,
        diffusion=lambda t, x: vol * x,
        driver=driver,
        terminal=terminal,
        num_steps=num_steps,
        step=lambda t, dt, x, dw: x * jnp.exp((drift - 0.5 * vol**2) * dt + vol * dw),
    )


def brownian(dim, maturity, vol, driver, terminal, num_steps, x0=0.0, drift=0.0) -> Problem:
    """Return a problem on independent Brownian motions with common vol and drift."""
    return Problem(
        dim,
        maturity,
        x0,
        drift=lambda t, x: jnp.full_like(x, drift),
        diffusion=lambda t, x: vol,
        driver=driver,
        terminal=terminal,
        num_steps=num_steps,
    )
