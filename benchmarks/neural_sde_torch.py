"""PyTorch's side of `neural_sde`: the same simulation and loss, with autograd."""

import functools
import itertools
import math
from collections.abc import Callable

import numpy as np
import torch

from .torch_ways import TorchRun

# as in pricing.models.neural_local_vol
_MOST, _FORTNIGHT, _REACH, _NODES = 3.0, 0.02, 2.0, 161
_NDTR = torch.special.ndtr


def network(weights, features):
    """Evaluate a perceptron on [points, features]."""
    *hidden, (last, bias) = weights
    for weight, offset in hidden:
        features = torch.tanh(features @ weight.T + offset)
    return (features @ last.T + bias)[:, 0]


def vols(weights, base_vol: float, t, x):
    """Return sigma(t, x): the network at nodes, linear in between."""
    scale = torch.sqrt(t + _FORTNIGHT)
    nodes = torch.linspace(-_REACH, _REACH, _NODES, dtype=x.dtype)
    root = torch.sqrt(t).expand(nodes.shape)
    features = 4.0 * torch.stack([root, nodes * scale, nodes], dim=-1)
    level = math.log(base_vol / (_MOST - base_vol))
    table = _MOST * torch.sigmoid(level + network(weights, features))
    place = torch.clamp((x / scale + _REACH) * ((_NODES - 1) / (2.0 * _REACH)), 0.0, _NODES - 1.0)
    left = torch.clamp(place.detach().long(), max=_NODES - 2)
    share = place - left
    return table[left] * (1.0 - share) + table[left + 1] * share


def steps(weights, base_vol: float, times, x, block):
    """Take several Euler steps of the log-spot; also return the start of the last one, and its variance."""
    start = variance = x
    for (begin, end), z in zip(times, block, strict=True):
        start, length = x, end - begin
        variance = vols(weights, base_vol, 0.5 * (begin + end), x) ** 2 * length
        x = x + torch.sqrt(variance) * z - 0.5 * variance
    return x, start, variance


def errors(run: Callable, weights, base_vol: float, options: dict, z):
    """Return vol errors [expiries, strikes] to first order, on the paths of normals [steps, paths]."""
    x, found = torch.zeros_like(z[0]), []
    substeps = len(z) // len(options["expiries"])
    before = 0.0
    for i, expiry in enumerate(options["expiries"]):
        ends = [before + (expiry - before) * j / substeps for j in range(substeps + 1)]
        times = torch.tensor(list(itertools.pairwise(ends)), dtype=z.dtype)
        block = z[i * substeps : (i + 1) * substeps]
        x, start, variance = run(weights, base_vol, times, x, block)
        k, side, values, vegas = (
            options[name][i] for name in ("log_moneyness", "side", "values", "vegas")
        )
        std = torch.sqrt(variance)
        d1 = (start[None] + k[:, None]) / std + 0.5 * std
        shares, cash = _NDTR(side[:, None] * d1), _NDTR(side[:, None] * (d1 - std))
        forward, strike = torch.exp(start[None] + 0.5 * k[:, None]), torch.exp(-0.5 * k)[:, None]
        value = (side[:, None] * (forward * shares - strike * cash)).mean(1)
        found.append((value - values) / vegas)
        before = expiry
    return torch.stack(found)


def loss(run: Callable, weights, base_vol: float, options: dict, pair):
    """Return the mean product of the errors on two sets of paths, in vol points squared."""
    first, second = (errors(run, weights, base_vol, options, z) for z in pair)
    return 1e4 * torch.mean(first * second)


def gradient(run: Callable, weights, base_vol: float, options: dict, draw: Callable) -> list:
    """Return the gradient of the loss with respect to the weights, layer by layer."""
    weights = [tuple(x.clone().requires_grad_() for x in layer) for layer in weights]
    value = loss(run, weights, base_vol, options, draw())
    return list(torch.autograd.grad(value, [x for layer in weights for x in layer]))


def first_weights(run: Callable, **settings) -> tuple:
    """Return the gradient's first row, which `TorchRun` keeps as numbers."""
    return tuple(gradient(run, **settings)[0][0].tolist())


def tensors(tree, dtype):
    """Return NumPy arrays as tensors."""
    return {
        name: value if name == "expiries" else torch.as_tensor(np.array(value), dtype=dtype)
        for name, value in tree.items()
    }


def layers(arrays, dtype) -> list[tuple]:
    return [tuple(torch.as_tensor(np.array(x), dtype=dtype) for x in layer) for layer in arrays]


compiled_steps = torch.compile(steps, dynamic=False, fullgraph=True)


def drawn(count: int, paths: int):
    """Draw two sets of antithetic normals."""
    halves = (torch.randn(count, paths // 2) for _ in range(2))
    return [torch.cat([z, -z], dim=1) for z in halves]


def torch_ways(arrays, base_vol: float, tree, count: int, paths: int, threads, compiles: bool):
    settings = {
        "weights": layers(arrays, torch.float32),
        "base_vol": base_vol,
        "options": tensors(tree, torch.float32),
        "draw": functools.partial(drawn, count, paths),
    }
    runs = {"PyTorch, eager": steps} | ({"PyTorch, compiled": compiled_steps} if compiles else {})
    ways = {name: functools.partial(first_weights, run, **settings) for name, run in runs.items()}
    return {name: TorchRun(way, threads) for name, way in ways.items()}


def gradient_on(pair, arrays, base_vol: float, tree) -> list[np.ndarray]:
    """Return the gradient on given normals, in double precision."""
    numbers = [torch.as_tensor(np.array(z), dtype=torch.float64) for z in pair]
    weights, options = layers(arrays, torch.float64), tensors(tree, torch.float64)
    found = gradient(steps, weights, base_vol, options, lambda: numbers)
    return [x.cpu().numpy() for x in found]
