"""The density of the first passage of a lognormal spot through one or two barriers, and values from it.

With variance u as the clock, the distance x = s log(S / B) of the spot from a barrier B is a Brownian motion
with mean x_0 + m(u), m = s (log growth - u / 2), where s = +1 if the region is above B, else -1. The density g
of its first passage through 0 solves a Volterra equation of the second kind (Buonocore, Nobile and Ricciardi
1987):

    g(v) = f(v | x_0, 0) - int_0^v g(u) f(v | 0, u) du,
    f(v | y, u) = n(z) (z - m'(v) sqrt(v - u)) / (v - u),  z = (y + m(v) - m(u)) / sqrt(v - u),

with n the normal density. f(v | 0, u) is 0 if m is linear. With a barrier on the other side, at distance w, the
passages through it enter as f(v | w, u), and they have an equation of their own (Buonocore et al. 1990).

The equation is solved by collocation on panels between the pillars of the curves, where m is smooth. After a
pillar g has a square root, which a quadratic map of each panel resolves; so does the integral at u = v.
"""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..models import LognormalSpots
from ..numerics.black import black
from ..numerics.gauss_legendre import gauss_legendre
from ..numerics.normal_law import cdf, scaled_cdf
from ..numerics.safe_math import clipped, larger, smaller
from ..products import SingleBarrier, TwoBarriers
from .reiner_rubinstein import Law, Terms, claims

Scalar = Float[Array, ""]
Nodes = Float[Array, "panels nodes"]
Ends = Float[Array, " ends"]

_REACH = 8.5  # standard deviations beyond which a passage is negligible
_INNER_STEPS = 8  # iterations within a panel, whose kernel is small
_ROOT_TWO_PI = math.sqrt(2.0 * math.pi)


def first_passage_value(
    product: SingleBarrier | TwoBarriers, model: LognormalSpots, num_panels: int, num_nodes: int
) -> Scalar:
    """Return the value in currency of a contract with continuous barriers.

    A knock-in is worth the integral of g(u) times the value of the claim at the barrier. The same integral
    under constant coefficients with equal totals is known in closed form, and is subtracted. A spot on or
    beyond a barrier has touched it.

    Args:
        product: The contract.
        model: The model, whose surface has been read at the contract's strike.
        num_panels: The number of panels, to which the pillars of curves add.
        num_nodes: The number of nodes of a panel.
    """
    alive = product.is_inside(model.spot)
    spot = jnp.where(alive, model.spot, product.spot_inside)
    barriers = _barriers(product, spot)
    panels = _Panels.of(model, product.expiry, barriers, num_panels, num_nodes)
    passages = _passages(panels, barriers)
    into, at_hit, hit = jnp.zeros_like(spot), jnp.zeros_like(spot), jnp.zeros_like(spot)
    for barrier, density in zip(barriers, passages, strict=True):
        own = _worth(product, model, spot, panels, barrier, density)
        into, at_hit, hit = into + own[0], at_hit + own[1], hit + own[2]
    discount = model.discount(product.expiry)
    vanilla = _vanilla(product, model)
    knocked_out = vanilla - into + product.rebate * at_hit
    knocked_in = into + product.rebate * discount * (1.0 - hit)
    living = jnp.where(product.knocks_in, knocked_in, knocked_out)
    return jnp.where(alive, living, jnp.where(product.knocks_in, vanilla, product.rebate))


class _Level(NamedTuple):
    """A barrier: its level, the direction of the region, and the distance of the spot in log-spots.

    width: the distance of the other barrier; None if there is none.
    """

    level: Scalar
    direction: Scalar
    distance: Scalar
    width: Scalar | None


def _barriers(product: SingleBarrier | TwoBarriers, spot: Scalar) -> list[_Level]:
    direction = product.barrier_direction
    distance = direction * jnp.log(spot / product.barrier)
    if product.far_barrier is None:
        return [_Level(product.barrier, direction, distance, None)]
    width = jnp.log(product.far_barrier / product.barrier)
    return [
        _Level(product.barrier, direction, distance, width),
        _Level(product.far_barrier, -direction, width - distance, width),
    ]


def _vanilla(product: SingleBarrier | TwoBarriers, model: LognormalSpots) -> Scalar:
    """Return the value of the claim without barriers."""
    t = product.expiry
    if product.cash is not None:
        return model.discount(t) * product.cash
    std = jnp.sqrt(model.state_variance(t))
    return model.discount(t) * black(model.forward(t), product.strike, std, product.side)


# --- panels -------------------------------------------------------------------------------------------------


class _Rules(NamedTuple):
    """Constants on a panel [0, 1]: Gauss-Legendre nodes and weights, and maps between polynomials.

    to_series: from values at nodes to Legendre coefficients; slope: from values at 0, the nodes and 1 to
    derivatives at the nodes.
    """

    nodes: np.ndarray
    weights: np.ndarray
    to_series: np.ndarray
    slope: np.ndarray


@functools.cache
def _rules(count: int) -> _Rules:
    legendre = np.polynomial.legendre
    nodes, weights = gauss_legendre(count)
    to_series = np.linalg.inv(legendre.legvander(nodes, count - 1))
    with_ends = np.concatenate([[-1.0], nodes, [1.0]])
    series = np.linalg.inv(legendre.legvander(with_ends, count + 1))
    slope = 2.0 * legendre.legval(nodes, legendre.legder(series)).T
    return _Rules(0.5 * (1.0 + nodes), 0.5 * weights, to_series, slope)


def _basis(x: Array, count: int) -> Array:
    """Return the Legendre polynomials of [0, 1] at x, on a new last axis."""
    z = 2.0 * x - 1.0
    found = [jnp.ones_like(z), z]
    for n in range(1, count - 1):
        found.append(((2 * n + 1) * z * found[-1] - n * found[-2]) / (n + 1))
    return jnp.stack(found[:count], axis=-1)


class _Panels(NamedTuple):
    """The clock on the nodes of panels, from early to late.

    times: in years; log_variance: log u; log_growth: of the forward; ratio: m / u for s = +1; slope: m'(u);
    gauge: du / dx, with x in [0, 1] on each panel; ends: u at the ends of panels; expiry_variance,
    expiry_growth: u and the log growth at expiry.
    """

    times: Nodes
    log_variance: Nodes
    log_growth: Nodes
    ratio: Nodes
    slope: Nodes
    gauge: Nodes
    ends: Ends
    expiry_variance: Scalar
    expiry_growth: Scalar

    @property
    def variance(self) -> Nodes:
        return jnp.exp(self.log_variance)

    @property
    def expiry_ratio(self) -> Scalar:
        return self.expiry_growth / self.expiry_variance - 0.5

    @classmethod
    def of(
        cls,
        model: LognormalSpots,
        expiry: Scalar,
        barriers: list[_Level],
        num_panels: int,
        num_nodes: int,
    ) -> "_Panels":
        rules = _rules(num_nodes)
        dtype = expiry.dtype
        rate, edges = _edges(model, expiry, barriers, num_panels)
        early, late = edges[:-1, None], edges[1:, None]
        times = lambda x: expiry * jnp.exp(1.0 - jnp.sqrt(1.0 + rate * jnp.square(x)))
        of_ends = times(edges)
        of_nodes = times(
            early + (late - early) * jnp.square(jnp.asarray(rules.nodes, dtype))[None, :]
        )
        growth = jax.vmap(lambda t: jnp.log(model.forward(t) / model.spot))
        ends, u = model.state_variance(of_ends), model.state_variance(of_nodes.ravel())
        log_growth = growth(of_nodes.ravel())
        ratio = (log_growth / u - 0.5).reshape(of_nodes.shape)
        ratio_of_ends = growth(of_ends) / ends - 0.5
        log_u = jnp.log(u).reshape(of_nodes.shape)
        between = lambda ends, nodes: (
            jnp.concatenate([ends[:-1, None], nodes, ends[1:, None]], axis=1)
            @ jnp.asarray(rules.slope, dtype).T
        )
        d_log_u, d_ratio = between(jnp.log(ends), log_u), between(ratio_of_ends, ratio)
        is_long = d_log_u > 0.0
        d_log_u = jnp.where(is_long, d_log_u, 0.0)
        slope = ratio + jnp.where(is_long, d_ratio / jnp.where(is_long, d_log_u, 1.0), 0.0)
        at_end = model.state_variance(expiry), jnp.log(model.forward(expiry) / model.spot)
        growths = log_growth.reshape(of_nodes.shape)
        gauge = jnp.exp(log_u) * d_log_u
        return cls(of_nodes, log_u, growths, ratio, slope, gauge, ends, *at_end)


def _edges(
    model: LognormalSpots, expiry: Scalar, barriers: list[_Level], num_panels: int
) -> tuple[Scalar, Ends]:
    """Return the constant b of t = T exp(1 - sqrt(1 + b x^2)), and the ends of panels in x, from 1 to 0.

    Towards expiry the map is quadratic, towards today logarithmic. It starts before any passage. It is constant
    under small bumps and is not differentiated; the ends on pillars follow the pillars.
    """
    still, end, barriers = jax.lax.stop_gradient((model, expiry, barriers))
    distance = functools.reduce(smaller, [barrier.distance for barrier in barriers])
    std = jnp.sqrt(still.state_variance(end))
    passed = jnp.square(distance / larger(_REACH, distance / std + 3.0))
    least = jnp.finfo(end.dtype).eps * end
    pillars = jnp.concatenate([jnp.zeros(0, end.dtype), *_pillars(model)])
    known = jnp.clip(jnp.append(jax.lax.stop_gradient(pillars), end), least, end)
    fastest = jnp.max(still.state_variance(known) / known)
    length = jnp.ceil(4.0 * jnp.log(end / jnp.clip(passed / fastest, least, 0.7 * end))) / 4.0
    start, whole = end * jnp.exp(-length), jnp.square(1.0 + length) - 1.0
    inside = (pillars > start) & (pillars < expiry)
    squares = jnp.square(1.0 + jnp.log(expiry / jnp.where(inside, pillars, start))) - 1.0
    places = jnp.where(inside, jnp.sqrt(squares / whole), 0.0)
    even = jnp.linspace(0.0, 1.0, num_panels + 1, dtype=end.dtype)
    return whole, jnp.sort(jnp.concatenate([even, places]))[::-1]


def _pillars(model: LognormalSpots) -> list[Array]:
    """Return the times of the pillars of all curves and surfaces, between which they are smooth."""

    def times_of(node: Any) -> Array | None:
        found = getattr(node, "times", getattr(node, "expiries", None))
        return found if isinstance(found, jax.Array) and found.ndim == 1 else None

    nodes = jax.tree.leaves(model, is_leaf=lambda node: times_of(node) is not None)
    found = map(times_of, nodes)
    return [jnp.asarray(times, model.spot.dtype) for times in found if times is not None]


# --- the integral equation ----------------------------------------------------------------------------------


def _passages(panels: _Panels, barriers: list[_Level]) -> Float[Array, "barriers panels nodes"]:
    """Return the densities g(u) du / dx of first passages at the nodes."""
    num_panels, num_nodes = panels.times.shape
    rules, dtype = _rules(num_nodes), panels.times.dtype
    to_series = jnp.asarray(rules.to_series, dtype)
    series = lambda values: jnp.einsum("...k,lk->...l", values, to_series)
    log_u, ratio = series(panels.log_variance), series(panels.ratio)
    x, y, weights = (jnp.asarray(v, dtype) for v in (rules.nodes, rules.nodes, rules.weights))
    index, gaps = jnp.arange(num_panels), jnp.diff(panels.ends)
    is_long = gaps > jnp.finfo(dtype).eps * panels.ends[1:]  # not two pillars in one place
    own_basis = _basis(x[:, None] * (1.0 - y**2)[None, :], num_nodes)
    own_weights = 2.0 * x[:, None] * (y * weights)[None, :]

    def panel(solved: Array, of_panel: tuple[Array, ...]) -> tuple[Array, Array]:
        """Return the series of the panels up to this one [barriers, panels, orders], and its own values."""
        i, log_v, ratio_v, slope, gauge = of_panel
        v = jnp.exp(log_v)

        def kernels(basis: Array, log_u: Array, ratio: Array, is_used: Any) -> list[list[Array]]:
            """Return f(v | y, u) for passages to a barrier, from each barrier."""
            spread = (slice(None), *(None,) * (basis.ndim - 2))
            later, mean, at, rise = (z[spread] for z in (log_v, ratio_v, v, slope))
            log_u = jnp.where(is_used, jnp.sum(basis * log_u, axis=-1), later - 1.0)
            ratio = jnp.sum(basis * ratio, axis=-1)
            length = -at * jnp.expm1(log_u - later)
            length = jnp.where(is_used & (length > 0.0), length, at)
            drift = ratio + at * (mean - ratio) / length  # (m(v) - m(u)) / (v - u)
            return [
                [
                    _density(length, drift, rise, here.direction, _apart(here, there))
                    for there in barriers
                ]
                for here in barriers
            ]

        is_past = (index < i) & is_long
        apart = (v[:, None] - panels.ends[None, 1:]) / jnp.where(is_long, gaps, 1.0)[None, :]
        apart = jnp.where(is_past[None, :], clipped(apart, jnp.finfo(dtype).eps, 1e6), 1.0)
        away = jnp.sqrt(1.0 + apart)
        nearest = jnp.sqrt(apart / (1.0 + away))
        reach = jnp.sqrt(away) - nearest
        root = nearest[..., None] + reach[..., None] * y[None, None, :]
        basis = _basis(away[..., None] - root**2, num_nodes)
        masses = 2.0 * root * reach[..., None] * weights[None, None, :]
        masses = jnp.where(is_past[None, :, None], masses, 0.0)
        past = kernels(basis, log_u[None, :, None], ratio[None, :, None], is_past[None, :, None])
        densities = jnp.einsum("njql,bjl->bnjq", basis, solved)
        within = kernels(own_basis, log_u[i][None, None], ratio[i][None, None], True)
        sources, own = [], []
        for here, from_past, from_own in zip(barriers, past, within, strict=True):
            mean = here.direction * ratio_v
            source = _density(v, mean, here.direction * slope, jnp.ones_like(v), here.distance)
            for density, kernel in zip(densities, from_past, strict=True):
                source = source - jnp.sum(masses * kernel * density, axis=(1, 2))
            sources.append(gauge * source)
            parts = [jnp.einsum("nq,nql->nl", own_weights * k, own_basis) for k in from_own]
            own.append(jnp.stack([gauge[:, None] * (part @ to_series) for part in parts], axis=1))
        source, matrix = jnp.stack(sources), jnp.stack(own)
        values = source
        for _ in range(_INNER_STEPS):
            values = source - jnp.einsum("anbk,bk->an", matrix, values)
        return solved.at[:, i].set(series(values)), values

    nothing = jnp.zeros((len(barriers), num_panels, num_nodes), dtype)
    of_panels = index, panels.log_variance, panels.ratio, panels.slope, panels.gauge
    _, found = jax.lax.scan(jax.checkpoint(panel), nothing, of_panels)
    return jnp.moveaxis(found, 0, 1)


def _apart(here: _Level, there: _Level) -> Scalar | float:
    """Return the distance from a barrier to another."""
    if here is there:
        return 0.0
    assert here.width is not None
    return here.width


def _density(
    length: Array, drift: Array, slope: Array, direction: Array, distance: Array | float
) -> Array:
    """Return f: length is v - u, drift (m(v) - m(u)) / (v - u) and slope m'(v), all for s = direction."""
    speed = distance / length + direction * drift
    weight = jnp.exp(-0.5 * length * jnp.square(speed)) / (_ROOT_TWO_PI * jnp.sqrt(length))
    return weight * (speed - direction * slope)


# --- values -------------------------------------------------------------------------------------------------


def _worth(
    product: SingleBarrier | TwoBarriers,
    model: LognormalSpots,
    spot: Scalar,
    panels: _Panels,
    barrier: _Level,
    density: Nodes,
) -> tuple[Scalar, Scalar, Scalar]:
    """Return the claim if a barrier is hit first, the value of 1 paid at that hit, and its probability.

    Each is the integral against the density less that under constant coefficients, plus its closed form.
    """
    weights = jnp.asarray(_rules(density.shape[1]).weights, density.dtype)
    total, growth, u = panels.expiry_variance, panels.expiry_growth, panels.variance
    expiry, direction, distance = product.expiry, barrier.direction, barrier.distance
    mean = direction * panels.expiry_ratio
    constant = jnp.exp(-0.5 * jnp.square(distance + mean * u) / u) * distance
    constant = constant * panels.gauge / (_ROOT_TWO_PI * jnp.sqrt(u) * u)
    integral = lambda values, of_constant: jnp.sum(
        weights[None, :] * (density * values - constant * of_constant)
    )
    std = jnp.sqrt(total)
    early = cdf(-(distance + mean * total) / std)
    reached = early + scaled_cdf(-2.0 * mean * distance, (mean * total - distance) / std)
    ones = jnp.ones_like(u)
    hit = reached + integral(ones, ones)
    at_hit = reached + integral(
        jax.vmap(model.discount)(panels.times.ravel()).reshape(u.shape), ones
    )
    discount = model.discount(expiry)
    if product.cash is not None:
        return discount * product.cash * hit, at_hit, hit
    left = jnp.sqrt(larger(total - u, jnp.finfo(u.dtype).eps * total))
    at_barrier: Callable[[Array], Array] = lambda log_growth: black(
        barrier.level * jnp.exp(log_growth), product.strike, left, product.side
    )
    into = integral(at_barrier(growth - panels.log_growth), at_barrier(growth * (1.0 - u / total)))
    law = Law(std, 1.0 / std, panels.expiry_ratio, jnp.log(barrier.level / spot))
    terms = Terms(product.side, direction, product.strike, barrier.level)
    forwards = spot * jnp.exp(growth), product.strike
    k = jnp.log(product.strike / spot)
    vanilla, survivor = claims(terms, law, forwards, k, jnp.ones_like(k, bool))
    return discount * (vanilla - survivor + into), at_hit, hit
