"""Heston calibrated to 8 barrier and 4 Asian options by Monte Carlo, compared with `lax.scan` and PyTorch.

Run `python -m benchmarks.simulated_calibration [--paths 65536] [--steps 256] [--megabytes 256] [--repeat 5]
[--threads CORES] [--eager] [--out FILE]`.

The quotes are simulated under known parameters with twice the paths, twice the steps and another key, and each
is quoted with its standard error. The fit, in double precision, starts elsewhere; its error is reported in
standard errors, which include those of both simulations (`sandwich_covariance`).

Then, in float32, the gradient of the loss with respect to the five parameters. jaxtape: blocks of paths within
the given bytes. `lax.scan`: the same program on all paths at once, with everything kept. PyTorch: the same
scheme and estimators on all paths, eager, and with the steps compiled in 32 runs by `torch.compile`; noise by
`torch.randn`, on one thread or all cores, whichever is faster. Also our Jacobian of the 12 residuals, in
forward and reverse mode. Bytes are, for JAX, the compiler's temporaries; for PyTorch, the peak of its
allocator. All ways take turns in one process. Before that, gradients are compared on the same noise in double
precision.
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
from jaxtyping import Array

from calibration import (
    RESULTS,
    PriceQuotes,
    SimulatedPriceError,
    calibrate,
    levenberg_marquardt,
    sandwich_covariance,
)
from pricing.models import Heston

from .barriers_and_asians import START, TRUE, heston, products
from .command import Run, parser_of, table_of, with_eager
from .timing import Compiled, Timed, take_turns

NAMES = tuple(TRUE)


def quotes_of(paths: int, steps: int) -> PriceQuotes:
    """Return quotes by an independent simulation, and their standard errors."""
    batches, truth = products(), heston(TRUE)
    count = sum(batch.strike.size for batch in batches)
    unit = PriceQuotes(batches, np.zeros(count), np.ones(count))
    error = SimulatedPriceError.for_quotes(unit, truth, paths, steps, key=jax.random.key(20021))
    values, covariance = eqx.filter_jit(
        lambda model: (error.residuals(model, unit), error.covariance(model, unit))
    )(truth)
    return PriceQuotes(batches, values, jnp.sqrt(jnp.diag(covariance)))


def error_of(quotes: PriceQuotes, options, seed: int = 7) -> SimulatedPriceError:
    model, size = heston(START), options.megabytes * 10**6
    counts = options.paths, options.steps
    return SimulatedPriceError.for_quotes(
        quotes, model, *counts, key=jax.random.key(seed), budget=size
    )


def fitted(quotes: PriceQuotes, options) -> dict:
    """Return the fit, and the error of each parameter in its standard errors."""
    error, start = error_of(quotes, options), time.perf_counter()
    by = {"optimizer": levenberg_marquardt(slack=0.01), "rtol": 1e-4}
    found = calibrate(quotes, heston(START), objective=error, max_steps=40, throw=False, **by)
    seconds = time.perf_counter() - start
    of_paths = eqx.filter_jit(error.covariance)(found.model, quotes)
    # the quotes have twice the paths, and errors correlated like those of the model's prices
    scale = 1.0 / jnp.sqrt(jnp.diag(of_paths))
    of_quotes = of_paths * jnp.outer(scale, scale)
    covariance = sandwich_covariance(found, of_paths + of_quotes)
    rows = [
        {"parameter": name, "true": TRUE[name], "fitted": value, "std_error": std}
        | {"off": (value - TRUE[name]) / std}
        for name, value, std in zip(
            NAMES,
            (float(getattr(found.model, name)) for name in NAMES),
            np.sqrt(np.diag(covariance)).tolist(),
            strict=True,
        )
    ]
    return {
        "parameters": rows,
        "converged": bool(found.result == RESULTS.converged),
        "steps": int(found.stats["steps"]),
        "condition_number": float(found.stats["condition_number"]),
        "rms_residual": float(jnp.sqrt(jnp.mean(found.residuals**2))),
        "seconds": seconds,
        "block": error.methods[0].block,
    }


# --- gradients ------------------------------------------------------------------------------------------


def model_at(parameters: Array) -> Heston:
    where = lambda model: [getattr(model, name) for name in NAMES]
    return eqx.tree_at(where, heston(START), list(parameters))


def residuals(parameters: Array, quotes: PriceQuotes, error: SimulatedPriceError) -> Array:
    return error.residuals(model_at(parameters), quotes)


def at_once(parameters: Array, quotes: PriceQuotes, error: SimulatedPriceError) -> Array:
    """Return the residuals on one block of all paths, without recomputation."""
    model = model_at(parameters)
    samples = error.block_samples(
        model, quotes, error.setups(model, quotes), jnp.zeros((), jnp.int32)
    )
    return (jnp.mean(samples, axis=1) - quotes.prices) / quotes.std_errors


def half_square(function):
    return lambda *args: 0.5 * jnp.sum(function(*args) ** 2)


def cast(tree, dtype):
    return jax.tree.map(lambda x: x.astype(dtype) if eqx.is_inexact_array(x) else x, tree)


def our_ways(quotes: PriceQuotes, options) -> dict[str, Timed]:
    """Return the gradient on the tape and by plain `lax.scan`, and the Jacobian in both modes."""
    error, start = error_of(quotes, options), jnp.array(list(START.values()))
    whole = error.in_blocks_of(options.paths)
    return {
        "jaxtape": Compiled(jax.grad(half_square(residuals)), start, quotes, error),
        "lax.scan": Compiled(jax.grad(half_square(at_once)), start, quotes, whole),
        "jaxtape, Jacobian forward": Compiled(jax.jacfwd(residuals), start, quotes, error),
        "jaxtape, Jacobian in reverse": Compiled(jax.jacrev(residuals), start, quotes, error),
    }


def noise_of(error: SimulatedPriceError, quotes: PriceQuotes, index: int) -> list[Array]:
    """Return a block's normals of the variance, uniforms of the barriers, normals of the averages."""
    model, drawn = heston(START), []
    for batch, by, each in zip(
        quotes.products, error.methods, error.setups(model, quotes), strict=True
    ):
        first, setup = (jax.tree.map(lambda x: x[0], tree) for tree in (batch, each))
        drawn.append(by.paths(first, model, setup, jnp.asarray(index), key=error.key)[1])
    barriers, averages = drawn
    return [barriers.normals[0], barriers.uniforms, averages.normals[1]]


def disagreement(quotes: PriceQuotes, options) -> float:
    """Return the largest relative difference of PyTorch's gradient from ours on one block of 1,024 paths."""
    from .simulated_calibration_torch import gradient_on

    few = argparse.Namespace(**vars(options) | {"paths": 1024})
    error = error_of(quotes, few).in_blocks_of(1024)
    ours = jax.jit(jax.grad(half_square(residuals)))(jnp.array(list(START.values())), quotes, error)
    numbers = np.array(quotes.prices), np.array(quotes.std_errors)
    theirs = gradient_on(noise_of(error, quotes, 0), list(START.values()), numbers)
    return float(np.max(np.abs(theirs / np.asarray(ours) - 1.0)))


def rows_of(ways: dict[str, Timed]) -> list[dict]:
    ours = ways["jaxtape"]
    return [
        {
            "way": name,
            "threads": way.threads,
            "seconds": min(way.seconds),
            "processor_seconds": min(way.processor),
            "temp_bytes": way.temp_bytes,
            "speed_of_ours": min(way.seconds) / min(ours.seconds),
            "memory_of_ours": ours.temp_bytes / way.temp_bytes,
        }
        for name, way in ways.items()
    ]


def print_tables(run: Run, fit: dict, rows: list[dict]) -> None:
    ended = "converged" if fit["converged"] else "did not converge"
    title = f"fit {ended}: {fit['steps']} steps, {fit['seconds']:.0f} s"
    table = table_of(title, "parameter", "true", "fitted", "standard error", "off by errors")
    for row in fit["parameters"]:
        numbers = (row[name] for name in ("true", "fitted", "std_error", "off"))
        table.add_row(row["parameter"], *(f"{number:.4f}" for number in numbers))
    run.console.print(table)
    columns = "seconds", "processor", "MB", "ours is faster", "memory of ours"
    table = table_of("gradient of the loss, float32", "way", *columns)
    for row in rows:
        table.add_row(
            row["way"],
            *(f"{row[name]:.2f}" for name in ("seconds", "processor_seconds")),
            f"{row['temp_bytes'] / 1e6:.0f}",
            f"x {row['speed_of_ours']:.2f}",
            f"{row['memory_of_ours']:.4f}",
        )
    run.console.print(table)


def parser() -> argparse.ArgumentParser:
    sizes = {"paths": 65536, "steps": 256, "megabytes": 256, "repeat": 5}
    return with_eager(parser_of(__doc__, **sizes, threads=len(os.sched_getaffinity(0))))


def main(argv: Sequence[str] | None = None) -> int:
    run = Run("simulated_calibration", parser(), argv, said="the fit in float64, times in float32")
    options = run.options
    quotes = quotes_of(2 * options.paths, 2 * options.steps)
    figures, fit = {}, fitted(quotes, options)
    if run.has("torch"):
        gap = disagreement(quotes, options)
        run.console.print(f"largest difference of gradients on the same noise: {gap:.1e}")
        figures["relative_difference_on_the_same_noise"] = gap
        run.answer("gradient, largest difference from PyTorch's on the same noise", gap)
    jax.config.update("jax_enable_x64", False)
    single = cast(quotes, jnp.float32)
    ways = our_ways(single, options)
    if run.has("torch"):
        from .simulated_calibration_torch import torch_ways

        numbers = np.array(single.prices), np.array(single.std_errors)
        ways |= torch_ways(options, list(START.values()), numbers, run.compiles())
    take_turns(ways.values(), options.repeat)
    rows = rows_of(ways)
    gradients = {name: way for name, way in ways.items() if "Jacobian" not in name}
    size = {name: way.temp_bytes for name, way in gradients.items()}
    run.beside("gradient of the loss", gradients, size)
    print_tables(run, fit, rows)
    for row in fit["parameters"]:
        known, found = row["true"], row["fitted"]
        run.answer(row["parameter"], found / known - 1.0, known, found, row["std_error"])
    worst = max(abs(row["off"]) for row in fit["parameters"])
    run.keep(figures | {"fit": fit, "rows": rows}, f"within {worst:.1f} standard errors")
    return 0


if __name__ == "__main__":
    sys.exit(main())
