"""PyTorch's side of `heston_gradient`: eager, compiled, compiled in tiles, and a hand-written Triton kernel."""

import functools
import itertools
from collections.abc import Callable

import numpy as np
import torch

from .heston_scheme import PARAMETERS, STRIKE, payoff, step
from .torch_ways import TorchRun, has_triton


def torch_steps(p, dt: float, state, block):
    """Take several steps, unrolled; this is the function to compile."""
    for first, second in block:
        state = step(torch, p, dt, state, first, second)
    return state


compiled_steps = torch.compile(torch_steps, dynamic=False, fullgraph=True)


def torch_gradient(run: Callable, segment: int, draw: Callable, paths: int, tiles: int = 1):
    """Return the mean payoff's gradient, in runs of `segment` steps; a tile's normals are [steps, 2, paths]."""
    p = [torch.tensor(number, requires_grad=True) for number in PARAMETERS]
    total = [torch.zeros(()) for _ in p]
    for _ in range(tiles):
        block = draw()
        state = torch.zeros(block.shape[2]), p[1].expand(block.shape[2]).contiguous()
        for start in range(0, len(block), segment):
            state = run(p, 1.0 / len(block), state, block[start : start + segment])
        part = torch.autograd.grad(payoff(torch, p, state[0]).sum() / paths, p)
        total = [a + b for a, b in zip(total, part, strict=True)]
    return tuple(map(float, total))


def torch_ways(options, compiles: bool) -> dict[str, TorchRun]:
    """Return PyTorch's ways, each on one thread or on one per device, whichever is faster."""
    steps, paths, tiles = options.steps, options.paths, options.paths // options.torch_tile
    whole = functools.partial(torch.randn, steps, 2, paths)
    part = functools.partial(torch.randn, steps, 2, options.torch_tile)
    gradient = functools.partial(torch_gradient, paths=paths)
    ways = {"PyTorch, eager": functools.partial(gradient, torch_steps, steps, whole)}
    if compiles:
        compiled = functools.partial(gradient, compiled_steps, options.segment)
        ways["PyTorch, compiled"] = functools.partial(compiled, whole)
        ways["PyTorch, compiled, in tiles"] = functools.partial(compiled, part, tiles=tiles)
    if has_triton():
        ways["Triton, by hand"] = hand_written(steps, paths)
    threads = tuple(sorted({1, options.devices}))
    return {name: TorchRun(way, threads) for name, way in ways.items()}


def hand_written(steps: int, paths: int) -> Callable[[], tuple]:
    """Return the gradient by one Triton kernel that draws its normals, with a new seed at every call."""
    from .heston_triton import HandWritten

    spot, variance, speed, level, vol_of_vol, correlation, rate = PARAMETERS
    parameters = torch.tensor([rate, variance, speed, level, vol_of_vol, correlation, spot, STRIKE])
    hand, seeds = HandWritten(steps, paths, torch.float32), itertools.count()

    def gradient() -> tuple:
        _, rate_bar, *others, spot_bar = hand(parameters, seed=next(seeds)).tolist()
        return spot_bar, *others, rate_bar

    return gradient


def gradients(noise: np.ndarray, segment: int, compiles: bool) -> list[np.ndarray]:
    """Return the gradients on the same normals [steps, 2, paths], by every kind of run."""
    block, paths = torch.as_tensor(noise), noise.shape[2]
    runs = [torch_steps, compiled_steps] if compiles else [torch_steps]
    return [np.array(torch_gradient(run, segment, lambda: block, paths)) for run in runs]
