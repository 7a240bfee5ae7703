"""Comparisons with PyTorch by name: the library's contracts written in PyTorch, with equal noise."""

import math
from typing import Any

import jax.numpy as jnp
import numpy as np
import torch  # pyright: ignore[reportMissingImports]

import jaxtape as jt
from jaxtape.torch import Case

_PATHS, _STEPS, _DATES = 1024, 16, 5
_DIM, _HIDDEN = 10, 16


def heston() -> Case:
    """Return a call under Heston by Monte Carlo, with full-truncation Euler steps, on a tape."""
    dt = 1.0 / _STEPS

    def moved(model: Any, state: Any, noise: Any, root: Any, positive: Any):
        log_spot, variance = state
        held = positive(variance)
        deviation = root(held * dt + 1e-12)
        own, other = noise
        rho = model["correlation"]
        joint = rho * own + root(1.0 - rho**2) * other
        log_spot = log_spot + (model["rate"] - 0.5 * held) * dt + deviation * joint
        pull = model["reversion"] * (model["mean"] - held) * dt
        return log_spot, variance + pull + model["vol_of_vol"] * deviation * own

    def ours(model, noise):
        start = jnp.zeros(_PATHS, noise.dtype), jnp.broadcast_to(model["variance"], (_PATHS,))

        def step(state, noise):
            state = moved(model, state, noise, jnp.sqrt, lambda v: jnp.maximum(v, 0.0))
            return state, jnp.mean(jnp.exp(state[0]))

        (log_spot, _), means = jt.scan(step, start, noise, schedule=jt.Revolve(4))
        paid = jnp.maximum(jnp.exp(log_spot) - 1.0, 0.0)
        return (*means, jnp.exp(-model["rate"]) * jnp.mean(paid))

    def theirs(model, noise):
        state = torch.zeros_like(noise[0, 0]), model["variance"].expand(_PATHS)
        means = []
        for of_step in noise:
            state = moved(model, state, of_step, torch.sqrt, lambda v: torch.clamp(v, min=0.0))
            means.append(state[0].exp().mean())
        paid = torch.clamp(state[0].exp() - 1.0, min=0.0)
        return (*means, torch.exp(-model["rate"]) * paid.mean())

    def inputs(rng: np.random.Generator):
        model = {"rate": 0.03, "variance": 0.04, "mean": 0.05, "reversion": 1.5}
        model |= {"vol_of_vol": 0.4, "correlation": -0.6}
        return model, rng.normal(size=(_STEPS, 2, _PATHS))

    return Case(ours, theirs, inputs, (*(f"mean spot {k + 1}" for k in range(_STEPS)), "price"))


def lsm() -> Case:
    """Return a Bermudan put by Longstaff-Schwartz regression; the value at each date is a node."""
    dt = 1.0 / _DATES

    def ours(market, noise):
        moves = (market["rate"] - 0.5 * market["vol"] ** 2) * dt + market["vol"] * dt**0.5 * noise
        spots = market["spot"] * jnp.exp(jnp.cumsum(moves, axis=0))
        return _regressed(
            jnp, market["strike"] - spots, spots / market["strike"], market["rate"] * dt
        )

    def theirs(market, noise):
        moves = (market["rate"] - 0.5 * market["vol"] ** 2) * dt + market["vol"] * dt**0.5 * noise
        spots = market["spot"] * torch.exp(torch.cumsum(moves, 0))
        return _regressed(
            torch, market["strike"] - spots, spots / market["strike"], market["rate"] * dt
        )

    def inputs(rng: np.random.Generator):
        market = {"spot": 100.0, "strike": 105.0, "vol": 0.25, "rate": 0.05}
        return market, rng.normal(size=(_DATES, _PATHS))

    return Case(ours, theirs, inputs, (*(f"date {k}" for k in range(_DATES, 0, -1)), "price"))


def bermudan_swaption() -> Case:
    """Return a Bermudan payer swaption under Hull-White by regression, differentiated to a rate curve."""
    reversion, payments = 0.05, _DATES + 2

    def ours(market, noise):
        return _swaption(jnp, market, noise, reversion, payments)

    def theirs(market, noise):
        return _swaption(torch, market, noise, reversion, payments)

    def inputs(rng: np.random.Generator):
        market = {"forwards": 0.03 + 0.002 * rng.normal(size=payments), "vol": 0.01, "coupon": 0.03}
        return market, rng.normal(size=(_DATES, _PATHS))

    return Case(ours, theirs, inputs, (*(f"year {k}" for k in range(_DATES, 0, -1)), "price"))


def _swaption(xp: Any, market: Any, noise: Any, reversion: float, payments: int):
    """Return values at each year, latest first, in jax.numpy or torch; x is the short rate less its forward.

    Under the bank-account measure of each year, x has exact steps; bonds are exponential in it.
    """
    forwards, vol = market["forwards"], market["vol"]
    decay = math.exp(-reversion)
    spread = vol * ((1.0 - decay**2) / (2.0 * reversion)) ** 0.5
    state, states = xp.zeros_like(noise[0]), []
    for shock in noise:
        state = decay * state + spread * shock
        states.append(state)
    swaps, rates = [], []
    for year in range(1, len(noise) + 1):
        x, curve = states[year - 1], 0.0
        paid, bond = 0.0 * x, 0.0 * x + 1.0
        for ahead in range(1, payments - year + 1):
            curve = curve + forwards[year + ahead - 1]
            loading = (1.0 - math.exp(-reversion * ahead)) / reversion
            bond = xp.exp(-curve - loading * x)
            paid = paid + market["coupon"] * bond
        swaps.append(1.0 - bond - paid)
        rates.append(forwards[year - 1] + x)
    rates = [forwards[0] + 0.0 * states[0], *rates[:-1]]
    return _regressed(xp, xp.stack(swaps), 100.0 * xp.stack(states), xp.stack(rates))


def _regressed(xp: Any, pays: Any, features: Any, rates: Any):
    """Return values at each date, latest first, and today's, by cubic regression with optimal exercise."""
    one = xp.ones_like(features[0])
    over = lambda value, date: value * xp.exp(-(rates if rates.ndim == 0 else rates[date]))
    positive = lambda x: xp.where(x > 0.0, x, 0.0 * x)
    last = len(pays) - 1
    value, nodes = positive(pays[last]), []
    nodes.append(value.mean())
    for date in range(last - 1, -1, -1):
        value = over(value, date + 1)
        x = features[date]
        columns = xp.stack([one, x - 1.0, (x - 1.0) ** 2, (x - 1.0) ** 3])
        gram = columns @ columns.T + 1e-6 * xp.eye(4, dtype=x.dtype) * len(x)
        continuation = xp.linalg.solve(gram, columns @ value) @ columns
        exercised = (pays[date] > continuation) & (pays[date] > 0.0)
        value = xp.where(exercised, pays[date], value)
        nodes.append(value.mean())
    return (*nodes, over(value, 0).mean())


def deep_bsde() -> Case:
    """Return the loss of a Deep BSDE step on the Allen-Cahn equation, differentiated to its weights."""
    dt, diffusion = 0.3 / _STEPS, 2.0**0.5

    def ours(weights, noise):
        def step(state, dw):
            x, y = state
            hidden = jnp.tanh(x @ weights["first"] + weights["bias"][None])
            y = y - (y - y**3) * dt + jnp.sum(hidden @ weights["second"] * dw, axis=1)
            return (x + diffusion * dw, y), jnp.mean(y)

        start = jnp.zeros_like(noise[0]), jnp.broadcast_to(weights["value"], (noise.shape[1],))
        (x, y), means = jt.scan(step, start, noise, schedule=jt.Revolve(4))
        return (*means, jnp.mean((y - 0.5 / (1.0 + 0.2 * jnp.sum(x**2, axis=1))) ** 2))

    def theirs(weights, noise):
        x, y = torch.zeros_like(noise[0]), weights["value"].expand(noise.shape[1])
        means = []
        for dw in noise:
            hidden = torch.tanh(x @ weights["first"] + weights["bias"])
            y = y - (y - y**3) * dt + (hidden @ weights["second"] * dw).sum(1)
            x = x + diffusion * dw
            means.append(y.mean())
        return (*means, ((y - 0.5 / (1.0 + 0.2 * (x**2).sum(1))) ** 2).mean())

    def inputs(rng: np.random.Generator):
        weights = {
            "value": np.array(0.3),
            "first": rng.normal(size=(_DIM, _HIDDEN)) / _DIM**0.5,
            "bias": rng.normal(size=_HIDDEN),
            "second": 0.1 * rng.normal(size=(_HIDDEN, _DIM)),
        }
        return weights, dt**0.5 * rng.normal(size=(_STEPS, 64, _DIM))

    return Case(ours, theirs, inputs, (*(f"date {k + 1}" for k in range(_STEPS)), "loss"))
