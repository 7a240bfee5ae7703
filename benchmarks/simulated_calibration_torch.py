"""PyTorch's side of `simulated_calibration`: the same scheme and estimators, with autograd."""

import functools
import math
from collections.abc import Callable

import numpy as np
import torch

from .barriers_and_asians import DATES, MARKET, products
from .torch_ways import TorchRun

NDTR, NDTRI = torch.special.ndtr, torch.special.ndtri
_FAR = {torch.float32: 12.5, torch.float64: 35.0}  # standard deviations: none beyond


def constants(p, dt: float):
    """Return the constants of a QE-M step (Andersen 2008), as in `pricing.models.quadratic_exponential`."""
    _, kappa, theta, xi, rho = p
    decay, lost = torch.exp(-kappa * dt), -torch.expm1(-kappa * dt)
    drift = 0.5 * dt * (kappa * rho / xi - 0.5)
    pull = decay, theta * lost
    spread = xi**2 * decay * lost / kappa, theta * xi**2 * lost**2 / (2.0 * kappa)
    return *pull, *spread, drift + rho / xi, 0.5 * dt * (1.0 - rho**2)


def qe_step(c, v, z):
    """Return the next variance, and the mean and variance of the log-spot's step."""
    decay, pull, slope, level, k2, k3 = c
    m = pull + v * decay
    psi = (level + v * slope) / m**2
    x = (k2 + 0.5 * k3) * m
    low = psi <= 1.5
    ratio = 2.0 / torch.where(low, psi, torch.ones_like(psi))
    b2 = ratio - 1.0 + torch.sqrt(ratio * (ratio - 1.0))
    q = 1.0 / (1.0 + b2)
    spread = torch.clamp(1.0 - 2.0 * x * q, min=1e-6)
    quadratic = q * (torch.sqrt(b2) + z) ** 2, x * b2 * q / spread - 0.5 * torch.log(spread)
    high = torch.where(low, torch.full_like(psi, 2.0), psi)
    dead, alive = (high - 1.0) / (high + 1.0), 2.0 / (high + 1.0)
    survival = NDTR(-z)
    positive = survival < alive
    unit = torch.log(alive / torch.where(positive, survival, alive)) / alive
    exponential = unit, torch.log(dead + alive * alive / torch.clamp(alive - x, min=1e-6))
    unit, log_m = (torch.where(low, a, b) for a, b in zip(quadratic, exponential, strict=True))
    new = m * unit
    return new, -log_m - 0.5 * k3 * v + k2 * new, k3 * (v + new)


def qe_steps(c, v, block):
    """Take several steps, unrolled; return the last variance, and sums of mean and variance."""
    mean = variance = torch.zeros_like(v)
    for z in block:
        v, step_mean, step_variance = qe_step(c, v, z)
        mean, variance = mean + step_mean, variance + step_variance
    return v, mean, variance


def std_of(variance):
    """Return the square root, with slope 0 if a path's variance stays at 0."""
    return torch.sqrt(torch.clamp(variance, min=1e-24))


def barrier_values(batch, mean, variance, uniforms):
    """Return discounted samples of one expiry, [contracts, paths], by one-step survival."""
    strike, barrier, living, side, expiry = batch
    spot, rate = MARKET
    position = torch.zeros_like(mean[0])[None]
    weight = torch.ones_like(position)
    dates = expiry * DATES
    std, far = std_of(variance), _FAR[mean.dtype]
    away = torch.zeros_like(position)
    for j, t in enumerate(dates):
        edge = torch.log(barrier / spot) - rate * t
        away = living * (position + mean[j] - edge) / std[j]
        away = torch.clamp(away, -far, far)
        if j == len(dates) - 1:
            break
        chance = NDTR(away)
        side_of = torch.where(away < far, -living, torch.ones_like(away))  # ours at a tie, too
        inside = side_of * NDTRI(torch.clamp(uniforms[:, j] * chance, min=1e-37))
        position = position + mean[j] + std[j] * inside
        weight = weight * chance
    low = torch.where(living > 0.0, -away, torch.full_like(away, -far))
    high = torch.where(living > 0.0, torch.full_like(away, far), away)
    forward = spot * math.exp(rate * expiry) * torch.exp(position + mean[-1] + 0.5 * variance[-1])
    at = torch.log(strike / forward) / std[-1] + 0.5 * std[-1]
    at = torch.minimum(torch.maximum(at, low), high)
    begin, end = torch.where(side > 0.0, at, low), torch.where(side > 0.0, high, at)
    share = NDTR(end - std[-1]) - NDTR(begin - std[-1])
    value = side * (forward * share - strike * (NDTR(end) - NDTR(begin)))
    return math.exp(-rate * expiry) * weight * value


def asian_values(batch, mean, variance, normals):
    """Return discounted samples of one contract, with one direction of the noise integrated."""
    strike, side = batch
    spot, rate = MARKET
    dates = torch.as_tensor(DATES, dtype=mean.dtype)[:, None]
    std = std_of(variance)
    log_mean = math.log(spot / len(DATES)) + rate * dates + torch.cumsum(mean, 0)
    steepest = std * torch.flip(torch.cumsum(torch.flip(torch.exp(log_mean), [0]), 0), [0])
    direction = steepest / torch.sqrt(torch.sum(steepest**2, 0))
    along = torch.sum(direction * normals, 0)
    slope = torch.cumsum(std * direction, 0)
    level = log_mean + torch.cumsum(std * (normals - direction * along), 0)

    def newton(z, level, slope):
        parts = level + slope * z
        log_sum = torch.logsumexp(parts, 0)
        rise = torch.sum(torch.exp(parts - log_sum) * slope, 0)
        return torch.clamp(z - (log_sum - math.log(strike)) / rise, -40.0, 40.0)

    with torch.no_grad():
        root, held = torch.zeros_like(along), (level.detach(), slope.detach())
        for _ in range(6):
            root = newton(root, *held)
    root = newton(root, level, slope)
    spots = torch.exp(level + 0.5 * slope**2) * NDTR(side * (slope - root))
    return math.exp(-rate) * side * (torch.sum(spots, 0) - strike * NDTR(-side * root))


def prices(run: Callable, p, noise):
    """Return samples of all twelve contracts, [contracts, paths], in 32 runs of steps."""
    z, uniforms, normals = noise
    v, c = p[0].expand(z.shape[1]).contiguous(), constants(p, 1.0 / len(z))
    steps = []
    for block in torch.chunk(z, 32):
        v, *step = run(c, v, block)
        steps.append(step)
    mean, variance = (torch.stack(x) for x in zip(*steps, strict=True))
    return torch.cat([_barriers(mean, variance, uniforms), _asians(mean, variance, normals)])


def _barriers(mean, variance, uniforms):
    batch, found = products()[0], []
    rows = [np.array(x) for x in (batch.strike, batch.barrier, batch.barrier_direction, batch.side)]
    for place, expiry, every in ((slice(0, 4), 0.5, 1), (slice(4, 8), 1.0, 2)):
        numbers = [torch.as_tensor(x[place], dtype=mean.dtype)[:, None] for x in rows]
        sums = [x[: 16 * every].unflatten(0, (16, every)).sum(1) for x in (mean, variance)]
        found.append(barrier_values((*numbers, expiry), *sums, uniforms[None]))
    return torch.cat(found)


def _asians(mean, variance, normals):
    batch = products()[1]
    sums = [x.unflatten(0, (16, -1)).sum(1) for x in (mean, variance)]
    pairs = zip(np.asarray(batch.strike).tolist(), np.asarray(batch.side).tolist(), strict=True)
    return torch.stack([asian_values(pair, *sums, normals) for pair in pairs])


def loss_gradient(run: Callable, parameters, quotes, draw: Callable) -> tuple:
    """Return the gradient of half the chi squared with respect to the five parameters."""
    target, errors = quotes
    noise = draw()
    dtype = noise[0].dtype
    p = [torch.tensor(number, dtype=dtype, requires_grad=True) for number in parameters]
    means = prices(run, p, noise).mean(1)
    residuals = (means - torch.as_tensor(target, dtype=dtype)) / torch.as_tensor(
        errors, dtype=dtype
    )
    return torch.autograd.grad(0.5 * torch.sum(residuals**2), p)


compiled_steps = torch.compile(qe_steps, dynamic=False, fullgraph=True)


def drawn(steps: int, paths: int):
    """Draw fresh noise: normals of the variance, uniforms of the barriers, normals of the averages."""
    return torch.randn(steps, paths), torch.rand(15, paths), torch.randn(16, paths)


def torch_ways(options, parameters, quotes, compiles: bool) -> dict[str, TorchRun]:
    """Return PyTorch's ways, each on one thread or on all cores, whichever is faster."""
    draw = functools.partial(drawn, options.steps, options.paths)
    gradient = functools.partial(loss_gradient, parameters=parameters, quotes=quotes, draw=draw)
    ways = {"PyTorch, eager": functools.partial(gradient, qe_steps)}
    if compiles:
        ways["PyTorch, compiled"] = functools.partial(gradient, compiled_steps)
    threads = tuple(sorted({1, options.threads}))
    return {name: TorchRun(way, threads) for name, way in ways.items()}


def gradient_on(noise, parameters, quotes) -> np.ndarray:
    """Return the gradient on given noise, in its precision."""
    tensors = tuple(torch.as_tensor(np.array(x)) for x in noise)
    found = loss_gradient(qe_steps, parameters, quotes, lambda: tensors)
    return np.array([float(x) for x in found])
