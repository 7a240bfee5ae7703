"""The gradient of a Heston call by one hand-written Triton kernel: both sweeps of a tile of paths.

The first sweep keeps the variance before each step. The reverse sweep reads it, and redraws the normals of the
step from the same counter, or reads given ones; the kernel moves nothing else. It computes only this scheme,
and is the yardstick for the chains of `jaxtape.set_kernels`.
"""

import dataclasses
from collections.abc import Callable

import torch
import triton
import triton.language as tl

FIGURES = 8  # the payoff, and its derivatives with respect to seven parameters


@triton.jit
def _normals(source, seed, k, path, paths, steps: tl.constexpr, given: tl.constexpr):
    """Return the two normals of step `k`: read, or two of the four that one counter gives for two steps."""
    if given:
        first = tl.load(source + (2 * k) * paths + path)
        second = tl.load(source + (2 * k + 1) * paths + path)
    else:
        a, b, c, d = tl.randn4x(seed, path * (steps // 2) + k // 2)
        first = tl.where(k % 2 == 0, a, c)
        second = tl.where(k % 2 == 0, b, d)
    return first, second


@triton.jit
def gradient_kernel(
    parameters,
    source,
    seed,
    kept,
    sums,
    paths,
    steps: tl.constexpr,
    given: tl.constexpr,
    discounted: tl.constexpr,
    tile: tl.constexpr,
):
    """Write the sums over a tile of the payoff and of its derivatives.

    Args:
        parameters: Rate, first variance, speed, level, vol of vol, correlation, spot, strike.
        source: Normals [steps, 2, paths], if they are given.
        seed: The seed, if they are drawn.
        kept: Room for the variances [steps, paths].
        sums: Room for the sums [8, tiles], in the order of `HandWritten`.
        paths, steps, tile: Sizes.
        given: Whether normals are given.
        discounted: Whether the payoff is discounted by the rate.
    """
    dt: tl.constexpr = 1.0 / steps
    number = tl.program_id(0)
    path = number * tile + tl.arange(0, tile)
    rate, start = tl.load(parameters), tl.load(parameters + 1)
    speed, level = tl.load(parameters + 2), tl.load(parameters + 3)
    xi, rho = tl.load(parameters + 4), tl.load(parameters + 5)
    spot, strike = tl.load(parameters + 6), tl.load(parameters + 7)
    across = tl.sqrt(1.0 - rho * rho)
    slope = rho / across

    v = tl.zeros([tile], start.dtype) + start
    x = v * 0.0
    for k in range(steps):
        tl.store(kept + k * paths + path, v)
        first, second = _normals(source, seed, k, path, paths, steps, given)
        v_plus = tl.maximum(v, 0.0)
        root = tl.sqrt((v_plus + 1e-12) * dt)
        x += (rate - 0.5 * v_plus) * dt + root * (rho * first + across * second)
        v += speed * (level - v_plus) * dt + xi * root * first

    discount = tl.exp(-rate) if discounted else rate * 0.0 + 1.0
    final = discount * spot * tl.exp(x)
    paid = tl.maximum(final - discount * strike, 0.0)
    x_bar = tl.where(paid > 0.0, final, 0.0)
    spot_bar = x_bar / spot
    rate_bar = x_bar - paid if discounted else x_bar
    v_bar = x * 0.0
    speed_bar = x * 0.0
    level_bar = x * 0.0
    xi_bar = x * 0.0
    rho_bar = x * 0.0
    for t in range(steps):
        k = steps - 1 - t
        v = tl.load(kept + k * paths + path)
        first, second = _normals(source, seed, k, path, paths, steps, given)
        v_plus = tl.maximum(v, 0.0)
        root = tl.sqrt((v_plus + 1e-12) * dt)
        speed_bar += v_bar * (level - v_plus) * dt
        level_bar += v_bar * speed * dt
        xi_bar += v_bar * root * first
        rho_bar += x_bar * root * (first - slope * second)
        root_bar = x_bar * (rho * first + across * second) + v_bar * xi * first
        plus_bar = root_bar * (0.5 * dt) / root - (0.5 * dt) * x_bar - speed * dt * v_bar
        v_bar += tl.where(v > 0.0, plus_bar, 0.0)

    out, tiles = sums + number, tl.num_programs(0)
    tl.store(out, tl.sum(paid, 0))
    tl.store(out + tiles, tl.sum(rate_bar, 0))
    tl.store(out + 2 * tiles, tl.sum(v_bar, 0))
    tl.store(out + 3 * tiles, tl.sum(speed_bar, 0))
    tl.store(out + 4 * tiles, tl.sum(level_bar, 0))
    tl.store(out + 5 * tiles, tl.sum(xi_bar, 0))
    tl.store(out + 6 * tiles, tl.sum(rho_bar, 0))
    tl.store(out + 7 * tiles, tl.sum(spot_bar, 0))


@dataclasses.dataclass(frozen=True)
class HandWritten:
    """A function that returns the mean payoff of a one-year call and its derivatives.

    Attributes:
        steps: The number of steps; even, if normals are drawn.
        paths: The number of paths, a multiple of `tile`.
        dtype: float32, or float64 if normals are given.
        discounted: Whether the payoff is discounted by the rate.
        tile: The number of paths per program.
        warps: The number of warps per program.
    """

    steps: int
    paths: int
    dtype: torch.dtype
    discounted: bool = True
    tile: int = 128
    warps: int = 4

    def __call__(
        self, parameters: torch.Tensor, source: torch.Tensor | None = None, seed: int = 0
    ) -> torch.Tensor:
        """Return [8]: the payoff and its derivatives in rate, v0, speed, level, vol of vol, rho, spot."""
        assert source is not None or (self.steps % 2 == 0 and self.dtype == torch.float32)
        like = {"dtype": self.dtype, "device": parameters.device}
        kept = torch.empty((self.steps, self.paths), **like)
        sums = torch.empty((FIGURES, self.paths // self.tile), **like)
        given = parameters if source is None else source
        launch: Callable = gradient_kernel[(self.paths // self.tile,)]
        launch(
            *(parameters, given, seed, kept, sums, self.paths),
            steps=self.steps,
            given=source is not None,
            discounted=self.discounted,
            tile=self.tile,
            num_warps=self.warps,
        )
        return sums.sum(1) / self.paths
