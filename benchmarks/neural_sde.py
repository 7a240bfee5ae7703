"""A neural local volatility trained on the DAX surface with the tape, compared with PyTorch.

Run `python -m benchmarks.neural_sde [--paths 8192] [--substeps 8] [--training-steps 4000]
[--test-sets 64] [--megabytes 4] [--repeat 5] [--threads CORES] [--eager] [--out FILE]`. float32.

dS = (r - q) S dt + sigma(t, log(S / F)) S dW, with sigma a perceptron (3 x 32 x 32 x 1), is trained by Adam,
with a cosine schedule, on two fresh sets of antithetic paths per step (`SimulatedVolError`). Then, on paths of
another key: implied vols less quotes, with their standard errors; the mean of the discounted spot, in standard
errors; and arbitrage on a fine grid of strikes, at every step: call prices must be convex and decreasing in the
strike, and a call of the same moneyness must be worth more a step later, with the mean over the step in closed
form on every path.

Then the gradient of the loss with respect to all weights at the fit, in turn: the tape within a budget,
`lax.scan` that keeps everything, PyTorch eager and with the steps to each expiry compiled. Bytes are as in
`simulated_calibration`. Before that, gradients are compared on the same normals in double precision.
"""

import argparse
import os
import sys
import time
from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.scipy.special import ndtr

import jaxtape as jt
from calibration import SimulatedVolError, train
from pricing import Market, NeuralLocalVol, VolSurface
from pricing.sampling import refined

from .command import Run, parser_of, table_of, with_eager
from .large_book import SAMPLES
from .simulated_calibration import cast, rows_of
from .timing import Compiled, Timed, take_turns

HESTON = 1.32  # RMS error of the calibrated Heston model, in vol points


def black_call(forward, strike, std):
    """Return Black's undiscounted call."""
    d = jnp.log(forward / strike) / std + 0.5 * std
    return forward * ndtr(d) - strike * ndtr(d - std)


def start_of(market: Market) -> NeuralLocalVol:
    equity = market.equities["DAX"]
    curve = market.curve(equity.curve)
    return NeuralLocalVol.flat(
        equity.spot, curve, 0.3, equity.dividend_yield, key=jax.random.key(0)
    )


def trained(surface: VolSurface, model: NeuralLocalVol, options) -> tuple[NeuralLocalVol, float]:
    """Return the trained model, and the seconds of the training."""
    count = options.training_steps
    rate = optax.cosine_decay_schedule(1e-2, count, 0.01)
    optimizer = optax.chain(optax.clip_by_global_norm(100.0), optax.adam(rate))
    objective, start = SimulatedVolError(options.paths, options.substeps), time.perf_counter()
    found = train(
        surface,
        model,
        optimizer,
        where=lambda model: model.network,
        objective=objective,
        num_steps=count,
        key=jax.random.key(1),
    )
    assert isinstance(found.model, NeuralLocalVol)  # like `model`; `train` accepts any
    return found.model, time.perf_counter() - start


# --- what the model is worth ----------------------------------------------------------------------------


def repricing(surface: VolSurface, model: NeuralLocalVol, options) -> dict:
    """Return the RMS error of vols on fresh paths, in vol points, and its standard error."""
    objective = SimulatedVolError(16384, options.substeps)
    vols, errors = eqx.filter_jit(objective.vols)(
        model, surface, key=jax.random.key(2), num_sets=options.test_sets
    )
    off = 100.0 * np.asarray(vols - surface.vols)
    return {
        "rms_vol_points": float(np.sqrt(np.mean(off**2))),
        "by_expiry": np.sqrt(np.mean(off**2, axis=1)).tolist(),
        "worst_vol_points": float(np.max(np.abs(off))),
        "rms_std_error": float(100.0 * jnp.sqrt(jnp.mean(errors**2))),
        "quotes": off.size,
    }


@eqx.filter_jit
def _on_grid(model: NeuralLocalVol, surface: VolSurface, objective: SimulatedVolError, moneyness):
    """Return calls over the forward [steps, strikes / forward], growth per step, and martingale scores."""
    z = objective.noise(surface, model.spot.dtype, key=jax.random.key(3))
    times = refined(surface.expiries.astype(z.dtype), objective.steps_per_expiry)
    walk = model.walk(z, times, jt.StoreAll())
    mean, variance = model.marginals(walk)

    def of_step(of_path):
        mean, variance = of_path
        start = jnp.exp(mean + 0.5 * variance)

        def at(m):
            later = black_call(start, m, jnp.sqrt(variance))
            return jnp.mean(later), jnp.mean(later - jnp.maximum(start - m, 0.0))

        half = start.size // 2
        pairs = 0.5 * (start[:half] + start[half:])  # antithetic
        score = (jnp.mean(pairs) - 1.0) / jnp.maximum(jnp.std(pairs), 1e-12) * half**0.5
        return *jax.vmap(at)(moneyness), score

    return jax.lax.map(of_step, (mean, variance))


def arbitrage(surface: VolSurface, model: NeuralLocalVol, options, points: int = 401) -> dict:
    """Return the smallest butterfly and calendar spread over the forward, for moneyness from .6 to 1.5."""
    moneyness = jnp.linspace(0.6, 1.5, points)
    objective = SimulatedVolError(16384, options.substeps)
    found = _on_grid(cast(model, jnp.float64), surface, objective, moneyness)
    calls, growth, scores = map(np.asarray, found)
    slopes = np.diff(calls, axis=1)
    return {
        "least_butterfly": float(np.min(np.diff(slopes, axis=1))),
        "least_calendar": float(np.min(growth)),
        "steepest_call": float(np.min(slopes) / (moneyness[1] - moneyness[0])),
        "most_rising_call": float(np.max(slopes)),
        "martingale_scores": scores[1:].tolist(),
        "grid": list(calls.shape),
    }


# --- gradients ------------------------------------------------------------------------------------------


def slope(model: NeuralLocalVol, surface: VolSurface, objective: SimulatedVolError, key):
    """Return the gradient of the loss with respect to the network."""

    def loss(network):
        moved = eqx.tree_at(lambda model: model.network, model, network)
        return objective.loss(moved, surface, key=key)

    return jax.grad(loss)(model.network)


def our_ways(surface: VolSurface, model: NeuralLocalVol, options) -> dict[str, Timed]:
    schedules = {
        "jaxtape": jt.Budget(options.megabytes * 10**6),
        "lax.scan": jt.StoreAll(),
    }
    keys = jax.random.key(4)
    return {
        name: Compiled(
            slope, model, surface, SimulatedVolError(options.paths, options.substeps, by), keys
        )
        for name, by in schedules.items()
    }


def weights_of(model: NeuralLocalVol) -> list[tuple]:
    network = eqx.combine(model.network.arrays, model.network.rest)
    return [(layer.weight, layer.bias) for layer in network.layers]


def options_of(surface: VolSurface, model: NeuralLocalVol) -> dict:
    found = SimulatedVolError.options(model, surface)._asdict()
    return found | {"expiries": np.asarray(surface.expiries, float).tolist()}


def disagreement(surface: VolSurface, model: NeuralLocalVol, substeps: int) -> float:
    """Return the largest relative difference of PyTorch's gradient from ours on the same normals."""
    from .neural_sde_torch import gradient_on

    objective, key = SimulatedVolError(512, substeps), jax.random.key(5)
    network = slope(model, surface, objective, key)
    ours = [
        x for layer in weights_of(eqx.tree_at(lambda m: m.network, model, network)) for x in layer
    ]
    pair = [objective.noise(surface, jnp.float64, key=each) for each in jax.random.split(key)]
    theirs = gradient_on(pair, weights_of(model), float(model.base_vol), options_of(surface, model))
    most = max(float(np.max(np.abs(x))) for x in theirs)
    pairs = zip(ours, theirs, strict=True)
    return max(float(np.max(np.abs(np.asarray(a).reshape(b.shape) - b))) for a, b in pairs) / most


def parser() -> argparse.ArgumentParser:
    sizes = {"paths": 8192, "substeps": 8, "training_steps": 4000, "test_sets": 64}
    cores = len(os.sched_getaffinity(0))
    return with_eager(parser_of(__doc__, **sizes, megabytes=4, repeat=5, threads=cores))


def main(argv: Sequence[str] | None = None) -> int:
    run = Run("neural_sde", parser(), argv, precision="float32")
    options, figures = run.options, {}
    market = Market.read(SAMPLES / "dax_2002-07-05.json")
    surface = market.equities["DAX"].surface
    model, seconds = trained(surface, start_of(market), options)
    figures["training_seconds"] = seconds
    figures["repricing"] = off = repricing(surface, model, options)
    run.console.print(
        f"trained in {seconds:.0f} s; {off['quotes']} quotes off by {off['rms_vol_points']:.2f} vol points "
        f"RMS (Heston: {HESTON}), worst {off['worst_vol_points']:.2f}, error of the paths "
        f"{off['rms_std_error']:.2f}"
    )
    ways = our_ways(surface, model, options)
    if run.has("torch"):
        from .neural_sde_torch import torch_ways

        numbers = weights_of(model), float(model.base_vol), options_of(surface, model)
        count = surface.expiries.size * options.substeps
        threads = tuple(sorted({1, options.threads}))
        ways |= torch_ways(*numbers, count, options.paths, threads, run.compiles())
    take_turns(ways.values(), options.repeat)
    rows = rows_of(ways)
    run.beside("gradient of the loss", ways, {name: way.temp_bytes for name, way in ways.items()})
    jax.config.update("jax_enable_x64", True)
    figures["arbitrage"] = found = arbitrage(surface, model, options)
    if run.has("torch"):
        double = cast(model, jnp.float64)
        gap = disagreement(cast(surface, jnp.float64), double, options.substeps)
        run.console.print(f"largest difference of gradients on the same normals: {gap:.1e}")
        figures["relative_difference_on_the_same_noise"] = gap
        run.answer("gradient, largest difference from PyTorch's on the same normals", gap)
    run.console.print(
        f"on {found['grid']} steps and strikes: least butterfly {found['least_butterfly']:.1e}, least calendar "
        f"spread {found['least_calendar']:.1e}; martingale to "
        f"{max(map(abs, found['martingale_scores'])):.1f} standard errors"
    )
    table = table_of(
        "gradient of the loss", "way", "ms", "processor", "MB", "ours is faster", "memory"
    )
    for row in rows:
        table.add_row(
            row["way"],
            *(f"{1e3 * row[name]:.0f}" for name in ("seconds", "processor_seconds")),
            f"{row['temp_bytes'] / 1e6:.1f}",
            f"x {row['speed_of_ours']:.2f}",
            f"{row['memory_of_ours']:.4f}",
        )
    run.console.print(table)
    run.keep(figures | {"rows": rows}, f"{off['rms_vol_points']:.2f} vol points RMS")
    return 0


if __name__ == "__main__":
    sys.exit(main())
