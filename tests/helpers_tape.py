"""Chains and schedules that the tests of the tape run over."""

import collections
import functools
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np

import jaxtape as jt

all_schedules = (
    jt.StoreAll(),
    jt.Revolve(1),
    jt.Revolve(5),
    jt.Revolve(23),
    jt.Revolve(100),
    jt.Periodic(5),
    jt.Recursive(3),
    jt.Marked(),
    jt.MultiStage(device=2, host=3),
    jt.StoreLast(9, jt.Revolve(4)),
    jt.Budget(bytes=2**14),
)


class Heston(NamedTuple):
    """Parameters of the Heston step; a year of daily steps unless said otherwise."""

    rate: jax.Array
    initial_variance: jax.Array
    mean_reversion: jax.Array
    long_run_variance: jax.Array
    vol_of_vol: jax.Array
    correlation: jax.Array


heston = Heston(*map(np.float64, (0.03, 0.04, 1.5, 0.05, 0.4, -0.7)))


def heston_step(p: Heston, dt: float, state, noise):
    """Full-truncation Euler in (log-spot, variance); `noise` has a row for each Brownian motion.

    Smoothed at zero variance, so that gradients are finite.
    """
    x, v = state
    v_plus = jnp.maximum(v, 0.0)
    root = jnp.sqrt((v_plus + 1e-12) * dt)
    other = p.correlation * noise[0] + jnp.sqrt(1.0 - p.correlation**2) * noise[1]
    x = x + (p.rate - 0.5 * v_plus) * dt + root * other
    v = v + p.mean_reversion * (p.long_run_variance - v_plus) * dt + p.vol_of_vol * root * noise[0]
    return x, v


def heston_noise(n: int, paths: int):
    return jax.random.normal(jax.random.key(5), (n, 2, paths))


def heston_call(scan, p: Heston, noise, dt: float, step=heston_step):
    """Mean payoff of a call at the money, the paths run by `scan(f, init, xs)`."""
    paths = noise.shape[-1]
    init = jnp.zeros(paths), jnp.broadcast_to(p.initial_variance, (paths,))
    (x, _), _ = scan(lambda state, z: (step(p, dt, state, z), None), init, noise)
    return jnp.mean(jnp.maximum(jnp.exp(x) - 1.0, 0.0))


def mixed_loss(schedule, reverse=False):
    """A loss over a chain with everything in it: key and integer states, ys, closed-over values."""
    scan = functools.partial(jt.scan, schedule=schedule, reverse=reverse)

    def loss(a, init, xs):
        def f(carry, x):
            s, key, count = carry
            key, draw = jax.random.split(key)
            new = jnp.sin(s * a) + x["u"] * s + 0.1 * jax.random.normal(draw, s.shape)
            return (new, key, count + x["i"]), {"y": new * a, "count": count}

        carry = init, jax.random.key(1), jnp.int32(0)
        steps = jnp.arange(xs.shape[0], dtype=jnp.int32)
        (s, _, _), ys = scan(f, carry, {"u": xs, "i": steps})
        return jnp.sum(s**2) + jnp.sum(ys["y"][::2] ** 2), ys["count"]

    return loss


def loss_of(schedule):
    """The mixed loss alone."""
    return lambda *arguments: mixed_loss(schedule)(*arguments)[0]


def along(loss, a):
    """A loss of `a` alone."""
    _, init, xs = mixed_arguments()
    return loss(a, init, xs)


def mixed_arguments(n=23, width=4):
    """Arguments for `mixed_loss`."""
    xs = 0.5 * jax.random.normal(jax.random.key(0), (n, width))
    return jnp.float64(0.7), jnp.linspace(0.0, 1.0, width), xs


assert_close = functools.partial(chex.assert_trees_all_close, rtol=1e-12, atol=1e-13)


class Counter:
    """An identity that counts how often it is advanced and how often it is taped."""

    def __init__(self):
        self.counts = collections.Counter()

        @jax.custom_vjp
        def probe(x):
            self._tell("advanced", x)
            return x

        def forward(x):
            self._tell("taped", x)
            return x, None

        probe.defvjp(forward, lambda _, bar: (bar,))
        self.probe = probe

    def _tell(self, what, x):
        """Reads x, or a loop might tell once for all its nodes."""
        jax.debug.callback(lambda _: self.counts.update([what]), x)
