"""The chains used in measurements of the tape: Heston and Black-Scholes steps, with noise given or drawn."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec


@dataclass(frozen=True)
class Model:
    """A log-Euler scheme; `xp` is `jax.numpy` or `torch`, so both run the same arithmetic."""

    name: str
    parameters: tuple[float, ...]
    noise_shape: tuple[int, ...]  # leading axes of one node's normals, before the paths
    start: Callable  # (xp, p, paths) -> state, the log-spot first
    step: Callable  # (xp, p, dt, state, normals) -> state
    needed: tuple[bool, ...]  # the leaves of the state that a reverse sweep reads


def _heston_start(xp, p, paths):
    x = xp.zeros(paths, dtype=xp.float64)
    return x, x + p[1]


def _heston_step(xp, p, dt, state, normals):
    """Full-truncation Euler in (log-spot, variance), smoothed at zero variance."""
    rate, _, speed, level, vol_of_vol, correlation = p
    x, v = state
    v_plus = xp.clip(v, min=0.0)
    root = xp.sqrt((v_plus + 1e-12) * dt)
    other = correlation * normals[0] + xp.sqrt(1.0 - correlation**2) * normals[1]
    x = x + (rate - 0.5 * v_plus) * dt + root * other
    return x, v + speed * (level - v_plus) * dt + vol_of_vol * root * normals[0]


def _black_scholes_start(xp, p, paths):
    del p
    return (xp.zeros(paths, dtype=xp.float64),)


def _black_scholes_step(xp, p, dt, state, normals):
    del xp
    rate, vol = p
    return (state[0] + (rate - 0.5 * vol**2) * dt + vol * dt**0.5 * normals,)


HESTON = Model(
    "Heston",
    (
        0.03,
        0.04,
        1.5,
        0.05,
        0.4,
        -0.7,
    ),  # rate, first variance, speed, level, vol of vol, correlation
    (2,),
    _heston_start,
    _heston_step,
    (False, True),
)
BLACK_SCHOLES = Model(
    "Black-Scholes", (0.03, 0.2), (), _black_scholes_start, _black_scholes_step, (False,)
)


def payoff(xp, log_spot):
    """Return the mean payoff of an at-the-money call."""
    return xp.mean(xp.clip(xp.exp(log_spot) - 1.0, min=0.0))


@dataclass(frozen=True)
class Problem:
    """A call on `paths` paths of `steps` steps over a year, differentiated in the model's parameters.

    The noise is given, as an array of normals, or drawn inside the step, from a key folded with the node's
    index. `source`, that array or that key, is an argument of every program.
    """

    model: Model
    steps: int
    paths: int
    noise: str
    devices: int = 1  # number of devices that share the paths

    @property
    def title(self) -> str:
        return f"{self.model.name}, {self.steps} steps, {self.paths} paths, noise {self.noise}"

    @property
    def state_bytes(self) -> int:
        """Return the bytes of the state of all paths at one position."""
        return len(self.model.needed) * self.paths * 8

    @property
    def normals_shape(self) -> tuple[int, ...]:
        return *self.model.noise_shape, self.paths

    def arguments(self) -> tuple[tuple, Any]:
        """Return the parameters and the source of the noise."""
        key, p = jax.random.key(0), tuple(map(jnp.float64, self.model.parameters))
        if self.noise == "drawn":
            return p, key
        normals = jax.random.normal(key, (self.steps, *self.normals_shape))
        return p, normals if self.devices == 1 else jax.device_put(normals, self._placed(normals))

    def xs(self, source):
        """Return each node's input: its normals, or its index."""
        return jnp.arange(self.steps, dtype=jnp.int32) if self.noise == "drawn" else source

    def step(self, p, source, state, x):
        """Run one node."""
        z = self._drawn(jax.random.fold_in(source, x)) if self.noise == "drawn" else x
        return self.model.step(jnp, p, 1.0 / self.steps, state, jax.tree.map(self._shared, z))

    def _drawn(self, key):
        """Draw a node's normals, with a key for each Brownian motion, so that only needed ones are drawn."""
        draw = lambda key: jax.random.normal(key, (self.paths,))
        if not self.model.noise_shape:
            return draw(key)
        return tuple(draw(key) for key in jax.random.split(key, self.model.noise_shape))

    def start(self, p):
        return jax.tree.map(self._shared, self.model.start(jnp, p, self.paths))

    def _shared(self, leaf):
        """Shard a leaf's last axis, the paths, over all devices."""
        if self.devices == 1:
            return leaf
        return jax.lax.with_sharding_constraint(leaf, self._placed(leaf))

    def _placed(self, leaf):
        mesh = Mesh(np.array(jax.devices()[: self.devices]), ("paths",))
        return NamedSharding(mesh, PartitionSpec(*(None,) * (leaf.ndim - 1), "paths"))

    def value(self, scan: Callable, p, source):
        """Return the mean payoff, with paths simulated by `scan(f, init, xs)`, which returns the last state."""
        f = lambda state, x: (self.step(p, source, state, x), None)
        return payoff(jnp, scan(f, self.start(p), self.xs(source))[0])
